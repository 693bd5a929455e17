package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster.internal"
	"muster.internal/module"
)

// twoNodes are the ids of two members, in order.
func twoNodes(t testing.TB, s *Store) (ids []string) {
	t.Helper()
	site(t, s)
	for i := 1; i <= 2; i++ {
		member(t, s, boxNo(i), start)
		ids = append(ids, must[muster.Registration](t)(s.Registration(t.Context(), boxNo(i).uuid)).NodeID)
	}
	slices.Sort(ids)
	return ids
}

// child is a blueprint after another, with a placement "ID STATE" on each node
// that is given some; "ID STATE REPLACED" replaces one.
func child(parent *muster.Blueprint, id string, nodes []string, on ...[]string) *muster.Blueprint {
	b := &muster.Blueprint{ID: id, MadeAt: start, Why: "a test", Modules: []module.Module{{Name: "web", Version: 1}}}
	if parent != nil {
		b.Parent = parent.ID
	}
	for i, n := range nodes {
		bn := muster.BlueprintNode{ID: n, State: muster.NodeInService, Generation: 1, Drawn: 9}
		if i < len(on) {
			for _, said := range on[i] {
				words := append(strings.Fields(said), "")
				bn.Placements = append(bn.Placements, muster.BlueprintPlacement{
					Placement: muster.Placement{ID: words[0], Module: "web", Kind: muster.PlacementService, State: muster.PlacementState(words[1])},
					Name:      "web-" + words[0], Version: 1, Since: 1, Replaces: words[2]})
			}
		}
		b.Nodes = append(b.Nodes, bn)
	}
	return b
}

func (s *Store) mustSet(t testing.TB, b *muster.Blueprint) *muster.Blueprint {
	t.Helper()
	must[muster.BlueprintEntry](t)(s.SetTarget(t.Context(), start, ada, b, muster.PlanReport{Blueprint: b.ID, Done: []muster.PlanLine{{Text: "done"}}}))
	return b
}

func states(t testing.TB, s *Store) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, p := range must[[]muster.PlacementRecord](t)(s.Placements(t.Context(), muster.PlacementFilter{State: muster.PlacementAny})) {
		all[p.ID] = string(p.State)
	}
	return all
}

