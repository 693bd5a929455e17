package control

import (
	"testing"
	"time"

	"muster.internal"
	"muster.internal/store"
)

// Nodes are written down in parts. One that went, and is in the second part, is
// forgotten with the first: that must not stop the second.
func TestPresenceInParts(t *testing.T) {
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	p := &presence{nodes: map[string]*present{}}
	said := muster.LinkPoll{}
	for _, node := range []string{"here", "gone"} {
		leave, err := p.arrive(func() time.Time { return now }, node, said)
		if err != nil {
			t.Fatal(err)
		}
		if node == "gone" {
			leave()
		}
	}
	now = now.Add(linkGrace + time.Minute)
	seen := p.due(now)
	if len(seen) != 2 {
		t.Fatalf("%d nodes are to be written down, want 2", len(seen))
	}
	if seen[0].NodeID == "gone" {
		seen[0], seen[1] = seen[1], seen[0]
	}
	p.done(now, seen[:1])
	p.done(now, []store.NodeSeen{seen[1]})
	if len(p.nodes) != 1 || p.nodes["here"] == nil {
		t.Errorf("it knows %v, and should know the one that is here", p.nodes)
	}
}
