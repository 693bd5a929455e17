package lab

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/bus"
	"muster.internal/inventory"
)

// failedWith: back where it came from, with a reason that names these words.
func failedWith(words ...string) func(muster.Registration) bool {
	return func(r muster.Registration) bool {
		for _, w := range words {
			if !strings.Contains(r.LastSetupError, w) {
				return false
			}
		}
		return r.State == muster.AwaitingSetup
	}
}

// noKeys: a setup that failed has left no live credential.
func noKeys(t *testing.T, ctx context.Context, s *Site, m *Machine) {
	t.Helper()
	r := must[muster.Registration](t)(s.Operator.Registration(ctx, m.UUID))
	if r.BoundKeyID != "" || r.BundleTaken || r.SetupDeadline != nil || r.AssignedPI != nil {
		t.Errorf("the failed setup left key %q, taken %t, deadline %v, image %v", r.BoundKeyID, r.BundleTaken, r.SetupDeadline, r.AssignedPI)
	}
	for _, k := range must[[]muster.APIKey](t)(s.Operator.Keys(ctx)) {
		if k.Scope == muster.ScopeAgent && k.ServerUUID == m.UUID {
			t.Errorf("key %s of %s is still there", k.ID, m.UUID)
		}
	}
	if b := must[muster.BootRecord](t)(s.Operator.BootRecord(ctx, m.MAC)); b.State != muster.Enrolling {
		t.Errorf("its boot record is %s", b.State)
	}
}

// surveyedAfter: an approval can be offered for a connection that the machine
// has made since. Approved on an older survey, a setup ends when it comes back.
func surveyedAfter(at time.Time) func(muster.Registration) bool {
	return func(r muster.Registration) bool {
		return r.State == muster.AwaitingSetup && r.SurveyedAt != nil && r.SurveyedAt.After(at)
	}
}

func surveyed(t *testing.T, ctx context.Context, s *Site, m *Machine) muster.Registration {
	t.Helper()
	if err := m.PowerOn(); err != nil {
		t.Fatal(err)
	}
	return must[muster.Registration](t)(s.Surveyed(ctx, m))
}

