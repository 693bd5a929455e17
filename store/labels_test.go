package store

import (
	"maps"
	"strings"
	"testing"

	"muster.internal"
	"muster.internal/module"
)

// What people say of hardware is kept, heard once, and gone with the node.
func TestLabels(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		member(t, s, boxNo(1), start)
		node := must[muster.Registration](t)(s.Registration(ctx, boxNo(1).uuid)).NodeID
		heard := func() int64 {
			return must[muster.AuditVerdict](t)(s.VerifyAudit(ctx)).VerifiedTo
		}
		// Said twice, the second time changes nothing and is in no audit.
		twice := func(what string, say func() error) {
			t.Helper()
			before := heard()
			for range 2 {
				if err := say(); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			}
			if n := heard() - before; n != 1 {
				t.Errorf("%s: %d entries in the audit, want 1", what, n)
			}
		}
		disks := must[[]muster.NodeDisk](t)(s.Disks(ctx))
		if len(disks) == 0 || !disks[0].Member || disks[0].NodeID != node {
			t.Fatalf("disks: %+v", disks)
		}
		machines := must[[]muster.Machine](t)(s.Machines(ctx, muster.MachineFilter{}))
		twice("labels", func() error {
			_, err := s.LabelNode(ctx, start, ada, node, muster.LabelChange{Set: map[string]string{"rack": "r1", "row": "2"}, Remove: []string{"power"}})
			return err
		})
		twice("one label less", func() error {
			_, err := s.LabelNode(ctx, start, ada, node, muster.LabelChange{Remove: []string{"row"}})
			return err
		})
		twice("a disk's label", func() error {
			_, err := s.LabelDisk(ctx, start, ada, disks[0].ID, muster.LabelChange{Set: map[string]string{"class": "fast"}})
			return err
		})
		held := module.Capacity{CPUMillis: 1500, MemoryMiB: 8192, DiskMiB: 1}
		twice("a reservoir", func() error { _, err := s.SetReservoir(ctx, start, ada, node, held); return err })
		twice("a note", func() error {
			_, err := s.NoteNode(ctx, start, ada, node, muster.Note{Note: " fan 3\nwas changed "})
			return err
		})
		twice("a machine's note", func() error {
			_, err := s.NoteMachine(ctx, start, ada, machines[0].ID, muster.Note{Note: "lent"})
			return err
		})
		n := must[muster.NodeDetail](t)(s.Node(ctx, node))
		if !maps.Equal(n.Labels, map[string]string{"rack": "r1"}) || n.Reservoir != held || n.Note != "fan 3\nwas changed" || n.Disks[0].Labels["class"] != "fast" {
			t.Errorf("%+v", n)
		}
		must[muster.Node](t)(s.RaiseNode(ctx, start, ada, node, "no_provision"))
		if all := must[[]muster.Node](t)(s.Nodes(ctx)); all[0].Labels["rack"] != "r1" || all[0].Reservoir != held {
			t.Errorf("%+v", all)
		}
		if m := must[muster.Machine](t)(s.Machine(ctx, machines[0].ID)); m.Note != "lent" {
			t.Errorf("%+v", m)
		}
		must[muster.Node](t)(s.SetReservoir(ctx, start, ada, node, module.Capacity{}))
		if n := must[muster.NodeDetail](t)(s.Node(ctx, node)); n.Reservoir != (module.Capacity{}) {
			t.Errorf("the reservoir was cleared: %+v", n.Reservoir)
		}
		healthy(t, s)

		for what, err := range map[string]error{
			"a label that is none": second(s.LabelNode(ctx, start, ada, node, muster.LabelChange{Set: map[string]string{"a b": "c"}})),
			"a reservoir of disks": second(s.SetReservoir(ctx, start, ada, node, module.Capacity{DurableMiB: 1})),
			"less than nothing":    second(s.SetReservoir(ctx, start, ada, node, module.Capacity{MemoryMiB: -1})),
			"a long note":          second(s.NoteNode(ctx, start, ada, node, muster.Note{Note: strings.Repeat("x", muster.MaxNoteBytes+1)})),
			"a note that paints":   second(s.NoteNode(ctx, start, ada, node, muster.Note{Note: "\x1b[31m"})),
		} {
			if !muster.IsCode(err, muster.CodeInvalid) {
				t.Errorf("%s: %v", what, err)
			}
		}
		_, err := s.LabelDisk(ctx, start, ada, "no-such-disk", muster.LabelChange{})
		wantCode(t, err, muster.CodeNotFound)
		_, err = s.NoteMachine(ctx, start, ada, "no-such-machine", muster.Note{})
		wantCode(t, err, muster.CodeNotFound)

		// The machine comes back as another node, of which nothing was said.
		must[muster.Registration](t)(s.RaiseRegistration(ctx, start, ada, boxNo(1).uuid, "factory_reset"))
		_, err = s.LabelNode(ctx, start, ada, node, muster.LabelChange{Set: map[string]string{"rack": "r9"}})
		wantCode(t, err, muster.CodeConflict)
		_, err = s.LabelDisk(ctx, start, ada, disks[0].ID, muster.LabelChange{Set: map[string]string{"class": "slow"}})
		wantCode(t, err, muster.CodeConflict)
		member(t, s, boxNo(1), start)
		again := must[muster.Registration](t)(s.Registration(ctx, boxNo(1).uuid)).NodeID
		if n := must[muster.NodeDetail](t)(s.Node(ctx, again)); again == node || len(n.Labels) != 0 || n.Note != "" || len(n.Disks[0].Labels) != 0 {
			t.Errorf("%+v", n)
		}
	})
}

func second[T any](_ T, err error) error { return err }
