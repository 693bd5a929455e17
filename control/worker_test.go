package control_test

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/client"
	"muster.internal/credential"
	tokens "muster.internal/enrol"
	"muster.internal/host"
	"muster.internal/inventory"
	"muster.internal/module"
	"muster.internal/resource"
	"muster.internal/store"
)

// Ada is who changes things in these tests, beside the control planes.
var ada = muster.Caller{Operator: "ada", Role: muster.Admin}

// workers are nodes that live by package host, on machines that are made up.
// Time is fast for them: a second of theirs takes a tenth.
type workers struct {
	testing.TB
	s     *store.Store // of the same database: an operator's hand
	admin func() *client.Client
	urls  func() []string // of the control planes that are up
	plan  func() muster.PlanReport
	ca    []byte
	began time.Time

	mu  sync.Mutex
	all []*worker
	// check is called whenever what runs on some machine has changed.
	check func()
}

const quicker = 10

// A worker is one of them: it is the host.Link of its machine.
type worker struct {
	f        *workers
	n        int
	uuid     string
	node     string
	key      string
	disks    []muster.Disk
	ctx      context.Context
	off      context.CancelFunc
	ended    chan error
	identity credential.Identity
	line     *client.Client
	turn     int

	held                host.Held
	mirrored, described bool

	owned map[resource.Ref]resource.Owned // under f.mu, as what follows
	stuck map[resource.Ref]string         // cannot be removed, and why
	wrong map[resource.Ref]string         // cannot be made, and why
	told  atomic.Int64                    // answers that brought it something
}

// newWorkers works on the database of a place.
func (p *place) newWorkers() *workers {
	p.Helper()
	f := newWorkers(p.TB, p.dir, p.store)
	f.admin = func() *client.Client { return p.admin }
	f.urls = func() []string { return []string{p.c.URL()} }
	f.plan = func() muster.PlanReport { r, _ := p.c.LastPlan(); return r }
	return f
}

func newWorkers(t testing.TB, dir, url string) *workers {
	t.Helper()
	f := &workers{TB: t, began: time.Now(), check: func() {}}
	text, err := os.ReadFile(filepath.Join(dir, "master.key"))
	f.ok(err)
	master, err := hex.DecodeString(strings.TrimSpace(string(text)))
	f.ok(err)
	f.s, err = store.Open(t.Context(), store.Options{URL: url, MasterKey: master})
	f.ok(err)
	t.Cleanup(func() { f.s.Close() })
	f.ca, err = os.ReadFile(filepath.Join(dir, "tls", "ca.pem"))
	f.ok(err)
	t.Cleanup(f.stop)
	return f
}

func (f *workers) stop() {
	for _, w := range f.all {
		w.off()
		<-w.ended
	}
}

