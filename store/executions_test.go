package store

import (
	"errors"
	"strings"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/module"
	"muster.internal/resource"
)

func saysOf(t testing.TB, generation int64, motd string) resource.Declaration {
	t.Helper()
	d, err := resource.Parse("test", []byte(`{"resources":[{"file":{"path":"/etc/motd","content":"`+motd+`"}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	d.Generation = generation
	return d
}

// TestRealise: a node is told exactly what the target says of it, once; never
// something older, never the same number with another content, and never by who
// has an old target.
func TestRealise(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		nodes := twoNodes(t, s)
		n := nodes[0]
		b1 := s.mustSet(t, child(nil, "b1", nodes))
		tell := func(blueprint string, d resource.Declaration) error {
			return s.Realise(ctx, start, muster.Clock, n, blueprint, d)
		}
		before := entries(t, s, "node/"+n, ActionDeclare)
		for range 2 { // saying it again is success, and no entry
			if err := tell("b1", saysOf(t, 4, "four")); err != nil {
				t.Fatal(err)
			}
		}
		if d := must[muster.NodeDeclaration](t)(s.Declaration(ctx, n)); d.Generation != 4 || d.DeclaredBy != "clock" {
			t.Fatalf("%+v", d)
		}
		if told := entries(t, s, "node/"+n, ActionDeclare) - before; told != 1 {
			t.Errorf("it was told %d times", told)
		}
		wantCode(t, tell("b1", saysOf(t, 4, "another four")), muster.CodeConflict)
		wantCode(t, tell("b1", saysOf(t, 3, "three")), muster.CodeConflict)
		s.mustSet(t, child(b1, "b2", nodes))
		wantCode(t, tell("b1", saysOf(t, 9, "nine")), muster.CodeConflict)
		if err := tell("b2", saysOf(t, 5, "five")); err != nil {
			t.Fatal(err)
		}
		// What its host says it holds counts, too.
		if err := s.KeepLinks(ctx, start, []NodeSeen{{NodeID: n, At: start, Said: muster.LinkPoll{Holds: 8}}}); err != nil {
			t.Fatal(err)
		}
		wantCode(t, tell("b2", saysOf(t, 8, "eight")), muster.CodeConflict)
		if err := tell("b2", saysOf(t, 9, "nine")); err != nil {
			t.Fatal(err)
		}
		gone := must[muster.Node](t)(nodeOfTest(s, t, n))
		must[muster.NodeDetail](t)(s.ExpungeNode(ctx, start, ada, n, muster.Expunge{Confirm: gone.ServerUUID, Reason: "it burns"}))
		wantCode(t, tell("b2", saysOf(t, 10, "ten")), muster.CodeConflict)
		if d := must[muster.NodeDeclaration](t)(s.Declaration(ctx, n)); d.Generation != 9 {
			t.Errorf("an expunged node was told %d", d.Generation)
		}
	})
}

func nodeOfTest(s *Store, t testing.TB, id string) (muster.Node, error) {
	d, err := s.Node(t.Context(), id)
	return d.Node, err
}

// TestRealiseFails: a failure is kept, is tried again later and later, is told
// when it begins and when its budget is spent, and is over when a new generation
// comes, or when the node was told.
func TestRealiseFails(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		n := twoNodes(t, s)[0]
		now, last := start, time.Duration(0)
		why := errors.New("its host is too old")
		for try := 1; try <= executeBudget; try++ {
			e := must[Execution](t)(s.RealiseFailed(ctx, now, muster.Clock, n, 3, why))
			pause := e.AgainAt.Sub(now)
			if e.Tries != try || e.Error != why.Error() || pause < last {
				t.Fatalf("try %d: %+v after %v", try, e, last)
			}
			if again := must[Execution](t)(s.RealiseFailed(ctx, now, muster.Clock, n, 3, why)); again.Tries != try {
				t.Fatalf("another control plane at the same time counts: %+v", again)
			}
			now, last = e.AgainAt, pause
		}
		if last != executeSeldom {
			t.Errorf("with its budget spent it is tried again after %v", last)
		}
		if got := entries(t, s, "node/"+n, ActionDeclareFailed); got != 2 {
			t.Errorf("it was told of %d times", got)
		}
		if e := must[Execution](t)(s.RealiseFailed(ctx, now, muster.Clock, n, 4, why)); e.Tries != 1 {
			t.Errorf("a new generation has a budget of its own: %+v", e)
		}
		s.mustSet(t, child(nil, "b1", []string{n}))
		if err := s.Realise(ctx, now, muster.Clock, n, "b1", saysOf(t, 4, "x")); err != nil {
			t.Fatal(err)
		}
		state, err := s.NewFleetReader().Read(ctx, now)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range state.Nodes {
			if f.ID == n && (f.Execution != nil || f.Declared != 4) {
				t.Errorf("%+v, told %d", f.Execution, f.Declared)
			}
		}
	})
}

// TestHooks: what is lost calls its module's webhooks, each once for the store,
// and has its events; a call is one control plane's at a time, and is given up in
// the end.
func TestHooks(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		n := twoNodes(t, s)[0]
		hooked := func(b *muster.Blueprint) *muster.Blueprint {
			b.Modules = []module.Module{{Name: "web", Version: 1, OnExpunge: []module.Hook{{Webhook: "https://example.net/gone"}, {Event: "web_lost"}}}}
			return b
		}
		b1 := s.mustSet(t, hooked(child(nil, "b1", []string{n}, []string{"p1 placed", "p2 placed"})))
		b2 := s.mustSet(t, hooked(child(b1, "b2", []string{n}, []string{"p1 lost", "p2 removed"})))
		s.mustSet(t, hooked(child(b2, "b3", []string{n}, []string{"p1 lost", "p2 removed"})))
		if got := entries(t, s, "placement/p1", "web_lost"); got != 1 {
			t.Errorf("%d events", got)
		}
		due := must[[]HookCall](t)(s.HooksDue(ctx, start))
		if len(due) != 1 || due[0].ID != "p1.1" || due[0].URL != "https://example.net/gone" || !strings.Contains(string(due[0].Body), `"placement_id":"p1"`) {
			t.Fatalf("%+v", due)
		}
		now := start
		for try := 1; try <= hookBudget; try++ {
			due := must[[]HookCall](t)(s.HooksDue(ctx, now))
			if len(due) != 1 {
				t.Fatalf("try %d at %v: %+v", try, now, due)
			}
			if !must[bool](t)(s.TakeHook(ctx, now, due[0])) || must[bool](t)(s.TakeHook(ctx, now, due[0])) {
				t.Fatal("it is one's at a time")
			}
			if again := must[[]HookCall](t)(s.HooksDue(ctx, now.Add(hookLease-1))); len(again) != 0 {
				t.Fatalf("it was taken, and is due: %+v", again)
			}
			if again := must[[]HookCall](t)(s.HooksDue(ctx, now.Add(hookLease))); len(again) != 1 {
				t.Fatal("who took it may have died, and it is not due")
			}
			if err := s.HookDone(ctx, now, due[0], errors.New("example.net answers 500")); err != nil {
				t.Fatal(err)
			}
			now = now.Add(hookAgainMax)
		}
		if due := must[[]HookCall](t)(s.HooksDue(ctx, now.Add(1000*time.Hour))); len(due) != 0 {
			t.Errorf("it was given up, and is due: %+v", due)
		}
		if got := entries(t, s, "node/"+n, ActionHookFailed); got != 2 {
			t.Errorf("it was told of %d times", got)
		}
	})
}
