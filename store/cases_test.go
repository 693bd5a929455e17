package store

import (
	"encoding/json"
	"slices"
	"testing"

	"muster.internal"
	"muster.internal/inventory"
)

// parts is hardware that comes up with, in part, another machine's evidence.
type parts struct {
	box
	disks []muster.Disk
}

func (p parts) announcement(session string) muster.Announcement {
	a := p.box.announcement(session)
	if len(p.disks) == 0 {
		return a
	}
	var all map[string]any
	if err := json.Unmarshal(a.Sysinfo, &all); err != nil {
		panic(err)
	}
	all["Muster"] = map[string]any{"macs": []string{p.mac}, "disks": p.disks}
	raw, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	a.Sysinfo = raw
	return a
}

// namedCases are the ways in which a newcomer is not plainly new, made from the
// box that is known already (1) and one that nobody has heard of (2).
var namedCases = []struct {
	name string
	kind inventory.Case
	make func(known, other box) parts
}{
	{"two machines with one UUID", inventory.OneUUID, func(a, b box) parts { b.uuid = a.uuid; return parts{box: b} }},
	{"two machines with one UUID, in both byte orders", inventory.OneUUID, func(a, b box) parts { b.uuid = muster.SwapUUID(a.uuid); return parts{box: b} }},
	{"blades with one serial", inventory.OneChassis, func(a, b box) parts { b.uuid, b.serial = a.uuid, a.serial; return parts{box: b} }},
	{"serial changed by firmware", inventory.SerialChanged, func(a, b box) parts { a.serial = b.serial; return parts{box: a} }},
	{"UUID changed by a BMC", inventory.UUIDChanged, func(a, b box) parts { a.uuid = b.uuid; return parts{box: a} }},
	{"card moved", inventory.NICMoved, func(a, b box) parts { b.mac = a.mac; return parts{box: b} }},
	{"board swapped, with card and disks", inventory.BoardSwapped, func(a, b box) parts { b.mac = a.mac; return parts{b, a.disks()[:1]} }},
	{"board swapped, with all disks", inventory.BoardSwapped, func(a, b box) parts { return parts{b, a.disks()} }},
	{"board swapped, with the pool", inventory.BoardSwapped, func(a, b box) parts {
		d := muster.Disk{Path: "/dev/sda", Serial: "NEW", Size: 1 << 30, Contents: []muster.Content{{Kind: "zfs", Name: "muster", Stamp: a.uuid}}}
		return parts{b, []muster.Disk{d}}
	}},
	{"disks moved to hardware that takes its UUID from them", inventory.DisksMoved, func(a, b box) parts { b.uuid = a.uuid; return parts{b, a.disks()[1:]} }},
}

