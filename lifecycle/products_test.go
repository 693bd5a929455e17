package lifecycle

import (
	"reflect"
	"strings"
	"testing"

	"muster.internal"
)

// nodeProducts is what becomes of each request on each policy and state of a
// node, written by hand: i initializing, s in service, q quiesced, d
// decommissioned, and S, N, Q, R, E the policies in their order. A cell says
// policy and state afterwards; = that they were so already, - that it is refused.
// Every fact that could stand in the way is as it should be, so a refusal is of
// policy or state alone.
const nodeProducts = `
                  in_service          no_provision        quiesce             graceful_remove     expunged
                  i   s   q   d       i   s   q   d       i   s   q   d       i   s   q   d       i   s   q   d
no_provision      Ni  Ns  Nq  Nd      =   =   =   =       Ni  Ns  Nq  Nd      -   -   -   -       -   -   -   -
quiesce           Qi  Qs  Qq  Qd      Qi  Qs  Qq  Qd      =   =   =   =       -   -   -   -       -   -   -   -
resume            =   =   =   =       Si  Ss  Sq  Sd      Si  Ss  Sq  Sd      Si  Ss  Sq  -       -   -   -   -
graceful_remove   Ri  Rs  Rq  Rd      Ri  Rs  Rq  Rd      Ri  Rs  Rq  Rd      =   =   =   =       -   -   -   -
expunge           Ei  Es  Eq  Ed      Ei  Es  Eq  Ed      Ei  Es  Eq  Ed      Ei  Es  Eq  -       =   =   =   =
confirm           Ss  =   -   -       Ns  =   -   -       Qs  =   -   -       Rs  =   -   -       -   =   -   -
quiesced          -   -   =   -       -   -   =   -       Qq  Qq  =   -       -   -   =   -       -   -   =   -
resumed           -   =   Ss  -       -   =   Ns  -       -   =   -   -       -   =   -   -       -   =   -   -
decommission_node -   -   -   =       -   -   -   =       -   -   -   =       Rd  Rd  Rd  =       Ed  Ed  Ed  =
`

// diskProducts is the same for a disk of a live node; the first column is a disk
// that was never adopted.
const diskProducts = `
                  none                in_service          graceful_remove     expunged
                  -                   s   d               s   d               s   d
adopt_disk        Ss                  =   =               -   Ss              -   Ss
remove_disk       -                   Rs  Rd              =   =               -   -
keep_disk         -                   =   =               Ss  -               -   -
expunge_disk      -                   Es  Ed              Es  -               =   =
decommission_disk -                   -   =               Rd  =               Ed  =
`

// favourable are facts that all hold.
func favourable() (f Facts) {
	for v, i := reflect.ValueOf(&f).Elem(), 0; i < v.NumField(); i++ {
		v.Field(i).SetBool(true)
	}
	return f
}

// cells are a table's, without its head.
func cells(table string) map[muster.Event][]string {
	all := map[muster.Event][]string{}
	for _, line := range strings.Split(strings.TrimSpace(table), "\n")[2:] {
		words := strings.Fields(line)
		all[muster.Event(words[0])] = words[1:]
	}
	return all
}

func outcome(err error, same bool, policy, state string) string {
	switch {
	case err != nil:
		return "-"
	case same:
		return "="
	}
	return policy + state
}

func TestNodeProducts(t *testing.T) {
	policies := []muster.NodePolicy{muster.PolicyInService, muster.PolicyNoProvision, muster.PolicyQuiesce, muster.PolicyGracefulRemove, muster.PolicyExpunged}
	states := []muster.NodeState{muster.NodeInitializing, muster.NodeInService, muster.NodeQuiesced, muster.NodeDecommissioned}
	policyLetter := map[muster.NodePolicy]string{policies[0]: "S", policies[1]: "N", policies[2]: "Q", policies[3]: "R", policies[4]: "E"}
	stateLetter := map[muster.NodeState]string{states[0]: "i", states[1]: "s", states[2]: "q", states[3]: "d"}
	table := cells(nodeProducts)
	if len(table) != 9 {
		t.Fatalf("the table has %d requests", len(table))
	}
	for e, want := range table {
		for n, cell := range want {
			p, s := policies[n/len(states)], states[n%len(states)]
			old := State{Registration: muster.Approved, Credential: Live, NodePolicy: p, NodeState: s, Machine: muster.MachineKnown}
			if s == muster.NodeDecommissioned || p == muster.PolicyExpunged {
				old.Registration, old.Credential = muster.Disabled, NoCredential
			}
			if p == muster.PolicyExpunged {
				old.Tombstone = Tombstoned
			}
			next, err := Apply(old, e, -1, favourable())
			if got := outcome(err, next.NodePolicy == p && next.NodeState == s, policyLetter[next.NodePolicy], stateLetter[next.NodeState]); got != cell {
				t.Errorf("%s of a node that is %s, told %s: %s, want %s (%v)", e, s, p, got, cell, err)
			}
		}
		if n := len(policies) * len(states); len(want) != n {
			t.Errorf("%s: %d cells, want %d", e, len(want), n)
		}
	}
}

func TestDiskProducts(t *testing.T) {
	disks := []Disk{{}}
	for _, p := range []muster.DiskPolicy{muster.DiskPolicyInService, muster.DiskPolicyGracefulRemove, muster.DiskPolicyExpunged} {
		disks = append(disks, Disk{Policy: p, State: muster.DiskInService}, Disk{Policy: p, State: muster.DiskDecommissioned})
	}
	policyLetter := map[muster.DiskPolicy]string{muster.DiskPolicyInService: "S", muster.DiskPolicyGracefulRemove: "R", muster.DiskPolicyExpunged: "E"}
	stateLetter := map[muster.DiskState]string{muster.DiskInService: "s", muster.DiskDecommissioned: "d"}
	table := cells(diskProducts)
	if len(table) != 5 {
		t.Fatalf("the table has %d requests", len(table))
	}
	for e, want := range table {
		if len(want) != len(disks) {
			t.Fatalf("%s: %d cells, want %d", e, len(want), len(disks))
		}
		for n, d := range disks {
			old := State{Registration: muster.Approved, Credential: Live, NodePolicy: muster.PolicyInService, NodeState: muster.NodeInService, Machine: muster.MachineKnown, Disks: []Disk{d}}
			next, err := Apply(old, e, 0, favourable())
			is := next.Disks[0]
			if got := outcome(err, is.Policy == d.Policy && is.State == d.State, policyLetter[is.Policy], stateLetter[is.State]); got != want[n] {
				t.Errorf("%s of a disk that is %s, told %s: %s, want %s (%v)", e, d.State, d.Policy, got, want[n], err)
			}
		}
	}
}
