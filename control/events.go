package control

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"sync"
	"time"

	"muster.internal"
	"muster.internal/lifecycle"
)

// Of the event stream.
const (
	eventPage   = 200              // entries read at once from the past
	eventBuffer = 512              // events that may wait for one slow reader
	eventMark   = 15 * time.Second // how often a reader is told how far it is
)

// A hub reads the change feed once for everybody in this process who follows
// it. The feed is the store's: what another control plane on the same database
// commits is heard too. It runs while anybody listens.
type hub struct {
	c *Control

	mu   sync.Mutex
	subs map[*subscriber]struct{}
	pos  int64 // everything up to here was handed out
	stop context.CancelFunc
	seen map[string]int64 // of running installs: the last line that was handed out
	work sync.WaitGroup
}

// A subscriber is one reader. Its channel is closed when it was too slow.
type subscriber struct{ in chan muster.FeedEvent }

func newHub(c *Control) *hub { return &hub{c: c, subs: map[*subscriber]struct{}{}} }

// subscribe adds a reader, which hears everything above pos from now on.
func (h *hub) subscribe(ctx context.Context) (s *subscriber, pos int64, err error) {
	s = &subscriber{make(chan muster.FeedEvent, eventBuffer)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.subs) == 0 {
		if h.pos, err = h.c.store.Head(ctx); err != nil {
			return nil, 0, err
		}
		if _, h.seen, err = h.c.store.Progressed(ctx, nil); err != nil {
			return nil, 0, err
		}
		var running context.Context
		running, h.stop = context.WithCancel(context.Background())
		h.work.Go(func() { h.run(running) })
	}
	h.subs[s] = struct{}{}
	return s, h.pos, nil
}

func (h *hub) leave(s *subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, there := h.subs[s]; there {
		h.drop(s)
	}
}

// drop takes a reader out; the last one turns off the light. h.mu is held.
func (h *hub) drop(s *subscriber) {
	delete(h.subs, s)
	close(s.in)
	if len(h.subs) == 0 {
		h.stop()
	}
}

// close ends what runs, for good.
func (h *hub) close() {
	h.mu.Lock()
	for s := range h.subs {
		h.drop(s)
	}
	h.mu.Unlock()
	h.work.Wait()
}

func (h *hub) run(ctx context.Context) {
	for ctx.Err() == nil {
		changed := h.c.store.Changed()
		if err := h.look(ctx); err != nil {
			if ctx.Err() == nil {
				h.c.log.Warn("the event stream cannot read the store; trying again", "error", err)
				pauseFor(ctx, time.Second)
			}
			continue
		}
		select {
		case <-changed:
		case <-h.c.store.Elsewhere():
		case <-ctx.Done():
		}
		pauseFor(ctx, lookPause)
	}
}

// look hands out what is new. Lines of installs come before changes, so that
// an install's last words come before its end; also of one that began and ended
// since the last look, which its approval tells of.
func (h *hub) look(ctx context.Context) error {
	for {
		h.mu.Lock()
		pos, seen := h.pos, maps.Clone(h.seen)
		h.mu.Unlock()
		entries, err := h.c.store.Audit(ctx, muster.AuditFilter{After: pos, Limit: eventPage})
		if err != nil {
			return err
		}
		for _, e := range entries {
			var d struct {
				Operation string `json:"operation_id"`
			}
			if e.Action != string(lifecycle.ApproveSetup) || json.Unmarshal(e.Detail, &d) != nil || d.Operation == "" {
				continue
			}
			if _, known := seen[d.Operation]; !known {
				seen[d.Operation] = 0
			}
		}
		logs, next, err := h.c.store.Progressed(ctx, seen)
		if err != nil {
			return err
		}
		var es []muster.FeedEvent
		for _, l := range logs {
			es = append(es, progressEvents(l)...)
		}
		for _, e := range entries {
			es = append(es, changeEvent(e))
			pos = e.Seq
		}
		h.hand(ctx, es, pos, next)
		if len(entries) < eventPage {
			return nil
		}
	}
}

// hand gives events to every reader. Nobody waits for one: whose buffer is full
// is dropped, and asks again after what it has heard. Only the hub that runs
// may hand out: one that was stopped has a successor, perhaps.
func (h *hub) hand(ctx context.Context, es []muster.FeedEvent, pos int64, seen map[string]int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	h.pos, h.seen = pos, seen
	for s := range h.subs {
		if cap(s.in)-len(s.in) < len(es) && len(s.in) > 0 {
			h.drop(s)
			continue
		}
		for _, e := range es {
			select {
			case s.in <- e:
				continue
			default: // more at once than the buffer holds: it reads them from the store
			}
			h.drop(s)
			break
		}
	}
}

