package control_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/client"
	"muster.internal/control"
	"muster.internal/lifecycle"
	"muster.internal/store"
)

// A replicaSet is control planes in processes of their own, on one database.
type replicaSet struct {
	*testing.T
	store string
	dirs  []string
	mu    sync.Mutex
	up    []*process
}

func newReplicaSet(t *testing.T, n int) *replicaSet {
	r := &replicaSet{T: t, store: postgresURL(t), up: make([]*process, n)}
	for i := range n {
		r.dirs = append(r.dirs, t.TempDir())
		if i > 0 { // the same master key and CA, as an operator copies them
			if err := exec.Command("cp", "-r", filepath.Join(r.dirs[0], "master.key"), filepath.Join(r.dirs[0], "tls"), r.dirs[i]).Run(); err != nil {
				t.Fatal(err)
			}
		}
		r.start(i)
	}
	return r
}

func (r *replicaSet) start(i int) {
	pr := spawn(r.T, r.dirs[i], "MUSTERD_TEST_STORE="+r.store)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.up[i] = pr
}

func (r *replicaSet) kill(i int) {
	r.mu.Lock()
	pr := r.up[i]
	r.up[i] = nil
	r.mu.Unlock()
	pr.kill()
}

func (r *replicaSet) urls() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, pr := range r.up {
		if pr != nil {
			all = append(all, pr.url)
		}
	}
	return all
}

// admin is an operator's client of the first.
func (r *replicaSet) admin() *client.Client {
	r.Helper()
	first, err := control.ReadFirstLogin(r.dirs[0])
	if err != nil {
		r.Fatal(err)
	}
	ca, err := os.ReadFile(filepath.Join(r.dirs[0], "tls", "ca.pem"))
	if err != nil {
		r.Fatal(err)
	}
	anyone, err := client.New(r.urls()[0], "", client.Trust{CA: ca})
	if err != nil {
		r.Fatal(err)
	}
	tok, err := anyone.Login(r.Context(), muster.Login{Name: first.Operator, Password: first.Password})
	if err != nil {
		r.Fatal(err)
	}
	return anyone.WithToken(tok.Token)
}

// TestControlPlanesAreKilled: three control planes on one database are killed at
// random while policies, labels and modules change. In the end every node is
// exactly what the target says, a plan of the end state changes nothing, and at no
// time did anything run twice of which one is allowed.
func TestControlPlanesAreKilled(t *testing.T) {
	t.Parallel()
	changes := 8
	if os.Getenv("MUSTER_SOAK") != "" {
		changes = 200
	}
	r := newReplicaSet(t, 3)
	f := newWorkers(t, r.dirs[0], r.store)
	admin := r.admin()
	f.admin, f.urls = func() *client.Client { return admin }, r.urls
	f.plan = func() muster.PlanReport { return muster.PlanReport{} }
	twice := ""
	f.check = func() {
		if on := f.runs("one"); len(on) > 1 && twice == "" {
			twice = fmt.Sprintf("one ran on w%d and w%d at once", on[0].n, on[1].n)
		}
	}
	f.want(timeModule, dbModule, oneModule)
	for i := range 5 {
		f.add(map[string]string{"rack": fmt.Sprintf("r%d", i%3)})
	}
	f.until("one runs somewhere", func() bool { return f.on("one") != "" })
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 1))
	killed := 0
	for n := range changes {
		f.change(dice, n)
		time.Sleep(time.Duration(dice.IntN(150)) * time.Millisecond)
		if dice.IntN(4) == 0 || n%4 == 3 {
			i := dice.IntN(3)
			r.kill(i)
			killed++
			r.start(i)
		}
	}
	for _, w := range f.all {
		w.raise(lifecycle.Resume)
	}
	for i := range 3 { // what runs once moves, while one of the three is away
		var from *worker
		f.until("one runs", func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			on := f.runs("one")
			if len(on) > 0 {
				from = on[0]
			}
			return len(on) > 0
		})
		from.raise(lifecycle.Quiesce)
		r.kill(i)
		killed++
		f.until("one runs elsewhere", func() bool {
			on := f.on("one")
			return on != "" && !strings.Contains(on, fmt.Sprintf("w%d", from.n))
		})
		r.start(i)
		from.raise(lifecycle.Resume)
	}
	f.until("every node is what the target says, and nothing is to be planned", f.settled)
	f.mu.Lock()
	defer f.mu.Unlock()
	if twice != "" {
		t.Error(twice)
	}
	if on := f.runs("one"); len(on) != 1 {
		t.Errorf("one runs on %d", len(on))
	}
	t.Logf("%d changes, %d kills", changes, killed)
}

// change is one of an operator's.
func (f *workers) change(dice *rand.Rand, n int) {
	f.Helper()
	w := f.all[dice.IntN(len(f.all))]
	switch dice.IntN(4) {
	case 0:
		verbs := []muster.Event{lifecycle.NoProvision, lifecycle.Quiesce, lifecycle.Resume}
		w.raise(verbs[dice.IntN(3)])
	case 1:
		_, err := f.s.LabelNode(f.Context(), time.Now(), ada, w.node, muster.LabelChange{Set: map[string]string{"rack": fmt.Sprintf("r%d", dice.IntN(4))}})
		f.ok(err)
	case 2:
		f.want(strings.Replace(dbModule, `"content": "x"`, fmt.Sprintf(`"content": "db %d"`, n), 1))
	default:
		f.want(strings.Replace(oneModule, `"content": "x"`, fmt.Sprintf(`"content": "one %d"`, n), 1))
	}
}

// settled tells whether each host has exactly what the target declares of its
// node, and whether all that is wanted is placed.
func (f *workers) settled() bool {
	state, err := f.s.NewFleetReader().Read(f.Context(), time.Now())
	if err != nil || state.Blueprint == nil {
		return false
	}
	newest := map[string]int64{}
	for _, m := range state.Modules {
		newest[m.Name] = m.Version
	}
	there := map[string]int{}
	for _, n := range state.Blueprint.Nodes {
		i := slices.IndexFunc(state.Nodes, func(s store.FleetNode) bool { return s.ID == n.ID })
		if i < 0 || n.State != muster.NodeInService || state.Nodes[i].State != n.State || state.Nodes[i].Declared != n.Generation {
			return false
		}
		if r := state.Nodes[i].Report; r == nil || r.Generation != n.Generation {
			return false
		}
		for _, p := range n.Placements {
			if p.State != muster.PlacementPlaced || p.Held || p.Version != newest[p.Module] {
				return false
			}
			there[p.Module]++
		}
	}
	want, _ := json.Marshal(map[string]int{"time": len(f.all), "db": 2, "one": 1})
	is, _ := json.Marshal(there)
	return string(want) == string(is) && f.hold(state.Blueprint)
}

// hold tells whether each machine has what its node was told, and no more.
func (f *workers) hold(b *muster.Blueprint) bool {
	for _, w := range f.all {
		d, err := f.s.Declaration(context.WithoutCancel(f.Context()), w.node)
		if err != nil {
			return false
		}
		f.mu.Lock()
		same := len(d.Declaration.Resources) == len(w.owned)
		for i := range d.Declaration.Resources {
			_, has := w.owned[d.Declaration.Resources[i].Ref()]
			same = same && has
		}
		f.mu.Unlock()
		if !same {
			return false
		}
	}
	return b != nil
}
