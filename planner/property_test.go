package planner_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"muster.internal"
	"muster.internal/module"
	"muster.internal/planner"
)

// TestAnyLife leads fleets through random lives. Every plan on the way goes
// through verify; at the end, when all hosts are well and nobody wants anything
// more, the fleet must come to rest.
func TestAnyLife(t *testing.T) {
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue && os.Getenv("MUSTER_SOAK") == "" {
		f.Value.Set("40") // the rest is for the soak
		defer f.Value.Set(f.DefValue)
	}
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt)
		for range rapid.IntRange(5, 60).Draw(rt, "steps") {
			w.step()
		}
		w.heal()
		w.f.converge()
		w.rest()
	})
}

// A world is a fleet to which anything may happen.
type world struct {
	*rapid.T
	f       *fleet
	version int64
	names   int
	old     []planner.Seen // what hosts said once, by node, for planners that are behind
}

// templates are modules of every kind. VERSION and COUNT are put in.
var templates = map[string]string{
	"time":   `{"module":"time","version":VERSION,"base":true,"place":{"each_node":true},"resources":[{"package":{"name":"chrony"}}]}`,
	"volume": `{"module":"volume","version":VERSION,"place":{"each_disk":true},"after":["time"],"resources":[{"file":{"path":"/etc/volumes/{{ disk.id }}","content":"vVERSION"}}]}`,
	"agent":  `{"module":"agent","version":VERSION,"place":{"each_node":true},"resources":[{"file":{"path":"/etc/agent","template":"{{ fleet.hosts }}"}}]}`,
	"web":    `{"module":"web","version":VERSION,"place":{"replicas":COUNT},"moves":"surge","asks":{"memory_mib":20000,"transient_mib":1000},"resources":[{"container":{"name":"{{ placement.name }}","image":"web:VERSION"}}]}`,
	"db":     `{"module":"db","version":VERSION,"place":{"replicas":COUNT,"spread":"rack"},"moves":"live","asks":{"durable_mib":400000},"hand_over":{"leaving":[{"file":{"path":"/srv/db/peers","content":"leaving"}}],"arriving":[{"file":{"path":"/srv/db/peers","content":"arriving"}}]},"resources":[{"file":{"path":"/srv/db/peers","template":"{{ peers.addresses }}"}}]}`,
	"one":    `{"module":"one","version":VERSION,"place":{"replicas":COUNT},"moves":"restart","needs":{"container_runtime":["podman","docker"]},"resources":[{"service":{"name":"one"}}]}`,
	"front":  `{"module":"front","version":VERSION,"place":{"replicas":COUNT,"where":{"role":"front"}},"after":["db"],"moves":"surge","resources":[{"file":{"path":"/srv/front","template":"{{ module.db.names }}"}}]}`,
}

func newWorld(t *rapid.T) *world {
	w := &world{T: t, f: newFleet(t), version: 1}
	for range rapid.IntRange(1, 6).Draw(t, "nodes") {
		w.addNode()
	}
	w.want("time")
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"volume", "agent", "web", "db", "one", "front"}), 0, 5, rapid.ID[string]).Draw(t, "modules") {
		w.want(name)
	}
	return w
}

func (w *world) addNode() {
	w.names++
	labels := "rack=r" + rapid.SampledFrom([]string{"1", "2", "3"}).Draw(w.T, "rack") + rapid.SampledFrom([]string{"", ",role=front"}).Draw(w.T, "role")
	w.f.add(fmt.Sprintf("n%02d", w.names), rapid.IntRange(0, 3).Draw(w.T, "disks"), labels)
}

func (w *world) want(name string) {
	w.version++
	count := rapid.IntRange(1, 4).Draw(w.T, "count")
	w.f.want(strings.NewReplacer("VERSION", fmt.Sprint(w.version), "COUNT", fmt.Sprint(count)).Replace(templates[name]))
}

func (w *world) anyNode() *planner.Node {
	return &w.f.nodes[rapid.IntRange(0, len(w.f.nodes)-1).Draw(w.T, "node")]
}