// changeEvent is an audit entry as an event.
func changeEvent(e muster.AuditEntry) muster.FeedEvent {
	on, _, _ := strings.Cut(e.Subject, "/")
	return muster.FeedEvent{ID: e.Seq, Kind: on + "." + e.Action, Subject: e.Subject, At: e.At, Actor: e.Actor, Detail: e.Detail}
}

func progressEvents(l muster.InstallLog) []muster.FeedEvent {
	var es []muster.FeedEvent
	for _, line := range l.Lines {
		d, err := json.Marshal(muster.ProgressDetail{OperationID: l.OperationID, Epoch: l.Epoch, InstallLine: line})
		if err != nil {
			continue // cannot be: numbers and texts
		}
		es = append(es, muster.FeedEvent{Kind: muster.ProgressKind, Subject: "registration/" + l.ServerUUID, At: line.At, Detail: d})
	}
	return es
}

// Events follows the feed for one reader: first the past, from the store at the
// reader's own pace, then what comes.
func (s session) Events(ctx context.Context, q muster.EventQuery, f func(muster.FeedEvent) error) error {
	r := reader{session: s, q: q, f: f, changes: s.by.May(muster.ActAuditRead), progress: s.by.May(muster.ActRegistrationRead)}
	head, err := s.store.Head(ctx)
	if err != nil {
		return err
	}
	switch r.pos = q.After; {
	case q.After == muster.FromNow:
		r.pos = max(0, head-int64(max(0, q.Last)))
	case q.After < 0:
		return muster.Invalid("after", "is the number of an event, or absent for what is yet to come")
	case q.After > head:
		return muster.Invalid("after", "is %d, but the feed ends at %d: if the control plane's store was restored from a backup, begin again at an earlier event", q.After, head)
	}
	if err := r.past(ctx, head); err != nil {
		return err
	}
	sub, pos, err := s.hub.subscribe(ctx)
	if err != nil {
		return err
	}
	defer s.hub.leave(sub)
	if err := r.past(ctx, pos); err != nil { // what came while it read
		return err
	}
	return r.live(ctx, sub)
}

type reader struct {
	session
	q                 muster.EventQuery
	f                 func(muster.FeedEvent) error
	changes, progress bool // what this caller may see
	pos               int64
}

// past tells what the store has, up to a position.
func (r *reader) past(ctx context.Context, to int64) error {
	for r.pos < to {
		if !r.changes {
			r.pos = to
			break
		}
		entries, err := r.store.Audit(ctx, muster.AuditFilter{After: r.pos, Subject: r.q.Subject, Limit: eventPage})
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.Seq > to {
				break
			}
			if err := r.tell(changeEvent(e)); err != nil {
				return err
			}
		}
		if len(entries) < eventPage || entries[len(entries)-1].Seq >= to {
			r.pos = to
		}
	}
	return nil
}

func (r *reader) live(ctx context.Context, sub *subscriber) error {
	mark := time.NewTicker(eventMark)
	defer mark.Stop()
	if err := r.f(muster.FeedEvent{ID: r.pos, At: r.now()}); err != nil {
		return err
	}
	for {
		select {
		case e, ok := <-sub.in:
			if !ok {
				return tooSlow(r.pos)
			}
			if e.ID != 0 && e.ID <= r.pos {
				continue // from the past already
			}
			if err := r.tell(e); err != nil {
				return err
			}
		case <-mark.C:
			if err := r.f(muster.FeedEvent{ID: r.pos, At: r.now()}); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func tooSlow(pos int64) error {
	p := muster.Problemf(muster.CodeUnavailable, "events come faster than they are read here, or the control plane stops: ask again after event %d", pos)
	p.RetryAfter = 1
	return p
}

// tell hands one event on, if it was asked for.
func (r *reader) tell(e muster.FeedEvent) error {
	if e.ID != 0 {
		r.pos = e.ID
	}
	switch {
	case e.ID != 0 && !r.changes, e.ID == 0 && !r.progress:
	case r.q.Subject != "" && e.Subject != r.q.Subject, !strings.HasPrefix(e.Kind, r.q.Kind):
	default:
		return r.f(e)
	}
	return nil
}
