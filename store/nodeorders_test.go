package store

import (
	"strings"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/lifecycle"
	"muster.internal/resource"
)

// orders are what a node's host is due to be told.
func orders(t testing.TB, s *Store, node string) string {
	t.Helper()
	var all []string
	for _, o := range must[News](t)(s.News(t.Context(), node, 99)).Orders {
		all = append(all, string(o.Kind))
	}
	return strings.Join(all, " ")
}

// A host is asked, told once, and asked no more once its report answers.
func TestOrders(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		member(t, s, boxNo(1), start)
		node := must[muster.Registration](t)(s.Registration(ctx, boxNo(1).uuid)).NodeID
		by := muster.Caller{NodeID: node, Scope: muster.ScopeAgent}
		_, err := s.OrderNode(ctx, start, ada, node, muster.OrderReportNow)
		wantCode(t, err, muster.CodeConflict) // it never was linked
		linkUp(t, s, node)
		_, err = s.OrderNode(ctx, start, ada, node, "run")
		wantCode(t, err, muster.CodeInvalid)
		for range 2 { // asking again is no other order
			if o := must[muster.NodeOrder](t)(s.OrderNode(ctx, start, ada, node, muster.OrderReportNow)); !o.AskedAt.Equal(start) || o.AskedBy != "operator:ada" {
				t.Fatalf("%+v", o)
			}
		}
		if got := orders(t, s, node); got != "report_now" {
			t.Fatalf("it is asked for %q", got)
		}
		if err := s.TellOrders(ctx, start.Add(time.Second), by, "b1"); err != nil {
			t.Fatal(err)
		}
		if d := must[muster.NodeDetail](t)(s.Node(ctx, node)); len(d.Orders) != 1 || d.Orders[0].ToldAt == nil || !d.Orders[0].ToldAt.Equal(start.Add(time.Second)) {
			t.Fatalf("%+v", d.Orders)
		}
		// A report by the timer says nothing of it; the one that answers is kept,
		// though it says the same.
		r := report(time.Minute, resource.OutcomeOK)
		if err := s.KeepReport(ctx, start.Add(time.Minute), by, r); err != nil {
			t.Fatal(err)
		}
		if got := orders(t, s, node); got != "report_now" {
			t.Errorf("after a report by the timer it is asked for %q", got)
		}
		r.Trigger = resource.TriggerAsked
		for range 2 { // doubled on its way
			if err := s.KeepReport(ctx, start.Add(2*time.Minute), by, r); err != nil {
				t.Fatal(err)
			}
		}
		if k := must[muster.NodeReport](t)(s.NodeReport(ctx, node)); orders(t, s, node) != "" || k.Report.Trigger != resource.TriggerAsked || !k.ReportedAt.Equal(start.Add(2*time.Minute)) {
			t.Errorf("asked for %q, kept %+v", orders(t, s, node), k)
		}
		healthy(t, s)
	})
}

