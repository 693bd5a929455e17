package store

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster.internal"
	"muster.internal/lifecycle"
)

// knock comes to a door that takes no operator's word afterwards.
func knock(t testing.TB, s *Store, door string, b box) error {
	t.Helper()
	if door == "token" {
		tok, secret := issue(t, s, muster.NewEnrolmentToken{})
		_, err := s.Enrol(t.Context(), start, nobody, b.enrolment(tok, secret, 1))
		return err
	}
	_, err := s.Register(t.Context(), start, nobody, b.request())
	return err
}

// Whoever comes with another live machine's card, or as one, waits; and nobody
// anonymous changes anything of the machine that is in.
func TestEvidenceAtTheDoors(t *testing.T) {
	for _, door := range []string{"claim", "window", "token"} {
		t.Run(door, func(t *testing.T) {
			engines(t, func(t *testing.T, s *Store) { judgesAtTheDoor(t, s, door) })
		})
	}
}

func judgesAtTheDoor(t *testing.T, s *Store, door string) {
	ctx := t.Context()
	site(t, s)
	in, waits := boxNo(1), boxNo(2)
	member(t, s, in, start)
	awaiting(t, s, waits, start)
	if door == "window" {
		openWindow(t, s, muster.AutoApproveWindow, slots(5))
	}
	before := map[string]muster.Registration{}
	for _, b := range []box{in, waits} {
		before[b.uuid] = must[muster.Registration](t)(s.Registration(ctx, b.uuid))
	}
	twin := boxNo(10) // one UUID, other hardware
	twin.uuid = in.uuid
	mirrored := boxNo(11) // the same UUID in the other byte order, other hardware
	mirrored.uuid = muster.SwapUUID(in.uuid)
	card := boxNo(12) // a live machine's card
	card.mac = in.mac
	twinOfWaiting := boxNo(13)
	twinOfWaiting.uuid = waits.uuid
	for what, c := range map[string]struct {
		b    box
		of   string
		verb string
	}{
		"one UUID":             {twin, in.uuid, "separate"},
		"the other byte order": {mirrored, in.uuid, "separate"},
		"a live card":          {card, in.uuid, "move-nic"},
		"one that waits":       {twinOfWaiting, waits.uuid, "separate"},
	} {
		err := knock(t, s, door, c.b)
		if !muster.IsCode(err, muster.CodeConflict) || !strings.Contains(err.Error(), c.verb) || !strings.Contains(err.Error(), "muster machine ls") {
			t.Errorf("%s: %v", what, err)
		}
		found := false
		for _, m := range must[[]muster.Machine](t)(s.Machines(ctx, muster.MachineFilter{State: muster.MachineConflict})) {
			found = found || m.BootMAC == c.b.mac && m.Incumbent == c.of && m.ServerUUID == ""
		}
		if !found {
			t.Errorf("%s: it does not wait", what)
		}
	}
	shared := boxNo(14)
	shared.uuid = "03000200-0400-0500-0006-000700080009"
	if err := knock(t, s, door, shared); !muster.IsCode(err, muster.CodeConflict) || !strings.Contains(err.Error(), "--uuid") {
		t.Errorf("a default UUID: %v", err)
	}
	// The machine itself, in the other byte order, is no newcomer.
	itself := in
	itself.uuid = muster.SwapUUID(in.uuid)
	if err := knock(t, s, door, itself); !muster.IsCode(err, muster.CodeConflict) || strings.Contains(err.Error(), "machine ls") {
		t.Errorf("the live machine itself: %v", err)
	}
	for uuid, was := range before {
		now := must[muster.Registration](t)(s.Registration(ctx, uuid))
		if diff := cmp.Diff(was, now); diff != "" {
			t.Errorf("somebody anonymous changed machine %s:\n%s", uuid, diff)
		}
	}
	if door == "window" {
		if w := must[muster.Window](t)(s.Window(ctx, start, muster.AutoApproveWindow)); w.Taken != 0 {
			t.Errorf("%d slots are gone", w.Taken)
		}
	}
	healthy(t, s)
	// The verb lets it in.
	for _, m := range must[[]muster.Machine](t)(s.Machines(ctx, muster.MachineFilter{State: muster.MachineConflict})) {
		if m.BootMAC == card.mac && m.Incumbent == in.uuid && m.Serial == card.serial {
			must[muster.Machine](t)(s.RaiseMachine(ctx, start, ada, m.ID, lifecycle.MoveNIC))
			if err := knock(t, s, door, card); err != nil {
				t.Errorf("after move-nic: %v", err)
			}
		}
	}
	healthy(t, s)
}

