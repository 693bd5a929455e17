package store

import (
	"slices"
	"strings"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/lifecycle"
	"muster.internal/resource"
)

const fileSecret = "a planted file's secret"

// declaration is one with a secret, in the form that control hands over.
func declaration(t testing.TB, motd string) resource.Declaration {
	t.Helper()
	return must[resource.Declaration](t)(resource.Parse("test", []byte(`{"values": {"port": "80"}, "resources": [
{"file": {"path": "/etc/motd", "content": "`+motd+`"}},
{"file": {"path": "/etc/secret", "content": "`+fileSecret+`", "secret": true}}]}`)))
}

// linked is who a node of this key speaks as, over the link.
func linked(t testing.TB, s *Store, key, node string) muster.Caller {
	t.Helper()
	c := must[muster.Caller](t)(s.Authenticate(t.Context(), start, key, ""))
	return must[muster.Caller](t)(s.AuthenticateNode(t.Context(), start, node, c.KeyID, "192.0.2.7"))
}

func report(at time.Duration, o resource.Outcome, lines ...resource.Line) resource.Report {
	return resource.Report{Generation: 1, Trigger: "timer", Started: start.Add(at), Finished: start.Add(at), Version: "1", Outcome: o, Lines: lines}
}

// linkUp does everything that a link does, once.
func linkUp(t testing.TB, s *Store, node string) {
	t.Helper()
	ctx, by := t.Context(), muster.Caller{NodeID: node, KeyID: "k", Scope: muster.ScopeAgent}
	must[muster.NodeDeclaration](t)(s.Declare(ctx, start, ada, node, declaration(t, "hello")))
	for _, err := range []error{
		s.KeepReport(ctx, start, by, report(0, resource.OutcomeFailed, resource.Line{Ref: "file:/etc/motd", Outcome: resource.OutcomeFailed})),
		s.KeepOwned(ctx, start, by, []resource.Owned{{Ref: "file:/etc/motd", Origin: resource.OriginCreated, Since: start, Generation: 1}}),
		s.KeepProfile(ctx, start, by, muster.Profile{Facts: map[string]string{"os": "debian"}}),
		s.KeepHealth(ctx, start, by, []muster.PlacementHealth{{ID: "p1", Healthy: true, CaughtUp: true, Since: start}}),
		s.KeepLinks(ctx, start, []NodeSeen{{node, start, muster.LinkPoll{Holds: 1, Version: "1", Capability: 1, BootID: "b"}}}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// actions lists what the audit says of a node, after a position.
func actions(t testing.TB, s *Store, node string, after int64) (as []string) {
	t.Helper()
	for _, e := range must[[]muster.AuditEntry](t)(s.Audit(t.Context(), muster.AuditFilter{After: after, Subject: nodeSubject(node)})) {
		as = append(as, e.Action)
	}
	return as
}

func TestDeclare(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		member(t, s, boxNo(1), start)
		node := must[muster.Registration](t)(s.Registration(ctx, boxNo(1).uuid)).NodeID
		_, err := s.Declaration(ctx, node)
		wantCode(t, err, muster.CodeNotFound)
		if n, err := s.News(ctx, node, 0); n.Generation != 0 || n.Newer != nil || err != nil {
			t.Fatalf("before any: %+v %v", n, err)
		}
		for i := range 2 { // the second one says the same
			n := must[muster.NodeDeclaration](t)(s.Declare(ctx, start, ada, node, declaration(t, "one")))
			if n.Generation != 1 || n.DeclaredBy != "operator:ada" {
				t.Fatalf("time %d: %+v", i+1, n)
			}
		}
		for i := range 20 {
			must[muster.NodeDeclaration](t)(s.Declare(ctx, start, ada, node, declaration(t, strings.Repeat("x", i+2))))
		}
		n, err := s.News(ctx, node, 3)
		g, d := n.Generation, n.Newer
		if err != nil || g != 21 || d == nil || d.Generation != 21 || d.Resources[0].File.Content != strings.Repeat("x", 21) || d.Resources[1].File.Content != fileSecret {
			t.Fatalf("the newest: %d %+v %v", g, d, err)
		}
		if n, err := s.News(ctx, node, 21); n.Generation != 21 || n.Newer != nil || err != nil {
			t.Fatalf("nothing newer: %+v %v", n, err)
		}
		stale := declaration(t, "stale")
		stale.Generation = 20
		_, err = s.Declare(ctx, start, ada, node, stale)
		wantCode(t, err, muster.CodeConflict)
		var kept int
		if err := s.reader.QueryRow("SELECT count(*) FROM declarations").Scan(&kept); err != nil || kept != declarationsKept {
			t.Fatalf("%d declarations are kept (%v), want %d", kept, err, declarationsKept)
		}
		// A store that was restored does not know the generation that the host holds.
		by := muster.Caller{NodeID: node}
		if err := s.KeepLinks(ctx, start, []NodeSeen{{node, start, muster.LinkPoll{Holds: 40}}}); err != nil {
			t.Fatal(err)
		}
		if n := must[muster.NodeDeclaration](t)(s.Declare(ctx, start, ada, node, declaration(t, "restored"))); n.Generation != 41 {
			t.Fatalf("generation %d, and the host holds 40", n.Generation)
		}
		r := report(0, resource.OutcomeOK)
		r.Generation = 50
		if err := s.KeepReport(ctx, start, by, r); err != nil {
			t.Fatal(err)
		}
		if n := must[muster.NodeDeclaration](t)(s.Declare(ctx, start, ada, node, declaration(t, "again"))); n.Generation != 51 {
			t.Fatalf("generation %d, and the host has reported 50", n.Generation)
		}
		if text := dump(t, behind(t, s)); strings.Contains(text, fileSecret) {
			t.Error("the secret is in the database, in the clear")
		}
		must[muster.NodeDetail](t)(s.ExpungeNode(ctx, start, ada, node, muster.Expunge{Confirm: boxNo(1).uuid, Reason: "gone"}))
		_, err = s.Declare(ctx, start, ada, node, declaration(t, "too late"))
		wantCode(t, err, muster.CodeConflict)
		_, err = s.Declare(ctx, start, ada, "nobody", declaration(t, "x"))
		wantCode(t, err, muster.CodeNotFound)
		healthy(t, s)
	})
}

// A certificate dies with the key that it was signed for, in the same words.
func TestACertificateDiesWithItsKey(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		a, b := member(t, s, boxNo(1), start), member(t, s, boxNo(2), start)
		nodeA := must[muster.Registration](t)(s.Registration(ctx, boxNo(1).uuid)).NodeID
		nodeB := must[muster.Registration](t)(s.Registration(ctx, boxNo(2).uuid)).NodeID
		byA, byB := linked(t, s, a.APIKey, nodeA), linked(t, s, b.APIKey, nodeB)
		if byA.NodeID != nodeA || byA.ServerUUID != boxNo(1).uuid || byA.String() != "node:"+nodeA {
			t.Fatalf("speaks as %+v", byA)
		}
		for what, x := range map[string][2]string{
			"another's node": {nodeB, byA.KeyID}, "no key": {nodeA, "aaaaaaaaaaaa"}, "no node": {"", byA.KeyID},
		} {
			if _, err := s.AuthenticateNode(ctx, start, x[0], x[1], ""); !muster.IsCode(err, muster.CodeUnauthenticated) {
				t.Errorf("%s: %v", what, err)
			}
		}
		// A key that is no machine's is nobody's certificate.
		k := must[muster.CreatedKey](t)(s.CreateKey(ctx, start, ada, muster.NewKey{Scope: muster.ScopeFull}))
		_, err := s.AuthenticateNode(ctx, start, "", k.ID, "")
		wantCode(t, err, muster.CodeUnauthenticated)

		must[muster.Registration](t)(s.RaiseRegistration(ctx, start, ada, boxNo(1).uuid, lifecycle.Disable))
		must[muster.NodeDetail](t)(s.ExpungeNode(ctx, start, ada, nodeB, muster.Expunge{Confirm: boxNo(2).uuid, Reason: "stolen"}))
		for _, x := range []struct {
			node, key, secret string
			code              muster.Code
		}{{nodeA, byA.KeyID, a.APIKey, muster.CodeUnauthenticated}, {nodeB, byB.KeyID, b.APIKey, muster.CodeGone}} {
			_, err := s.AuthenticateNode(ctx, start, x.node, x.key, "")
			wantCode(t, err, x.code)
			_, keyErr := s.Authenticate(ctx, start, x.secret, "")
			if err.Error() != keyErr.Error() {
				t.Errorf("the certificate is told %v, the key %v", err, keyErr)
			}
		}
	})
}