func (f *workers) ok(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// want has modules wanted.
func (f *workers) want(texts ...string) {
	f.Helper()
	for _, text := range texts {
		m, err := module.Parse("test", []byte(text))
		f.ok(err)
		m.Version = 0
		_, err = f.s.AddModule(f.Context(), time.Now(), ada, m, true)
		f.ok(err)
	}
}

// add brings a machine in, by a token, and lets it live.
func (f *workers) add(labels map[string]string) *worker {
	f.Helper()
	f.mu.Lock()
	w := &worker{f: f, n: len(f.all) + 1}
	f.all = append(f.all, w)
	f.mu.Unlock()
	w.uuid = fmt.Sprintf("6d757374-6572-4000-8000-%012x", w.n)
	w.disks = []muster.Disk{{Path: "/dev/sda", Serial: fmt.Sprintf("S%d", w.n), Model: "m", Size: 1 << 40}}
	w.owned, w.stuck, w.wrong = map[resource.Ref]resource.Owned{}, map[resource.Ref]string{}, map[resource.Ref]string{}
	w.comes()
	if labels != nil {
		_, err := f.s.LabelNode(f.Context(), time.Now(), ada, w.node, muster.LabelChange{Set: labels})
		f.ok(err)
	}
	return w
}

// comes redeems a token and lives. What an earlier life owned is still there.
func (w *worker) comes() {
	f := w.f
	f.Helper()
	issued, err := f.admin().IssueEnrolmentToken(f.Context(), muster.NewEnrolmentToken{})
	f.ok(err)
	t, err := tokens.Decode(issued.Token)
	f.ok(err)
	anyone, err := client.New(f.urls()[0], "", client.Trust{CA: f.ca})
	f.ok(err)
	defer anyone.Close()
	reply, err := anyone.Enrol(f.Context(), muster.EnrolRequest{
		TokenID: t.ID, Secret: base64.RawURLEncoding.EncodeToString(t.Secret), Nonce: fmt.Sprintf("%032x", time.Now().UnixNano()),
		ServerUUID: w.uuid, Hostname: fmt.Sprintf("w%d", w.n), Sysinfo: w.facts().Sysinfo(),
	})
	f.ok(err)
	w.node, w.key, w.held, w.line, w.mirrored, w.described = reply.NodeID, reply.APIKey, host.Held{}, nil, false, false
	w.on()
}

func (w *worker) facts() inventory.Facts {
	return inventory.Facts{UUID: w.uuid, Hostname: fmt.Sprintf("w%d", w.n), Serial: fmt.Sprintf("B-%d", w.n), MemoryMiB: 64 << 10, CPUs: 16, Disks: w.disks}
}

// on switches the machine on, and cut cuts its power.
func (w *worker) on() {
	w.ctx, w.off = context.WithCancel(context.Background())
	ctx, ended := w.ctx, make(chan error, 1)
	w.ended = ended
	go func() {
		err := host.Linked(w)
		if ctx.Err() == nil {
			w.f.Logf("w%d: %v", w.n, err)
		}
		ended <- err
	}()
}

func (w *worker) cut() {
	w.off()
	w.ended <- <-w.ended // it is looked at again
}

func (w *worker) Moment() host.Moment {
	return host.Moment{Wall: time.Now(), Boot: "b", Up: quicker * time.Since(w.f.began)}
}
func (w *worker) Dice() float64             { return 0.5 }
func (w *worker) Say(string)                {}
func (w *worker) Held() (host.Held, error)  { return w.held, nil }
func (w *worker) Hold(held host.Held) error { w.held = held; return nil }
func (w *worker) Lost() (bool, error)       { return false, nil }
func (w *worker) Forget() error             { return nil }
func (w *worker) Node() string              { return w.identity.NodeID() }
func (w *worker) Reboot() error             { return errors.New("nobody restarts it") }
func (w *worker) Recover() error            { return nil }
func (w *worker) Proven() error             { return nil }
func (w *worker) Updated() bool             { return false }

func (w *worker) Pause(d time.Duration) error {
	select {
	case <-time.After(d / quicker):
		return nil
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
}

// Apply makes what is declared, and reports as a real host does.
func (w *worker) Apply(d *resource.Declaration, trigger string) (resource.Report, error) {
	time.Sleep(rand.N(100 * time.Millisecond)) // what ends takes its time
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	now := time.Now()
	r := resource.Report{Generation: d.Generation, Trigger: trigger, Started: now, Version: muster.Build}
	declared := map[resource.Ref]bool{}
	for i := range d.Resources {
		declared[d.Resources[i].Ref()] = true
	}
	for _, ref := range slices.Sorted(maps.Keys(w.owned)) {
		if declared[ref] {
			continue
		}
		if why := w.stuck[ref]; why != "" {
			r.Lines = append(r.Lines, resource.Line{Ref: ref, Outcome: resource.OutcomeFailed, Reason: why})
			continue
		}
		delete(w.owned, ref)
		r.Lines = append(r.Lines, resource.Line{Ref: ref, Outcome: resource.OutcomeChanged, Did: "removed"})
	}
	w.f.check()
	for i := range d.Resources {
		ref := d.Resources[i].Ref()
		l := resource.Line{Ref: ref, Outcome: resource.OutcomeOK}
		if why := w.wrong[ref]; why != "" {
			l.Outcome, l.Reason = resource.OutcomeFailed, why
		} else if _, has := w.owned[ref]; !has {
			w.owned[ref] = resource.Owned{Ref: ref, Origin: resource.OriginCreated, Since: now, Generation: d.Generation}
			l.Outcome, l.Did = resource.OutcomeChanged, "created"
		}
		r.Lines = append(r.Lines, l)
	}
	w.f.check()
	w.mirrored = false
	var outcomes []resource.Outcome
	for _, l := range r.Lines {
		outcomes = append(outcomes, l.Outcome)
	}
	r.Finished, r.Outcome = time.Now(), resource.Worst(outcomes...)
	return r, nil
}

// to makes a call at a control plane that is up; when that fails, the next call
// is another's.
func (w *worker) to(pair *client.Trust, key string) (*client.Client, error) {
	urls := w.f.urls()
	if len(urls) == 0 {
		return nil, errors.New("no control plane is up")
	}
	trust := client.Trust{CA: w.f.ca}
	if pair != nil {
		trust = *pair
	}
	return client.New(urls[(w.n+w.turn)%len(urls)], key, trust)
}

func (w *worker) Certify(anew, _ bool) (err error) {
	if w.line != nil && !anew {
		return nil
	}
	if w.identity, err = credential.NewIdentity(); err != nil {
		return err
	}
	var q muster.CertificateRequest
	if q.CSR, err = w.identity.Request(); err != nil {
		return err
	}
	byKey, err := w.to(nil, w.key)
	if err != nil {
		return err
	}
	defer byKey.Close()
	c, err := byKey.LinkCertificate(w.ctx, q)
	if err != nil {
		w.turn++
		return err
	}
	block, _ := pem.Decode([]byte(c.Certificate))
	if w.identity, err = w.identity.With(block.Bytes); err != nil {
		return err
	}
	return w.connect()
}

func (w *worker) connect() (err error) {
	if w.line != nil {
		w.line.Close()
	}
	w.line, err = w.to(&client.Trust{CA: w.f.ca, Pair: w.identity.TLS()}, "")
	return err
}

// heard passes an error on; who does not answer is not asked again.
func (w *worker) heard(err error) error {
	var p *muster.Problem
	if err != nil && (!errors.As(err, &p) || p.Code == muster.CodeUnavailable) && w.ctx.Err() == nil {
		w.turn++
		if e := w.connect(); e != nil {
			return e
		}
	}
	return err
}

func (w *worker) Describe() error {
	if w.described {
		return nil
	}
	byKey, err := w.to(nil, w.key)
	if err != nil {
		return err
	}
	defer byKey.Close()
	if _, err := byKey.Refresh(w.ctx, muster.RefreshRequest{Sysinfo: w.facts().Sysinfo(), Disks: w.disks, Version: muster.Build}); err != nil {
		return w.heard(err)
	}
	profile, _ := json.Marshal(inventory.Profile{Arch: "amd64", OS: "debian", Firmware: "uefi", ServiceManager: "systemd", PackageManager: "apt"})
	err = w.line.LinkProfile(w.ctx, muster.Profile{Profile: profile, Facts: map[string]string{"address": fmt.Sprintf("10.0.0.%d", w.n)}})
	w.described = err == nil
	return w.heard(err)
}

func (w *worker) Mirror() error {
	if w.mirrored {
		return nil
	}
	w.f.mu.Lock()
	all := slices.SortedFunc(maps.Values(w.owned), func(a, b resource.Owned) int { return strings.Compare(string(a.Ref), string(b.Ref)) })
	w.f.mu.Unlock()
	err := w.line.SetLinkOwned(w.ctx, all)
	w.mirrored = err == nil
	return w.heard(err)
}

func (w *worker) Health() error { return nil }
func (w *worker) Woken() string { return "" }

func (w *worker) Report(r resource.Report) error { return w.heard(w.line.LinkReport(w.ctx, r)) }

func (w *worker) Next(holds int64) (muster.LinkAnswer, error) {
	a, err := w.line.LinkNext(w.ctx, muster.LinkPoll{Holds: holds, Version: muster.Build, Capability: muster.Capability, BootID: "b"})
	if err == nil && (a.Declaration != nil || len(a.Orders) > 0) {
		w.told.Add(1)
	}
	return a, w.heard(err)
}

// runs are the nodes that have something of a module: a file below /MODULE/.
// The caller holds f.mu.
func (f *workers) runs(module string) (on []*worker) {
	for _, w := range f.all {
		for ref := range w.owned {
			if strings.HasPrefix(string(ref), "file:/"+module+"/") {
				on = append(on, w)
			}
		}
	}
	return on
}

// on are the names of those workers, in order.
func (f *workers) on(module string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for _, w := range f.runs(module) {
		names = append(names, fmt.Sprintf("w%d", w.n))
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// target is the blueprint that is the target now.
func (f *workers) target() *muster.Blueprint {
	f.Helper()
	_, b, err := f.s.Target(f.Context())
	f.ok(err)
	if b == nil {
		return &muster.Blueprint{}
	}
	return b
}

// says tells whether the newest plan says something.
func (f *workers) says(text string) bool {
	r := f.plan()
	return slices.ContainsFunc(slices.Concat(r.Done, r.Waits, r.Refused, r.Notes), func(l muster.PlanLine) bool { return strings.Contains(l.Text, text) })
}

// share is what the target says of a worker.
func (w *worker) share() muster.BlueprintNode {
	b := w.f.target()
	for _, n := range b.Nodes {
		if n.ID == w.node {
			return n
		}
	}
	return muster.BlueprintNode{}
}

func (w *worker) state() (muster.NodePolicy, muster.NodeState) {
	w.f.Helper()
	d, err := w.f.s.Node(w.f.Context(), w.node)
	w.f.ok(err)
	return d.Policy, d.State
}

func (w *worker) raise(e muster.Event) {
	w.f.Helper()
	_, err := w.f.s.RaiseNode(w.f.Context(), time.Now(), ada, w.node, e)
	w.f.ok(err)
}

func (w *worker) expunge() {
	w.f.Helper()
	_, err := w.f.s.ExpungeNode(w.f.Context(), time.Now(), ada, w.node, muster.Expunge{Confirm: w.uuid, Reason: "it burns"})
	w.f.ok(err)
}

// until waits for something that comes by itself.
func (f *workers) until(what string, is func() bool) {
	f.Helper()
	for end := time.Now().Add(2 * time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			text, _ := json.MarshalIndent(f.target().Nodes, "", " ")
			f.Fatalf("it never came: %s\n%s", what, text)
		}
	}
}
