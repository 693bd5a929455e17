//go:build linux

package world

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"muster.internal"
	process "muster.internal/bench/plane"
	"muster.internal/client"
	"muster.internal/credential"
	"muster.internal/enrol"
	"muster.internal/host"
	"muster.internal/lifecycle"
	"muster.internal/resource"
	"muster.internal/sim"
)

var real = flag.Bool("real", false, "play the kept scenarios' operators against a real musterd, too")

// TestReal plays what the operators of kept scenarios do against a real musterd,
// with the same machines over real TLS, and compares what it comes to. Of times and
// faults nothing is played: each step waits until the one before has come to rest.
func TestReal(t *testing.T) {
	if !*real {
		t.Skip("-real plays it")
	}
	program := filepath.Join(t.TempDir(), "musterd")
	if out, err := exec.Command("go", "build", "-o", program, "muster.internal/cmd/musterd").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, name := range []string{"first", "removed-and-back"} {
		t.Run(name, func(t *testing.T) {
			f, err := os.Open(filepath.Join("testdata", name+".txt"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			s, err := Parse(f)
			if err != nil {
				t.Fatal(err)
			}
			want := imagined(t, s)
			m, err := process.Start(t.Context(), program)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			r := &reality{T: t, m: m, imagined: &World{names: map[string]*machine{}}, lives: map[string]*existence{}, wanted: map[string]int{}}
			defer r.close()
			for _, step := range s.Steps {
				r.play(step.Words)
				r.rest()
			}
			if got := r.end(); !maps.Equal(got, want) {
				t.Errorf("it comes to\n%v\nand in the simulation to\n%v", got, want)
			}
		})
	}
}

// imagined is what the simulation comes to: how many machines are in each state,
// and how many run each version of each module.
func imagined(t *testing.T, s Scenario) map[string]int {
	r, err := Run(t.Context(), s)
	if err != nil || len(r.Wrong) > 0 {
		t.Fatal(r.Wrong, err)
	}
	return r.end
}

// A reality is a musterd as a process, and machines that live by the real time.
type reality struct {
	*testing.T
	m        *process.Musterd
	imagined *World // for its hardware
	lives    map[string]*existence
	wanted   map[string]int
}

// An existence is a machine's with its line: for package sim.
type existence struct {
	r        *reality
	m        *machine
	ctx      context.Context
	stop     context.CancelFunc
	done     sync.WaitGroup
	began    time.Time
	identity credential.Identity
	byKey    *client.Client
	line     *client.Client
	mu       sync.Mutex // of what it is, which the test looks at
}

func (r *reality) close() {
	for _, e := range r.lives {
		e.end()
	}
}

func (r *reality) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *reality) play(words []string) {
	ctx, rest := r.Context(), words[1:]
	r.Log(strings.Join(words, " "))
	switch words[0] {
	case "want":
		m, err := wanted(rest[0], number(rest[1]))
		r.must(err)
		_, err = r.m.Admin.AddModule(ctx, muster.NewModule{Module: *m})
		r.must(err)
		r.wanted[rest[0]] = number(rest[1])
	case "unwant":
		r.must(r.m.Admin.RemoveModule(ctx, rest[0]))
	case "adopt":
		r.adopt(rest[0], labels(rest[1:]))
	case "readd":
		e := r.lives[rest[0]]
		n, err := r.m.Admin.Node(ctx, e.m.nodeID)
		r.must(err)
		if e.end(); n.Expunged != nil {
			_, err := r.m.Admin.RaiseRegistration(ctx, e.m.node.Facts.UUID, lifecycle.Readmit)
			r.must(err)
		}
		e.m.node.Kept, e.m.node.Ground = nil, sim.NewGround()
		r.adopt(rest[0], labels(rest[1:]))
	case "node":
		e := r.lives[rest[0]]
		var err error
		if rest[1] == "expunge" {
			_, err = r.m.Admin.ExpungeNode(ctx, e.m.nodeID, muster.Expunge{Confirm: e.m.node.Facts.UUID, Reason: "a scenario says so"})
		} else {
			_, err = r.m.Admin.RaiseNode(ctx, e.m.nodeID, muster.Event(rest[1]))
		}
		r.must(err)
	}
}

func (r *reality) adopt(name string, labels map[string]string) {
	m := r.imagined.names[name]
	if m == nil {
		m = r.imagined.rack(name)
	}
	m.node.Ground.Changed = nil
	issued, err := r.m.Admin.IssueEnrolmentToken(r.Context(), muster.NewEnrolmentToken{})
	r.must(err)
	token, err := enrol.Decode(issued.Token)
	r.must(err)
	anyone, err := r.m.Client("", client.Trust{CA: r.m.CA})
	r.must(err)
	defer anyone.Close()
	reply, err := anyone.Enrol(r.Context(), muster.EnrolRequest{TokenID: token.ID, Secret: base64.RawURLEncoding.EncodeToString(token.Secret), Nonce: fmt.Sprintf("%032x", rand.Uint64()),
		ServerUUID: m.node.Facts.UUID, Hostname: name, Sysinfo: m.node.Facts.Sysinfo()})
	r.must(err)
	m.nodeID, m.key = reply.NodeID, reply.APIKey
	_, err = r.m.Admin.LabelNode(r.Context(), m.nodeID, muster.LabelChange{Set: labels})
	r.must(err)
	e := &existence{r: r, m: m, began: time.Now()}
	e.ctx, e.stop = context.WithCancel(context.Background())
	e.byKey, err = r.m.Client(m.key, client.Trust{CA: r.m.CA})
	r.must(err)
	r.lives[name] = e
	e.done.Go(func() {
		life := m.node.Live(e)
		_ = host.Linked(&lookedAt{life, e})
	})
}

func (e *existence) end() {
	e.stop()
	e.done.Wait()
}

// lookedAt is a life whose ground the test may look at between its acts, and whose
// placements are up as soon as they run.
type lookedAt struct {
	*sim.Life
	e *existence
}

func (l *lookedAt) Apply(d *resource.Declaration, trigger string) (resource.Report, error) {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	r, err := l.Life.Apply(d, trigger)
	found := make([]host.Probe, len(d.Checks))
	for i := range found {
		found[i] = host.Probe{Healthy: true, CaughtUp: true}
	}
	l.Watch.Saw(found, time.Now())
	return r, err
}

func (e *existence) Moment() host.Moment {
	return host.Moment{Wall: time.Now(), Boot: e.m.name, Up: time.Since(e.began)}
}
func (e *existence) Dice() float64 { return rand.Float64() }
func (e *existence) Say(string)    {}
func (e *existence) Node() string  { return e.identity.NodeID() }
func (e *existence) Reboot() error { return errors.New("nobody restarts it") }
func (e *existence) Forget() error { return nil }

func (e *existence) Sleep(d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-e.ctx.Done():
		return e.ctx.Err()
	}
}

