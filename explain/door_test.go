package explain

import (
	"slices"
	"strings"
	"testing"
	"time"

	"muster.internal"
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
