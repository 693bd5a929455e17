package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"muster.internal"
)

// A session is the lane's connection with its prepared statements.
type session struct {
	s       *Store
	conn    *sql.Conn
	stmts   map[*query]*sql.Stmt
	trouble error // the first error of the engine: the transaction is lost
}

func connect(ctx context.Context, s *Store) (*session, error) {
	c, err := s.writer.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return &session{s: s, conn: c, stmts: map[*query]*sql.Stmt{}}, nil
}

// discard closes the connection itself, not only its loan from the pool: the
// database rolls back whatever was open.
func (c *session) discard() {
	if !c.s.engine.shared() {
		// SQLite keeps a connection, and its lock, until its last statement is
		// closed; database/sql does not keep track of them for us.
		for _, st := range c.stmts {
			st.Close()
		}
	}
	c.conn.Raw(func(any) error { return driver.ErrBadConn })
	c.conn.Close()
}

// note keeps the first error that came from the engine.
func (c *session) note(err error) error {
	if err != nil && c.trouble == nil {
		c.trouble = err
	}
	return err
}

// point is where a test may crash the process.
func (c *session) point(name string) error {
	if c.s.fault != nil && c.s.fault(c, name) != nil {
		return c.note(errCrash)
	}
	return nil
}

func (c *session) do(ctx context.Context, text string) error {
	if err := c.point(text); err != nil {
		return err
	}
	_, err := c.conn.ExecContext(ctx, text)
	return c.note(err)
}

func (c *session) prepare(ctx context.Context, q *query) (*sql.Stmt, error) {
	if err := c.point(q.name); err != nil {
		return nil, err
	}
	if st := c.stmts[q]; st != nil {
		return st, nil
	}
	st, err := c.conn.PrepareContext(ctx, c.s.engine.rewrite(q.text))
	if err == nil {
		c.stmts[q] = st
	}
	return st, c.note(err)
}

// checkText refuses what PostgreSQL cannot keep in a text, for both engines
// alike. Whoever takes in text checks it with its field's name; this is the net.
func checkText(args []any) error {
	for _, a := range args {
		if s, ok := a.(string); ok && !keepable(s) {
			return muster.Problemf(muster.CodeInvalid, "a text holds a NUL or is not UTF-8: %.40q", s)
		}
	}
	return nil
}