// No door re-arms an expunged machine, whatever it was when it was expunged:
// only an operator's readmit does.
func TestNoDoorRearmsAnExpungedMachine(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		in, again := boxNo(1), boxNo(2)
		member(t, s, in, start)
		// One that was disabled and shows a code, as the node that it was.
		member(t, s, again, start)
		must[muster.Registration](t)(s.RaiseRegistration(ctx, start, ada, again.uuid, lifecycle.Disable))
		shown := must[muster.RegisterReply](t)(s.Register(ctx, start, nobody, again.request()))
		openWindow(t, s, muster.AutoApproveWindow, nil)
		openWindow(t, s, muster.EnrollmentWindow, nil)
		named, namedSecret := map[string]muster.IssuedEnrolmentToken{}, map[string][]byte{}
		for _, b := range []box{in, again} {
			_, m := lookAt(t, s, b.uuid)
			named[b.uuid], namedSecret[b.uuid] = issue(t, s, muster.NewEnrolmentToken{AsNode: m.node.ID})
			must[muster.NodeDetail](t)(s.ExpungeNode(ctx, start, ada, m.node.ID, muster.Expunge{Confirm: b.uuid, Reason: "gone"}))
		}
		_, err := s.ApproveCode(ctx, start, ada, shown.ClaimCode)
		wantCode(t, err, muster.CodeNotFound)
		for _, when := range []string{"expunged", "decommissioned", "deleted"} {
			for _, b := range []box{in, again} {
				was, _ := lookAt(t, s, b.uuid)
				for _, c := range []box{b, {uuid: muster.SwapUUID(b.uuid), mac: b.mac, serial: b.serial}} {
					for what, f := range map[string]func() error{
						"claim, window": func() error { _, err := s.Register(ctx, start, nobody, c.request()); return err },
						"token":         func() error { return knock(t, s, "token", c) },
						"its own token": func() error {
							_, err := s.Enrol(ctx, start, nobody, c.enrolment(named[b.uuid], namedSecret[b.uuid], 1))
							return err
						},
						"announce": func() error { _, err := s.Announce(ctx, start, booterCaller, c.announcement("s9")); return err },
					} {
						if err := f(); !muster.IsCode(err, muster.CodeConflict) {
							t.Errorf("%s, by %s: %v", when, what, err)
						}
					}
				}
				if now, _ := lookAt(t, s, b.uuid); !now.Equal(was) {
					t.Errorf("%s: it became %+v, was %+v", when, now, was)
				}
				switch when {
				case "decommissioned":
					must[struct{}](t)(struct{}{}, s.DeleteRegistration(ctx, start, ada, b.uuid))
				}
			}
			s.mustTick(t, start)
			healthy(t, s)
		}
		for _, b := range []box{in, again} {
			must[muster.Registration](t)(s.RaiseRegistration(ctx, start, ada, b.uuid, lifecycle.Readmit))
			if r := must[muster.RegisterReply](t)(s.Register(ctx, start, nobody, b.request())); r.State != muster.Approved { // by the window: nothing of it is left
				t.Errorf("readmitted: %+v", r)
			}
		}
		healthy(t, s)
	})
}

// Lists say as what node a machine would come in, as each one's own answer does.
func TestListsSayWhatComes(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		back, buried := boxNo(1), boxNo(2)
		for _, b := range []box{back, buried, boxNo(3)} {
			member(t, s, b, start)
		}
		must[muster.Registration](t)(s.RaiseRegistration(ctx, start, ada, back.uuid, lifecycle.Disable))
		_, m := lookAt(t, s, buried.uuid)
		must[muster.NodeDetail](t)(s.ExpungeNode(ctx, start, ada, m.node.ID, muster.Expunge{Confirm: buried.uuid, Reason: "gone"}))
		must[muster.RegisterReply](t)(s.Register(ctx, start, nobody, boxNo(4).request()))
		awaiting(t, s, boxNo(5), start)
		want := map[string]string{back.uuid: "same_node", buried.uuid: "refused_expunged", boxNo(3).uuid: "", boxNo(4).uuid: "new_node", boxNo(5).uuid: "new_node"}
		for _, r := range must[[]muster.Registration](t)(s.Registrations(ctx, muster.RegistrationFilter{})) {
			one := must[muster.Registration](t)(s.Registration(ctx, r.ServerUUID)).ComesAs
			if diff := cmp.Diff(one, r.ComesAs); diff != "" {
				t.Errorf("%s (-shown +listed):\n%s", r.ServerUUID, diff)
			}
			if w := want[r.ServerUUID]; w != "" && (r.ComesAs == nil || r.ComesAs.Outcome != w) || w == "" && r.ComesAs != nil {
				t.Errorf("%s, %s: %+v, want %q", r.ServerUUID, r.State, r.ComesAs, w)
			}
		}
	})
}

// What is over is shown for a month, and then forgotten; what is not stays.
func TestDoorsAreForgotten(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		used, secret := issue(t, s, muster.NewEnrolmentToken{})
		must[muster.EnrolReply](t)(s.Enrol(ctx, start.Add(time.Minute), nobody, boxNo(1).enrolment(used, secret, 1)))
		issue(t, s, muster.NewEnrolmentToken{ExpiresIn: 3600})
		back, _ := issue(t, s, muster.NewEnrolmentToken{})
		must[struct{}](t)(struct{}{}, s.RevokeEnrolmentToken(ctx, start, ada, back.ID))
		issue(t, s, muster.NewEnrolmentToken{ExpiresIn: 30 * 24 * 3600})
		openWindow(t, s, muster.AutoApproveWindow, nil) // two hours
		s.mustTick(t, start.Add(3*time.Hour))
		for _, c := range []struct {
			at             time.Duration
			tokens, window int
		}{
			{doorKeep - time.Second, 4, 1}, {doorKeep, 3, 1}, {doorKeep + time.Minute, 2, 1}, {doorKeep + time.Hour, 1, 1}, {doorKeep + 2*time.Hour, 1, 0}, {2*doorKeep - time.Second, 1, 0}, {2 * doorKeep, 0, 0},
		} {
			s.mustTick(t, start.Add(c.at))
			kept := 0
			if must[muster.Window](t)(s.Window(ctx, start.Add(c.at), muster.AutoApproveWindow)).Ended != "" {
				kept = 1
			}
			if n := len(must[[]muster.EnrolmentToken](t)(s.EnrolmentTokens(ctx, start.Add(c.at)))); n != c.tokens || kept != c.window {
				t.Errorf("after %s: %d tokens, %d windows, want %d and %d", c.at, n, kept, c.tokens, c.window)
			}
		}
		if n := entries(t, s, enrolmentSubject(back.ID), "revoke_token"); n != 1 {
			t.Errorf("the audit has %d entries of a forgotten token", n)
		}
		healthy(t, s)
	})
}
