package store

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster.internal"
	"muster.internal/lifecycle"
)

// A new board with the old one's card and disk comes back as the node, by a
// token that names it.
func TestOtherHardwareTakesANodeOver(t *testing.T) {
	for name, policy := range map[string]muster.Event{"in service": "", "no provision": lifecycle.NoProvision, "quiesce": lifecycle.Quiesce, "graceful remove": lifecycle.GracefulRemove} {
		t.Run(name, func(t *testing.T) {
			engines(t, func(t *testing.T, s *Store) { takesOver(t, s, policy) })
		})
	}
}

func takesOver(t *testing.T, s *Store, policy muster.Event) {
	ctx := t.Context()
	site(t, s)
	a, b := boxNo(1), boxNo(2)
	k := member(t, s, a, start)
	node := must[muster.Registration](t)(s.Registration(ctx, a.uuid)).NodeID
	place(t, s, node, "p-web", "service", "placed")
	must[muster.RootPasswordSet](t)(s.SetRootPassword(ctx, start, ada, a.uuid, muster.RootPassword{Password: "a root password"}))
	if policy != "" {
		must[muster.Node](t)(s.RaiseNode(ctx, start, ada, node, policy))
	}
	had := must[muster.NodeDetail](t)(s.Node(ctx, node))
	before, _ := lookAt(t, s, a.uuid)
	tok, secret := issue(t, s, muster.NewEnrolmentToken{AsNode: node})
	if tok.ComesAs == nil || !strings.Contains(tok.ComesAs.Why, a.uuid) || !strings.Contains(tok.ComesAs.Why, "other hardware") {
		t.Errorf("the operator is not told what it will be: %+v", tok.ComesAs)
	}
	b.mac = a.mac // its card moved with it
	q := b.enrolment(tok, secret, 1)
	reply := must[muster.EnrolReply](t)(s.Enrol(ctx, start, nobody, q))
	if reply.NodeID != node || reply.ComesAs.Outcome != "replaces_hardware" || reply.ServerUUID != b.uuid {
		t.Fatalf("%+v", reply)
	}
	f := lifecycle.Facts{TokenGood: true, MayReplace: true}
	want, err := lifecycle.Apply(before, lifecycle.Supersede, -1, f)
	if err != nil {
		t.Fatal(err)
	}
	after, old := lookAt(t, s, a.uuid)
	after.Boots, want.Boots, want.Disks = nil, nil, nil // the card is not its own any more, and the disks went with the node
	if diff := cmp.Diff(want, after); diff != "" {
		t.Errorf("the old hardware (-rows +stored):\n%s", diff)
	}
	if len(old.reg.MACs) != 0 || old.reg.NodeID != "" {
		t.Errorf("the old hardware still says %v, node %q", old.reg.MACs, old.reg.NodeID)
	}
	if r := must[muster.BootRecord](t)(s.BootRecord(ctx, a.mac)); r.State != muster.Discovered || r.ServerUUID != "" || r.Address == "" {
		t.Errorf("the card's record: %+v", r)
	}
	_, err = s.Authenticate(ctx, start, k.APIKey, "")
	wantCode(t, err, muster.CodeUnauthenticated)
	// The node is what it was, but for its hardware.
	now := must[muster.NodeDetail](t)(s.Node(ctx, node))
	if now.Node.ServerUUID != b.uuid || now.Policy != had.Policy || now.State != muster.NodeInitializing {
		t.Errorf("%+v, was %+v", now.Node, had.Node)
	}
	if diff := cmp.Diff(had.Disks, now.Disks); diff != "" || len(now.Placements) != 1 || len(had.Disks) == 0 {
		t.Errorf("disks %s, placements %+v", diff, now.Placements)
	}
	healthy(t, s)
	// Its key works, and its inventory confirms the node.
	c := must[muster.Caller](t)(s.Authenticate(ctx, start, reply.APIKey, ""))
	must[muster.Registration](t)(s.Refresh(ctx, start, c, muster.RefreshRequest{Sysinfo: b.sysinfo(), Version: "1"}))
	if n := must[muster.NodeDetail](t)(s.Node(ctx, node)); policy == "" && n.State != muster.NodeInService {
		t.Errorf("after its inventory: %+v", n.Node)
	}
	// A lost answer is repeated as ever; the old hardware is nobody.
	again := must[muster.EnrolReply](t)(s.Enrol(ctx, start.Add(time.Minute), nobody, q))
	if again.NodeID != node || again.APIKey == reply.APIKey {
		t.Errorf("%+v", again)
	}
	for _, who := range []string{subject(a.uuid), nodeSubject(node)} {
		if n := entries(t, s, who, lifecycle.Supersede); n != 1 {
			t.Errorf("%d entries about %s", n, who)
		}
	}
	if n := entries(t, s, subject(b.uuid), lifecycle.TakeOver); n != 1 {
		t.Errorf("%d entries about the new hardware", n)
	}
	a.mac = "52:54:00:00:77:01" // its spare card
	told := must[muster.Registration](t)(s.Registration(ctx, a.uuid)).ComesAs
	r := must[muster.RegisterReply](t)(s.Register(ctx, start.Add(time.Minute), nobody, a.request()))
	back := must[muster.Registration](t)(s.ApproveCode(ctx, start.Add(time.Minute), ada, r.ClaimCode))
	if told == nil || told.Outcome != "new_node" || back.NodeID == node {
		t.Errorf("told %+v, came back as %+v", told, back)
	}
	healthy(t, s)
}

