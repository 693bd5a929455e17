package store

import (
	"slices"
	"strings"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/lifecycle"
)

// plug is a machine with these disks, as its host says it.
func plug(b box, ds ...muster.HardwareDisk) muster.Hardware {
	return muster.Hardware{Vendor: "QEMU", Product: "Standard PC", Serial: b.serial, MemoryMiB: 2048, Disks: ds}
}

func inSlot(slot, serial string, contents ...muster.Content) muster.HardwareDisk {
	return muster.HardwareDisk{Disk: muster.Disk{Path: "/dev/" + slot, Serial: serial, Size: 10 << 30, Contents: contents}, Slot: slot, Firmware: "1.0"}
}

// own are the disks of the pool that a machine was set up with.
func own(b box) []muster.HardwareDisk {
	var all []muster.HardwareDisk
	for _, d := range b.disks() {
		all = append(all, inSlot(strings.TrimPrefix(d.Path, "/dev/"), d.Serial, muster.Content{Kind: "zpool", Name: "zones"}))
	}
	return all
}

// A rig is two nodes whose hosts say what they have.
type rig struct {
	t     *testing.T
	s     *Store
	now   time.Time
	nodes [2]string
}

func newRig(t *testing.T, s *Store) *rig {
	g := &rig{t: t, s: s, now: start}
	site(t, s)
	for i := range g.nodes {
		member(t, s, boxNo(i+1), start)
		g.nodes[i] = must[muster.Registration](t)(s.Registration(t.Context(), boxNo(i+1).uuid)).NodeID
	}
	return g
}

// says has the host of a node say what it has, a minute later, twice.
func (g *rig) says(i int, ds ...muster.HardwareDisk) {
	g.t.Helper()
	g.now = g.now.Add(time.Minute)
	for range 2 {
		if err := g.s.KeepHardware(g.t.Context(), g.now, muster.Caller{NodeID: g.nodes[i]}, plug(boxNo(i+1), append(own(boxNo(i+1)), ds...)...)); err != nil {
			g.t.Fatal(err)
		}
	}
}

func (g *rig) adopt(i int, disk string) (muster.AdoptedDisk, error) {
	g.now = g.now.Add(time.Second)
	return g.s.AdoptDisk(g.t.Context(), g.now, ada, g.nodes[i], muster.AdoptDisk{Disk: disk})
}

// held is a disk of a node by its serial number, the newest.
func (g *rig) held(i int, serial string) (d muster.NodeDisk) {
	g.t.Helper()
	for _, k := range must[muster.NodeDetail](g.t)(g.s.Node(g.t.Context(), g.nodes[i])).Disks {
		if k.Disk.Serial == serial {
			d = k
		}
	}
	return d
}

func (g *rig) unadopted() (words []string) {
	g.t.Helper()
	for _, u := range must[[]muster.UnadoptedDisk](g.t)(g.s.UnadoptedDisks(g.t.Context())) {
		word := u.Disk.Serial
		if u.Before != "" {
			word += " again"
		}
		if u.Refused != "" {
			word += " refused"
		}
		words = append(words, word)
	}
	return words
}

func (g *rig) events(id string) (actions []string) {
	g.t.Helper()
	for _, e := range must[[]muster.AuditEntry](g.t)(g.s.Audit(g.t.Context(), muster.AuditFilter{Subject: "disk/" + id})) {
		actions = append(actions, e.Action)
	}
	return actions
}

// decommission is what a host's confirmation will do.
func (g *rig) decommission(id string) {
	g.t.Helper()
	must[muster.NodeDisk](g.t)(g.s.RaiseDisk(g.t.Context(), g.now, ada, id, lifecycle.ExpungeDisk, &muster.Expunge{Confirm: id, Reason: "reads fail"}))
	meddle(g.t, g.s, "UPDATE disks SET state = 'decommissioned' WHERE disk_id = '"+id+"'")
}