func TestReports(t *testing.T) {
	failed := resource.Line{Ref: "file:/etc/motd", Outcome: resource.OutcomeFailed, Reason: "the disk is full"}
	fought := resource.Line{Ref: "file:/etc/issue", Outcome: resource.OutcomeChanged, Fought: true}
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		member(t, s, boxNo(1), start)
		node := must[muster.Registration](t)(s.Registration(ctx, boxNo(1).uuid)).NodeID
		by := muster.Caller{NodeID: node}
		_, err := s.NodeReport(ctx, node)
		wantCode(t, err, muster.CodeNotFound)
		revert := report(5*time.Minute, resource.OutcomeChanged, resource.Line{Ref: "file:/etc/hosts", Outcome: resource.OutcomeChanged})
		revert.Trigger = resource.TriggerRevert
		for _, step := range []struct {
			what    string
			say     resource.Report
			newest  time.Duration
			notable time.Duration
			events  string
		}{
			{"the first", report(0, resource.OutcomeOK), 0, -1, ""},
			{"the same, later: not worth a write", report(time.Minute, resource.OutcomeOK), 0, -1, ""},
			{"a failure", report(2*time.Minute, resource.OutcomeFailed, failed), 2 * time.Minute, 2 * time.Minute, "apply_failed"},
			{"doubled", report(2*time.Minute, resource.OutcomeFailed, failed), 2 * time.Minute, 2 * time.Minute, ""},
			{"the same failure, later", report(3*time.Minute, resource.OutcomeFailed, failed), 2 * time.Minute, 2 * time.Minute, ""},
			{"and a fight", report(4*time.Minute, resource.OutcomeFailed, failed, fought), 4 * time.Minute, 4 * time.Minute, "drift_fought"},
			{"overtaken", report(time.Minute, resource.OutcomeOK, fought), 4 * time.Minute, 4 * time.Minute, ""},
			{"taken back", revert, 5 * time.Minute, 5 * time.Minute, "reverted"},
			{"well again", report(6*time.Minute, resource.OutcomeOK), 6 * time.Minute, 5 * time.Minute, ""},
			{"a clock that was years ahead is set right", report(-time.Hour, resource.OutcomeFailed, failed), -time.Hour, -time.Hour, "apply_failed"},
		} {
			head := must[int64](t)(s.Head(ctx))
			if err := s.KeepReport(ctx, start, by, step.say); err != nil {
				t.Fatal(err)
			}
			r := must[muster.NodeReport](t)(s.NodeReport(ctx, node))
			if got := r.Report.Finished.Sub(start); got != step.newest {
				t.Errorf("%s: the newest is of %v, want %v", step.what, got, step.newest)
			}
			got := time.Duration(-1)
			if r.Notable != nil {
				got = r.Notable.Finished.Sub(start)
			}
			if got != step.notable {
				t.Errorf("%s: the notable one is of %v, want %v", step.what, got, step.notable)
			}
			if got := strings.Join(actions(t, s, node, head), " "); got != step.events {
				t.Errorf("%s: events %q, want %q", step.what, got, step.events)
			}
		}
		for _, e := range must[[]muster.AuditEntry](t)(s.Audit(ctx, muster.AuditFilter{Subject: nodeSubject(node)})) {
			if strings.Contains(string(e.Detail), "disk is full") {
				t.Errorf("an event repeats what a host wrote: %s", e.Detail)
			}
		}
		healthy(t, s)
	})
}