func keepable(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

func (c *session) exec(ctx context.Context, q *query, args ...any) (int64, error) {
	if err := checkText(args); err != nil {
		return 0, err
	}
	st, err := c.prepare(ctx, q)
	if err != nil {
		return 0, err
	}
	r, err := st.ExecContext(ctx, args...)
	if err != nil {
		return 0, c.note(err)
	}
	n, err := r.RowsAffected()
	return n, c.note(err)
}

func (c *session) rows(ctx context.Context, q *query, args []any) (*sql.Rows, error) {
	if err := checkText(args); err != nil {
		return nil, err
	}
	st, err := c.prepare(ctx, q)
	if err != nil {
		return nil, err
	}
	r, err := st.QueryContext(ctx, args...)
	return r, c.note(err)
}

// A source is where rows are read from: the open transaction or a reading.
type source interface {
	get(q *query, args []any, dest ...any) (found bool, err error)
	each(q *query, args []any, f func(scan func(...any) error) error) error
}

// A tx is one job's share of the group's transaction.
type tx struct {
	ctx   context.Context
	s     *Store
	c     *session
	now   time.Time
	by    muster.Caller
	chain chain
	wrote bool
}

func (t *tx) exec(q *query, args ...any) (int64, error) {
	t.wrote = true
	return t.c.exec(t.ctx, q, args...)
}

// change is exec for a conditional update of one row that this transaction has
// read. If it is not there any more another process was faster.
func (t *tx) change(q *query, args ...any) error {
	n, err := t.exec(q, args...)
	if err == nil && n != 1 {
		return t.c.note(errLost)
	}
	return err
}

var errLost = errors.New("a row changed under the transaction that had read it")

func (t *tx) get(q *query, args []any, dest ...any) (bool, error) {
	rows, err := t.c.rows(t.ctx, q, args)
	if err != nil {
		return false, err
	}
	found, err := one(rows, dest)
	return found, t.c.note(err)
}

func (t *tx) each(q *query, args []any, f func(scan func(...any) error) error) error {
	rows, err := t.c.rows(t.ctx, q, args)
	if err != nil {
		return err
	}
	return t.c.note(all(rows, f))
}

// one reads a single row; no row is not an error.
func one(rows *sql.Rows, dest []any) (bool, error) {
	defer rows.Close()
	if !rows.Next() {
		return false, rows.Err()
	}
	if err := rows.Scan(dest...); err != nil {
		return false, err
	}
	return true, rows.Close()
}

func all(rows *sql.Rows, f func(scan func(...any) error) error) error {
	defer rows.Close()
	for rows.Next() {
		if err := f(rows.Scan); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return rows.Close()
}

// A reading reads outside the lane.
type reading struct {
	ctx  context.Context
	rows func(*query, []any) (*sql.Rows, error)
}

func (r *reading) get(q *query, args []any, dest ...any) (bool, error) {
	if err := checkText(args); err != nil {
		return false, err
	}
	rows, err := r.rows(q, args)
	if err != nil {
		return false, err
	}
	return one(rows, dest)
}

func (r *reading) each(q *query, args []any, f func(scan func(...any) error) error) error {
	if err := checkText(args); err != nil {
		return err
	}
	rows, err := r.rows(q, args)
	if err != nil {
		return err
	}
	return all(rows, f)
}

// readTimeout is after which a database that is connected and silent counts as
// away: nobody else would end the wait.
const readTimeout = 10 * time.Second

// read runs f outside a transaction: right for what one statement answers.
func (s *Store) read(caller context.Context, name string, f func(*reading) error) error {
	ctx, cancel := context.WithTimeout(caller, readTimeout)
	defer cancel()
	r := &reading{ctx: ctx, rows: func(q *query, args []any) (*sql.Rows, error) {
		st, err := s.prepared(ctx, q)
		if err != nil {
			return nil, err
		}
		return st.QueryContext(ctx, args...)
	}}
	return s.reason(caller, name, s.patiently(ctx, func() error { return f(r) }))
}

// patiently reads again when the connection turns out to be dead: a pool may
// hold several that died with their server.
func (s *Store) patiently(ctx context.Context, f func() error) error {
	if err := s.engine.present(); err != nil {
		return err
	}
	err := f()
	for range 3 {
		if err == nil || s.engine.classify(err) != gone || ctx.Err() != nil {
			break
		}
		err = f()
	}
	return err
}

// reason is explain for a reading, which ends with its caller.
func (s *Store) reason(ctx context.Context, name string, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, context.DeadlineExceeded) { // ours
		err = errSilent
	}
	return s.explain(name, err)
}

var errSilent = fmt.Errorf("no answer in %s: %w", readTimeout, driver.ErrBadConn)

func (s *Store) prepared(ctx context.Context, q *query) (*sql.Stmt, error) {
	if st, ok := s.reads.Load(q); ok {
		return st.(*sql.Stmt), nil
	}
	st, err := s.reader.PrepareContext(ctx, s.engine.rewrite(q.text))
	if err != nil {
		return nil, err
	}
	if old, lost := s.reads.LoadOrStore(q, st); lost {
		st.Close()
		return old.(*sql.Stmt), nil
	}
	return st, nil
}

// snapshot runs f on one consistent state of the store.
func (s *Store) snapshot(ctx context.Context, name string, f func(*reading) error) error {
	return s.reason(ctx, name, s.patiently(ctx, func() error { return s.snap(ctx, f) }))
}

func (s *Store) snap(ctx context.Context, f func(*reading) error) (err error) {
	c, err := s.reader.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			if _, bad := c.ExecContext(context.WithoutCancel(ctx), "ROLLBACK"); bad != nil {
				c.Raw(func(any) error { return driver.ErrBadConn })
			}
		}
		c.Close()
	}()
	if _, err := c.ExecContext(ctx, s.engine.beginRead()); err != nil {
		return err
	}
	if err := f(&reading{ctx: ctx, rows: func(q *query, args []any) (*sql.Rows, error) {
		return c.QueryContext(ctx, s.engine.rewrite(q.text), args...)
	}}); err != nil {
		return err
	}
	_, err = c.ExecContext(ctx, "COMMIT")
	return err
}