func TestCollections(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		awaiting(t, s, boxNo(1), start)
		before := must[[]muster.UnadoptedMachine](t)(s.UnadoptedMachines(ctx))
		if len(before) != 1 || before[0].Serial != boxNo(1).serial || before[0].Part != "Standard PC" || before[0].State != "awaiting_setup" {
			t.Errorf("unadopted: %+v", before)
		}
		b := boxNo(2)
		member(t, s, b, start)
		node := must[muster.Registration](t)(s.Registration(ctx, b.uuid)).NodeID
		if all := must[[]muster.UnadoptedMachine](t)(s.UnadoptedMachines(ctx)); len(all) != 1 {
			t.Errorf("unadopted: %+v", all)
		}
		// What it said before it was adopted is its history.
		all := must[[]muster.Collection](t)(s.NodeInventories(ctx, node))
		if len(all) < 2 || all[len(all)-1].Source != muster.SourceSysinfo || all[len(all)-2].Source != muster.SourceSurvey || all[len(all)-2].NodeID != "" {
			t.Errorf("history: %+v", all)
		}
		by := muster.Caller{NodeID: node}
		kept := int64(len(all))
		for i := range int64(3) {
			h := plug(b, own(b)...)
			h.MemoryMiB = 2048 << i
			h.Looked, h.Foreign = true, []muster.ForeignName{{Kind: "container", Name: "db"}}
			for range 2 {
				if err := s.KeepHardware(ctx, start.Add(time.Duration(i)*time.Hour), by, h); err != nil {
					t.Fatal(err)
				}
			}
		}
		// A refresh says less than the host over the link, and is no collection.
		c := must[muster.Collection](t)(s.NodeInventory(ctx, node, 0))
		if c.Number != kept+3 || c.NodeID != node || c.Hardware.MemoryMiB != 8192 || !c.CollectedAt.Equal(start.Add(2*time.Hour)) || len(c.Warnings) != 0 {
			t.Errorf("newest: %+v", c)
		}
		if d := must[muster.HardwareDiff](t)(s.DiffInventory(ctx, node, 0, 0)); d.From.Number != kept+2 || len(d.Changes) != 1 || d.Changes[0].Part != "memory" {
			t.Errorf("diff: %+v", d)
		}
		if d := must[muster.HardwareDiff](t)(s.DiffInventory(ctx, node, kept+1, kept+3)); d.Changes[0].From != "2048 MiB" || d.Changes[0].To != "8192 MiB" {
			t.Errorf("diff: %+v", d)
		}
		_, err := s.NodeInventory(ctx, node, 99)
		wantCode(t, err, muster.CodeNotFound)
		_, err = s.NodeInventory(ctx, "no-such-node", 0)
		wantCode(t, err, muster.CodeNotFound)

		// Foreign workloads are those of the last look.
		if f := must[muster.NodeDetail](t)(s.Node(ctx, node)).Foreign; len(f) != 1 || f[0].Name != "db" || !f[0].FirstSeen.Equal(start) {
			t.Errorf("foreign: %+v", f)
		}
		h := plug(b, own(b)...)
		if err := s.KeepHardware(ctx, start, by, h); err != nil { // nobody looked
			t.Fatal(err)
		}
		if f := must[muster.NodeDetail](t)(s.Node(ctx, node)).Foreign; len(f) != 1 {
			t.Errorf("foreign: %+v", f)
		}
		h.Looked = true
		if err := s.KeepHardware(ctx, start, by, h); err != nil {
			t.Fatal(err)
		}
		if f := must[muster.NodeDetail](t)(s.Node(ctx, node)).Foreign; len(f) != 0 {
			t.Errorf("foreign: %+v", f)
		}

		// The newest are kept.
		for i := range int64(keptCollections + 2) {
			h.MemoryMiB = 100 + i
			if err := s.KeepHardware(ctx, start, by, h); err != nil {
				t.Fatal(err)
			}
		}
		if all := must[[]muster.Collection](t)(s.NodeInventories(ctx, node)); len(all) != keptCollections {
			t.Errorf("%d are kept", len(all))
		}
		healthy(t, s)
	})
}