func TestMirrors(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		member(t, s, boxNo(1), start)
		node := must[muster.Registration](t)(s.Registration(ctx, boxNo(1).uuid)).NodeID
		by := muster.Caller{NodeID: node}
		if o := must[muster.NodeOwned](t)(s.NodeOwned(ctx, node)); len(o.Owned) != 0 {
			t.Fatalf("nothing was said: %+v", o)
		}
		_, err := s.NodeProfile(ctx, node)
		wantCode(t, err, muster.CodeNotFound)
		for i := range 3 { // the third says what the second did
			owned := make([]resource.Owned, min(i+1, 2))
			for k := range owned {
				owned[k] = resource.Owned{Ref: resource.NewRef(resource.KindFile, "/etc/"+strings.Repeat("f", k+1)), Origin: resource.OriginCreated, Since: start}
			}
			at := start.Add(time.Duration(i) * time.Minute)
			if err := s.KeepOwned(ctx, at, by, owned); err != nil {
				t.Fatal(err)
			}
			if err := s.KeepProfile(ctx, at, by, muster.Profile{Facts: map[string]string{"os": strings.Repeat("x", len(owned))}}); err != nil {
				t.Fatal(err)
			}
			o, p := must[muster.NodeOwned](t)(s.NodeOwned(ctx, node)), must[muster.NodeProfile](t)(s.NodeProfile(ctx, node))
			want := start.Add(time.Duration(min(i, 1)) * time.Minute)
			if len(o.Owned) != len(owned) || !o.MirroredAt.Equal(want) || !p.ProfiledAt.Equal(want) || len(p.Facts["os"]) != len(owned) {
				t.Errorf("time %d: %+v %+v", i+1, o, p)
			}
		}
	})
}

