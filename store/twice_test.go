package store

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"muster.internal"
	"muster.internal/inventory"
	"muster.internal/lifecycle"
)

// with is a box that shows one more network card.
func (b box) with(mac string) json.RawMessage {
	var all map[string]any
	if err := json.Unmarshal(b.sysinfo(), &all); err != nil {
		panic(err)
	}
	all["Network Interfaces"].(map[string]any)["net1"] = map[string]any{"MAC Address": mac}
	raw, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	return raw
}

func machineOfUUID(t *testing.T, s *Store, uuid string) muster.Machine {
	t.Helper()
	for _, m := range must[[]muster.Machine](t)(s.Machines(t.Context(), muster.MachineFilter{State: muster.MachineKnown})) {
		if m.ServerUUID == uuid {
			return must[muster.Machine](t)(s.Machine(t.Context(), m.ID))
		}
	}
	t.Fatalf("machine %s is not known", uuid)
	return muster.Machine{}
}

// A registered machine that shows a live machine's card by its key goes on, is
// flagged, and does not get the card until an operator says so.
func TestAMemberShowsAnothersCard(t *testing.T) {
	for _, verb := range []muster.Event{lifecycle.MoveNIC, lifecycle.Separate, lifecycle.Forget, lifecycle.Accept} {
		t.Run(string(verb), func(t *testing.T) {
			engines(t, func(t *testing.T, s *Store) {
				ctx := t.Context()
				site(t, s)
				a, b := boxNo(1), boxNo(2)
				member(t, s, a, start)
				k := member(t, s, b, start)
				c := must[muster.Caller](t)(s.Authenticate(ctx, start, k.APIKey, ""))
				was := must[muster.Registration](t)(s.Registration(ctx, a.uuid))
				card := must[muster.BootRecord](t)(s.BootRecord(ctx, a.mac))
				refresh := func(sysinfo json.RawMessage) muster.Registration {
					t.Helper()
					return must[muster.Registration](t)(s.Refresh(ctx, start, c, muster.RefreshRequest{Sysinfo: sysinfo}))
				}
				for range 2 {
					if r := refresh(b.with(a.mac)); slices.Contains(r.MACs, a.mac) || r.State != muster.Approved {
						t.Fatalf("%+v", r)
					}
				}
				if n := entries(t, s, "machine-of/"+b.uuid, "hardware_changed"); n != 1 {
					t.Errorf("%d entries", n)
				}
				m := machineOfUUID(t, s, b.uuid)
				if m.Case != string(inventory.NICTwice) || !strings.Contains(m.Reason, a.uuid) || !slices.Equal(m.Verbs, inventory.NICTwice.Verbs()) {
					t.Fatalf("not flagged: %+v", m)
				}
				if x := machineOfUUID(t, s, a.uuid); x.Case != "" {
					t.Errorf("the incumbent is flagged: %+v", x)
				}
				got, err := s.RaiseMachine(ctx, start, ada, m.ID, verb)
				if verb == lifecycle.Accept {
					wantCode(t, err, muster.CodeConflict)
					refresh(b.sysinfo()) // the card is gone again
					if m := machineOfUUID(t, s, b.uuid); m.Case != "" || m.Reason != "" {
						t.Errorf("it is still flagged: %+v", m)
					}
					return
				}
				if err != nil || got.Case != "" {
					t.Fatalf("%+v: %v", got, err)
				}
				healthy(t, s)
				now, after := must[muster.Registration](t)(s.Registration(ctx, a.uuid)), must[muster.BootRecord](t)(s.BootRecord(ctx, a.mac))
				if now.State != was.State || now.NodeID != was.NodeID || now.BoundKeyID != was.BoundKeyID || after.Address != card.Address {
					t.Errorf("the incumbent became %+v, its card %+v", now, after)
				}
				r := refresh(b.with(a.mac))
				m = machineOfUUID(t, s, b.uuid)
				switch verb {
				case lifecycle.MoveNIC:
					if slices.Contains(now.MACs, a.mac) || !slices.Contains(r.MACs, a.mac) || m.Case != "" {
						t.Errorf("%v and %v, case %q", now.MACs, r.MACs, m.Case)
					}
					if after.State != muster.Enrolled || after.ServerUUID != b.uuid || *after.AssignedPI != *card.AssignedPI {
						t.Errorf("the card's record: %+v", after)
					}
				case lifecycle.Separate:
					if !slices.Contains(now.MACs, a.mac) || !slices.Contains(r.MACs, a.mac) || m.Case != "" || after.ServerUUID != a.uuid {
						t.Errorf("%v and %v, case %q, the card's record %+v", now.MACs, r.MACs, m.Case, after)
					}
				default:
					if slices.Contains(r.MACs, a.mac) || m.Case != string(inventory.NICTwice) || after.ServerUUID != a.uuid {
						t.Errorf("%v, case %q, the card's record %+v", r.MACs, m.Case, after)
					}
				}
				healthy(t, s)
			})
		})
	}
}