// What nobody let in leaves little behind, and nothing when it is forgotten.
func TestCollectionsOfStrangers(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		awaiting(t, s, boxNo(1), start)
		for i := range keptUnadopted + 3 {
			a := boxNo(1).announcement("s1")
			a.Sysinfo = []byte(strings.Replace(string(a.Sysinfo), `"2048"`, `"`+strings.Repeat("9", i+1)+`"`, 1))
			must[muster.Announced](t)(s.Announce(ctx, start, booterCaller, a))
		}
		count := func(table string) (n int) {
			if err := behind(t, s).QueryRow("SELECT count(*) FROM " + table).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		if n := count("collections"); n != keptUnadopted {
			t.Errorf("%d collections of a machine that nobody let in", n)
		}
		if count("disk_places") == 0 {
			t.Error("its disks were seen nowhere")
		}
		if err := s.DeleteRegistration(ctx, start, ada, boxNo(1).uuid); err != nil {
			t.Fatal(err)
		}
		if n, m := count("collections"), count("disk_places"); n+m != 0 {
			t.Errorf("%d collections and %d places of a machine that is forgotten", n, m)
		}
	})
}

// A disk is adopted by a word, missed when it is pulled, and back when it is put
// back: neither policy nor state is another.
func TestReplug(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		g := newRig(t, s)
		if _, err := g.adopt(0, "X1"); !muster.IsCode(err, muster.CodeConflict) {
			t.Fatalf("before its host said what it has: %v", err)
		}
		g.says(0, inSlot("sdx", "X1"))
		if got := g.unadopted(); !slices.Equal(got, []string{"X1"}) {
			t.Errorf("unadopted: %q", got)
		}
		if _, err := g.adopt(0, "X9"); !muster.IsCode(err, muster.CodeNotFound) {
			t.Errorf("one that is not there: %v", err)
		}
		first := must[muster.AdoptedDisk](t)(g.adopt(0, "x1"))
		if first.Policy != muster.DiskPolicyInService || first.State != muster.DiskInService || first.Member || first.Disk.Serial != "X1" {
			t.Errorf("adopted: %+v", first)
		}
		if again := must[muster.AdoptedDisk](t)(g.adopt(0, "X1")); again.ID != first.ID {
			t.Errorf("adopted twice: %+v", again)
		}
		if d := g.held(0, boxNo(1).serial+"-B"); !d.Member || d.MissingSince != nil {
			t.Errorf("one of the pool: %+v", d)
		}
		if got := g.unadopted(); len(got) != 0 {
			t.Errorf("unadopted: %q", got)
		}

		g.says(0) // it was pulled
		if d := g.held(0, "X1"); d.MissingSince == nil || !d.MissingSince.Equal(g.now) || d.Policy != first.Policy || d.State != first.State {
			t.Errorf("pulled: %+v", d)
		}
		g.says(0, inSlot("sdq", "X1")) // and is put back, in another slot
		if d := g.held(0, "X1"); d.MissingSince != nil || d.ID != first.ID || d.Policy != first.Policy || d.State != first.State {
			t.Errorf("put back: %+v", d)
		}
		if got := g.events(first.ID); !slices.Equal(got, []string{"adopt_disk", ActionDiskMissing, ActionDiskBack}) {
			t.Errorf("events: %q", got)
		}
		g.says(0, inSlot("sdz", "X1"))
		d := must[muster.HardwareDiff](t)(s.DiffInventory(t.Context(), g.nodes[0], 0, 0))
		if len(d.Changes) != 1 || d.Changes[0].Change != "moved" || d.Changes[0].From != "sdq" || d.Changes[0].To != "sdz" {
			t.Errorf("the other slot: %+v", d.Changes)
		}
		healthy(t, s)
	})
}