// step does one thing.
func (w *world) step() {
	f := w.f
	switch what := rapid.SampledFrom([]string{"plan", "plan", "plan", "stale plan", "deploy", "deploy", "deploy", "tell", "reconcile", "look", "execute", "life", "life", "trouble", "operator", "operator", "operator"}).Draw(w.T, "what"); what {
	case "plan":
		f.plan()
	case "stale plan":
		f.planOn(w.stale())
	case "deploy":
		w.remember()
		f.deploy()
	case "tell":
		f.tell(w.anyNode().ID)
	case "reconcile":
		f.reconcile(w.anyNode().ID)
	case "look":
		w.remember()
		f.look(w.anyNode().ID)
	case "execute":
		f.execute()
	case "life":
		f.deploy(w.anyNode().ID)
	case "trouble":
		w.trouble()
	case "operator":
		w.operator()
	}
}

// remember keeps what one node's host says now.
func (w *world) remember() {
	w.old = nil
	for _, n := range w.f.nodes {
		w.old = append(w.old, *n.Seen)
	}
}

// stale is the input of a planner whose inventory is behind.
func (w *world) stale() planner.Input {
	in := w.f.input()
	for i := range in.Nodes {
		if i < len(w.old) && rapid.Bool().Draw(w.T, "old") {
			in.Nodes[i].Seen = &w.old[i]
		}
	}
	return in
}

func (w *world) trouble() {
	n := w.anyNode()
	h := w.f.hosts[n.ID]
	var runs []string
	for p := range h.runs {
		runs = append(runs, p)
	}
	slices.Sort(runs)
	what := rapid.SampledFrom([]string{"dead", "away", "sick", "behind", "stuck", "pull", "disable"}).Draw(w.T, "trouble")
	if slices.Contains([]string{"sick", "behind", "stuck"}, what) && len(runs) == 0 {
		return
	}
	switch what {
	case "dead":
		h.dead = !h.dead
	case "away":
		n.Away = !n.Away
	case "sick":
		h.sick[rapid.SampledFrom(runs).Draw(w.T, "placement")] = "it crashed"
	case "behind":
		h.behind[rapid.SampledFrom(runs).Draw(w.T, "placement")] = true
	case "stuck":
		h.stuck[rapid.SampledFrom(runs).Draw(w.T, "placement")] = true
	case "pull":
		if len(n.Disks) > 0 {
			d := n.Disks[rapid.IntRange(0, len(n.Disks)-1).Draw(w.T, "disk")].ID
			h.pulled[d] = !h.pulled[d]
		}
	case "disable":
		n.Registration = muster.Disabled
	}
}

func (w *world) operator() {
	n := w.anyNode()
	switch rapid.SampledFrom([]string{"policy", "policy", "policy", "disk", "disk", "add node", "add disk", "module", "unwant", "label", "reservoir", "claim", "address"}).Draw(w.T, "operator") {
	case "policy":
		w.policy(n)
	case "disk":
		if len(n.Disks) > 0 {
			d := &n.Disks[rapid.IntRange(0, len(n.Disks)-1).Draw(w.T, "disk")]
			if d.Policy != muster.DiskPolicyExpunged && d.State != muster.DiskDecommissioned {
				d.Policy = rapid.SampledFrom([]muster.DiskPolicy{muster.DiskPolicyInService, muster.DiskPolicyGracefulRemove, muster.DiskPolicyExpunged}).Draw(w.T, "disk policy")
			}
		}
	case "add node":
		if len(w.f.nodes) < 9 {
			w.addNode()
		}
	case "add disk":
		w.names++
		n.Disks = append(n.Disks, planner.Disk{ID: fmt.Sprintf("%sx%d", n.ID, w.names), Policy: muster.DiskPolicyInService, State: muster.DiskInService, SizeMiB: 1 << 20})
	case "module":
		w.want(w.f.modules[rapid.IntRange(0, len(w.f.modules)-1).Draw(w.T, "module")].Name)
	case "unwant":
		if i := rapid.IntRange(0, len(w.f.modules)-1).Draw(w.T, "module"); w.f.modules[i].Name != "time" {
			w.f.unwant(w.f.modules[i].Name)
		}
	case "label":
		n.Labels = labelsOf("rack=r" + rapid.SampledFrom([]string{"1", "2"}).Draw(w.T, "rack") + rapid.SampledFrom([]string{"", ",role=front"}).Draw(w.T, "role"))
	case "reservoir":
		n.Reservoir = module.Capacity{MemoryMiB: rapid.Int64Range(0, 60_000).Draw(w.T, "reservoir")}
	case "claim":
		n.Claims = []string{"kubernetes"}
	case "address":
		w.names++
		n.Address = fmt.Sprintf("10.1.0.%d", w.names)
	}
}

