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
// binary; each store gets a database of its own in it.
type cluster struct {
	port int
	dir  string
	cmd  *exec.Cmd
	skip string // why there is none
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

// postgresURL makes an empty database and returns its address, or skips.
func postgresURL(t testing.TB) string {
	t.Helper()
	started.Store(true)
	c := startCluster()
	if c.skip != "" {
		t.Skip(c.skip)
	}
	name := fmt.Sprintf("t%d", databases.Add(1))
	c.sql(t, "CREATE DATABASE "+name+" TEMPLATE migrated")
	return c.url(name)
}

// template makes the database that the others are copied from: migrating is
// slower than copying.
func (c *cluster) template() error {
	db, err := sql.Open("pgx", c.url("postgres"))
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.Exec("CREATE DATABASE migrated"); err != nil {
		return err
	}
	s, err := Open(context.Background(), Options{URL: c.url("migrated"), MasterKey: master})
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
	db, err := sql.Open("pgx", c.url("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(text); err != nil {
		t.Fatal(err)
	}
}

func newCluster() *cluster {
	bins, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(bins) == 0 {
		return &cluster{skip: "PostgreSQL is not installed (package postgresql): its half of the suite is skipped"}
	}
	bin := filepath.Dir(bins[len(bins)-1])
	c := &cluster{}
	err := c.start(bin)
	if err == nil {
		err = c.template()
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
	db, err := sql.Open("pgx", c.url("postgres"))
	if err != nil {
		return err
	}
	defer db.Close()
	for range 200 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		err = db.PingContext(ctx)
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