// One that is registered and has no key yet waits, at every door; the machine
// that has the card does not.
func TestARegisteredMachineShowsAnothersCard(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		in, waits, asks := boxNo(1), boxNo(2), boxNo(3)
		member(t, s, in, start)
		awaiting(t, s, waits, start)
		must[muster.RegisterReply](t)(s.Register(ctx, start, nobody, asks.request()))
		for door, f := range map[string]func() error{
			"boot bus": func() error {
				a := waits.announcement("s2")
				a.Sysinfo = waits.with(in.mac)
				_, err := s.Announce(ctx, start, booterCaller, a)
				return err
			},
			"claim code": func() error {
				q := asks.request()
				q.Sysinfo = asks.with(in.mac)
				_, err := s.Register(ctx, start, nobody, q)
				return err
			},
			"token": func() error {
				tok, secret := issue(t, s, muster.NewEnrolmentToken{})
				q := asks.enrolment(tok, secret, 1)
				q.Sysinfo = asks.with(in.mac)
				_, err := s.Enrol(ctx, start, nobody, q)
				return err
			},
		} {
			err := f()
			if !muster.IsCode(err, muster.CodeConflict) || !strings.Contains(err.Error(), "move-nic") || !strings.Contains(err.Error(), in.uuid) {
				t.Errorf("%s: %v", door, err)
			}
		}
		a := in.announcement("s3") // the incumbent itself, with the card that it always had
		if got, err := s.Announce(ctx, start, booterCaller, a); err != nil || got.State != muster.Approved {
			t.Errorf("the incumbent: %+v, %v", got, err)
		}
		n := 0
		for _, m := range must[[]muster.Machine](t)(s.Machines(ctx, muster.MachineFilter{State: muster.MachineConflict})) {
			if m.Case != string(inventory.NICTwice) || m.Incumbent != in.uuid {
				t.Errorf("%+v", m)
			}
			n++
			if m.UUID == waits.uuid {
				must[muster.Machine](t)(s.RaiseMachine(ctx, start, ada, m.ID, lifecycle.MoveNIC))
			}
		}
		if n != 2 {
			t.Errorf("%d wait", n)
		}
		again := waits.announcement("s4")
		again.Sysinfo = waits.with(in.mac)
		if got, err := s.Announce(ctx, start, booterCaller, again); err != nil || got.State != muster.AwaitingSetup {
			t.Errorf("after move-nic: %+v, %v", got, err)
		}
		if r := must[muster.Registration](t)(s.Registration(ctx, waits.uuid)); !slices.Contains(r.MACs, in.mac) {
			t.Errorf("%v", r.MACs)
		}
		healthy(t, s)
	})
}

