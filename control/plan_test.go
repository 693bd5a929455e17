package control_test

import (
	"testing"

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
