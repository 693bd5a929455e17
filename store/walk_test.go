package store

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"muster.internal"
	"muster.internal/lifecycle"
)

// TestRandomWalks raises any event in any order on a few machines that share a
// few NICs. Whatever comes, the answer is success or a named refusal, what is
// promised of every store holds, and the stored state is the one that the rows
// lead to.
func TestRandomWalks(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		site(t, s)
		w, most := &walk{s: s, outer: t, steps: 25}, 40
		if s.engine.shared() {
			most = 10 // the rows are the same, and this engine is slower
		}
		if os.Getenv("MUSTER_SOAK") != "" {
			w.steps, most = 60, 100
		}
		n := 0
		rapid.Check(t, func(r *rapid.T) {
			if n++; n > most {
				return
			}
			w.run(r)
		})
		healthy(t, s)
		t.Logf("%d events, %d refused", w.done+w.refused, w.refused)
		if w.done == 0 || w.refused == 0 {
			t.Error("the walk went nowhere")
		}
	})
}

type walk struct {
	s             *Store
	outer         *testing.T
	steps         int
	done, refused int

	now      time.Time
	boxes    []box
	sessions map[string]string
	kept     map[string]*kept
	replies  map[string]muster.RegisterReply
	offset   int
}

func (w *walk) run(r *rapid.T) {
	// Each walk has machines of its own in the same store.
	w.offset += 3
	w.now = start.Add(time.Duration(w.offset) * time.Hour)
	w.boxes = []box{boxNo(w.offset), boxNo(w.offset + 1)}
	twin := boxNo(w.offset + 2)
	twin.uuid = w.boxes[0].uuid // two machines, one UUID
	w.boxes = append(w.boxes, twin)
	w.sessions, w.kept, w.replies = map[string]string{}, map[string]*kept{}, map[string]muster.RegisterReply{}
	for range rapid.IntRange(1, w.steps).Draw(r, "steps") {
		b := w.boxes[rapid.IntRange(0, 2).Draw(r, "machine")]
		w.now = w.now.Add(time.Duration(rapid.IntRange(0, 1200).Draw(r, "seconds")) * time.Second)
		// An event is about the machine's own records; some bring one along.
		before, own := w.look(b.uuid)
		more, with := w.look(b.uuid, b.mac)
		name, err := w.raise(r, b)
		after, _ := w.look(b.uuid, own...)
		afterMore, _ := w.look(b.uuid, with...)
		if !reachable(before, after, steps[name]) && !reachable(more, afterMore, steps[name]) {
			r.Fatalf("%s on %s (%v) led from %+v to %+v, which the rows do not", name, b.uuid, err, before, after)
		}
		switch {
		case err == nil:
			w.done++
		case muster.IsCode(err, muster.CodeConflict), muster.IsCode(err, muster.CodeNotFound), muster.IsCode(err, muster.CodeInvalid), muster.IsCode(err, muster.CodeUnauthenticated):
			w.refused++
		default:
			r.Fatalf("%s on %s: %v", name, b.uuid, err)
		}
	}
	keepsPromises(w.outer, w.s.reader)
	if w.outer.Failed() {
		r.Fatal("a promise was broken")
	}
}

// steps are the events of the rows that one call may raise, in any order.
var steps = map[string][]muster.Event{
	"sight":          {lifecycle.Sight, lifecycle.Admit, lifecycle.StartProbe, lifecycle.Dismiss},
	"announce":       {lifecycle.Void, lifecycle.Announce},
	"survey":         {lifecycle.Survey},
	"approve_setup":  {lifecycle.ApproveSetup},
	"take":           {lifecycle.Take},
	"setup_complete": {lifecycle.SetupComplete},
	"setup_failed":   {lifecycle.SetupFailed},
	"refresh":        {lifecycle.Refresh, lifecycle.Confirm},
	"disable":        {lifecycle.Disable},
	"cancel_setup":   {lifecycle.CancelSetup},
	"delete":         {lifecycle.Delete},
	"factory_reset":  {lifecycle.FactoryReset},
	"readmit":        {lifecycle.Readmit},
	"expunge":        {lifecycle.Expunge},
	"node":           {lifecycle.NoProvision, lifecycle.Quiesce, lifecycle.Resume, lifecycle.GracefulRemove},
	"register":       {lifecycle.Register},
	"window":         {},
	"redeem":         {lifecycle.Redeem},
	"deliver":        {lifecycle.Approve, lifecycle.Deliver},
	"approve":        {},
	"authenticate":   {},
	"enroll":         {lifecycle.Enroll},
	"decommission":   {lifecycle.Decommission},
	"reactivate":     {lifecycle.Reactivate},
	"expire":         {lifecycle.Expire, lifecycle.ExpireCode, lifecycle.ExpireKey, lifecycle.ExpireProbe, lifecycle.Confirm, lifecycle.Quiesced, lifecycle.Resumed, lifecycle.DecommissionNode},
}