// TestTarget: the target is set, read back whole, and placements and moves are
// what it says, each change of a state with an entry of its own.
func TestTarget(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		nodes := twoNodes(t, s)
		if is, b, err := s.Target(ctx); err != nil || b != nil || is.Number != 0 || !is.Planning {
			t.Fatalf("%+v %v %v", is, b, err)
		}
		_, err := s.Blueprint(ctx, "target")
		wantCode(t, err, muster.CodeNotFound)

		a := s.mustSet(t, child(nil, "a", nodes, []string{"p1 reserved"}))
		b := s.mustSet(t, child(a, "b", nodes, []string{"p1 placed"}))
		c := s.mustSet(t, child(b, "c", nodes, []string{"p1 moving"}, []string{"p2 reserved p1"}))
		h := must[muster.NodeDetail](t)(s.Node(ctx, nodes[1]))
		if want := []muster.Move{{ID: "p2", Placement: "p1", From: nodes[0], To: nodes[1], StartedAt: start}}; !cmp.Equal(h.Moves, want) {
			t.Errorf("moves %+v, want %+v", h.Moves, want)
		}
		d := s.mustSet(t, child(c, "d", nodes, []string{"p1 removed"}, []string{"p2 placed p1"}))
		if got := states(t, s); !cmp.Equal(got, map[string]string{"p1": "removed", "p2": "placed"}) {
			t.Error(got)
		}
		if h := must[muster.NodeDetail](t)(s.Node(ctx, nodes[1])); len(h.Moves) != 0 {
			t.Errorf("a move that is over is under way: %+v", h.Moves)
		}
		// What leaves the blueprint has ended before; p3 has not, and does.
		e := s.mustSet(t, child(d, "e", nodes, []string{"p3 reserved"}, []string{"p2 placed"}))
		s.mustSet(t, child(e, "f", nodes, nil, []string{"p2 placed"}))
		if got := states(t, s); got["p3"] != "removed" {
			t.Error(got)
		}
		var said []string
		for _, id := range []string{"p1", "p2", "p3"} {
			for _, x := range must[[]muster.AuditEntry](t)(s.Audit(ctx, muster.AuditFilter{Subject: "placement/" + id})) {
				said = append(said, id+" "+x.Action)
			}
		}
		if want := []string{"p1 reserved_placement", "p1 placed_placement", "p1 moving_placement", "p1 removed_placement", "p2 reserved_placement",
			"p2 placed_placement", "p3 reserved_placement", "p3 removed_placement"}; !slices.Equal(said, want) {
			t.Errorf("the audit says %q, want %q", said, want)
		}

		// Read back, by a store that has not seen it before, and listed.
		s.target.Store(nil)
		is, back, err := s.Target(ctx)
		if err != nil || is.Number != 6 || is.ID != "f" || back.Nodes[1].Placements[0].Name != "web-p2" {
			t.Fatalf("%+v %+v %v", is, back, err)
		}
		for _, ref := range []string{"a", "1"} {
			got := must[muster.BlueprintDetail](t)(s.Blueprint(ctx, ref))
			if diff := cmp.Diff(*a, got.Blueprint); diff != "" || got.Number != 1 || got.Target || got.Report.Done[0].Text != "done" || got.MadeBy != "operator ada" && got.MadeBy != ada.String() {
				t.Errorf("%+v\n%s", got, diff)
			}
		}
		_, err = s.Blueprint(ctx, "77")
		wantCode(t, err, muster.CodeNotFound)
		var numbers []int64
		for before := int64(0); ; before = numbers[len(numbers)-1] {
			page := must[[]muster.BlueprintEntry](t)(s.Blueprints(ctx, before, 4))
			if len(page) == 0 {
				break
			}
			for _, e := range page {
				numbers = append(numbers, e.Number)
				if e.Target != (e.ID == "f") || e.Changes != 1 {
					t.Errorf("%+v", e)
				}
			}
		}
		if !slices.Equal(numbers, []int64{6, 5, 4, 3, 2, 1}) {
			t.Errorf("listed %v", numbers)
		}

		// The target stays whatever is pruned.
		_, err = s.PruneBlueprints(ctx, start, ada, -1)
		wantCode(t, err, muster.CodeInvalid)
		for keep, gone := range map[int64]int64{2: 3} {
			if n := must[int64](t)(s.PruneBlueprints(ctx, start, ada, keep)); n != gone {
				t.Errorf("%d are gone, want %d", n, gone)
			}
		}
		if n := must[int64](t)(s.PruneBlueprints(ctx, start, ada, 0)); n != 2 || must[muster.BlueprintDetail](t)(s.Blueprint(ctx, "target")).ID != "f" {
			t.Errorf("%d are gone", n)
		}
		healthy(t, s)
	})
}

// TestTargetRace: of two that were made from one parent exactly one becomes the
// target; the other leaves nothing behind.
func TestTargetRace(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		nodes := twoNodes(t, s)
		other := s // SQLite has one process; PostgreSQL several
		if p, ok := s.engine.(*postgres); ok {
			other = open(t, p.pool.Config().ConnString())
		}
		target := s.mustSet(t, child(nil, "first", nodes))
		for round := range 50 {
			var won atomic.Pointer[muster.Blueprint]
			errs := together(2, func(i int) error {
				b := child(target, fmt.Sprintf("%d-%d", round, i), nodes, []string{fmt.Sprintf("p-%d-%d reserved", round, i)})
				_, err := []*Store{s, other}[i].SetTarget(ctx, start, ada, b, muster.PlanReport{})
				if err == nil && !won.CompareAndSwap(nil, b) {
					err = errors.New("two have won")
				}
				return err
			})
			lost := slices.IndexFunc(errs, func(err error) bool { return err != nil })
			if lost < 0 || errs[1-lost] != nil {
				t.Fatalf("round %d: %v", round, errs)
			}
			target = won.Load()
			var p *muster.Problem
			if !errors.As(errs[lost], &p) || p.Code != muster.CodeConflict || p.State != target.ID {
				t.Fatalf("round %d: the loser is told %+v", round, errs[lost])
			}
			if _, b, err := other.Target(ctx); err != nil || b.ID != target.ID {
				t.Fatalf("round %d: %v %v", round, b, err)
			}
		}
		if n := len(states(t, s)); n != 50 {
			t.Errorf("%d placements of 50 that won", n)
		}
		healthy(t, s)
	})
}

