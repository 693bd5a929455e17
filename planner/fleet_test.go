package planner_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster.internal"
	"muster.internal/blueprint"
	"muster.internal/inventory"
	"muster.internal/module"
	"muster.internal/planner"
	"muster.internal/resource"
)

// A fleet is the smallest world in which plans can be made and carried out: a
// store, hosts that do as they are told, and an executor that writes down what
// has come true.
type fleet struct {
	t       tester
	modules []module.Module
	nodes   []planner.Node
	hosts   map[string]*host
	target  *muster.Blueprint
	cleaned map[string]bool
	report  muster.PlanReport
	made    int
}

// tester is what *testing.T and *rapid.T have in common.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
	Logf(format string, args ...any)
}

// A host is what really is on a node.
type host struct {
	holds, reconciled int64
	told              []byte            // what it holds
	runs              map[string]int64  // placements that there is something of: the version
	sick              map[string]string // placements that are not healthy, and why
	behind            map[string]bool   // placements that have not caught up
	stuck             map[string]bool   // placements that cannot be ended
	pulled            map[string]bool   // disks
	dead              bool              // it hears and says nothing
}

func newFleet(t tester) *fleet {
	return &fleet{t: t, hosts: map[string]*host{}, cleaned: map[string]bool{}}
}

var plenty = module.Capacity{CPUMillis: 16_000, MemoryMiB: 65_536, DiskMiB: 1 << 20}

// add makes a node with some disks of 1 TiB, approved and initializing.
func (f *fleet) add(id string, disks int, labels string) *planner.Node {
	n := planner.Node{ID: id, Hostname: id, Address: fmt.Sprintf("10.0.%d.%d", len(f.nodes)/250, len(f.nodes)%250+1), Registration: muster.Approved,
		Policy: muster.PolicyInService, State: muster.NodeInitializing, Labels: labelsOf(labels)}
	for i := range disks {
		n.Disks = append(n.Disks, planner.Disk{ID: fmt.Sprintf("%sd%d", id, i+1), Identity: fmt.Sprintf("wwn %s%d", id, i+1), Policy: muster.DiskPolicyInService, State: muster.DiskInService, SizeMiB: 1 << 20})
	}
	f.nodes = append(f.nodes, n)
	slices.SortFunc(f.nodes, func(a, b planner.Node) int { return strings.Compare(a.ID, b.ID) })
	f.hosts[id] = &host{runs: map[string]int64{}, sick: map[string]string{}, behind: map[string]bool{}, stuck: map[string]bool{}, pulled: map[string]bool{}}
	f.look(id)
	return f.node(id)
}

func labelsOf(s string) map[string]string {
	if s == "" {
		return nil
	}
	all := map[string]string{}
	for _, pair := range strings.Split(s, ",") {
		k, v, _ := strings.Cut(pair, "=")
		all[k] = v
	}
	return all
}

func (f *fleet) node(id string) *planner.Node {
	f.t.Helper()
	i := slices.IndexFunc(f.nodes, func(n planner.Node) bool { return n.ID == id })
	if i < 0 {
		f.t.Fatalf("there is no node %s", id)
	}
	return &f.nodes[i]
}

func (f *fleet) disk(id string) *planner.Disk {
	f.t.Helper()
	for i := range f.nodes {
		for d := range f.nodes[i].Disks {
			if f.nodes[i].Disks[d].ID == id {
				return &f.nodes[i].Disks[d]
			}
		}
	}
	f.t.Fatalf("there is no disk %s", id)
	return nil
}

// want parses a module and wants it, instead of any other version.
func (f *fleet) want(text string) {
	f.t.Helper()
	m, err := module.Parse("test", []byte(text))
	if err != nil {
		f.t.Fatalf("%v", err)
	}
	f.unwant(m.Name)
	f.modules = append(f.modules, m)
}

func (f *fleet) unwant(name string) {
	f.modules = slices.DeleteFunc(f.modules, func(m module.Module) bool { return m.Name == name })
}