// look is the machine as the rows see it, with the records of its NICs and of
// macs. It says which those are.
func (w *walk) look(uuid string, macs ...string) (st lifecycle.State, of []string) {
	if err := w.s.write(w.outer.Context(), "looking", w.now, ada, func(t *tx) error {
		m, err := t.load(uuid, macs...)
		if err != nil {
			return err
		}
		slices.SortFunc(m.boots, func(a, b *record) int { return strings.Compare(a.MAC, b.MAC) })
		st, of = m.look(), nil
		for _, r := range m.boots {
			of = append(of, r.MAC)
		}
		return nil
	}); err != nil {
		w.outer.Fatal(err)
	}
	st.Disks = nil // they come and go with the plan
	return st, of
}

// reachable tells whether the rows lead from one state to another by some of
// the events, each at most once, whatever the outside facts.
func reachable(from, to lifecycle.State, events []muster.Event) bool {
	if from.Equal(to) {
		return true
	}
	for i, e := range events {
		rest := slices.Delete(slices.Clone(events), i, i+1)
		info, _ := lifecycle.Lookup(e)
		members := []int{-1}
		if info.Subject == lifecycle.BootRecords {
			members = members[:0]
			for m := range from.Boots {
				members = append(members, m)
			}
		}
		for _, m := range members {
			for _, f := range outside {
				next, err := lifecycle.Apply(from, e, m, f)
				if err == nil && !next.Equal(from) && reachable(next, to, rest) {
					return true
				}
			}
		}
	}
	return false
}

// outside are all facts, and all but one of those that stand in the way of
// something.
var outside = func() []lifecycle.Facts {
	all := lifecycle.Facts{Epoch: true, Session: true, SessionAlive: true, SessionOver: true, OtherSession: true, OtherKey: true, Proof: true, Surveyed: true, PlanSeen: true,
		Layout: true, Confirmed: true, EnrollmentPI: true, Code: true, SameMachine: true, Overdue: true, WindowOpen: true, Admitted: true, TokenGood: true, MayReplace: true, AutoEnroll: true, OnAllowlist: true,
		TagWanted: true, NetworkKnown: true, AddressFree: true, NothingPlaced: true, NoReservation: true, NoMove: true, Acknowledged: true, Inventory: true, NothingRuns: true, Unclaimed: true, HostConfirmed: true,
		CaseAllows: true, Incumbent: true, OwnUUID: true, Unwanted: true}
	notListed := all
	notListed.OnAllowlist = false
	noWindow := all
	noWindow.WindowOpen = false
	return []lifecycle.Facts{all, notListed, noWindow}
}()

func (w *walk) nodeOf(uuid string) string {
	ns, err := w.s.Nodes(w.outer.Context())
	if err != nil {
		w.outer.Fatal(err)
	}
	id := "none"
	for _, n := range ns {
		if n.ServerUUID == uuid {
			id = n.ID
		}
	}
	return id
}

