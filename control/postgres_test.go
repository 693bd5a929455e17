package control_test

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
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
)

// postgresURL makes an empty database in a private cluster, or skips by name.
func postgresURL(t testing.TB) string {
	t.Helper()
	url := cluster()
	if url == "" {
		t.Skip("PostgreSQL is not installed or did not start (package postgresql): its half of the suite is skipped")
	}
	db, err := sql.Open("pgx", fmt.Sprintf(url, "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	name := fmt.Sprintf("t%d", databases.Add(1))
	if _, err := db.Exec("CREATE DATABASE " + name); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(url, name)
}

var (
	databases   atomic.Int64
	stopCluster = func() {}
)

var cluster = sync.OnceValue(func() string {
	bins, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(bins) == 0 {
		return ""
	}
	dir, err := os.MkdirTemp("", "muster-control-pg")
	if err != nil {
		return ""
	}
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
	if os.Geteuid() == 0 { // PostgreSQL refuses to run as root
		u, err := user.Lookup("postgres")
		if err != nil {
			return ""
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if os.Chown(dir, uid, gid) != nil {
			return ""
		}
	}
	bin := filepath.Dir(bins[len(bins)-1])
	start := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(bin, name), args...)
		cmd.Dir, cmd.SysProcAttr = dir, attr
		return cmd
	}
	if start("initdb", "-A", "trust", "-U", "muster", "-N", "-E", "UTF8", "--locale=C", "-D", dir+"/data").Run() != nil {
		return ""
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return ""
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	server := start("postgres", "-D", dir+"/data", "-p", strconv.Itoa(port), "-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories="+dir, "-c", "fsync=off", "-c", "shared_buffers=32MB")
	if server.Start() != nil {
		return ""
	}
	stopCluster = func() {
		_ = server.Process.Signal(syscall.SIGQUIT)
		_ = server.Wait()
		os.RemoveAll(dir)
	}
	url := fmt.Sprintf("postgres://muster@127.0.0.1:%d/%%s?sslmode=disable", port)
	db, err := sql.Open("pgx", fmt.Sprintf(url, "postgres"))
	if err != nil {
		return ""
	}
	defer db.Close()
	for range 200 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		err := db.PingContext(ctx)
		cancel()
		if err == nil {
			return url
		}
		time.Sleep(50 * time.Millisecond) // a server that starts says nothing to wait for
	}
	return ""
})
