// Package store keeps muster's state in SQL: an embedded SQLite file by
// default, PostgreSQL when several control planes share it. One text of SQL
// serves both.
//
// Exported methods own their transaction; lower-case functions take the open
// one. A change, its audit entry and its position in the change feed are one
// transaction, and the audit's sequence is the feed's: gapless, in commit
// order. Heartbeats and sightings of what is known stay out of it.
//
// The store never decides what may happen to a machine: it loads what package
// lifecycle looks at, applies the event, and writes the difference as a
// conditional update. It never reads the clock (time is an argument) and never
// keeps a secret in the clear: what can be asked for again is hashed, what
// must be read again is encrypted with the master key.
package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"muster.internal"
)

// Options say where the store is and what it works with.
type Options struct {
	// URL is postgres://… (or postgresql://…), the path of a SQLite file, or
	// memory:NAME.
	URL string
	// MasterKey (32 bytes) encrypts ticket keys and keys the hash of claim
	// codes. Losing it loses those, and nothing else.
	MasterKey []byte
	// Dice is where secrets and ids come from; nil means crypto/rand.
	Dice io.Reader
	// Log hears the causes that callers are not told; nil discards them.
	Log *slog.Logger

	anyMaster bool // do not compare the master key
}

// A Store is open until Close. Its methods may be called from any goroutine.
type Store struct {
	engine engine
	writer *sql.DB // PostgreSQL: the one pool; SQLite: one connection
	reader *sql.DB
	lane   *lane
	vault  vault
	log    *slog.Logger

	dice   io.Reader
	diceMu sync.Mutex

	reads sync.Map // *query → *sql.Stmt, prepared on reader
	seen  seen
	sick  atomic.Bool // the last write failed
	feed  *ring
	// target is the blueprint that was the target last, decoded.
	target atomic.Pointer[muster.Blueprint]

	chance chance

	// fault, when set by a test, is called before every statement and commit
	// of a write; an error is a crash at that point.
	fault func(c *session, point string) error
}

// Open opens the store, creating and migrating it as needed.
func Open(ctx context.Context, o Options) (*Store, error) {
	v, err := newVault(o.MasterKey)
	if err != nil {
		return nil, err
	}
	s := &Store{vault: v, log: o.Log, dice: o.Dice, feed: newRing()}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.dice == nil {
		s.dice = rand.Reader
	}
	if strings.HasPrefix(o.URL, "postgres://") || strings.HasPrefix(o.URL, "postgresql://") {
		s.engine = &postgres{}
	} else {
		s.engine = &sqlite{}
	}
	if s.writer, s.reader, err = s.engine.open(ctx, o.URL); err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	if err := migrate(ctx, s.writer, s.engine); err != nil {
		s.closePools()
		return nil, fmt.Errorf("migrate the store: %w", err)
	}
	s.lane = newLane(s)
	if !o.anyMaster {
		if err := s.knowMaster(ctx, markOf(o.MasterKey)); err != nil {
			return nil, errors.Join(fmt.Errorf("open the store: %w", err), s.Close())
		}
	}
	if err := s.knowMachines(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open the store: %w", err), s.Close())
	}
	return s, nil
}

// Close waits for the transactions that are under way and closes the store.
func (s *Store) Close() error {
	s.lane.close()
	return s.closePools()
}

func (s *Store) closePools() error {
	err := s.writer.Close()
	if s.reader != s.writer {
		err = errors.Join(err, s.reader.Close())
	}
	return errors.Join(err, s.engine.close())
}

// Ping tells whether the database answers and, when the last write failed,
// whether it can be written again.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.read(ctx, "ping", func(r *reading) error {
		var n int64
		_, err := r.get(headSeq, nil, &n)
		return err
	}); err != nil || !s.sick.Load() {
		return err
	}
	return s.write(ctx, "ping", time.Time{}, muster.Clock, func(t *tx) error {
		_, err := t.exec(touchHead)
		return err
	})
}

var touchHead = define("audit/touch", `UPDATE audit_head SET seq = seq WHERE id = 1`)