// TestTargetRefused: by a parent that nobody knows, by planning that was
// stopped, and by what happened to a node since the plan was made.
func TestTargetRefused(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		nodes := twoNodes(t, s)
		refused := func(b *muster.Blueprint, state, why string) {
			t.Helper()
			_, err := s.SetTarget(ctx, start, ada, b, muster.PlanReport{})
			var p *muster.Problem
			if !errors.As(err, &p) || p.Code != muster.CodeConflict || p.State != state || !strings.Contains(p.Detail, why) {
				t.Errorf("%v, want state %q and %q", err, state, why)
			}
		}
		refused(child(&muster.Blueprint{ID: "nobody"}, "x", nodes), "", "the target is none")
		a := s.mustSet(t, child(nil, "a", nodes, []string{"p1 placed"}, []string{"p2 placed"}))
		refused(child(nil, "x", nodes), "a", "was made from none, and the target is blueprint 1 (a)")

		_, err := s.SetPlanning(ctx, start, ada, false, "")
		wantCode(t, err, muster.CodeInvalid)
		if is := must[muster.BlueprintTarget](t)(s.SetPlanning(ctx, start, ada, false, "the auditors are here")); is.Planning || is.SetBy != ada.String() || !is.SetAt.Equal(start) {
			t.Errorf("%+v", is)
		}
		refused(child(a, "x", nodes), "a", "the auditors are here")
		if is := must[muster.BlueprintTarget](t)(s.SetPlanning(ctx, start, ada, true, "")); !is.Planning || is.Reason != "" {
			t.Errorf("%+v", is)
		}

		// One node is expunged in the operator's call, which ends what is there.
		must[muster.NodeDetail](t)(s.ExpungeNode(ctx, start, ada, nodes[0], muster.Expunge{Confirm: serialOf(t, s, nodes[0]), Reason: "its board is broken"}))
		refused(child(a, "x", nodes, []string{"p1 moving"}, []string{"p2 placed"}), "a", "placement web-p1 on node "+nodes[0]+" is lost meanwhile")
		refused(child(a, "x", nodes, []string{"p1 placed", "p3 reserved"}, []string{"p2 placed"}), "a", "nothing can be placed on node "+nodes[0])
		b := s.mustSet(t, child(a, "b", nodes, []string{"p1 lost"}, []string{"p2 placed"}))
		if n := entries(t, s, "placement/p1", "lost_placement"); n != 1 {
			t.Errorf("it is lost %d times", n)
		}
		// What had ended may come back, but not there.
		c := s.mustSet(t, child(b, "c", nodes, nil, []string{"p2 removed"}))
		refused(child(c, "x", nodes, []string{"p1 reserved"}), "c", "nothing can be placed on node "+nodes[0])
		s.mustSet(t, child(c, "d", nodes, nil, []string{"p2 reserved"}))
		if got := states(t, s); !cmp.Equal(got, map[string]string{"p1": "lost", "p2": "reserved"}) {
			t.Error(got)
		}
		healthy(t, s)
	})
}

func serialOf(t testing.TB, s *Store, node string) string {
	t.Helper()
	return must[muster.NodeDetail](t)(s.Node(t.Context(), node)).Serial
}

// TestMovesEnd: as their new placement does, also in the call that expunges its
// node.
func TestMovesEnd(t *testing.T) {
	for _, c := range []struct{ to, outcome string }{{"placed", "done"}, {"removed", "cancelled"}, {"lost", "failed"}, {"", "failed"}} {
		t.Run(c.to, func(t *testing.T) {
			s := open(t, sqliteURL(t))
			nodes := twoNodes(t, s)
			a := s.mustSet(t, child(nil, "a", nodes, []string{"p1 placed"}))
			b := s.mustSet(t, child(a, "b", nodes, []string{"p1 moving"}, []string{"p2 reserved p1"}))
			if c.to != "" {
				s.mustSet(t, child(b, "c", nodes, []string{"p1 placed"}, []string{"p2 " + c.to}))
			} else {
				must[muster.NodeDetail](t)(s.ExpungeNode(t.Context(), start, ada, nodes[1], muster.Expunge{Confirm: serialOf(t, s, nodes[1]), Reason: "its board is broken"}))
			}
			var outcome string
			if err := s.reader.QueryRow("SELECT outcome FROM moves WHERE move_id = 'p2' AND ended_at > 0").Scan(&outcome); err != nil || outcome != c.outcome {
				t.Errorf("%q %v, want %q", outcome, err, c.outcome)
			}
		})
	}
}

