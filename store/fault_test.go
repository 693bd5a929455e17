package store

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"muster.internal"
)

// A full disk under the store: whoever asks is told so, nothing is half done,
// and once there is room it goes on.
func TestAFullDisk(t *testing.T) {
	s := open(t, sqliteURL(t))
	site(t, s)
	// SQLite's own limit, on the connection that writes, is the same error as
	// the file system's.
	limit := func(pages int) {
		t.Helper()
		if err := s.write(t.Context(), "limiting", start, ada, func(x *tx) error {
			_, err := x.c.conn.ExecContext(x.ctx, fmt.Sprintf("PRAGMA max_page_count = %d", pages))
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	limit(1) // no more than there are
	var before string
	var err error
	for i := 0; err == nil && i < 1000; i++ {
		before = dump(t, behind(t, s))
		limit(1)
		_, err = s.Register(t.Context(), start, nobody, boxNo(i).request())
	}
	wantCode(t, err, muster.CodeUnavailable)
	if !strings.Contains(err.Error(), "room") {
		t.Errorf("it does not say why: %v", err)
	}
	if dump(t, behind(t, s)) != before {
		t.Error("something was half done")
	}
	healthy(t, s)
	limit(1 << 20)
	must[muster.RegisterReply](t)(s.Register(t.Context(), start, nobody, boxNo(2000).request()))
	healthy(t, s)
}

// A wire stands between the store and PostgreSQL, and can be cut.
type wire struct {
	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]bool
	to    string
}

func (w *wire) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		w.mu.Lock()
		up, err := net.Dial("tcp", w.to)
		if w.cut || err != nil {
			c.Close()
			if up != nil {
				up.Close()
			}
			w.mu.Unlock()
			continue
		}
		w.conns[c], w.conns[up] = true, true
		w.mu.Unlock()
		go func() { io.Copy(up, c); up.Close(); c.Close() }()
		go func() { io.Copy(c, up); up.Close(); c.Close() }()
	}
}

func (w *wire) set(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
	for c := range w.conns {
		c.Close()
	}
	clear(w.conns)
}

func TestADatabaseThatGoesAwayAndComesBack(t *testing.T) {
	direct := postgresURL(t)
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	w := &wire{to: u.Host, conns: map[net.Conn]bool{}}
	go w.serve(l)
	u.Host = l.Addr().String()
	s := open(t, u.String())
	ctx := t.Context()
	site(t, s)
	awaiting(t, s, boxNo(1), start)

	w.set(true)
	for range 3 {
		_, err = s.Registration(ctx, boxNo(1).uuid)
		wantCode(t, err, muster.CodeUnavailable)
		_, err = s.Register(ctx, start, nobody, boxNo(2).request())
		wantCode(t, err, muster.CodeUnavailable)
		wantCode(t, s.Ping(ctx), muster.CodeUnavailable)
	}
	w.set(false)
	if err := s.Ping(ctx); err != nil {
		t.Fatal(err)
	}
	must[muster.RegisterReply](t)(s.Register(ctx, start, nobody, boxNo(2).request()))
	install(t, s, boxNo(1), start)

	// Cut again and again while callers are at work: nobody is told a 500, and
	// what was told done is done.
	var done sync.Map
	errs := together(20, func(i int) error {
		for j := range 5 {
			if (i+j)%4 == 0 {
				w.set(false)
			}
			b := boxNo(100 + 5*i + j)
			_, err := s.Register(context.Background(), start, nobody, b.request())
			if err == nil {
				done.Store(b.uuid, true)
			} else if !muster.IsCode(err, muster.CodeUnavailable) {
				return err
			}
		}
		return nil
	})
	for _, err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	told := 0
	done.Range(func(uuid, _ any) bool {
		told++
		if st := stateOf(t, s, uuid.(string)); st != muster.Pending {
			t.Errorf("%s was told done, and is %s", uuid, st)
		}
		return true
	})
	if told == 0 {
		t.Error("nothing was done at all")
	}
	healthy(t, s)
}

// TestKilledProcess is the process that the next test kills.
func TestKilledProcess(t *testing.T) {
	path := os.Getenv("MUSTER_STORE_VICTIM")
	if path == "" {
		t.Skip("it is started by TestKillNine")
	}
	s, err := Open(context.Background(), Options{URL: path, MasterKey: master})
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		b := boxNo(int(time.Now().UnixNano()) & 0xffff)
		if _, err := s.Register(context.Background(), time.Now(), nobody, b.request()); err != nil {
			t.Fatal(err)
		}
		fmt.Printf("\ndone %s\n", b.uuid)
	}
}

// A killed process loses nothing that it had called done.
func TestKillNine(t *testing.T) {
	kills := 2
	if os.Getenv("MUSTER_SOAK") != "" {
		kills = 40
	}
	path := filepath.Join(t.TempDir(), "muster.db")
	done := map[string]bool{}
	for i := range kills {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledProcess$")
		cmd.Env = append(os.Environ(), "MUSTER_STORE_VICTIM="+path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); {
			if uuid, ok := strings.CutPrefix(lines.Text(), "done "); ok {
				done[uuid] = true
				if n++; n == 5+3*i { // somewhere in the middle of the next one
					cmd.Process.Kill()
				}
			}
		}
		cmd.Wait()
	}
	s := open(t, path)
	healthy(t, s)
	for uuid := range done {
		if st := stateOf(t, s, uuid); st != muster.Pending {
			t.Errorf("%s was told done, and is %s", uuid, st)
		}
	}
	if len(done) < 5 {
		t.Errorf("only %d were done", len(done))
	}
}