// A node is retired once its host says that it has given everything up, and not
// before; until its host was told, it can be taken back.
func TestRetire(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		k := member(t, s, boxNo(1), start)
		node := must[muster.Registration](t)(s.Registration(ctx, boxNo(1).uuid)).NodeID
		linkUp(t, s, node)
		by := linked(t, s, k.APIKey, node)
		retire := func() {
			t.Helper()
			must[muster.NodeOrder](t)(s.OrderNode(ctx, start, ada, node, muster.OrderRetire))
			must[Expired](t)(s.Expire(ctx, start.Add(time.Hour)))
			if d := must[muster.NodeDetail](t)(s.Node(ctx, node)); d.Policy != muster.PolicyGracefulRemove || d.State == muster.NodeDecommissioned || len(d.Orders) != 1 {
				t.Fatalf("%+v", d)
			}
		}
		retire()
		must[muster.Node](t)(s.RaiseNode(ctx, start, ada, node, lifecycle.Resume))
		if got := orders(t, s, node); got != "" {
			t.Errorf("taken back, it is asked for %q", got)
		}
		retire()
		if err := s.TellOrders(ctx, start, by, "b1"); err != nil {
			t.Fatal(err)
		}
		_, err := s.RaiseNode(ctx, start, ada, node, lifecycle.Resume)
		wantCode(t, err, muster.CodeConflict)
		for _, k := range []struct {
			trigger string
			outcome resource.Outcome
			state   muster.NodeState
		}{
			{"timer", resource.OutcomeOK, ""},
			{resource.TriggerRetire, resource.OutcomeFailed, ""}, // something could not be removed
			{resource.TriggerRetire, resource.OutcomeUnknown, ""},
			{resource.TriggerRetire, resource.OutcomeKept, muster.NodeDecommissioned},
		} {
			r := report(time.Minute, k.outcome)
			r.Trigger = k.trigger
			if err := s.KeepReport(ctx, start.Add(time.Minute), by, r); err != nil {
				t.Fatal(err)
			}
			if d := must[muster.NodeDetail](t)(s.Node(ctx, node)); (d.State == muster.NodeDecommissioned) != (k.state != "") {
				t.Errorf("after %s %s it is %s", k.trigger, k.outcome, d.State)
			}
		}
		_, err = s.Authenticate(ctx, start, k.APIKey, "")
		wantCode(t, err, muster.CodeUnauthenticated)
		_, err = s.OrderNode(ctx, start, ada, node, muster.OrderRekey)
		wantCode(t, err, muster.CodeConflict)
		if got := strings.Join(actions(t, s, node, 0), " "); !strings.HasSuffix(got, "retired decommission_node") {
			t.Errorf("the audit says %s", got)
		}
		healthy(t, s)
	})
}

// The next key is good for nothing but to be taken, and the one that it replaces
// is good until then; the two die with the registration.
func TestRekey(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		k := member(t, s, boxNo(1), start)
		node := must[muster.Registration](t)(s.Registration(ctx, boxNo(1).uuid)).NodeID
		linkUp(t, s, node)
		by := linked(t, s, k.APIKey, node)
		_, err := s.NextKey(ctx, start, by)
		wantCode(t, err, muster.CodeConflict) // nobody has asked for it
		must[muster.NodeOrder](t)(s.OrderNode(ctx, start, ada, node, muster.OrderRekey))
		lost := must[string](t)(s.NextKey(ctx, start, by)) // its answer did not come
		second := must[string](t)(s.NextKey(ctx, start, by))
		_, err = s.Authenticate(ctx, start, lost, "")
		wantCode(t, err, muster.CodeUnauthenticated)
		c := must[muster.Caller](t)(s.Authenticate(ctx, start, second, ""))
		for _, a := range muster.Actions() {
			if c.May(a) != (a == muster.ActLinkCertificate) && !(muster.Caller{}).May(a) {
				t.Errorf("the next key may %s: %v", a, c.May(a))
			}
		}
		linked(t, s, k.APIKey, node) // still good
		for range 2 {                // the answer to it is lost, too
			if err := s.TakeKey(ctx, start, c); err != nil {
				t.Fatal(err)
			}
		}
		_, err = s.Authenticate(ctx, start, k.APIKey, "")
		wantCode(t, err, muster.CodeUnauthenticated)
		_, err = s.AuthenticateNode(ctx, start, node, by.KeyID, "")
		wantCode(t, err, muster.CodeUnauthenticated)
		if now := linked(t, s, second, node); now.Lapsed || now.KeyID != c.KeyID || orders(t, s, node) != "" {
			t.Errorf("%+v, asked for %q", now, orders(t, s, node))
		}
		healthy(t, s)

		must[muster.NodeOrder](t)(s.OrderNode(ctx, start, ada, node, muster.OrderRekey))
		third := must[string](t)(s.NextKey(ctx, start, linked(t, s, second, node)))
		if text := dump(t, behind(t, s)); strings.Contains(text, third[len(third)-20:]) {
			t.Error("the key is in the database, in the clear")
		}
		must[muster.Registration](t)(s.RaiseRegistration(ctx, start, ada, boxNo(1).uuid, lifecycle.Disable))
		for _, dead := range []string{second, third} {
			_, err = s.Authenticate(ctx, start, dead, "")
			wantCode(t, err, muster.CodeUnauthenticated)
		}
		healthy(t, s)
	})
}