// input is what a planner is given now.
func (f *fleet) input() planner.Input {
	in := planner.Input{Parent: f.target, ID: fmt.Sprintf("b%d", f.made+1), MadeAt: time.Unix(int64(f.made), 0).UTC(), Why: "test", Seed: 7, Modules: slices.Clone(f.modules),
		Nodes: slices.Clone(f.nodes), Cleaned: map[string]bool{}}
	for id := range f.cleaned {
		in.Cleaned[id] = true
	}
	return in
}

// plan makes the next target, and holds it against everything that must be true
// of every plan.
func (f *fleet) plan() bool {
	f.t.Helper()
	return f.planOn(f.input())
}

func (f *fleet) planOn(in planner.Input) bool {
	f.t.Helper()
	b, report := planner.Plan(in)
	f.report = report
	verify(f.t, in, b, report)
	changed := report.Blueprint != ""
	if changed {
		f.made++
		f.target = &b
	}
	return changed
}

// look takes a node's inventory.
func (f *fleet) look(id string) {
	n, h := f.node(id), f.hosts[id]
	if h.dead || n.Policy == muster.PolicyExpunged {
		return
	}
	s := &planner.Seen{Holds: h.holds, Reconciled: h.reconciled, Capacity: plenty,
		Profile: inventory.Profile{Arch: "amd64", OS: "debian", Firmware: "uefi", ServiceManager: "systemd", PackageManager: "apt", ContainerRuntime: "podman"}}
	if n.Seen != nil {
		s.Capacity, s.Profile = n.Seen.Capacity, n.Seen.Profile
	}
	var disks []string
	if f.target != nil {
		for _, b := range f.target.Nodes {
			for _, p := range b.Placements {
				if _, runs := h.runs[p.ID]; runs && b.ID == id {
					disks = append(disks, p.Disk, p.Transient)
				}
			}
		}
	}
	for _, d := range n.Disks {
		if !h.pulled[d.ID] {
			s.Disks = append(s.Disks, planner.SeenDisk{ID: d.ID, InUse: slices.Contains(disks, d.ID)})
		}
	}
	for p := range h.runs {
		s.Placements = append(s.Placements, planner.SeenPlacement{ID: p, Healthy: h.sick[p] == "", CaughtUp: !h.behind[p], Reason: h.sick[p]})
	}
	slices.SortFunc(s.Placements, func(a, b planner.SeenPlacement) int { return strings.Compare(a.ID, b.ID) })
	n.Seen = s
}

// tell hands a node its declaration, by the host's rules: no older generation,
// and none with another content.
func (f *fleet) tell(id string) {
	f.t.Helper()
	b := f.share(id)
	h := f.hosts[id]
	if b == nil || h.dead || b.State == muster.NodeDecommissioned || b.Generation < h.holds || b.Generation == 0 {
		return
	}
	d, err := blueprint.NewRenderer(f.target).Declaration(id)
	if err != nil {
		f.t.Fatalf("%v", err)
	}
	text, _ := json.Marshal(d)
	if b.Generation == h.holds && h.told != nil && !bytes.Equal(text, h.told) {
		f.t.Fatalf("node %s: generation %d was %s, and is %s", id, h.holds, h.told, text)
	}
	h.holds, h.told = b.Generation, text
}

func (f *fleet) share(id string) *muster.BlueprintNode {
	if f.target == nil {
		return nil
	}
	i := slices.IndexFunc(f.target.Nodes, func(n muster.BlueprintNode) bool { return n.ID == id })
	if i < 0 {
		return nil
	}
	return &f.target.Nodes[i]
}

// reconcile makes a node what it was told to be.
func (f *fleet) reconcile(id string) {
	b, h := f.share(id), f.hosts[id]
	if b == nil || h.dead || b.Generation != h.holds {
		return
	}
	want := map[string]int64{}
	for _, p := range b.Placements {
		if p.Declared() {
			want[p.ID] = p.Version
		}
	}
	for p := range h.runs {
		if _, stays := want[p]; !stays && !h.stuck[p] {
			delete(h.runs, p)
		}
	}
	for p, v := range want {
		h.runs[p] = v
	}
	h.reconciled = h.holds
}

