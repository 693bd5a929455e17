package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster.internal"
)

// A Known is everything that is known of one thing of the fleet.
type Known struct {
	Node   muster.NodeDetail        // that it is, or is on
	Disk   *muster.NodeDisk         // of a disk
	OnDisk []muster.PlacementRecord // what has not ended on its node
	Placed *muster.PlacementDetail  // of a placement
	Wanted int64                    // the version of its module that is wanted; 0: none
	Target muster.BlueprintTarget
	Dry    muster.PlanReport       // of a plan made now
	Why    *muster.ExplainedChange // the newest that was done about it
}

// Fleet explains a node, a disk or a placement.
func Fleet(k Known) muster.Explained {
	var x muster.Explained
	var about func(l muster.PlanLine) bool
	switch {
	case k.Placed != nil:
		x = muster.Explained{Kind: muster.SubjectPlacement, ID: k.Placed.ID, Title: cmp.Or(k.Placed.Name, k.Placed.ID), Is: k.placement()}
		about = func(l muster.PlanLine) bool {
			return l.Placement == x.ID || l.Placement == "" && l.Module == k.Placed.Module && (l.Node == "" || l.Node == k.Node.ID)
		}
	case k.Disk != nil:
		x = muster.Explained{Kind: muster.SubjectDisk, ID: k.Disk.ID, Title: cmp.Or(k.Disk.Disk.Serial, k.Disk.ID), Is: k.disk()}
		about = func(l muster.PlanLine) bool { return l.Disk == x.ID }
	default:
		x = muster.Explained{Kind: muster.SubjectNode, ID: k.Node.ID, Title: cmp.Or(k.Node.Hostname, k.Node.ID), Is: k.node()}
		about = func(l muster.PlanLine) bool { return l.Node == x.ID }
	}
	if !k.Target.Planning {
		x.Is = append(x.Is, fmt.Sprintf("planning was stopped by %s: %s; what comes next comes only once it goes on (muster blueprint enable)", k.Target.SetBy, k.Target.Reason))
	}
	x.Why = k.Why
	x.Next, x.Waits, x.Refused, x.Notes = Lines(k.Dry.Done, about), Lines(k.Dry.Waits, about), Lines(k.Dry.Refused, about), Lines(k.Dry.Notes, about)
	return x
}

// Lines are those of a report that speak of something.
func Lines(all []muster.PlanLine, about func(muster.PlanLine) bool) (found []muster.PlanLine) {
	for _, l := range all {
		if about(l) {
			found = append(found, l)
		}
	}
	return found
}

func (k *Known) placement() (is []string) {
	p := k.Placed
	name := cmp.Or(p.Name, p.ID)
	is = append(is, fmt.Sprintf("%s is %s since %s, on node %s", name, p.State, p.ChangedAt.UTC().Format(time.RFC3339), cmp.Or(k.Node.Hostname, p.NodeID)))
	switch t := p.Target; {
	case t == nil:
		is = append(is, "the target does not know it any more: it has ended, and everything of it was cleaned up after")
	case t.Held:
		is = append(is, "its room is kept, and its node is not told of it yet")
	case t.Declared():
		is = append(is, fmt.Sprintf("its node is told of it since generation %d", t.Since))
	case t.Gone():
		is = append(is, "nothing of it is left on its node")
	default:
		is = append(is, fmt.Sprintf("its node is told of it no longer as of generation %d, and has not said yet that nothing of it is left", t.AsOf))
	}
	switch {
	case p.State == muster.PlacementRemoved || p.State == muster.PlacementLost:
	case k.Wanted == 0:
		is = append(is, fmt.Sprintf("it has version %d of module %s, of which no version is wanted: it leaves", p.Version, p.Module))
	case k.Wanted != p.Version:
		is = append(is, fmt.Sprintf("it has version %d of module %s, and version %d is wanted", p.Version, p.Module, k.Wanted))
	default:
		is = append(is, fmt.Sprintf("it has version %d of module %s, which is wanted", p.Version, p.Module))
	}
	return append(is, k.host()...)
}

// host says what of the node matters to what is on it.
func (k *Known) host() (is []string) {
	n := &k.Node
	title := cmp.Or(n.Hostname, n.ID)
	if n.Policy != muster.PolicyInService || n.State != muster.NodeInService {
		is = append(is, fmt.Sprintf("node %s is %s, and told to be %s", title, n.State, n.Policy))
	}
	if n.Expunged != nil {
		is = append(is, fmt.Sprintf("it was expunged by %s at %s: %s; that its power is off was not verified", n.Expunged.By, n.Expunged.At.UTC().Format(time.RFC3339), n.Expunged.Reason))
	}
	if n.State == muster.NodeDecommissioned {
		return is
	}
	switch l := n.Link; {
	case l == nil:
		is = append(is, fmt.Sprintf("the host of node %s was never linked: it hears nothing", title))
	case !l.Linked:
		is = append(is, fmt.Sprintf("the host of node %s is away, and was linked last at %s; muster never decides by itself that a node is gone for good: expunge it, or bring it back", title, l.LastLinked.UTC().Format(time.RFC3339)))
	default:
		is = append(is, fmt.Sprintf("the host of node %s is linked, and holds generation %d", title, l.Holds))
	}
	return is
}

func (k *Known) node() (is []string) {
	n := &k.Node
	is = append(is, fmt.Sprintf("node %s is %s, and told to be %s", cmp.Or(n.Hostname, n.ID), n.State, n.Policy))
	for _, line := range k.host() {
		if !slices.Contains(is, line) {
			is = append(is, line)
		}
	}
	if n.ByHand {
		is = append(is, fmt.Sprintf("it is declared by hand, so that nothing is placed on it: muster node hand-over %s", n.ID))
	}
	counts := map[muster.PlacementState]int{}
	for _, p := range n.Placements {
		counts[p.State]++
	}
	var words []string
	for _, s := range muster.PlacementStates {
		if counts[s] > 0 && s != muster.PlacementRemoved {
			words = append(words, fmt.Sprintf("%d %s", counts[s], s))
		}
	}
	if len(words) == 0 {
		return append(is, "nothing is placed on it")
	}
	return append(is, "placements on it: "+strings.Join(words, ", "))
}

func (k *Known) disk() (is []string) {
	d := k.Disk
	is = append(is, fmt.Sprintf("disk %s of node %s is %s, and told to be %s", cmp.Or(d.Disk.Serial, d.ID), cmp.Or(k.Node.Hostname, k.Node.ID), d.State, d.Policy))
	if d.Member {
		is = append(is, "it is of its node's pool: nothing is placed on it alone")
	}
	var names []string
	for _, p := range k.OnDisk {
		if p.Disk == d.ID || p.Transient == d.ID {
			names = append(names, cmp.Or(p.Name, p.ID))
		}
	}
	if len(names) > 0 {
		is = append(is, "on it: "+strings.Join(names, ", "))
	}
	return append(is, k.host()...)
}
