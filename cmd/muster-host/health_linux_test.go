package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster.internal/resource"
)

func portOf(t *testing.T, l net.Listener) int { t.Helper(); return l.Addr().(*net.TCPAddr).Port }

// What can be found of a placement, in the words that are said.
func TestProbe(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, "/up", http.StatusFound)
		case "/busy":
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer s.Close()
	six, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	defer six.Close()
	mute := listen(t, "127.0.0.1:0") // takes a connection, and says nothing
	defer mute.Close()
	gone := listen(t, "127.0.0.1:0")
	gone.Close()
	up, silent, none := portOf(t, s.Listener), portOf(t, mute), portOf(t, gone)
	var checks []resource.Check
	var want []string
	for _, c := range []struct {
		check resource.Check
		want  string
	}{
		{resource.Check{Port: up}, "true true "},
		{resource.Check{Port: portOf(t, six)}, "true true "},
		{resource.Check{Port: silent}, "true true "},
		{resource.Check{Port: none}, fmt.Sprintf("false false nothing listens at port %d", none)},
		{resource.Check{Port: up, Path: "/up", CaughtUp: "/up"}, "true true "},
		{resource.Check{Port: up, Path: "/up", CaughtUp: "/busy"}, fmt.Sprintf("true false GET /busy at port %d is answered with 503", up)},
		{resource.Check{Port: up, Path: "/away"}, fmt.Sprintf("false false GET /away at port %d is answered with 302", up)},
		{resource.Check{Port: silent, Path: "/up"}, fmt.Sprintf("false false port %d does not answer within 2s", silent)},
	} {
		checks, want = append(checks, c.check), append(want, c.want)
	}
	for i, p := range probe(t.Context(), checks) {
		if got := fmt.Sprint(p.Healthy, p.CaughtUp, " "+p.Reason); strings.Replace(got, "  ", " ", 1) != want[i] {
			t.Errorf("%+v: %s, not %s", checks[i], got, want[i])
		}
	}
}

// A host says what it sees, whole, when it has looked at everything, and again
// only when it has changed.
func TestLinkHealth(t *testing.T) {
	t.Parallel()
	p, b := newLinkPlane(t), newBench(t)
	var down atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if down.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer s.Close()
	gone := listen(t, "127.0.0.1:0") // so that it looks often
	gone.Close()
	up := portOf(t, s.Listener)
	p.declare(b, 1, fmt.Sprintf("resources: []\nchecks: [{id: p1, port: %d, path: /up}, {id: p2, port: %d}]", up, portOf(t, gone)))
	r := b.start(p)
	said := func() string {
		text := ""
		for _, all := range p.health {
			for _, h := range all {
				text += fmt.Sprintf(" %s=%v/%v", h.ID, h.Healthy, h.CaughtUp)
			}
			text += ";"
		}
		return text
	}
	p.until("it says what it sees", func() bool { return said() == "; p1=true/true p2=false/false;" })
	down.Store(true)
	p.until("it says what has changed", func() bool {
		return said() == "; p1=true/true p2=false/false; p1=false/false p2=false/false;"
	})
	p.mu.Lock()
	if got, want := p.health[2][0].Reason, fmt.Sprintf("GET /up at port %d is answered with 500", up); got != want {
		t.Errorf("%q, not %q", got, want)
	}
	p.mu.Unlock()
	p.declare(b, 2, `resources: []`)
	p.until("it checks nothing any more", func() bool { return strings.HasSuffix(said(), "p2=false/false;;") })
	if code, text := r.stop(); code != 0 {
		t.Errorf("%d %s", code, text)
	}
}

// While nothing is to be looked at, a watch does not wake.
func TestWatchSleeps(t *testing.T) {
	t.Parallel()
	boot, err := bootID()
	if err != nil {
		t.Fatal(err)
	}
	looked := make(chan struct{}, 10)
	w := newWatch(boot, func([]resource.DataDisk) string { looked <- struct{}{}; return "" })
	if _, any := w.next(); any {
		t.Error("it would wake for nothing")
	}
	w.applied(&resource.Declaration{Resources: []resource.Resource{{Disk: &resource.DataDisk{ID: "d"}}}})
	if after, any := w.next(); !any || after != disksEvery || len(looked) != 1 {
		t.Errorf("a disk is looked at %d times, and after %v, %v", len(looked), after, any)
	}
	w.applied(&resource.Declaration{})
	if _, any := w.next(); any {
		t.Error("it still would")
	}
	if all, ok := w.health(); len(all) != 0 || !ok {
		t.Errorf("%v %v", all, ok)
	}
}

// A disk that goes, or comes, is a reason to reconcile.
func TestWatchSeesDisks(t *testing.T) {
	t.Parallel()
	boot, err := bootID()
	if err != nil {
		t.Fatal(err)
	}
	there := "here"
	w := newWatch(boot, func([]resource.DataDisk) string { return there })
	w.applied(&resource.Declaration{Resources: []resource.Resource{{Disk: &resource.DataDisk{ID: "d"}}}})
	w.look(context.Background())
	if trigger := w.woken(); trigger != "" {
		t.Errorf("nothing has changed: %s", trigger)
	}
	there = "gone"
	w.look(context.Background())
	select {
	case <-w.news:
	case <-time.After(time.Minute):
		t.Fatal("nobody is woken")
	}
	if a, b := w.woken(), w.woken(); a != "disk" || b != "" {
		t.Errorf("it is woken for %q, then %q", a, b)
	}
}