// deploy carries the target out on these nodes, or on all, and looks at them.
func (f *fleet) deploy(ids ...string) {
	f.t.Helper()
	if len(ids) == 0 {
		for _, n := range f.nodes {
			ids = append(ids, n.ID)
		}
	}
	for _, id := range ids {
		f.tell(id)
		f.reconcile(id)
		f.look(id)
	}
	f.execute()
}

// execute writes down in the store what the target says has come true.
func (f *fleet) execute() {
	if f.target == nil {
		return
	}
	for _, b := range f.target.Nodes {
		i := slices.IndexFunc(f.nodes, func(n planner.Node) bool { return n.ID == b.ID })
		if i < 0 {
			continue
		}
		n := &f.nodes[i]
		if leaves := n.Policy == muster.PolicyGracefulRemove || n.Policy == muster.PolicyExpunged; b.State != muster.NodeDecommissioned || leaves {
			n.State = b.State // the lifecycle lets no other go
		}
		for _, d := range b.Disks {
			if k := slices.IndexFunc(n.Disks, func(x planner.Disk) bool { return x.ID == d.ID }); d.Ready && k >= 0 {
				n.Disks[k].State = muster.DiskDecommissioned
			}
		}
		for _, p := range b.Placements {
			if p.Gone() {
				f.cleaned[p.ID] = true
			}
		}
	}
}

// converge plans and deploys until nothing changes any more.
func (f *fleet) converge() int {
	f.t.Helper()
	still := 0
	for round := range 80 {
		if f.plan() {
			still = 0
		} else if still++; still == 2 { // what the first saw was not yet written down
			return round
		}
		f.deploy()
	}
	f.t.Fatalf("it does not come to rest; last: %s", f.said())
	return 0
}

// said is the report in one text.
func (f *fleet) said() string { return reportText(f.report) }

func reportText(r muster.PlanReport) string {
	t := new(strings.Builder)
	for _, part := range []struct {
		title string
		lines []muster.PlanLine
	}{{"done", r.Done}, {"waits", r.Waits}, {"refused", r.Refused}, {"note", r.Notes}} {
		for _, l := range part.lines {
			fmt.Fprintf(t, "%s: %s\n", part.title, l.Text)
		}
	}
	return t.String()
}

// where are the placements of a module that are declared: node, name, state.
func (f *fleet) where(name string) (all []string) {
	if f.target == nil {
		return nil
	}
	for _, n := range f.target.Nodes {
		for _, p := range n.Placements {
			if p.Module == name && p.Declared() {
				all = append(all, n.ID)
			}
		}
	}
	return all
}

// on is a module's placement on a node, the newest that is not gone.
func (f *fleet) on(name, id string) *muster.BlueprintPlacement {
	f.t.Helper()
	b := f.share(id)
	for i := len(b.Placements) - 1; i >= 0; i-- {
		if p := &b.Placements[i]; p.Module == name && !p.Gone() {
			return p
		}
	}
	return nil
}

// verify holds a plan against everything that must be true of every plan: see
// each line.
func verify(t tester, in planner.Input, b muster.Blueprint, report muster.PlanReport) {
	t.Helper()
	text, err := json.Marshal(b)
	if err != nil {
		t.Fatalf("%v", err)
	}
	again, _ := planner.Plan(in)
	if other, _ := json.Marshal(again); !bytes.Equal(text, other) {
		t.Fatalf("the same input made two blueprints:\n%s\n%s", text, other)
	}
	for _, l := range blueprint.Lint(&b) {
		t.Errorf("lint: %s", l)
	}
	next := in
	next.Parent, next.ID = &b, "again"
	if twice, r := planner.Plan(next); r.Blueprint != "" {
		t.Fatalf("a second plan changed something:\n%s%s", reportText(r), blueprint.Text(blueprint.Diff(&b, &twice)))
	}
	parent := &muster.Blueprint{}
	if in.Parent != nil {
		parent = in.Parent
	}
	if report.Blueprint != "" && len(report.Done) == 0 {
		t.Errorf("it changed something and says nothing of it:\n%s", blueprint.Text(blueprint.Diff(parent, &b)))
	}
	if report.Blueprint == "" && len(report.Done) > 0 {
		t.Errorf("it changed nothing, and says %v", report.Done)
	}
	verifyGenerations(t, in, parent, &b)
	verifyNodes(t, in, parent, &b)
	verifyMinimum(t, in, parent, &b)
}