// A machine is restarted once: the order is over when it is in another boot, and
// what was drained for it serves again as it did before.
func TestReboot(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		member(t, s, boxNo(1), start)
		node := must[muster.Registration](t)(s.Registration(ctx, boxNo(1).uuid)).NodeID
		linkUp(t, s, node)
		by := muster.Caller{NodeID: node, KeyID: "k", Scope: muster.ScopeAgent}
		tell := func(boot string) {
			t.Helper()
			if err := s.TellOrders(ctx, start, by, boot); err != nil {
				t.Fatal(err)
			}
		}
		back := func(boot string, want bool) {
			t.Helper()
			if got := must[bool](t)(s.Back(ctx, node, boot)); got != want {
				t.Errorf("back in boot %q: %v", boot, got)
			}
			if err := s.Rebooted(ctx, start, by, boot); err != nil {
				t.Fatal(err)
			}
		}
		policy := func() muster.NodePolicy { return must[muster.NodeDetail](t)(s.Node(ctx, node)).Policy }

		must[muster.NodeOrder](t)(s.OrderNode(ctx, start, ada, node, muster.OrderReboot))
		back("b1", false) // nobody was told
		tell("b1")
		back("b1", false) // told, and not restarted yet
		back("", false)   // a host that does not know its boot
		if got := orders(t, s, node); got != "reboot" {
			t.Errorf("asked for %q", got)
		}
		back("b2", true)
		if got := orders(t, s, node); got != "" || policy() != muster.PolicyInService {
			t.Errorf("asked for %q, policy %s", got, policy())
		}

		for _, before := range []muster.NodePolicy{muster.PolicyInService, muster.PolicyNoProvision, muster.PolicyQuiesce} {
			if before != policy() {
				must[muster.Node](t)(s.RaiseNode(ctx, start, ada, node, map[muster.NodePolicy]muster.Event{muster.PolicyNoProvision: lifecycle.NoProvision, muster.PolicyQuiesce: lifecycle.Quiesce}[before]))
			}
			place(t, s, node, "p-"+string(before), "service", "placed")
			must[muster.NodeOrder](t)(s.OrderNode(ctx, start, ada, node, muster.OrderRebootDrained))
			tell("b2")
			if got := orders(t, s, node); got != "" || policy() != muster.PolicyQuiesce {
				t.Errorf("%s: asked for %q while something runs there, policy %s", before, got, policy())
			}
			back("b3", false)
			meddle(t, s, "UPDATE placements SET state = 'removed' WHERE node_id = '"+node+"'")
			s.mustTick(t, start.Add(time.Minute))
			if got := orders(t, s, node); got != "reboot_drained" {
				t.Errorf("%s: asked for %q once it is quiet", before, got)
			}
			tell("b2")
			back("b2", false)
			back("b3", true)
			if got := orders(t, s, node); got != "" || policy() != before {
				t.Errorf("%s: asked for %q, policy %s", before, got, policy())
			}
			s.mustTick(t, start.Add(time.Hour))
			if before == muster.PolicyQuiesce {
				must[muster.Node](t)(s.RaiseNode(ctx, start, ada, node, lifecycle.Resume))
			}
		}

		// Whoever takes the node back before its host was told wants no restart.
		must[muster.NodeOrder](t)(s.OrderNode(ctx, start, ada, node, muster.OrderRebootDrained))
		must[muster.Node](t)(s.RaiseNode(ctx, start, ada, node, lifecycle.Resume))
		if d := must[muster.NodeDetail](t)(s.Node(ctx, node)); len(d.Orders) != 0 || d.Policy != muster.PolicyInService {
			t.Errorf("%+v", d)
		}
		healthy(t, s)
	})
}