// A disk that was expunged comes back as another, by an operator's word; one
// that holds something is refused wherever it is.
func TestReadoptDisk(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		g := newRig(t, s)
		g.says(0, inSlot("sdx", "X1"))
		first := must[muster.AdoptedDisk](t)(g.adopt(0, "X1"))
		must[muster.NodeDisk](t)(s.RaiseDisk(t.Context(), g.now, ada, first.ID, lifecycle.ExpungeDisk, &muster.Expunge{Confirm: "X1", Reason: "reads fail"}))
		if _, err := g.adopt(0, "X1"); !muster.IsCode(err, muster.CodeConflict) {
			t.Errorf("before its host let go of it: %v", err)
		}
		meddle(t, s, "UPDATE disks SET state = 'decommissioned' WHERE disk_id = '"+first.ID+"'")
		g.says(0)
		g.says(0, inSlot("sdx", "X1")) // pulled and put back: that is no word
		if got := g.unadopted(); !slices.Equal(got, []string{"X1 again"}) {
			t.Errorf("unadopted: %q", got)
		}
		g.says(0, inSlot("sdx", "X1", muster.Content{Kind: "zpool", Name: "tank"}))
		_, err := g.adopt(0, "X1")
		wantCode(t, err, muster.CodeConflict)
		if !strings.Contains(err.Error(), "zpool tank") || !strings.Contains(err.Error(), "empty it first") {
			t.Errorf("with an old pool: %v", err)
		}
		g.says(0, inSlot("sdx", "X1"))
		second := must[muster.AdoptedDisk](t)(g.adopt(0, "X1"))
		if second.ID == first.ID || second.State != muster.DiskInService {
			t.Errorf("adopted again: %+v", second)
		}
		if d := must[muster.NodeDetail](t)(s.Node(t.Context(), g.nodes[0])); len(d.Disks) != 4 {
			t.Errorf("the decommissioned one stays to be seen: %+v", d.Disks)
		}
		g.says(0, inSlot("sdx", "X1"), muster.HardwareDisk{Disk: muster.Disk{Path: "/dev/sdn", Size: 1}})
		if _, err := g.adopt(0, "/dev/sdn"); !muster.IsCode(err, muster.CodeConflict) {
			t.Errorf("one that could not be known again: %v", err)
		}
		healthy(t, s)
	})
}

// A disk that turns up in another node is not there twice.
func TestDiskInAnotherNode(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		g := newRig(t, s)
		g.says(0, inSlot("sdx", "X1"))
		first := must[muster.AdoptedDisk](t)(g.adopt(0, "X1"))
		g.says(1)
		g.says(0)
		g.says(1, inSlot("sdy", "X1"))
		_, err := g.adopt(1, "X1")
		wantCode(t, err, muster.CodeConflict)
		if !strings.Contains(err.Error(), first.ID) {
			t.Errorf("%v", err)
		}
		if got := g.unadopted(); !slices.Equal(got, []string{"X1 refused"}) {
			t.Errorf("unadopted: %q", got)
		}
		went := must[muster.HardwareDiff](t)(s.DiffInventory(t.Context(), g.nodes[0], 0, 0))
		if e := went.Changes[0].Elsewhere; went.Changes[0].Change != "removed" || e == nil || e.NodeID != g.nodes[1] || e.Until != nil || e.Slot != "sdy" {
			t.Errorf("where it went: %+v %+v", went.Changes, e)
		}
		came := must[muster.HardwareDiff](t)(s.DiffInventory(t.Context(), g.nodes[1], 0, 0))
		if e := came.Changes[0].Elsewhere; came.Changes[0].Change != "added" || e == nil || e.NodeID != g.nodes[0] || e.Until == nil {
			t.Errorf("where it came from: %+v %+v", came.Changes, e)
		}
		g.decommission(first.ID)
		second := must[muster.AdoptedDisk](t)(g.adopt(1, "X1"))
		if second.NodeID != g.nodes[1] || second.ID == first.ID {
			t.Errorf("%+v", second)
		}
		healthy(t, s)
	})
}