// verifyGenerations: what a node is told changes only with its generation, which
// never goes back.
func verifyGenerations(t tester, in planner.Input, parent, b *muster.Blueprint) {
	t.Helper()
	was, is := blueprint.NewRenderer(parent), blueprint.NewRenderer(b)
	for i := range parent.Nodes {
		old := &parent.Nodes[i]
		k := slices.IndexFunc(b.Nodes, func(n muster.BlueprintNode) bool { return n.ID == old.ID })
		if k < 0 {
			continue
		}
		now := &b.Nodes[k]
		if now.Generation < old.Generation || now.Drawn < old.Drawn {
			t.Errorf("node %s went back from generation %d to %d, from %d ids to %d", now.ID, old.Generation, now.Generation, old.Drawn, now.Drawn)
		}
		x, errX := was.Declaration(old.ID)
		y, errY := is.Declaration(now.ID)
		if errX != nil || errY != nil {
			continue // decommissioned; lint has looked at the rest
		}
		x.Generation, y.Generation = 0, 0
		same := sameDeclaration(x, y) && declared(old) == declared(now)
		k = slices.IndexFunc(in.Nodes, func(n planner.Node) bool { return n.ID == old.ID })
		behind := k >= 0 && in.Nodes[k].Seen != nil && in.Nodes[k].Seen.Holds > old.Generation
		if same != (now.Generation == old.Generation) && !(same && (behind || speaksOfOthers(b))) {
			t.Errorf("node %s: same content %v, and generation %d → %d", now.ID, same, old.Generation, now.Generation)
		}
	}
}

// declared are the placements that a node is told of, with all that is told.
func declared(n *muster.BlueprintNode) (s string) {
	for _, p := range n.Placements {
		if p.Declared() {
			s += fmt.Sprintln(p.ID, p.Version, p.Disk, p.Transient)
		}
	}
	return s
}

func sameDeclaration(a, b resource.Declaration) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return bytes.Equal(x, y)
}

// speaksOfOthers: where templates list others, a change of those may be one that
// the list does not show.
func speaksOfOthers(b *muster.Blueprint) bool {
	return slices.ContainsFunc(b.Modules, func(m module.Module) bool {
		return m.HandOver != nil || slices.ContainsFunc(m.Names(), func(name string) bool { _, _, is := module.ListOf(name); return is })
	})
}

// verifyNodes: nothing is new where nothing may be, nothing is overcommitted, and
// what is new is where it may be.
func verifyNodes(t tester, in planner.Input, parent, b *muster.Blueprint) {
	t.Helper()
	old := map[string]bool{}
	for _, n := range parent.Nodes {
		for _, p := range n.Placements {
			old[p.ID] = true
		}
	}
	for _, n := range b.Nodes {
		i := slices.IndexFunc(in.Nodes, func(x planner.Node) bool { return x.ID == n.ID })
		if i < 0 {
			continue
		}
		x := &in.Nodes[i]
		fresh := false
		var used module.Capacity
		disks := map[string]int64{}
		for _, p := range n.Placements {
			m := findModule(b, p.Module, p.Version)
			if m == nil || p.Gone() {
				continue
			}
			used = used.Plus(m.Asks)
			disks[p.Disk] += m.Asks.DurableMiB
			disks[p.Transient] += m.Asks.TransientMiB
			if old[p.ID] {
				continue
			}
			fresh = true
			early := p.Kind == muster.PlacementBase || p.Kind == muster.PlacementPerDisk
			may := x.Registration == muster.Approved && (x.Policy == muster.PolicyInService && x.State == muster.NodeInService ||
				early && (x.Policy == muster.PolicyInService || x.Policy == muster.PolicyNoProvision) && (x.State == muster.NodeInService || x.State == muster.NodeInitializing))
			if !may {
				t.Errorf("%s is new on %s, which is %s, %s, %s", p.Name, n.ID, x.Registration, x.Policy, x.State)
			}
			if !module.Selects(m.Place.Where, x.Labels) {
				t.Errorf("%s is new on %s, whose labels are %v", p.Name, n.ID, x.Labels)
			}
			for _, id := range []string{p.Disk, p.Transient} {
				verifyDisk(t, x, p.Name, id)
			}
		}
		if !fresh {
			continue
		}
		free := x.Seen.Capacity.Minus(x.Reservoir).Minus(used)
		if free.CPUMillis < 0 || free.MemoryMiB < 0 || free.DiskMiB < 0 {
			t.Errorf("node %s is overcommitted: %+v is left", n.ID, free)
		}
		for _, d := range x.Disks {
			if disks[d.ID] > d.SizeMiB {
				t.Errorf("disk %s is overcommitted", d.ID)
			}
		}
	}
}

