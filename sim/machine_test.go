package sim

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"muster.internal/host"
	"muster.internal/inventory"
	"muster.internal/layout"
	"muster.internal/setup"

	muster "muster.internal"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func running(t interface{ Fatal(...any) }, n int) *Machine {
	m := Hardware(n)
	m.True = func() time.Time { return noon }
	if err := m.PowerOn(); err != nil {
		t.Fatal(err)
	}
	return m
}

// order is what a control plane would send after an approval of what the
// machine's survey shows now.
func order(m *Machine, epoch int64, q muster.SetupRequest) (setup.Order, error) {
	disks, err := m.Survey()
	if err != nil {
		return setup.Order{}, err
	}
	p, err := layout.Realize(m.UUID, m.Serial, disks, q)
	if err != nil {
		return setup.Order{}, err
	}
	p.Digest = setup.PlanDigest(p)
	sealed, err := setup.Seal(m.public, setup.Bundle{ServerUUID: m.UUID, Epoch: epoch, Plan: p.Digest, ProofKey: make([]byte, 32),
		URL: "https://cp:8443", CA: "pem", APIKey: "key"})
	o := setup.Order{ServerUUID: m.UUID, Epoch: epoch, Time: noon, Hostname: q.Hostname, Plan: p, Bundle: sealed}
	if err != nil {
		return o, err
	}
	env, err := o.Env() // as it travels
	if err != nil {
		return o, err
	}
	return setup.ParseOrder(env)
}

func quiet(host.Progress) {}

func TestASetupMakesANode(t *testing.T) {
	for n := 1; n <= 8; n++ {
		m := running(t, n)
		m.Drift = -40 * 365 * 24 * time.Hour // a dead battery
		o, err := order(m, 1, muster.SetupRequest{})
		if err != nil {
			t.Fatalf("%s: %v", m.Name, err)
		}
		if r := host.Setup(o, m.Hands(), quiet); !r.OK || r.Exit != setup.ExitReboot {
			t.Fatalf("%s: %s", m.Name, r.Line)
		}
		m = again(t, m)
		b, cred := host.Start("node", m.UUID, m.Hands())
		if b.Role != host.RoleNode || cred.APIKey != "key" || cred.Epoch != 1 {
			t.Errorf("%s starts as %s: %s", m.Name, b.Role, b.Reason)
		}
	}
}

// again is a power cycle of the whole simulation: what is not on disks is gone.
func again(t interface{ Fatal(...any) }, m *Machine) *Machine {
	m.PowerOff()
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	n := new(Machine)
	if err := json.Unmarshal(b, n); err != nil {
		t.Fatal(err)
	}
	n.True = func() time.Time { return noon }
	if err := n.PowerOn(); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestPowerCutAnywhere cuts the power at every effect of a setup: the machine
// comes up as a node or enrolls again, and a second approval of what is there
// then makes it a node. Nothing is ever half of each.
func TestPowerCutAnywhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := running(t, rapid.IntRange(1, 12).Draw(t, "machine"))
		o, err := order(m, 1, muster.SetupRequest{})
		if err != nil {
			t.Fatal(err)
		}
		m.Faults.PowerCutAt = rapid.IntRange(1, 14).Draw(t, "cut at")
		r := host.Setup(o, m.Hands(), quiet)
		if r.OK != m.On() {
			t.Fatalf("it says %q, and has power: %v", r.Line, m.On())
		}
		m = again(t, m)
		for epoch := int64(2); ; epoch++ {
			b, cred := host.Start("enroll", m.UUID, m.Hands())
			if b.Role == host.RoleNode {
				if cred.ServerUUID != m.UUID {
					t.Fatalf("the credential of %s", cred.ServerUUID)
				}
				return
			}
			if epoch > 3 {
				t.Fatalf("still not a node: %s", b.Reason)
			}
			pools, _ := m.Hands().Pools()
			o, err := order(m, epoch, muster.SetupRequest{Rebuild: len(pools) > 0})
			if err != nil {
				t.Fatal(err)
			}
			if r := host.Setup(o, m.Hands(), quiet); !r.OK {
				t.Fatalf("the second try: %s", r.Line)
			}
			m = again(t, m)
		}
	})
}

func TestFaultsAreRefused(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault func(m *Machine)
		want  string // in the line that the booter reads
		late  bool   // the fault comes after the approval
	}{
		{"a clock that cannot be set", func(m *Machine) { m.Faults.StuckClock = true }, "setting the clock", true},
		{"a clock that shows another time", func(m *Machine) { m.Faults.WrongClock = time.Hour }, "it was set to", true},
		{"a disk that was replaced", func(m *Machine) { m.Disks[0].Serial, m.Disks[0].WWN = "OTHER", "" }, "is gone", true},
		{"a disk that was written to", func(m *Machine) { m.Disks[0].Contents = []muster.Content{{Kind: "xfs", Name: "data"}} }, "it now contains xfs", true},
		{"a foreign pool", func(m *Machine) {
			m.Pools = []Pool{{Kind: muster.ZFS, Name: muster.PoolName, GUID: "77", Members: []string{m.Disks[0].Identity()}}}
		}, "zones", true},
		{"an order for another machine", func(m *Machine) { m.UUID = Hardware(9).UUID }, "the order is for machine", true},
	} {
		m := running(t, 1)
		o, err := order(m, 1, muster.SetupRequest{})
		if err != nil {
			t.Fatal(err)
		}
		before := len(m.Pools)
		c.fault(m)
		before = max(before, len(m.Pools))
		r := host.Setup(o, m.Hands(), quiet)
		if r.OK || !strings.Contains(r.Line, c.want) || len(m.Pools) != before {
			t.Errorf("%s: %q, %d pools", c.name, r.Line, len(m.Pools))
		}
	}
}

func TestALyingDiskLosesItsPool(t *testing.T) {
	m := running(t, 1)
	o, err := order(m, 1, muster.SetupRequest{})
	if err != nil {
		t.Fatal(err)
	}
	m.Faults.Lying = m.Disks[1].Path
	if r := host.Setup(o, m.Hands(), quiet); !r.OK {
		t.Fatal(r.Line)
	}
	m = again(t, m)
	if b, _ := host.Start("node", m.UUID, m.Hands()); b.Role != host.RoleEnroll {
		t.Errorf("it starts as %s: %s", b.Role, b.Reason)
	}
}

func TestASwappedDiskIsNotTheOneSurveyed(t *testing.T) {
	m := running(t, 1)
	m.Faults.Swapped = m.Disks[0].Path
	o, err := order(m, 1, muster.SetupRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if r := host.Setup(o, m.Hands(), quiet); r.OK || !strings.Contains(r.Line, "is gone") {
		t.Error(r.Line)
	}
}

func TestImaginaryMachinesAreToldApart(t *testing.T) {
	seen := map[string]string{}
	for n := 1; n <= 300; n++ {
		m := running(t, n)
		f, err := inventory.Parse(m.Sysinfo("test"))
		if err != nil {
			t.Fatalf("%s: %v", m.Name, err)
		}
		ids := append([]string{f.UUID, f.Serial}, f.MACs...)
		for _, d := range f.Disks {
			ids = append(ids, d.Identity())
		}
		for _, id := range ids {
			if seen[id] != "" {
				t.Errorf("%s and %s share %q", m.Name, seen[id], id)
			}
			seen[id] = m.Name
		}
	}
}