// By policy, what is empty and new is adopted by itself; what was adopted there
// once, holds something, is another node's or can be carried about is not.
func TestAdoptByPolicy(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		g := newRig(t, s)
		p := must[muster.BootPolicy](t)(s.BootPolicy(t.Context()))
		if p.AdoptDisks = "always"; second(s.SetBootPolicy(t.Context(), start, ada, p)) == nil {
			t.Error("a policy that is none was taken")
		}
		g.says(0, inSlot("sdx", "X1"))
		if d := g.held(0, "X1"); d.ID != "" {
			t.Errorf("adopted without a word: %+v", d)
		}
		p.AdoptDisks = muster.AdoptAuto
		must[muster.BootPolicy](t)(s.SetBootPolicy(t.Context(), start, ada, p))
		stick := inSlot("sdu", "U1")
		stick.Removable = true
		g.says(0, inSlot("sdx", "X1"), inSlot("sdy", "Y1", muster.Content{Kind: "ext4"}), stick)
		x := g.held(0, "X1")
		if x.State != muster.DiskInService || x.Member {
			t.Errorf("by policy: %+v", x)
		}
		if got := g.unadopted(); !slices.Equal(got, []string{"Y1 refused", "U1"}) {
			t.Errorf("unadopted: %q", got)
		}
		g.says(1, inSlot("sdq", "X1"))
		if d := g.held(1, "X1"); d.ID != "" {
			t.Errorf("a disk of another node: %+v", d)
		}
		g.decommission(x.ID)
		g.says(0)
		g.says(0, inSlot("sdx", "X1"))
		if d := g.held(0, "X1"); d.ID != x.ID || d.State != muster.DiskDecommissioned {
			t.Errorf("one that was adopted there before: %+v", d)
		}
		must[muster.AdoptedDisk](t)(g.adopt(0, "X1"))
		healthy(t, s)
	})
}

func TestFirmwareMinimums(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		g := newRig(t, s)
		ctx := t.Context()
		for range 2 {
			m := must[muster.FirmwareMinimum](t)(s.SetFirmwareMinimum(ctx, start, ada, muster.FirmwareMinimum{Vendor: "ATA", Part: " Disk  9 ", Version: "1.1"}))
			if m.Part != "Disk 9" || m.SetBy != "operator:ada" {
				t.Errorf("%+v", m)
			}
		}
		if es := must[[]muster.AuditEntry](t)(s.Audit(ctx, muster.AuditFilter{Subject: "firmware"})); len(es) != 1 {
			t.Errorf("%+v", es)
		}
		old := inSlot("sdx", "X1")
		old.Vendor, old.Model = "ATA", "disk 9"
		g.says(0, old)
		if c := must[muster.Collection](t)(s.NodeInventory(ctx, g.nodes[0], 0)); len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "1.1 is the minimum") {
			t.Errorf("%q", c.Warnings)
		}
		if d := must[muster.AdoptedDisk](t)(g.adopt(0, "X1")); len(d.Warnings) != 1 {
			t.Errorf("%+v", d)
		}
		if err := s.RemoveFirmwareMinimum(ctx, start, ada, "ATA", "Disk 9"); err != nil {
			t.Fatal(err)
		}
		wantCode(t, s.RemoveFirmwareMinimum(ctx, start, ada, "ATA", "Disk 9"), muster.CodeNotFound)
		if all := must[[]muster.FirmwareMinimum](t)(s.FirmwareMinimums(ctx)); len(all) != 0 {
			t.Errorf("%+v", all)
		}
		_, err := s.SetFirmwareMinimum(ctx, start, ada, muster.FirmwareMinimum{Vendor: "ATA", Version: "1"})
		wantCode(t, err, muster.CodeInvalid)
		healthy(t, s)
	})
}
