package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"muster.internal"
)

const (
	groupSize    = 64               // transactions that share one commit
	raceTries    = 12               // of a group that loses against another process
	groupTimeout = 30 * time.Second // after which a group is given up
)

// A lane is the one place in a process where the store is written. Callers
// that wait at the same time share one commit, each in a savepoint of its own.
type lane struct {
	s    *Store
	jobs chan *job
	quit chan struct{}
	gone chan struct{}
	once sync.Once
	conn *session // nil until needed and after trouble
}

// A job is one caller's transaction.
type job struct {
	ctx  context.Context
	name string
	now  time.Time
	by   muster.Caller
	run  func(*tx) error
	err  error
	done chan struct{}
}

func newLane(s *Store) *lane {
	l := &lane{s: s, jobs: make(chan *job, groupSize), quit: make(chan struct{}), gone: make(chan struct{})}
	go l.loop()
	return l
}

func (l *lane) close() {
	l.once.Do(func() { close(l.quit) })
	<-l.gone
}

// write runs f in a transaction of its own and returns once that is durable.
// f may run more than once, so it assigns results and never adds to them.
func (s *Store) write(ctx context.Context, name string, now time.Time, by muster.Caller, f func(*tx) error) error {
	j := &job{ctx: ctx, name: name, now: now, by: by, run: f, done: make(chan struct{})}
	select {
	case <-s.lane.quit:
		return errClosed()
	case <-ctx.Done():
		return ctx.Err()
	case s.lane.jobs <- j:
	}
	select {
	case <-j.done:
		return j.err
	case <-s.lane.gone:
		select {
		case <-j.done:
			return j.err
		default:
			return errClosed()
		}
	}
}

func errClosed() error {
	return muster.Problemf(muster.CodeUnavailable, "the control plane is shutting down: ask again")
}

func (l *lane) loop() {
	defer close(l.gone)
	defer l.drop()
	for {
		select {
		case j := <-l.jobs:
			l.settle(l.gather(j))
		case <-l.quit:
			for {
				select {
				case j := <-l.jobs:
					l.settle(l.gather(j))
				default:
					return
				}
			}
		}
	}
}

// gather takes whoever waits already; nobody waits for company.
func (l *lane) gather(first *job) []*job {
	group := []*job{first}
	for len(group) < groupSize {
		select {
		case j := <-l.jobs:
			group = append(group, j)
		default:
			return group
		}
	}
	return group
}

// settle brings every job of a group to its end.
func (l *lane) settle(group []*job) {
	err := l.persist(group)
	if err != nil && len(group) > 1 && !errors.Is(err, errCrash) {
		// One of them may be the cause: let each stand alone.
		for _, j := range group {
			l.settle([]*job{j})
		}
		return
	}
	l.s.sick.Store(err != nil)
	// First: whoever revoked a key may be sure that nobody here believes it any
	// more.
	l.s.feed.wake()
	for _, j := range group {
		if err != nil {
			j.err = l.s.explain(j.name, err)
		}
		close(j.done)
	}
}

// persist runs a group again for as long as it loses races, and once more on a
// new connection when the old one is found dead before the commit.
func (l *lane) persist(group []*job) error {
	reconnected := false
	for try := 1; ; try++ {
		unsure, err := l.attempt(group)
		if err == nil {
			return nil
		}
		switch f := l.s.engine.classify(err); {
		case (f == again || f == lostRow) && try < raceTries:
			time.Sleep(time.Duration(rand.Int64N(int64(time.Millisecond) << min(try, 6))))
		case f == gone && !unsure && !reconnected:
			reconnected = true
		case unsure:
			return fmt.Errorf("%w: %w", errUnsure, err)
		default:
			return err
		}
	}
}

var (
	errUnsure = errors.New("the connection broke during a commit")
	errCrash  = errors.New("crash injected by a test")
)

// attempt runs a group in one transaction. An error means that nothing of it
// was kept, unless unsure.
func (l *lane) attempt(group []*job) (unsure bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), groupTimeout)
	defer cancel()
	defer func() {
		if err != nil {
			l.drop() // which rolls back: a connection in doubt is never used again
		}
	}()
	if err = l.s.engine.present(); err != nil {
		return false, err
	}
	if l.conn == nil {
		if l.conn, err = connect(ctx, l.s); err != nil {
			return false, err
		}
	}
	c := l.conn
	if err = c.do(ctx, l.s.engine.begin()); err != nil {
		return false, err
	}
	var chain chain
	wrote, alone := false, len(group) == 1
	for _, j := range group {
		t := &tx{ctx: ctx, s: l.s, c: c, now: j.now.UTC().Truncate(time.Microsecond), by: j.by, chain: chain}
		if j.err = j.ctx.Err(); j.err != nil {
			continue
		}
		if !alone {
			if err = c.do(ctx, "SAVEPOINT job"); err != nil {
				return false, err
			}
		}
		j.err = guarded(t, j.run)
		if c.trouble != nil {
			return false, c.trouble
		}
		if j.err != nil {
			j.err = l.s.explain(j.name, j.err)
		} else {
			chain, wrote = t.chain, wrote || t.wrote
		}
		if alone {
			break
		}
		if j.err != nil {
			if err = c.do(ctx, "ROLLBACK TO SAVEPOINT job"); err != nil {
				return false, err
			}
		}
		if err = c.do(ctx, "RELEASE SAVEPOINT job"); err != nil {
			return false, err
		}
	}
	if !wrote {
		return false, c.do(ctx, "ROLLBACK")
	}
	if err = chain.keep(ctx, c); err != nil {
		return false, err
	}
	if err = l.s.engine.present(); err != nil {
		return false, err
	}
	if err = c.do(ctx, "COMMIT"); err != nil {
		return l.s.engine.classify(err) == gone, err
	}
	if l.s.fault != nil {
		if err = l.s.fault(c, "committed"); err != nil {
			return true, errCrash
		}
	}
	return false, nil
}

// guarded turns a panic in a caller's function into an error of that caller.
func guarded(t *tx, run func(*tx) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return run(t)
}

func (l *lane) drop() {
	if l.conn != nil {
		l.conn.discard()
		l.conn = nil
	}
}

// explain turns an error into what callers may know; the cause is logged.
func (s *Store) explain(name string, err error) error {
	var p *muster.Problem
	if err == nil || errors.As(err, &p) || errors.Is(err, errCrash) {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	s.log.Error("the store failed", "operation", name, "cause", err.Error())
	switch f := s.engine.classify(err); {
	case errors.Is(err, errUnsure):
		p = muster.Problemf(muster.CodeUnavailable, "the database went away while the change was being kept, so it may or may not have happened: ask for the current state, then try again")
	case errors.Is(err, errMoved):
		p = muster.Problemf(muster.CodeUnavailable, "%v; nothing was changed: put it back, or restart musterd on the one that is there", errMoved)
	case f == full:
		p = muster.Problemf(muster.CodeUnavailable, "the database has no room left; nothing was changed: free disk space on its host, then try again")
	case f == gone:
		p = muster.Problemf(muster.CodeUnavailable, "the database does not answer; nothing was changed: try again")
	case f == busy || f == again || f == lostRow:
		p = muster.Problemf(muster.CodeUnavailable, "the database is held up by other writers; nothing was changed: try again")
	default:
		return muster.Problemf(muster.CodeInternal, "%s failed inside the control plane; nothing was changed: its log has the cause", name)
	}
	p.RetryAfter = 2
	return p
}
