package explain

import (
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/dhcp"
)

// TestTheBusDoor: a machine that loaded everything is not known because strict
// mode refuses it, or because it waits in conflict.
func TestTheBusDoor(t *testing.T) {
	loaded := step(500, "HTTP", "initrd", "file", "done")
	loaded.Mode = "enroll"
	twin := muster.Machine{ID: "m1", State: muster.MachineConflict, Incumbent: "4c4c4544-0043-5810-8032-b8c04f503533", Reason: "another serial number",
		Verbs: []string{"separate", "forget"}, FirstSeen: noon.Add(-7 * time.Minute), LastSeen: noon.Add(-5 * time.Second)}
	old := twin
	old.LastSeen = noon.Add(-time.Hour)
	for name, c := range map[string]struct {
		strict, open bool
		waiting      []muster.Machine
		verdict      muster.ExplainVerdict
		cause        string
		command      string
	}{
		"takes in everybody":           {false, false, nil, muster.BootStuck, "no_announce", ""},
		"strict":                       {true, false, nil, muster.BootStuck, "not_admitted", "muster window open enrollment --for 30m --count 1"},
		"strict, a window is open":     {true, true, nil, muster.BootStuck, "no_announce", ""},
		"in conflict":                  {true, false, []muster.Machine{twin}, muster.BootWaiting, "in_conflict", "muster machine separate m1"},
		"was in conflict, boots again": {false, false, []muster.Machine{old}, muster.BootStuck, "no_announce", ""},
	} {
		p := muster.DefaultBootPolicy()
		p.AutoEnroll = !c.strict
		x := Boot(Evidence{Now: noon, Record: muster.BootRecord{MAC: "52:54:00:77:00:01", State: muster.Enrolling}, Policy: p, Waiting: c.waiting, Window: muster.Window{Open: c.open},
			Traces: []muster.BootTrace{{Booter: "b1", Steps: []muster.BootStep{loaded}}}, Image: func(string) *muster.Image { return nil }})
		if x.Verdict != c.verdict || x.Cause != c.cause {
			t.Errorf("%s: %s %s, want %s %s: %s", name, x.Verdict, x.Cause, c.verdict, c.cause, x.Summary)
		}
		if c.command != "" && !slices.ContainsFunc(x.Advice, func(a muster.BootAdvice) bool { return a.Command == c.command }) {
			t.Errorf("%s: %q is not among %+v", name, c.command, x.Advice)
		}
		if len(c.waiting) > 0 && c.cause == "in_conflict" && !strings.Contains(x.Summary, twin.Incumbent) {
			t.Errorf("%s: %s", name, x.Summary)
		}
	}
}