// TestEveryVerbOfEveryCase: a newcomer of each case waits and changes nothing
// of the incumbent; each verb that the case names does what its row says, and
// each that it does not name is refused.
func TestEveryVerbOfEveryCase(t *testing.T) {
	verbs := map[string]muster.Event{}
	for e, v := range machineVerbs {
		verbs[v] = e
	}
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		n := 0
		for _, c := range namedCases {
			for _, verb := range []string{inventory.VerbAccept, inventory.VerbSeparate, inventory.VerbMoveNIC, inventory.VerbForget} {
				t.Run(c.name+"/"+verb, func(t *testing.T) {
					n += 2
					known, other := boxNo(n), boxNo(n+1)
					awaiting(t, s, known, start)
					install(t, s, known, start)
					was := must[muster.Registration](t)(s.Registration(ctx, known.uuid))
					card := must[muster.BootRecord](t)(s.BootRecord(ctx, known.mac))
					p := c.make(known, other)
					before := must[[]muster.BootRecord](t)(s.Sight(ctx, start, booterCaller, "b1", []muster.Sighting{{MAC: p.mac, At: start}}))[0]
					_, err := s.Announce(ctx, start, booterCaller, p.announcement("new"))
					wantCode(t, err, muster.CodeConflict)
					now := must[muster.Registration](t)(s.Registration(ctx, known.uuid))
					if now.State != was.State || now.Serial != was.Serial || !slices.Equal(now.MACs, was.MACs) || now.NodeID != was.NodeID || now.BoundKeyID != was.BoundKeyID || len(now.Conflicts) != 1 {
						t.Fatalf("the incumbent became %+v", now)
					}
					w := waitingFor(t, s, known.uuid)
					if w.Case != string(c.kind) || w.BootMAC != p.mac {
						t.Fatalf("it waits as %+v", w)
					}
					_, err = s.RaiseMachine(ctx, start, ada, w.ID, verbs[verb])
					if !slices.Contains(c.kind.Verbs(), verb) {
						wantCode(t, err, muster.CodeConflict)
						if waitingFor(t, s, known.uuid).ID != w.ID {
							t.Error("a refused verb changed the newcomer")
						}
						healthy(t, s)
						return
					}
					if err != nil {
						t.Fatal(err)
					}
					healthy(t, s)
					if ms := must[[]muster.Machine](t)(s.Machines(ctx, muster.MachineFilter{State: muster.MachineConflict})); slices.ContainsFunc(ms, func(m muster.Machine) bool { return m.ID == w.ID }) {
						t.Error("it still waits")
					}
					now = must[muster.Registration](t)(s.Registration(ctx, known.uuid))
					if now.State != was.State || now.NodeID != was.NodeID || now.BoundKeyID != was.BoundKeyID || len(now.Conflicts) != 0 {
						t.Errorf("the incumbent became %+v", now)
					}
					after := must[muster.BootRecord](t)(s.BootRecord(ctx, p.mac))
					if after.Address != before.Address {
						t.Errorf("the card's address %s became %s", before.Address, after.Address)
					}
					if p.mac != known.mac {
						if r := must[muster.BootRecord](t)(s.BootRecord(ctx, known.mac)); r.State != card.State || r.Address != card.Address || r.ServerUUID != card.ServerUUID {
							t.Errorf("the incumbent's card became %+v", r)
						}
					}
					again := p
					if after.OwnUUID != "" {
						again.uuid = after.OwnUUID
					}
					got, err := s.Announce(ctx, start, booterCaller, again.announcement("again"))
					switch verb {
					case inventory.VerbForget:
						wantCode(t, err, muster.CodeConflict)
						if waitingFor(t, s, known.uuid).ID == w.ID {
							t.Error("the same newcomer waits")
						}
					case inventory.VerbAccept:
						if err != nil || got.State != muster.Approved {
							t.Errorf("accepted, it came in as %+v: %v", got, err)
						}
						if !slices.Contains(now.MACs, p.mac) || now.Serial != p.serial {
							t.Errorf("its evidence was not taken in: %+v", now)
						}
						if after.State != muster.Enrolled || after.ServerUUID != known.uuid || after.AssignedPI == nil || *after.AssignedPI != *card.AssignedPI {
							t.Errorf("the card is served something else than the machine's other: %+v", after)
						}
					default:
						if err != nil || got.State != muster.AwaitingSetup || muster.SameUUID(again.uuid, known.uuid) {
							t.Errorf("%s came in as %+v: %v", again.uuid, got, err)
						}
						if slices.Contains(now.MACs, p.mac) || after.ServerUUID != "" || after.State == muster.Enrolled {
							t.Errorf("the card is still the incumbent's: %v, bound to %q", now.MACs, after.ServerUUID)
						}
					}
					healthy(t, s)
				})
			}
		}
	})
}

// waitingFor is the one newcomer that waits because of a machine.
func waitingFor(t *testing.T, s *Store, uuid string) muster.Machine {
	t.Helper()
	ms := must[[]muster.Machine](t)(s.Machines(t.Context(), muster.MachineFilter{State: muster.MachineConflict}))
	var found []muster.Machine
	for _, m := range ms {
		if m.Incumbent == uuid {
			found = append(found, m)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d wait for %s", len(found), uuid)
	}
	return found[0]
}