func (w *walk) raise(r *rapid.T, b box) (string, error) {
	s, ctx, now := w.s, w.outer.Context(), w.now
	epoch := int64(0)
	if reg, err := s.Registration(ctx, b.uuid); err == nil {
		epoch = reg.SetupEpoch - int64(rapid.IntRange(0, 4).Draw(r, "stale")/4)
	}
	session := w.sessions[b.mac]
	k := w.kept[b.mac]
	if k == nil {
		k = &kept{}
		w.kept[b.mac] = k
	}
	switch rapid.IntRange(0, 23).Draw(r, "event") {
	case 0, 1:
		_, err := s.Sight(ctx, now, booterCaller, "b1", []muster.Sighting{{MAC: b.mac}})
		return "sight", err
	case 2, 3:
		if session == "" || rapid.IntRange(0, 3).Draw(r, "reconnect") == 0 {
			session = fmt.Sprintf("%s-%d", b.mac, now.UnixNano())
			w.sessions[b.mac] = session
		}
		_, err := s.Announce(ctx, now, booterCaller, b.announcement(session))
		return "announce", err
	case 4, 5:
		return "survey", s.Survey(ctx, now, booterCaller, b.uuid, muster.Survey{Session: session, Disks: b.disks()})
	case 6, 7:
		a := approvalOf(ctx, s, b, now)
		_, err := s.ApproveSetup(ctx, now, ada, b.uuid, a)
		return "approve_setup", err
	case 8:
		_, err := s.TakeBundle(ctx, now, booterCaller, b.uuid, muster.TakeRequest{Epoch: epoch, Session: session}, k.seal)
		return "take", err
	case 9:
		return "setup_complete", s.SetupComplete(ctx, now, booterCaller, b.uuid, muster.SetupOutcome{Epoch: epoch, Proof: k.proof(b, epoch), MACs: []string{b.mac}})
	case 10:
		return "setup_failed", s.SetupFailed(ctx, now, booterCaller, b.uuid, muster.SetupOutcome{Epoch: epoch, Reason: "no luck"})
	case 11:
		c, err := s.Authenticate(ctx, now, k.APIKey, "")
		if err != nil {
			return "authenticate", err
		}
		_, err = s.Refresh(ctx, now, c, muster.RefreshRequest{Epoch: epoch, Sysinfo: b.sysinfo()})
		return "refresh", err
	case 12:
		e := rapid.SampledFrom([]muster.Event{lifecycle.Disable, lifecycle.CancelSetup}).Draw(r, "verb")
		_, err := s.RaiseRegistration(ctx, now, ada, b.uuid, e)
		return string(e), err
	case 13:
		return "delete", s.DeleteRegistration(ctx, now, ada, b.uuid)
	case 14:
		reply, err := s.Register(ctx, now, nobody, b.request())
		if err == nil {
			w.replies[b.uuid] = reply
		}
		return "register", err
	case 15:
		_, err := s.ApproveCode(ctx, now, ada, w.replies[b.uuid].ClaimCode)
		if err != nil {
			return "approve", err
		}
		st, err := s.RegisterStatus(ctx, now, nobody, w.replies[b.uuid].PollToken)
		if st.APIKey != "" {
			k.APIKey = st.APIKey
		}
		return "deliver", err
	case 17:
		if rapid.Bool().Draw(r, "open") {
			count := rapid.IntRange(1, 3).Draw(r, "slots")
			_, err := s.OpenWindow(ctx, now, ada, muster.AutoApproveWindow, muster.NewWindow{Duration: 600, Count: &count})
			return "window", err
		}
		return "window", s.CloseWindow(ctx, now, ada, muster.AutoApproveWindow)
	case 18:
		n := muster.NewEnrolmentToken{}
		if reg, err := s.Registration(ctx, b.uuid); err == nil && rapid.Bool().Draw(r, "named") {
			n.AsNode = reg.NodeID
		}
		tok, secret, err := s.IssueEnrolmentToken(ctx, now, ada, n)
		if err != nil {
			return "window", err
		}
		reply, err := s.Enrol(ctx, now, nobody, b.enrolment(tok, secret, 0))
		if err == nil {
			k.APIKey = reply.APIKey
		}
		return "redeem", err
	case 16:
		e := rapid.SampledFrom([]muster.Event{lifecycle.Enroll, lifecycle.Decommission, lifecycle.Reactivate}).Draw(r, "record")
		_, err := s.RaiseBootRecord(ctx, now, ada, b.mac, e)
		return string(e), err
	case 19:
		_, err := s.RaiseRegistration(ctx, now, ada, b.uuid, lifecycle.FactoryReset)
		return "factory_reset", err
	case 20:
		if rapid.IntRange(0, 2).Draw(r, "mercy") > 0 {
			_, err := s.RaiseRegistration(ctx, now, ada, b.uuid, lifecycle.Readmit)
			return "readmit", err
		}
		_, err := s.ExpungeNode(ctx, now, ada, w.nodeOf(b.uuid), muster.Expunge{Confirm: b.uuid, Reason: "gone"})
		return "expunge", err
	case 21:
		e := rapid.SampledFrom(nodeEvents).Draw(r, "policy")
		_, err := s.RaiseNode(ctx, now, ada, w.nodeOf(b.uuid), e)
		return "node", err
	}
	_, err := s.Expire(ctx, now)
	return "expire", err
}