// TestTombstone: a machine that was expunged is told so before all else, by its
// registration, by its record, or by what its firmware says when both are gone.
func TestTombstone(t *testing.T) {
	const uuid = "4c4c4544-0043-5810-8032-b8c04f503533"
	x := &muster.Expunged{At: noon.Add(-3 * time.Hour), By: "operator:admin", Reason: "stolen from rack 4"}
	asked := step(5, "DHCP", "DISCOVER", "", "")
	asked.Serve, asked.Reason, asked.Packet = false, "decommissioned", discover(t, uuid)
	waits := muster.Registration{ServerUUID: uuid, State: muster.Disabled}
	for name, c := range map[string]struct {
		record  muster.BootRecord
		machine *muster.Registration
		steps   []muster.BootStep
		verdict muster.ExplainVerdict
		cause   string
		command string
	}{
		"registered":                   {muster.BootRecord{State: muster.BootDecommissioned, ServerUUID: uuid}, &waits, []muster.BootStep{asked}, muster.BootSilent, "is_expunged", "muster boot reactivate 52:54:00:77:00:01"},
		"forgotten":                    {muster.BootRecord{State: muster.BootDecommissioned, ServerUUID: uuid}, nil, []muster.BootStep{asked}, muster.BootSilent, "is_expunged", "muster registration readmit " + uuid},
		"forgotten, with another card": {muster.BootRecord{State: muster.Enrolling}, nil, []muster.BootStep{asked}, muster.BootSilent, "is_expunged", "muster registration readmit " + uuid},
		"never came":                   {muster.BootRecord{State: muster.BootDecommissioned, ServerUUID: uuid}, nil, nil, muster.BootNeverSeen, "is_expunged", "muster registration readmit " + uuid},
		"rescued":                      {muster.BootRecord{State: muster.BootDecommissioned, Mode: muster.RescueMode, ServerUUID: uuid}, nil, []muster.BootStep{step(2, "HTTP", "kernel", "file", "")}, muster.BootUnderway, "", ""},
		"another machine's card":       {muster.BootRecord{State: muster.BootDecommissioned, ServerUUID: "9f1f7a30-62a1-4f4e-9a55-8d2f6a0c1b77"}, nil, []muster.BootStep{asked}, muster.BootSilent, "decommissioned", ""},
	} {
		c.record.MAC = "52:54:00:77:00:01"
		got := Boot(Evidence{Now: noon, Record: c.record, Machine: c.machine, Policy: muster.DefaultBootPolicy(), Traces: []muster.BootTrace{{Booter: "b1", Steps: c.steps}},
			Image: func(string) *muster.Image { return nil }, Tombstone: func(of string) *muster.Expunged {
				if of == uuid {
					return x
				}
				return nil
			}})
		if got.Verdict != c.verdict || got.Cause != c.cause {
			t.Errorf("%s: %s %s, want %s %s: %s", name, got.Verdict, got.Cause, c.verdict, c.cause, got.Summary)
		}
		if c.command != "" && (!slices.ContainsFunc(got.Advice, func(a muster.BootAdvice) bool { return a.Command == c.command }) || !strings.Contains(got.Summary, "3 h ago by operator:admin (stolen from rack 4)")) {
			t.Errorf("%s: %s %+v", name, got.Summary, got.Advice)
		}
	}
}

func discover(t *testing.T, uuid string) []byte {
	t.Helper()
	p := &dhcp.Packet{Op: dhcp.BootRequest, XID: 7}
	p.SetMAC(dhcp.MAC{0x52, 0x54, 0, 0x77, 0, 1})
	p.Set(dhcp.OptMessageType, []byte{byte(dhcp.Discover)})
	p.Set(dhcp.OptClassID, []byte("PXEClient:Arch:00007:UNDI:003000"))
	p.Set(dhcp.OptArch, []byte{0, 7})
	raw, err := hex.DecodeString(strings.ReplaceAll(muster.SwapUUID(uuid), "-", ""))
	if err != nil {
		t.Fatal(err)
	}
	p.Set(dhcp.OptMachineID, append([]byte{0}, raw...))
	return p.Append(nil)
}

// A machine that runs, and whose host has not done what it was asked for.
func TestExplainOrders(t *testing.T) {
	told := noon.Add(-time.Minute)
	x := Boot(Evidence{Now: noon, Record: muster.BootRecord{MAC: "52:54:00:77:00:01", State: muster.Enrolled},
		Machine: &muster.Registration{ServerUUID: "4c4c4544-0043-5810-8032-b8c04f503533", State: muster.Approved, LastSeen: noon.Add(-5 * time.Second), SurveyedAt: &told},
		Traces:  []muster.BootTrace{{Booter: "b1", Steps: []muster.BootStep{step(600, "DHCP", "DISCOVER", "loader", ""), step(599, "DHCP", "REQUEST", "loader", "")}}},
		Orders:  []muster.NodeOrder{{Kind: muster.OrderRetire, AskedAt: noon.Add(-time.Hour), AskedBy: "operator:ada", ToldAt: &told}, {Kind: muster.OrderRekey, AskedAt: noon.Add(-time.Minute), AskedBy: "operator:ada"}}})
	for _, want := range []string{"by operator:ada to give everything up, and was told", "to make a new key pair, and was not told yet."} {
		if x.Verdict != muster.BootRunning || !strings.Contains(x.Summary, want) {
			t.Errorf("%s: %s", x.Verdict, x.Summary)
		}
	}
}