func TestAwayAndBack(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		member(t, s, boxNo(1), start)
		node := must[muster.Registration](t)(s.Registration(ctx, boxNo(1).uuid)).NodeID
		seen := func(at time.Time) {
			t.Helper()
			if err := s.KeepLinks(ctx, at, []NodeSeen{{node, at, muster.LinkPoll{Holds: 3, Version: "1.2", Capability: 4}}}); err != nil {
				t.Fatal(err)
			}
		}
		if n := must[[]muster.Node](t)(s.Nodes(ctx)); n[0].Link != nil {
			t.Fatalf("never linked: %+v", n[0].Link)
		}
		seen(start)
		for _, n := range []muster.Node{must[[]muster.Node](t)(s.Nodes(ctx))[0], must[muster.NodeDetail](t)(s.Node(ctx, node)).Node} {
			if l := n.Link; l == nil || !l.LastLinked.Equal(start) || l.Holds != 3 || l.Version != "1.2" || l.Capability != 4 {
				t.Fatalf("linked: %+v", l)
			}
		}
		var told []string
		for _, after := range []time.Duration{time.Minute, 5 * time.Minute, 6 * time.Minute, time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, 70 * 24 * time.Hour} {
			head := must[int64](t)(s.Head(ctx))
			must[int](t)(s.TellAway(ctx, start.Add(after)))
			told = append(told, strings.Join(actions(t, s, node, head), "+"))
		}
		if got := strings.Join(told, " "); got != " away  away away away " {
			t.Errorf("told %q", got)
		}
		seen(start.Add(71 * 24 * time.Hour))
		seen(start.Add(71*24*time.Hour + time.Minute))
		// Whoever was away for a day before anybody looked is told of once.
		if n := must[int](t)(s.TellAway(ctx, start.Add(73*24*time.Hour))); n != 1 {
			t.Errorf("%d were told of", n)
		}
		if got := strings.Join(actions(t, s, node, 0), " "); !strings.HasSuffix(got, "away back away") {
			t.Errorf("the audit says %s", got)
		}
		must[muster.NodeDetail](t)(s.ExpungeNode(ctx, start, ada, node, muster.Expunge{Confirm: boxNo(1).uuid, Reason: "gone"}))
		if n := must[int](t)(s.TellAway(ctx, start.Add(173*24*time.Hour))); n != 0 {
			t.Errorf("a node that is out is said to be away")
		}
		healthy(t, s)
	})
}

// What a host says of its resources cannot fill the audit.
func TestReportedNamesAreCut(t *testing.T) {
	long := resource.Ref("file:/" + strings.Repeat("ä", 1<<20))
	names := told(slices.Repeat([]resource.Ref{long, "file:/etc/motd"}, 20))
	if len(names) != maxTold || names[1] != "file:/etc/motd" || names[0] != "file:/"+strings.Repeat("ä", 125)+"…" {
		t.Errorf("%d names, the first %q", len(names), names[0])
	}
}