// policy does what an operator may do to a node.
func (w *world) policy(n *planner.Node) {
	if n.Policy == muster.PolicyExpunged || n.State == muster.NodeDecommissioned {
		return
	}
	n.Policy = rapid.SampledFrom([]muster.NodePolicy{muster.PolicyInService, muster.PolicyInService, muster.PolicyNoProvision, muster.PolicyQuiesce, muster.PolicyGracefulRemove, muster.PolicyExpunged}).Draw(w.T, "policy")
	if n.Policy == muster.PolicyExpunged {
		for i := range n.Disks {
			n.Disks[i].Policy = muster.DiskPolicyExpunged
		}
	}
}

// heal makes every host well, and every node speak.
func (w *world) heal() {
	for i := range w.f.nodes {
		n := &w.f.nodes[i]
		n.Away, n.Claims, n.Registration, n.Reservoir = false, nil, muster.Approved, module.Capacity{}
		h := w.f.hosts[n.ID]
		h.dead = false
		clear(h.sick)
		clear(h.behind)
		clear(h.stuck)
		clear(h.pulled)
	}
}

// rest holds a fleet at rest against what must be true of it.
func (w *world) rest() {
	f := w.f
	for _, l := range f.report.Waits {
		resumes := l.Node != "" && (f.node(l.Node).Policy == muster.PolicyQuiesce || f.node(l.Node).Policy == muster.PolicyGracefulRemove)
		if len(f.report.Refused) == 0 && !resumes {
			w.Errorf("it waits, and nothing is refused: %s", l.Text)
		}
	}
	for _, n := range f.target.Nodes {
		for _, p := range n.Placements {
			if p.Declared() && p.State == muster.PlacementReserved {
				w.Errorf("%s on %s never came up", p.Name, n.ID)
			}
			if !p.Declared() && !p.Held && !p.Ready {
				w.Errorf("%s on %s never went", p.Name, n.ID)
			}
		}
	}
	for i := range f.modules {
		m := &f.modules[i]
		if m.Place.Replicas == 0 {
			continue
		}
		there := 0
		for _, n := range f.target.Nodes {
			for _, p := range n.Placements {
				if p.Module == m.Name && (p.Declared() || p.Held) {
					there++
				}
			}
		}
		told := slices.ContainsFunc(f.report.Refused, func(l muster.PlanLine) bool { return l.Module == m.Name }) ||
			slices.ContainsFunc(f.report.Waits, func(l muster.PlanLine) bool { return l.Module == m.Name })
		if there != m.Place.Replicas && !told {
			w.Errorf("%s has %d replicas of %d, and the report does not say why:\n%s", m.Name, there, m.Place.Replicas, f.said())
		}
	}
	for i := range f.nodes {
		n := &f.nodes[i]
		told := slices.ContainsFunc(append(slices.Clone(f.report.Refused), f.report.Waits...), func(l muster.PlanLine) bool { return l.Node == n.ID })
		done := n.Policy == muster.PolicyExpunged && n.State == muster.NodeDecommissioned || n.Policy == muster.PolicyGracefulRemove && n.State == muster.NodeDecommissioned ||
			n.Policy == muster.PolicyQuiesce && n.State == muster.NodeQuiesced || (n.Policy == muster.PolicyInService || n.Policy == muster.PolicyNoProvision) && n.State == muster.NodeInService
		if !done && !told {
			w.Errorf("node %s is told to be %s and is %s, and the report does not say why:\n%s", n.ID, n.Policy, n.State, f.said())
		}
	}
}