func verifyDisk(t tester, x *planner.Node, name, id string) {
	t.Helper()
	if id == "" {
		return
	}
	i := slices.IndexFunc(x.Disks, func(d planner.Disk) bool { return d.ID == id })
	there := slices.ContainsFunc(x.Seen.Disks, func(d planner.SeenDisk) bool { return d.ID == id })
	if i < 0 || x.Disks[i].Policy != muster.DiskPolicyInService || x.Disks[i].State != muster.DiskInService || x.Disks[i].Member || !there {
		t.Errorf("%s is new on disk %s, which must not be given anything", name, id)
	}
}

func findModule(b *muster.Blueprint, name string, version int64) *module.Module {
	i := slices.IndexFunc(b.Modules, func(m module.Module) bool { return m.Name == name && m.Version == version })
	if i < 0 {
		return nil
	}
	return &b.Modules[i]
}

// verifyMinimum: by what a plan itself takes away, no module comes below its
// minimum, nor further below it.
func verifyMinimum(t tester, in planner.Input, parent, b *muster.Blueprint) {
	t.Helper()
	for i := range in.Modules {
		m := &in.Modules[i]
		before, after := 0, 0
		for _, n := range parent.Nodes {
			k := slices.IndexFunc(in.Nodes, func(x planner.Node) bool { return x.ID == n.ID })
			if k < 0 || in.Nodes[k].Policy == muster.PolicyExpunged || in.Nodes[k].State == muster.NodeDecommissioned {
				continue
			}
			for _, p := range n.Placements {
				if p.Module != m.Name || !isUp(&in.Nodes[k], &p) || onExpungedDisk(&in.Nodes[k], &p) {
					continue
				}
				before++
				if now := findPlacement(b, p.ID); now != nil && now.Declared() && now.Version == p.Version && now.Transient == p.Transient {
					after++
				}
			}
		}
		if after < before && after < m.Minimum() {
			t.Errorf("module %s: %d were available, the plan leaves %d, and %d must stay", m.Name, before, after, m.Minimum())
		}
	}
}

func onExpungedDisk(x *planner.Node, p *muster.BlueprintPlacement) bool {
	return slices.ContainsFunc(x.Disks, func(d planner.Disk) bool {
		return (d.ID == p.Disk || d.ID == p.Transient) && d.Policy == muster.DiskPolicyExpunged
	})
}

func isUp(x *planner.Node, p *muster.BlueprintPlacement) bool {
	if !p.Declared() || x.Seen == nil || x.Away || x.Registration != muster.Approved || x.Seen.Reconciled < p.Since {
		return false
	}
	for _, id := range []string{p.Disk, p.Transient} {
		if id != "" && !slices.ContainsFunc(x.Seen.Disks, func(d planner.SeenDisk) bool { return d.ID == id }) {
			return false
		}
	}
	return slices.ContainsFunc(x.Seen.Placements, func(s planner.SeenPlacement) bool { return s.ID == p.ID && s.Healthy && s.CaughtUp })
}

func findPlacement(b *muster.Blueprint, id string) *muster.BlueprintPlacement {
	for i := range b.Nodes {
		for k := range b.Nodes[i].Placements {
			if p := &b.Nodes[i].Placements[k]; p.ID == id {
				return p
			}
		}
	}
	return nil
}