// What was a node itself, and comes to be an older one, is that older one.
func TestHardwareThatWasANodeTakesOneOver(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx, a, b := t.Context(), boxNo(1), boxNo(2)
		enrol := func(at time.Duration, b box, n muster.NewEnrolmentToken) (muster.EnrolReply, error) {
			tok, secret, err := s.IssueEnrolmentToken(ctx, start, ada, n)
			if err != nil {
				return muster.EnrolReply{}, err
			}
			return s.Enrol(ctx, start.Add(at), nobody, b.enrolment(tok, secret, 1))
		}
		node := must[muster.EnrolReply](t)(enrol(0, a, muster.NewEnrolmentToken{})).NodeID
		own := must[muster.EnrolReply](t)(enrol(time.Second, b, muster.NewEnrolmentToken{})).NodeID
		_, err := enrol(time.Minute, b, muster.NewEnrolmentToken{AsNode: node})
		wantCode(t, err, muster.CodeConflict)
		if !strings.Contains(err.Error(), own) || !strings.Contains(err.Error(), "decommissioned first") {
			t.Errorf("live itself: %v", err)
		}
		must[muster.Registration](t)(s.RaiseRegistration(ctx, start, ada, b.uuid, lifecycle.Disable))
		_, err = enrol(time.Minute, b, muster.NewEnrolmentToken{AsNode: node})
		wantCode(t, err, muster.CodeConflict) // disabled, its node is there still
		if err := s.DeleteRegistration(ctx, start, ada, b.uuid); err != nil {
			t.Fatal(err)
		}
		if r := must[muster.EnrolReply](t)(enrol(time.Minute, b, muster.NewEnrolmentToken{AsNode: node})); r.NodeID != node {
			t.Fatalf("%+v", r)
		}
		if _, m := lookAt(t, s, b.uuid); m.node.ID != node || m.reg.NodeID != node {
			t.Errorf("the machine is node %s, its registration says %s", m.node.ID, m.reg.NodeID)
		}
		must[muster.Node](t)(s.RaiseNode(ctx, start, ada, node, lifecycle.NoProvision))
		healthy(t, s)
		// An expunged node is nobody's any more.
		tok, secret := issue(t, s, muster.NewEnrolmentToken{AsNode: node})
		must[muster.NodeDetail](t)(s.ExpungeNode(ctx, start, ada, node, muster.Expunge{Confirm: b.uuid, Reason: "gone"}))
		_, err = s.Enrol(ctx, start, nobody, boxNo(3).enrolment(tok, secret, 1))
		wantCode(t, err, muster.CodeConflict)
		if !strings.Contains(err.Error(), "expunged") {
			t.Errorf("%v", err)
		}
		_, err = enrol(0, boxNo(3), muster.NewEnrolmentToken{AsNode: node})
		wantCode(t, err, muster.CodeConflict)
		healthy(t, s)
	})
}

// A third machine's card is evidence against new hardware, token or not.
func TestTakingOverIsJudged(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx, a, third, b := t.Context(), boxNo(1), boxNo(2), boxNo(3)
		var node string
		for _, x := range []box{third, a} {
			tok, secret := issue(t, s, muster.NewEnrolmentToken{})
			node = must[muster.EnrolReply](t)(s.Enrol(ctx, start, nobody, x.enrolment(tok, secret, 1))).NodeID
		}
		b.mac = third.mac
		tok, secret := issue(t, s, muster.NewEnrolmentToken{AsNode: node})
		_, err := s.Enrol(ctx, start, nobody, b.enrolment(tok, secret, 1))
		wantCode(t, err, muster.CodeConflict)
		ms := must[[]muster.Machine](t)(s.Machines(ctx, muster.MachineFilter{State: muster.MachineConflict}))
		if len(ms) != 1 || ms[0].Incumbent != third.uuid || !strings.Contains(err.Error(), "move-nic") {
			t.Fatalf("%+v, %v", ms, err)
		}
		if st := tokenState(t, s, tok.ID, 0); st != muster.TokenUnused {
			t.Errorf("the token is %s", st)
		}
		must[muster.Machine](t)(s.RaiseMachine(ctx, start, ada, ms[0].ID, lifecycle.MoveNIC))
		if r := must[muster.EnrolReply](t)(s.Enrol(ctx, start, nobody, b.enrolment(tok, secret, 1))); r.NodeID != node {
			t.Errorf("%+v", r)
		}
		healthy(t, s)
	})
}

// Of many machines with tokens for one node one is it in the end, and every
// earlier key is dead.
func TestManyTakeOneNodeOver(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		first, secret := issue(t, s, muster.NewEnrolmentToken{})
		r := must[muster.EnrolReply](t)(s.Enrol(ctx, start, nobody, boxNo(0).enrolment(first, secret, 1)))
		const n = 12
		keys := make([]string, n)
		var toks [n]muster.EnrolRequest
		for i := range toks {
			tok, secret := issue(t, s, muster.NewEnrolmentToken{AsNode: r.NodeID})
			toks[i] = boxNo(i+1).enrolment(tok, secret, i)
		}
		var won atomic.Int64
		for _, err := range together(n, func(i int) error {
			reply, err := s.Enrol(ctx, start, nobody, toks[i])
			if keys[i] = reply.APIKey; err == nil {
				won.Add(1)
			}
			return err
		}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		live := 0
		for _, k := range append(keys, r.APIKey) {
			if _, err := s.Authenticate(ctx, start, k, ""); err == nil {
				live++
			}
		}
		t.Logf("%d of %d took the node over, one after the other; %d key is live", won.Load(), n, live)
		if ns := must[[]muster.Node](t)(s.Nodes(ctx)); live != 1 || len(ns) != 1 {
			t.Errorf("%d live keys, %d nodes", live, len(ns))
		}
		healthy(t, s)
	})
}