func (e *existence) Certify(anew, _ bool) (err error) {
	if e.line != nil && !anew {
		return nil
	}
	if e.identity.Key == nil {
		if e.identity, err = credential.NewIdentity(); err != nil {
			return err
		}
	}
	csr, err := e.identity.Request()
	if err != nil {
		return err
	}
	c, err := e.byKey.LinkCertificate(e.ctx, muster.CertificateRequest{CSR: csr})
	if err != nil {
		return err
	}
	if e.identity, err = e.identity.WithPEM(c.Certificate); err != nil {
		return err
	}
	e.line, err = e.r.m.Client("", client.Trust{CA: e.r.m.CA, Pair: e.identity.TLS()})
	return err
}

func (e *existence) Call(what string, in, out any) (err error) {
	switch v := in.(type) {
	case muster.RefreshRequest:
		_, err = e.byKey.Refresh(e.ctx, v)
	case muster.Profile:
		err = e.line.LinkProfile(e.ctx, v)
	case []resource.Owned:
		err = e.line.SetLinkOwned(e.ctx, v)
	case []muster.PlacementHealth:
		err = e.line.SetLinkHealth(e.ctx, v)
	case resource.Report:
		err = e.line.LinkReport(e.ctx, v)
	case muster.LinkPoll:
		*out.(*muster.LinkAnswer), err = e.line.LinkNext(e.ctx, v)
	default:
		*out.(*[]resource.Owned), err = e.line.LinkOwned(e.ctx)
	}
	return err
}

// rest waits until nobody has anything to do for a moment.
func (r *reality) rest() {
	var was string
	for same, end := 0, time.Now().Add(5*time.Minute); same < 8; {
		time.Sleep(500 * time.Millisecond)
		nodes, err := r.m.Admin.Nodes(r.Context())
		r.must(err)
		target, err := r.m.Admin.Target(r.Context())
		r.must(err)
		var is []any
		for _, n := range nodes {
			is = append(is, n.ID, n.State, n.Policy)
		}
		text, err := json.Marshal(append(is, target.Number, r.end()))
		r.must(err)
		if same++; string(text) != was {
			same = 0
		}
		if was = string(text); time.Now().After(end) {
			r.must(errors.New("it does not come to rest: " + was))
		}
	}
}

// end is what it has come to, as imagined has it.
func (r *reality) end() map[string]int {
	all := map[string]int{}
	nodes, err := r.m.Admin.Nodes(r.Context())
	r.must(err)
	for _, n := range nodes {
		all["nodes "+string(n.State)]++
		for _, e := range r.lives {
			if e.m.nodeID != n.ID || n.State == muster.NodeDecommissioned {
				continue
			}
			e.mu.Lock()
			for _, image := range e.m.images() {
				all[image]++
			}
			e.mu.Unlock()
		}
	}
	return all
}