// A node's key in other hardware works, and is flagged until an operator says
// that it is right.
func TestEveryVerbOfKeyMoved(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		b, other := boxNo(1), boxNo(2)
		k := member(t, s, b, start)
		c := must[muster.Caller](t)(s.Authenticate(ctx, start, k.APIKey, ""))
		other.uuid = b.uuid
		must[muster.Registration](t)(s.Refresh(ctx, start, c, muster.RefreshRequest{Sysinfo: other.sysinfo()}))
		m := machineOfUUID(t, s, b.uuid)
		if m.Case != string(inventory.KeyMoved) || !slices.Equal(m.Verbs, []string{inventory.VerbAccept}) {
			t.Fatalf("%+v", m)
		}
		for _, e := range []muster.Event{lifecycle.Separate, lifecycle.MoveNIC, lifecycle.Forget} {
			_, err := s.RaiseMachine(ctx, start, ada, m.ID, e)
			wantCode(t, err, muster.CodeConflict)
			if p := err.(*muster.Problem); !slices.Equal(p.Allowed, []string{"accept"}) {
				t.Errorf("%s: %v would be allowed", e, p.Allowed)
			}
		}
		must[muster.Machine](t)(s.RaiseMachine(ctx, start, ada, m.ID, lifecycle.Accept))
		must[muster.Registration](t)(s.Refresh(ctx, start, c, muster.RefreshRequest{Sysinfo: other.sysinfo()}))
		if m = machineOfUUID(t, s, b.uuid); m.Case != "" {
			t.Errorf("accepted, and flagged again: %+v", m)
		}
		for _, e := range []muster.Event{lifecycle.Accept, lifecycle.Separate, lifecycle.MoveNIC, lifecycle.Forget} {
			_, err := s.RaiseMachine(ctx, start, ada, m.ID, e)
			wantCode(t, err, muster.CodeConflict)
			if p := err.(*muster.Problem); len(p.Allowed) != 0 || !strings.Contains(p.Detail, "nothing about it is odd") {
				t.Errorf("%s: %+v", e, p)
			}
		}
		healthy(t, s)
	})
}

// A UUID turns out to be a default when a machine has it already: that one keeps
// it, and the next that comes with it waits.
func TestEveryVerbOfDefaultUUID(t *testing.T) {
	for _, e := range []muster.Event{lifecycle.Accept, lifecycle.Separate, lifecycle.MoveNIC, lifecycle.Forget} {
		t.Run(string(e), func(t *testing.T) {
			engines(t, func(t *testing.T, s *Store) {
				ctx := t.Context()
				site(t, s)
				in, twin := boxNo(1), boxNo(2)
				twin.uuid = muster.SwapUUID(in.uuid)
				member(t, s, in, start)
				was := must[muster.Registration](t)(s.Registration(ctx, in.uuid))
				must[muster.SharedIdentity](t)(s.AddSharedIdentity(ctx, start, ada, muster.SharedIdentity{Kind: muster.SharedUUID, Value: in.uuid}))
				if got, err := s.Announce(ctx, start, booterCaller, in.announcement("s2")); err != nil || got.State != muster.Approved {
					t.Errorf("the one that has it: %+v, %v", got, err)
				}
				if r := must[muster.BootRecord](t)(s.BootRecord(ctx, in.mac)); r.OwnUUID != "" {
					t.Errorf("it is told to call itself %s", r.OwnUUID)
				}
				must[[]muster.BootRecord](t)(s.Sight(ctx, start, booterCaller, "b1", []muster.Sighting{{MAC: twin.mac}}))
				_, err := s.Announce(ctx, start, booterCaller, twin.announcement("s3"))
				wantCode(t, err, muster.CodeConflict)
				w := waitingFor(t, s, in.uuid)
				if w.Case != string(inventory.DefaultUUID) {
					t.Fatalf("%+v", w)
				}
				_, err = s.RaiseMachine(ctx, start, ada, w.ID, e)
				own := must[muster.BootRecord](t)(s.BootRecord(ctx, twin.mac)).OwnUUID
				switch e {
				case lifecycle.Accept, lifecycle.MoveNIC:
					wantCode(t, err, muster.CodeConflict)
				case lifecycle.Separate:
					if err != nil || own == "" || muster.SameUUID(own, in.uuid) {
						t.Fatalf("told to be %q: %v", own, err)
					}
					twin.uuid = own
					must[muster.Announced](t)(s.Announce(ctx, start, booterCaller, twin.announcement("s4")))
				default:
					if err != nil || own != "" {
						t.Errorf("told to be %q: %v", own, err)
					}
				}
				now := must[muster.Registration](t)(s.Registration(ctx, in.uuid))
				if now.State != was.State || now.NodeID != was.NodeID || now.BoundKeyID != was.BoundKeyID || !slices.Equal(now.MACs, was.MACs) || now.Serial != was.Serial {
					t.Errorf("the incumbent became %+v", now)
				}
				healthy(t, s)
			})
		})
	}
}