// TestByHand: a node is told what to be by people or by blueprints, not by both.
func TestByHand(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		nodes := twoNodes(t, s)
		a := s.mustSet(t, child(nil, "a", nodes, []string{"p1 placed"}))
		_, err := s.Declare(ctx, start, ada, nodes[0], declaration(t, "x"))
		wantCode(t, err, muster.CodeConflict)
		if err == nil || !strings.Contains(err.Error(), "pinned") {
			t.Errorf("it does not say what to do: %v", err)
		}
		must[muster.NodeDeclaration](t)(s.Declare(ctx, start, ada, nodes[1], declaration(t, "x")))
		if n := must[muster.NodeDetail](t)(s.Node(ctx, nodes[1])); !n.ByHand {
			t.Errorf("%+v", n.Node)
		}
		b := child(a, "b", nodes, []string{"p1 placed"}, []string{"p2 reserved"})
		_, err = s.SetTarget(ctx, start, ada, b, muster.PlanReport{})
		wantCode(t, err, muster.CodeConflict)
		for range 2 {
			if n := must[muster.Node](t)(s.HandOver(ctx, start, ada, nodes[1])); n.ByHand {
				t.Errorf("%+v", n)
			}
		}
		if n := entries(t, s, nodeSubject(nodes[1]), ActionHandOver); n != 1 {
			t.Errorf("handed over %d times", n)
		}
		// Until something is placed there, people may think better of it.
		if d := must[muster.NodeDeclaration](t)(s.Declare(ctx, start, ada, nodes[1], declaration(t, "x"))); d.Generation != 2 {
			t.Errorf("%+v", d)
		}
		must[muster.Node](t)(s.HandOver(ctx, start, ada, nodes[1]))
		s.mustSet(t, b)
		_, err = s.HandOver(ctx, start, ada, "nobody")
		wantCode(t, err, muster.CodeNotFound)
		healthy(t, s)
	})
}

// TestTargetCost: what stays as it is costs no statement.
func TestTargetCost(t *testing.T) {
	s := open(t, sqliteURL(t))
	nodes := twoNodes(t, s)
	many := make([]string, 2000)
	for i := range many {
		many[i] = fmt.Sprintf("p%05d placed", i)
	}
	a := s.mustSet(t, child(nil, "a", nodes, many))
	b := child(a, "b", nodes, slices.Clone(many), []string{"q placed"})
	statements := 0
	s.fault = func(*session, string) error { statements++; return nil }
	s.mustSet(t, b)
	if s.fault = nil; statements > 25 {
		t.Errorf("one new placement beside %d takes %d statements", len(many), statements)
	}
}

// TestBlueprintsKept: of very many the oldest go by themselves.
func TestBlueprintsKept(t *testing.T) {
	s := open(t, sqliteURL(t))
	nodes := twoNodes(t, s)
	b := s.mustSet(t, child(s.mustSet(t, child(nil, "a", nodes)), "b", nodes))
	meddle(t, s, "UPDATE blueprints SET number = 1999 WHERE number = 2")
	meddle(t, s, "UPDATE blueprint_target SET number = 1999")
	s.mustSet(t, child(b, "c", nodes))
	var left []string
	for _, e := range must[[]muster.BlueprintEntry](t)(s.Blueprints(t.Context(), 0, 0)) {
		left = append(left, e.ID)
	}
	if !slices.Equal(left, []string{"c", "b"}) {
		t.Errorf("left are %q", left)
	}
}

// TestLastChange: the newest that was done about something, however long ago.
func TestLastChange(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		nodes := twoNodes(t, s)
		var parent *muster.Blueprint
		for i, l := range []muster.PlanLine{{Node: nodes[0], Placement: "p1", Text: "one"}, {Node: nodes[0], Disk: "d1", Text: "two"}, {Node: nodes[1], Text: "three"}} {
			b := child(parent, fmt.Sprint("b", i), nodes)
			must[muster.BlueprintEntry](t)(s.SetTarget(ctx, start, ada, b, muster.PlanReport{Done: []muster.PlanLine{{Text: "not about it"}, l}}))
			parent = b
		}
		for _, c := range []struct {
			kind   muster.Subject
			id     string
			number int64
			text   string
		}{{muster.SubjectNode, nodes[0], 2, "two"}, {muster.SubjectNode, nodes[1], 3, "three"}, {muster.SubjectPlacement, "p1", 1, "one"}, {muster.SubjectDisk, "d1", 2, "two"}} {
			got := must[*muster.ExplainedChange](t)(s.LastChange(ctx, c.kind, c.id))
			if got == nil || got.Number != c.number || len(got.Lines) != 1 || got.Lines[0].Text != c.text || got.By != ada.String() || got.Why != "a test" || !got.At.Equal(start) {
				t.Errorf("%s %s: %+v, want %q of %d", c.kind, c.id, got, c.text, c.number)
			}
		}
		if got := must[*muster.ExplainedChange](t)(s.LastChange(ctx, muster.SubjectDisk, "d2")); got != nil {
			t.Errorf("%+v", got)
		}
	})
}