func approve(t *testing.T, ctx context.Context, s *Site, m *Machine, r muster.SetupRequest) muster.SetupGrant {
	t.Helper()
	_, g, err := s.Approve(ctx, m, r)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// cameBack waits for the end of a good setup and for the second boot after it.
func cameBack(t *testing.T, ctx context.Context, s *Site, m *Machine) {
	t.Helper()
	before := time.Now()
	must[muster.Registration](t)(s.WaitRegistration(ctx, m, "is approved", isApproved))
	must[muster.Registration](t)(s.WaitRegistration(ctx, m, "has come back with its own key", refreshedAfter(before)))
	checkNode(t, ctx, s, m)
}

// A pool by the name of ours that is somebody else's stops a setup, even on a
// disk that the plan does not name; and it is not touched. Here the disk is put
// in after the operator has seen the plan, so that only the machine can notice.
func TestLabForeignPool(t *testing.T) {
	t.Parallel()
	ctx, s := newLab(t, 8*time.Minute)
	m := s.machine(t, ctx, 1, BIOS)
	foreign := foreignPool(t)
	surveyed(t, ctx, s, m)
	if err := m.PlugDisk(ctx, foreign, "STRANGE1"); err != nil {
		t.Fatal(err)
	}
	approve(t, ctx, s, m, muster.SetupRequest{Layout: "mirror"})
	r := must[muster.Registration](t)(s.WaitRegistration(ctx, m, "is refused", failedWith("zones", "guid")))
	t.Log("the reason:", r.LastSetupError)
	noKeys(t, ctx, s, m)
	// The next survey shows it, and then no plan is offered at all.
	reset := time.Now()
	if err := m.Reset(); err != nil {
		t.Fatal(err)
	}
	r = must[muster.Registration](t)(s.WaitRegistration(ctx, m, "is surveyed anew", surveyedAfter(reset)))
	if len(r.Disks) != 3 {
		t.Fatalf("the survey shows %d disks", len(r.Disks))
	}
	if c := r.Disks[2].Contents; len(c) == 0 || c[0].Name != muster.PoolName || c[0].Stamp != "" || c[0].GUID == "" {
		t.Errorf("the survey shows of the foreign pool: %+v", c)
	}
	if _, err := s.Operator.PlanSetup(ctx, m.UUID, muster.SetupRequest{}); !muster.IsCode(err, muster.CodeConflict) {
		t.Errorf("a plan with a foreign pool in the machine: %v", err)
	}
	m.Cut()
	withZFS(t, fmt.Sprintf("mkdir /run/d; ln -s %s /run/d/disk; zpool import -d /run/d zones; zfs list zones/precious; zpool export zones", foreign))
}

var buildsPool = regexp.MustCompile(`muster-host: setup .*building the pool`)

// The power goes in the middle of a setup. The machine comes back as another
// session; the first approval is dead, and a second one goes through, over
// whatever the first has left.
func TestLabPowerCut(t *testing.T) {
	for _, at := range []struct {
		name string
		seen *regexp.Regexp
	}{
		{"while the pool is built", buildsPool},
		{"before the credential is stored", regexp.MustCompile(`muster-host: setup .*storing the credential`)},
	} {
		t.Run(at.name, func(t *testing.T) {
			t.Parallel()
			ctx, s := newLab(t, 8*time.Minute)
			m := s.machine(t, ctx, 1, BIOS)
			surveyed(t, ctx, s, m)
			mark := m.Mark()
			first := approve(t, ctx, s, m, muster.SetupRequest{Layout: "mirror"})
			must[Line](t)(m.WaitFor(ctx, mark, at.seen))
			m.Cut()
			cut := time.Now()
			if err := m.PowerOn(); err != nil {
				t.Fatal(err)
			}
			r := must[muster.Registration](t)(s.WaitRegistration(ctx, m, "waits again", surveyedAfter(cut)))
			if r.LastSetupError == "" {
				t.Error("the setup that was cut short has left no reason")
			}
			t.Log("the reason:", r.LastSetupError)
			noKeys(t, ctx, s, m)
			second := approve(t, ctx, s, m, muster.SetupRequest{Layout: "mirror", Rebuild: true})
			if second.Epoch <= first.Epoch {
				t.Errorf("epoch %d after %d", second.Epoch, first.Epoch)
			}
			cameBack(t, ctx, s, m)
			m.Cut()
			checkDisks(t, ctx, s, m)
		})
	}
}

// impersonate speaks on the bus as a machine that it is not.
func impersonate(ctx context.Context, s *Site, st *Stranger, m *Machine) (*bus.Conn, error) {
	password, err := os.ReadFile(s.busFile()) // as read off the wire, from the boot script
	if err != nil {
		return nil, err
	}
	c, err := bus.Dial(ctx, bus.Options{Addr: ServerIP + ":5672", User: "muster", Password: strings.TrimSpace(string(password)),
		UUID: m.UUID, MAC: m.MAC, Connect: func(ctx context.Context, addr string) (net.Conn, error) { return st.Dial(ctx, "tcp", addr) }})
	if err != nil {
		return nil, err
	}
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	f := inventory.Facts{UUID: m.UUID, Serial: m.Serial, Hostname: "innocent", MACs: []string{m.MAC}, AdminMAC: m.MAC,
		PublicKey: base64.StdEncoding.EncodeToString(key.PublicKey().Bytes()), Version: "1", Firmware: "bios"}
	for _, k := range []string{"ur.startup." + m.UUID, "ur.sysinfo." + m.UUID + ".0123456789abcdef"} {
		if err := c.Publish(k, f.Sysinfo()); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// overhear collects what a connection is sent, until it ends.
func overhear(ctx context.Context, c *bus.Conn) <-chan string {
	heard := make(chan string, 64)
	go func() {
		defer close(heard)
		for {
			d, err := c.Next(ctx)
			if err != nil {
				return
			}
			select {
			case heard <- d.Key + " " + string(d.Body):
			default:
			}
		}
	}()
	return heard
}

// told waits until the audit has an entry about the machine with these words,
// and returns it.
func told(t *testing.T, ctx context.Context, s *Site, m *Machine, words ...string) muster.AuditEntry {
	t.Helper()
	var found muster.AuditEntry
	err := s.Until(ctx, "the operator is told of "+strings.Join(words, ", "), func() (bool, error) {
		es, err := s.Operator.Audit(ctx, muster.AuditFilter{Subject: "registration/" + m.UUID})
		for _, e := range es {
			all := e.Action + " " + string(e.Detail)
			missing := false
			for _, w := range words {
				missing = missing || !strings.Contains(all, w)
			}
			if !missing {
				found = e
				return true, nil
			}
		}
		return false, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Somebody with the machine's address and queue name, after the approval: gets
// nothing, the epoch is void, and the operator is told.
func TestLabImpostor(t *testing.T) {
	t.Parallel()
	ctx, s := newLab(t, 8*time.Minute)
	m := s.machine(t, ctx, 1, BIOS)
	surveyed(t, ctx, s, m)
	b := must[muster.BootRecord](t)(s.Operator.BootRecord(ctx, m.MAC))
	if err := m.Freeze(); err != nil { // so that it neither answers nor objects
		t.Fatal(err)
	}
	first := approve(t, ctx, s, m, muster.SetupRequest{Layout: "mirror"})
	st, err := s.NewStranger(ctx, b.Address)
	if err != nil {
		t.Fatal(err)
	}
	c, err := impersonate(ctx, s, st, m)
	if err != nil {
		t.Fatal(err)
	}
	heard := overhear(ctx, c)
	r := must[muster.Registration](t)(s.WaitRegistration(ctx, m, "is void, and its source named", failedWith(b.Address)))
	t.Log("the reason:", r.LastSetupError)
	t.Log("the audit:", string(told(t, ctx, s, m, "void", b.Address).Detail))
	noKeys(t, ctx, s, m)
	c.Close()
	for d := range heard {
		// A disk survey may be asked of anybody; a bundle must not come.
		if strings.Contains(d, "MUSTER_BUNDLE") || strings.Contains(d, "muster-host setup") {
			t.Errorf("the impostor was sent %s", d)
		}
	}
	// The real machine thaws, comes back, and the next approval is for it alone.
	if err := ip(ctx, "-n", st.Name, "link", "set", st.Interface, "down"); err != nil {
		t.Fatal(err)
	}
	m.Cut()
	cut := time.Now()
	if err := m.PowerOn(); err != nil {
		t.Fatal(err)
	}
	must[muster.Registration](t)(s.WaitRegistration(ctx, m, "is surveyed anew", surveyedAfter(cut)))
	second := approve(t, ctx, s, m, muster.SetupRequest{Layout: "mirror"})
	if second.Epoch <= first.Epoch {
		t.Errorf("epoch %d after %d", second.Epoch, first.Epoch)
	}
	cameBack(t, ctx, s, m)
}

// Somebody with an address of his own who names the machine's queue: refused,
// counted where operators look, and the setup under way goes on.
func TestLabStrangerIsRefused(t *testing.T) {
	t.Parallel()
	ctx, s := newLab(t, 6*time.Minute)
	m := s.machine(t, ctx, 1, BIOS)
	surveyed(t, ctx, s, m)
	if err := m.Freeze(); err != nil { // so that the setup is under way for long enough
		t.Fatal(err)
	}
	approve(t, ctx, s, m, muster.SetupRequest{Layout: "mirror"})
	must[muster.Registration](t)(s.WaitRegistration(ctx, m, "is being set up", func(r muster.Registration) bool { return r.BundleTaken }))
	st, err := s.NewStranger(ctx, "10.77.0.66")
	if err != nil {
		t.Fatal(err)
	}
	if c, err := impersonate(ctx, s, st, m); err == nil {
		for d := range overhear(ctx, c) {
			t.Errorf("the stranger was sent %s", d)
		}
	}
	if err := m.Thaw(); err != nil {
		t.Fatal(err)
	}
	cameBack(t, ctx, s, m)
	err = s.Until(ctx, "the booter has told of whom it refused", func() (bool, error) {
		bs, err := s.Operator.Booters(ctx)
		return err == nil && len(bs) == 1 && bs[0].Counters["bus_refused_names"] > 0, err
	})
	if err != nil {
		t.Error(err)
	}
}

// The programs are killed in the middle of an install, at several points; it
// ends well, or fails cleanly and is approved again; and there is one node.
func TestLabKills(t *testing.T) {
	points := []*regexp.Regexp{
		nil, // at once, after the approval
		buildsPool,
		regexp.MustCompile(`muster-host: setup is complete`),
	}
	for _, order := range [][]string{{"musterd", "muster-booter", "musterd"}, {"muster-booter", "musterd", "muster-booter"}} {
		t.Run(strings.Join(order, ", "), func(t *testing.T) {
			t.Parallel()
			ctx, s := newLab(t, 8*time.Minute)
			m := s.machine(t, ctx, 1, BIOS)
			surveyed(t, ctx, s, m)
			mark, before := m.Mark(), time.Now()
			approve(t, ctx, s, m, muster.SetupRequest{Layout: "mirror"})
			for n, who := range order {
				if points[n] != nil {
					must[Line](t)(m.WaitFor(ctx, mark, points[n]))
				}
				if n == 0 && who == "muster-booter" { // between taking the bundle and sending the script
					must[Line](t)(s.Booter.WaitFor(ctx, 0, regexp.MustCompile(`step=taking`)))
				}
				killed := time.Now()
				restart(t, map[string]*Program{"musterd": s.Control, "muster-booter": s.Booter}[who])
				if n == 0 {
					underWay(t, ctx, s, m, mark, killed)
				}
			}
			must[muster.Registration](t)(s.WaitRegistration(ctx, m, "is approved", isApproved))
			must[muster.Registration](t)(s.WaitRegistration(ctx, m, "has come back with its own key", refreshedAfter(before)))
			checkNode(t, ctx, s, m)
			m.Cut()
			checkDisks(t, ctx, s, m)
		})
	}
}

func restart(t *testing.T, p *Program) {
	t.Helper()
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
}

// underWay waits until the machine itself says that it builds its pool. A
// bundle that was taken is not enough: a booter that died between taking it and
// sending the script has lost the session that the approval was for, and then
// the setup must have failed cleanly, and is approved once more: when the
// machine has been surveyed over the connection that it has since the kill, for
// the approval of an older one ends when the machine comes back.
func underWay(t *testing.T, ctx context.Context, s *Site, m *Machine, mark int, killed time.Time) {
	t.Helper()
	builds := func() bool {
		return slices.ContainsFunc(m.Lines(mark), func(l Line) bool { return buildsPool.MatchString(l.Text) })
	}
	r := must[muster.Registration](t)(s.WaitRegistration(ctx, m, "is being set up, or failed with a reason", func(r muster.Registration) bool {
		return r.State == muster.Approved || builds() || r.LastSetupError != "" && surveyedAfter(killed)(r)
	}))
	if r.State != muster.AwaitingSetup {
		return
	}
	t.Log("failed cleanly:", r.LastSetupError)
	noKeys(t, ctx, s, m)
	approve(t, ctx, s, m, muster.SetupRequest{Layout: "mirror", Rebuild: true})
}
