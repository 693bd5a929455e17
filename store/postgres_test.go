package store

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// cluster is a private PostgreSQL on a free loopback port, shared by the test
// binary. Each test has a database in it to itself; the next one gets it
// emptied, which is ten times as fast as a new one.
type cluster struct {
	port int
	dir  string
	cmd  *exec.Cmd
	skip string // why there is none

	admin *sql.DB
	mu    sync.Mutex
	idle  []string           // names of databases to empty and use again
	open  map[string]*sql.DB // by name: the tests' own way in
}

var (
	startCluster = sync.OnceValue(newCluster)
	databases    atomic.Int64
)

func TestMain(m *testing.M) {
	code := m.Run()
	if started.Load() {
		startCluster().stop()
	}
	os.Exit(code)
}

var started atomic.Bool

// postgresURL gives the test a migrated database without rows, or skips.
func postgresURL(t testing.TB) string {
	t.Helper()
	started.Store(true)
	c := startCluster()
	if c.skip != "" {
		t.Skip(c.skip)
	}
	name := c.take()
	if name == "" {
		name = fmt.Sprintf("t%d", databases.Add(1))
		c.sql(t, "CREATE DATABASE "+name+" TEMPLATE migrated STRATEGY file_copy")
	} else if err := empty(c.behind(name)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after the stores of the test are closed
		c.mu.Lock()
		defer c.mu.Unlock()
		c.idle = append(c.idle, name)
	})
	return c.url(name)
}

func (c *cluster) take() (name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.idle); n > 0 {
		name, c.idle = c.idle[n-1], c.idle[:n-1]
	}
	return name
}

// behind is one connection to a database for as long as the binary runs: to
// connect costs more than most tests.
func (c *cluster) behind(name string) *sql.DB {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[name] == nil {
		db, err := sql.Open("pgx", c.url(name))
		if err != nil {
			panic(err) // the address is ours
		}
		db.SetMaxOpenConns(2)
		c.open[name] = db
	}
	return c.open[name]
}

// empty makes a used database like one that was just migrated.
func empty(db *sql.DB) error {
	text := "BEGIN; SET LOCAL lock_timeout = '30s'; SET LOCAL session_replication_role = replica;"
	for _, table := range append([]string{"master_key"}, tables...) {
		text += "DELETE FROM " + table + ";"
	}
	_, err := db.Exec(text + "INSERT INTO audit_head (id, seq, hash) VALUES (1, 0, '');" +
		"INSERT INTO blueprint_target (id, number, blueprint_id, planning, set_by, reason, seq) VALUES (1, 0, '', true, '', '', 0); COMMIT")
	return err
}

// template makes the database that the others are copied from: migrating is
// slower than copying.
func (c *cluster) template(ctx context.Context) error {
	if _, err := c.admin.ExecContext(ctx, "CREATE DATABASE migrated"); err != nil {
		return err
	}
	s, err := Open(ctx, Options{URL: c.url("migrated"), MasterKey: master})
	if err != nil {
		return err
	}
	return s.Close()
}

func (c *cluster) url(database string) string {
	return fmt.Sprintf("postgres://muster@127.0.0.1:%d/%s?sslmode=disable", c.port, database)
}

func (c *cluster) sql(t testing.TB, text string) {
	t.Helper()
	if _, err := c.admin.Exec(text); err != nil {
		t.Fatal(err)
	}
}

func newCluster() *cluster {
	bins, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(bins) == 0 {
		return &cluster{skip: "PostgreSQL is not installed (package postgresql): its half of the suite is skipped"}
	}
	bin := filepath.Dir(bins[len(bins)-1])
	c := &cluster{open: map[string]*sql.DB{}}
	err := c.start(bin)
	if err == nil {
		err = c.template(context.Background())
	}
	if err != nil {
		c.stop()
		return &cluster{skip: "PostgreSQL could not be started: " + err.Error()}
	}
	return c
}

func (c *cluster) start(bin string) (err error) {
	if c.dir, err = os.MkdirTemp("", "muster-pg"); err != nil {
		return err
	}
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
	if os.Geteuid() == 0 {
		// PostgreSQL refuses to run as root.
		u, err := user.Lookup("postgres")
		if err != nil {
			return err
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(c.dir, uid, gid); err != nil {
			return err
		}
	}
	data := filepath.Join(c.dir, "data")
	init := exec.Command(filepath.Join(bin, "initdb"), "-A", "trust", "-U", "muster", "-N", "-E", "UTF8", "--locale=C", "-D", data)
	init.Dir, init.SysProcAttr = c.dir, attr
	if out, err := init.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %v: %s", err, out)
	}
	if c.port, err = freePort(); err != nil {
		return err
	}
	return c.serve(bin, attr)
}

func (c *cluster) serve(bin string, attr *syscall.SysProcAttr) error {
	c.cmd = exec.Command(filepath.Join(bin, "postgres"), "-D", filepath.Join(c.dir, "data"), "-p", strconv.Itoa(c.port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="+c.dir, "-c", "fsync=off",
		"-c", "synchronous_commit=off", "-c", "full_page_writes=off", "-c", "wal_level=minimal", "-c", "max_wal_senders=0",
		"-c", "max_connections=200", "-c", "shared_buffers=32MB", "-c", "autovacuum=off")
	c.cmd.Dir, c.cmd.SysProcAttr = c.dir, attr
	log, err := os.Create(filepath.Join(os.TempDir(), filepath.Base(c.dir)+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	defer os.Remove(log.Name())
	c.cmd.Stdout, c.cmd.Stderr = log, log
	if err := c.cmd.Start(); err != nil {
		return err
	}
	if c.admin, err = sql.Open("pgx", c.url("postgres")); err != nil {
		return err
	}
	for range 200 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		err = c.admin.PingContext(ctx)
		cancel()
		if err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond) // a server that starts says nothing to wait for
	}
	said, _ := os.ReadFile(log.Name())
	return fmt.Errorf("%v: %s", err, strings.TrimSpace(string(said)))
}

func (c *cluster) stop() {
	if c.cmd != nil && c.cmd.Process != nil {
		c.cmd.Process.Signal(syscall.SIGQUIT)
		c.cmd.Wait()
	}
	if c.dir != "" {
		os.RemoveAll(c.dir)
	}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
