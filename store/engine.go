package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	modernc "modernc.org/sqlite"
)

// An engine is what differs between the two databases.
type engine interface {
	open(ctx context.Context, url string) (writer, reader *sql.DB, err error)
	close() error
	dialect() goose.Dialect
	// rewrite turns $1 into the engine's own placeholder.
	rewrite(text string) string
	begin() string     // starts a write transaction
	beginRead() string // starts a consistent reading
	classify(err error) failure
	// present tells whether what was opened is still what would be opened.
	present() error
	// shared tells that other processes may write to the same database.
	shared() bool
}

// A failure is what an engine's error means for who asked.
type failure int

const (
	broken  failure = iota // nobody's business but the log's
	again                  // lost a race: the transaction may be run again
	gone                   // the connection or the server is away
	full                   // no room to write
	busy                   // somebody else holds the lock
	lostRow                // a uniqueness rule refused the row
)

// sqlite is the embedded engine: WAL, synchronous FULL, one writer. In memory it
// has neither a log nor anything to be durable on: whoever reads waits for who
// writes.
type sqlite struct {
	path   string
	file   os.FileInfo // of the database, as it was opened; nil: it is in memory
	anchor *sql.Conn   // keeps a database in memory while no other connection does
}

// Memory is how the URL of a store in memory begins; the rest is its name. It
// is there for as long as any Store of this process has it open.
const Memory = "memory:"

// errMoved: what is written to a file without a name is lost with the process.
var errMoved = errors.New("the database's file was removed or replaced while it was open")

func (e *sqlite) present() error {
	if e.file == nil {
		return nil
	}
	now, err := os.Stat(e.path)
	if err == nil && os.SameFile(now, e.file) {
		return nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: %w", errMoved, err)
	}
	return errMoved
}

func (e *sqlite) open(ctx context.Context, path string) (*sql.DB, *sql.DB, error) {
	path = strings.TrimPrefix(path, "sqlite:")
	if name, is := strings.CutPrefix(path, Memory); is {
		return e.openMemory(ctx, name)
	}
	// The file is made here so that nobody else can read it, whatever the umask.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, nil, err
	}
	e.path = path
	e.file, err = f.Stat()
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, nil, err
	}
	return openSQLite(ctx, sqliteName(path), "journal_mode(WAL)", "synchronous(FULL)")
}

// openMemory opens a database that all connections of this process share.
func (e *sqlite) openMemory(ctx context.Context, name string) (writer, reader *sql.DB, err error) {
	e.path = Memory + name
	if writer, reader, err = openSQLite(ctx, memoryName(name), "journal_mode(MEMORY)", "synchronous(OFF)"); err != nil {
		return nil, nil, err
	}
	if e.anchor, err = reader.Conn(ctx); err != nil {
		return nil, nil, errors.Join(err, writer.Close(), reader.Close())
	}
	return writer, reader, nil
}

