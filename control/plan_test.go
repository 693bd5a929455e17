package control_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/lifecycle"
)

const (
	timeModule = `{"module": "time", "version": 1, "base": true, "place": {"each_node": true}, "resources": [{"file": {"path": "/time/conf", "content": "x"}}]}`
	dbModule   = `{"module": "db", "version": 1, "place": {"replicas": 2, "minimum": 2}, "moves": "surge", "resources": [{"file": {"path": "/db/conf", "content": "x"}}]}`
	oneModule  = `{"module": "one", "version": 1, "place": {"replicas": 1, "minimum": 0}, "moves": "restart", "resources": [{"file": {"path": "/one/{{ placement.id }}", "content": "x"}}]}`
)

// TestNodesComeAndGo: a node comes in, serves once its base modules are up, is
// kept free, is quiesced and comes back, and leaves; of two replicas two are
// there all the while.
func TestNodesComeAndGo(t *testing.T) {
	t.Parallel()
	f := newPlace(t, postgresURL(t)).newWorkers()
	f.want(timeModule)
	a, b := f.add(nil), f.add(nil)
	for _, w := range []*worker{a, b} {
		f.until("it serves", func() bool { _, s := w.state(); return s == muster.NodeInService })
	}
	if on := f.on("time"); on != "w1 w2" {
		t.Errorf("they serve, and time is on %s", on)
	}
	f.want(dbModule)
	f.until("both have one", func() bool { return f.on("db") == "w1 w2" })

	c := f.add(nil)
	c.raise(lifecycle.NoProvision)
	f.until("the third has base modules alone", func() bool { return f.on("time") == "w1 w2 w3" })
	a.raise(lifecycle.GracefulRemove)
	f.until("it is said that there is no room", func() bool {
		return f.on("db") == "w1 w2" && f.says("no node can take it")
	})
	c.raise(lifecycle.Resume)
	f.until("the first is let go", func() bool { _, s := a.state(); return s == muster.NodeDecommissioned })
}

// TestLostIsTold: what was on an expunged node is placed elsewhere, its module's
// webhook is called until it answers, with the same id, and nothing is said to
// the node any more.
func TestLostIsTold(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var calls []string
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, _ := io.ReadAll(r.Body)
		calls = append(calls, r.Header.Get("Muster-Hook-Id")+" "+string(body))
		if len(calls) < 3 {
			http.Error(w, "not now", http.StatusServiceUnavailable)
		}
	}))
	defer hook.Close()
	p := newPlace(t, postgresURL(t))
	f := p.newWorkers()
	f.want(`{"module": "one", "version": 1, "place": {"replicas": 1}, "moves": "restart", "on_expunge": [{"webhook": "` + hook.URL + `"}], "resources": [{"file": {"path": "/one/conf", "content": "x"}}]}`)
	a, b := f.add(nil), f.add(nil)
	f.until("it is somewhere", func() bool { return f.on("one") != "" })
	lost, other := a, b
	if f.on("one") == "w2" {
		lost, other = b, a
	}
	lost.cut()
	told := lost.share().Generation
	lost.expunge()
	f.until("it is elsewhere", func() bool { return strings.Contains(f.on("one"), fmt.Sprintf("w%d", other.n)) })
	f.until("the webhook has answered", func() bool {
		p.advance(time.Minute) // the pauses between calls
		mu.Lock()
		defer mu.Unlock()
		return len(calls) >= 3
	})
	mu.Lock()
	for _, c := range calls {
		if c != calls[0] || !strings.Contains(c, `"event":"lost_placement"`) {
			t.Errorf("a call is otherwise: %s", c)
		}
	}
	mu.Unlock()
	if d, err := f.s.Declaration(t.Context(), lost.node); err != nil || d.Generation > told {
		t.Errorf("the expunged node was told generation %d after %d: %v", d.Generation, told, err)
	}
	if _, s := lost.state(); s != muster.NodeDecommissioned {
		f.until("it is decommissioned", func() bool { _, s := lost.state(); return s == muster.NodeDecommissioned })
	}
}