func openSQLite(ctx context.Context, name string, journal ...string) (writer, reader *sql.DB, err error) {
	common := []string{"busy_timeout(10000)", "foreign_keys(1)"}
	w := url.Values{"_txlock": {"immediate"}, "_dqs": {"0"}, "_pragma": append(append(journal, "temp_store(MEMORY)"), common...)}
	r := url.Values{"_dqs": {"0"}, "_pragma": append([]string{"query_only(1)"}, common...)}
	with := "?"
	if strings.Contains(name, "?") {
		with = "&"
	}
	if writer, err = sql.Open("sqlite", name+with+w.Encode()); err != nil {
		return nil, nil, err
	}
	writer.SetMaxOpenConns(1)
	if err := writer.PingContext(ctx); err != nil {
		writer.Close()
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	if reader, err = sql.Open("sqlite", name+with+r.Encode()); err != nil {
		writer.Close()
		return nil, nil, err
	}
	reader.SetMaxOpenConns(4)
	reader.SetMaxIdleConns(4)
	return writer, reader, nil
}

// sqliteName spells a path as SQLite's URI wants it.
func sqliteName(path string) string {
	return "file:" + (&url.URL{Path: path}).EscapedPath()
}

// memoryName spells the name of a database in memory: the slash has it shared.
func memoryName(name string) string {
	return "file:/" + url.PathEscape(name) + "?vfs=memdb"
}

func (e *sqlite) close() error {
	if e.anchor == nil {
		return nil
	}
	return e.anchor.Close()
}

func (*sqlite) dialect() goose.Dialect { return goose.DialectSQLite3 }
func (*sqlite) begin() string          { return "BEGIN IMMEDIATE" }
func (*sqlite) beginRead() string      { return "BEGIN DEFERRED" }
func (*sqlite) shared() bool           { return false }

// rewrite relies on SQLite's ?n, which binds by number as PostgreSQL's $n does;
// SQLite's own $n binds by first appearance.
func (*sqlite) rewrite(text string) string { return strings.ReplaceAll(text, "$", "?") }

func (*sqlite) classify(err error) failure {
	var e *modernc.Error
	if !errors.As(err, &e) {
		return connection(err)
	}
	switch e.Code() & 0xff { // the primary result code
	case 5, 6: // BUSY, LOCKED
		return busy
	case 13: // FULL
		return full
	case 8, 10, 14: // READONLY, IOERR, CANTOPEN
		return gone
	case 19: // CONSTRAINT
		if c := e.Code(); c == 2067 || c == 1555 { // UNIQUE, PRIMARYKEY
			return lostRow
		}
	}
	return broken
}

// postgres is the shared engine: SERIALIZABLE is the net between processes.
type postgres struct{ pool *pgxpool.Pool }

func (p *postgres) open(ctx context.Context, u string) (*sql.DB, *sql.DB, error) {
	c, err := pgxpool.ParseConfig(u)
	if err != nil {
		// pgx repeats the URL without its password.
		return nil, nil, err
	}
	c.ConnConfig.RuntimeParams["application_name"] = "muster"
	c.ConnConfig.ConnectTimeout = 5 * time.Second
	if p.pool, err = pgxpool.NewWithConfig(ctx, c); err != nil {
		return nil, nil, err
	}
	if err := p.pool.Ping(ctx); err != nil {
		p.pool.Close()
		return nil, nil, err
	}
	db := stdlib.OpenDBFromPool(p.pool)
	return db, db, nil
}

func (p *postgres) close() error             { p.pool.Close(); return nil }
func (*postgres) present() error             { return nil }
func (*postgres) dialect() goose.Dialect     { return goose.DialectPostgres }
func (*postgres) rewrite(text string) string { return text }
func (*postgres) begin() string              { return "BEGIN ISOLATION LEVEL SERIALIZABLE" }
func (*postgres) beginRead() string          { return "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" }
func (*postgres) shared() bool               { return true }

func (*postgres) classify(err error) failure {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return connection(err)
	}
	switch e.Code {
	case "40001", "40P01":
		return again
	case "23505":
		// Two processes that took the same position in the chain.
		if e.TableName == "audit" {
			return again
		}
		return lostRow
	case "53100", "53200": // disk full, out of memory
		return full
	case "25006": // read only: a standby, or a server that is failing over
		return gone
	}
	switch e.Code[:2] {
	case "08", "57", "53": // connection, operator intervention, resources
		return gone
	}
	return broken
}

// connection recognises errors that come from below SQL.
func connection(err error) failure {
	var n net.Error
	var c *pgconn.ConnectError
	switch {
	case errors.Is(err, errLost):
		return again
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone), errors.Is(err, net.ErrClosed),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		errors.As(err, &n), errors.As(err, &c), pgconn.SafeToRetry(err),
		strings.Contains(err.Error(), "conn closed"), strings.Contains(err.Error(), "unexpected EOF"):
		return gone
	}
	return broken
}
