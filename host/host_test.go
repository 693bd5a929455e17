package host_test

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/host"
	"muster.internal/layout"
	"muster.internal/setup"
)

func twoDisks() []muster.Disk {
	return []muster.Disk{
		{Path: "/dev/vdb", Serial: "A", Size: 4e9, Contents: []muster.Content{{Kind: "ext4", Name: "home"}}},
		{Path: "/dev/vdc", Serial: "B", Size: 4e9},
	}
}

var epoch int64

// approve is what the control plane does: survey, plan, seal. rebuild is asked
// for when the plan says that it is needed.
func approve(m *machine) (setup.Order, error) {
	disks, err := m.Disks()
	if err != nil {
		return setup.Order{}, err
	}
	p, err := layout.Realize(m.uuid, "S1", disks, muster.SetupRequest{Hostname: "n1", Rebuild: m.always})
	if muster.IsCode(err, muster.CodeConflict) {
		p, err = layout.Realize(m.uuid, "S1", disks, muster.SetupRequest{Hostname: "n1", Rebuild: true})
	}
	if err != nil {
		return setup.Order{}, err
	}
	p.Digest = setup.PlanDigest(p)
	epoch++
	sealed, err := setup.Seal(m.public, setup.Bundle{
		ServerUUID: m.uuid, Epoch: epoch, Plan: p.Digest, ProofKey: bytes.Repeat([]byte{1}, 32), URL: "https://m", APIKey: fmt.Sprintf("mus_key_%d", epoch),
	})
	return setup.Order{ServerUUID: m.uuid, Epoch: epoch, Time: time.Unix(1700000000, 0), Hostname: "n1", Plan: p, Bundle: sealed}, err
}

// run does a setup; cut tells that the power went out instead.
func run(m *machine, o setup.Order) (r host.Result, said []string, cut bool) {
	defer func() {
		if e := recover(); e != nil {
			if e != errPower {
				panic(e)
			}
			cut = true
		}
	}()
	r = host.Setup(o, m, func(p host.Progress) { said = append(said, fmt.Sprintf("%d/%d %s", p.Step, p.Of, p.Text)) })
	return r, said, false
}

func TestSetup(t *testing.T) {
	m := newMachine(twoDisks()...)
	o, err := approve(m)
	if err != nil {
		t.Fatal(err)
	}
	r, said, _ := run(m, o)
	if !r.OK || r.Exit != setup.ExitReboot {
		t.Fatalf("%+v", r)
	}
	e, proof, ok := setup.ParseSentinel(r.Line)
	if !ok || e != o.Epoch || proof != setup.Proof(bytes.Repeat([]byte{1}, 32), me, o.Epoch) {
		t.Errorf("sentinel %q", r.Line)
	}
	if want := []string{"clock", "wipe /dev/vdb", "wipe /dev/vdc", "create", "mark", "stamp", "credential", "export"}; !reflect.DeepEqual(m.log, want) {
		t.Errorf("effects %q, want %q", m.log, want)
	}
	if len(said) != 11 || said[0] != "1/11 setting the clock" {
		t.Errorf("said %q", said)
	}
	if m.clock.Before(o.Time) {
		t.Error("the clock was not set")
	}
	m.boot()
	b, c := host.Start("node", me, m)
	if b.Role != host.RoleNode || c.Epoch != o.Epoch || c.APIKey == "" || c.ServerUUID != me || c.Hostname != "n1" {
		t.Errorf("after its setup it starts as %+v", b)
	}
	if b, _ := host.Start("enroll", me, m); b.Role != host.RoleNode {
		t.Errorf("told to enroll, it forgets that it is a node: %+v", b)
	}
	if b, _ := host.Start("rescue", me, m); b.Role != host.RoleRescue || m.imported() == nil {
		t.Errorf("in rescue: %+v", b)
	}
}

// Every refusal comes before anything is destroyed, and says what is wrong.
func TestSetupRefuses(t *testing.T) {
	add := func(m *machine, guid, name, stamp string, ids ...string) {
		m.pools[guid] = &pool{Pool: host.Pool{Kind: muster.ZFS, Name: name, GUID: guid, Stamp: stamp}, members: ids}
	}
	for _, c := range []struct {
		name   string
		before func(m *machine)                 // before the approval
		spoil  func(m *machine, o *setup.Order) // between approval and setup
		want   string
	}{
		{"clock cannot be set", nil, func(m *machine, o *setup.Order) { m.fail["clock"] = errors.New("no permission") }, "setting the clock: no permission"},
		{"clock does not keep", nil, func(m *machine, o *setup.Order) { m.badClock = true }, "it was set to 2023-11-14T22:13:20Z, and reads 1970"},
		{"another machine", nil, func(m *machine, o *setup.Order) { m.uuid = other }, "this is " + other},
		{"another boot's key", nil, func(m *machine, o *setup.Order) { m.boot() }, "not sealed for this boot"},
		{"another plan than sealed", nil, func(m *machine, o *setup.Order) {
			o.Plan.Rebuild = true
			o.Plan.Digest = setup.PlanDigest(o.Plan)
		}, "another plan"},
		{"another epoch", nil, func(m *machine, o *setup.Order) { o.Epoch++ }, "epoch"},
		{"a disk pulled", nil, func(m *machine, o *setup.Order) { m.disks = m.disks[:1] }, "/dev/vdc (serial B) is gone"},
		{"a disk swapped", nil, func(m *machine, o *setup.Order) { m.disks[1].Serial = "Z" }, "/dev/vdc (serial B) is gone"},
		{"a disk grown", nil, func(m *machine, o *setup.Order) { m.disks[1].Size++ }, "4000000001 bytes, not 4000000000"},
		{"a disk written to", nil, func(m *machine, o *setup.Order) { m.disks[1].Contents = []muster.Content{{Kind: "xfs"}} }, "now contains xfs, not nothing"},
		{"survey fails", nil, func(m *machine, o *setup.Order) { m.fail["survey"] = errors.New("I/O error") }, "I/O error"},
		{"foreign pool plugged in", nil, func(m *machine, o *setup.Order) { add(m, "77", "zones", other) }, "'zones' (guid 77) of machine " + other},
		{"pool without stamp", nil, func(m *machine, o *setup.Order) { add(m, "78", "zones", "") }, "(guid 78) without a stamp"},
		{"own pool, no rebuild", nil, func(m *machine, o *setup.Order) { add(m, "79", "zones", me) }, "does not say rebuild"},
		{"two own pools", func(m *machine) { add(m, "80", "zones", me, m.disks[0].Identity()) }, func(m *machine, o *setup.Order) { add(m, "81", "zones", me) }, "guid 80 and 81"},
		{"own pool that the operator never saw", func(m *machine) { m.always = true }, func(m *machine, o *setup.Order) { add(m, "82", "zones", me) }, "(guid 82) was not there when the setup was approved"},
		{"dry run", nil, func(m *machine, o *setup.Order) { m.fail["dry run"] = errors.New("one disk is in use") }, "in use"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(twoDisks()...)
			if c.before != nil {
				c.before(m)
			}
			o, err := approve(m)
			if err != nil {
				t.Fatal(err)
			}
			c.spoil(m, &o)
			n := len(m.pools)
			r, _, _ := run(m, o)
			reason, failed := setup.ParseFailure(r.Line)
			if r.OK || r.Exit == 0 || r.Exit == setup.ExitReboot || !failed || !strings.Contains(reason, c.want) {
				t.Errorf("got %+v, want a failure with %q", r, c.want)
			}
			if len(m.pools) != n || slices.ContainsFunc(m.log, func(s string) bool { return s != "clock" }) {
				t.Errorf("something was touched: %q", m.log)
			}
			if _, _, ok := setup.ParseSentinel(r.Line); ok {
				t.Error("a failure that looks like success")
			}
		})
	}
}

func TestDisksAreFoundOnOtherPaths(t *testing.T) {
	m := newMachine(twoDisks()...)
	o, _ := approve(m)
	m.disks[0].Path, m.disks[1].Path = "/dev/vdc", "/dev/vdb"
	if r, _, _ := run(m, o); !r.OK {
		t.Fatal(r.Line)
	}
	if want := "wipe /dev/vdc"; m.log[1] != want { // the first of the plan is A, now at vdc
		t.Errorf("effects %q", m.log)
	}
}

func TestFailuresNameTheStep(t *testing.T) {
	for name, want := range map[string]string{"create": "building the pool: boom", "stamp": "stamping", "credential": "storing the credential", "export": "closing the pool", "wipe /dev/vdc": "clearing"} {
		m := newMachine(twoDisks()...)
		o, _ := approve(m)
		m.fail[name] = errors.New("boom")
		if r, _, _ := run(m, o); r.OK || !strings.Contains(r.Line, want) {
			t.Errorf("%s: %q", name, r.Line)
		}
		if m.imported() != nil && name != "export" {
			t.Errorf("%s: the pool was left open", name)
		}
	}
}

// A power cut at every effect, of a first setup and of a rebuild: afterwards
// the machine is a node with its credential, or another approval makes it one,
// or it refuses cleanly because a pool cannot be told to be its own.
func TestPowerCutAtEveryEffect(t *testing.T) {
	for _, first := range []bool{true, false} {
		for cut := 1; ; cut++ {
			m := newMachine(twoDisks()...)
			if !first {
				o, _ := approve(m)
				if r, _, _ := run(m, o); !r.OK {
					t.Fatal(r.Line)
				}
				m.boot()
				m.log = nil
			}
			o, err := approve(m)
			if err != nil {
				t.Fatal(err)
			}
			m.cut = cut
			r, _, was := run(m, o)
			if !was {
				if !r.OK || cut < 9 {
					t.Fatalf("cut %d never came: %+v", cut, r)
				}
				break
			}
			at := m.log[len(m.log)-1]
			m.boot()
			b, c := host.Start("enroll", me, m)
			switch {
			case b.Role == host.RoleNode && c.Epoch == o.Epoch:
				if at != "export" {
					t.Errorf("cut before %s: already a node", at)
				}
				continue // the refresh proves the setup
			case b.Role == host.RoleNode:
				// The old setup of a machine that was to be rebuilt: unharmed.
				if first || at != "clock" && at != "destroy" {
					t.Errorf("cut before %s: the old credential is still there", at)
				}
				m.Release(b.Pool)
			}
			o, err = approve(m)
			if at == "mark" {
				if !muster.IsCode(err, muster.CodeConflict) || !strings.Contains(err.Error(), "without a stamp") {
					t.Errorf("cut before %s: a pool of unknown origin must be refused, got %v", at, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("cut before %s: no second approval: %v", at, err)
				continue
			}
			if r, _, _ := run(m, o); !r.OK {
				t.Errorf("cut before %s: the second try failed: %s", at, r.Line)
			}
			m.boot()
			if b, c := host.Start("enroll", me, m); b.Role != host.RoleNode || c.Epoch != o.Epoch {
				t.Errorf("cut before %s, set up again: %+v", at, b)
			}
		}
	}
}

func TestStart(t *testing.T) {
	good := &setup.Credential{ServerUUID: me, APIKey: "k"}
	mk := func(stamp string, c *setup.Credential) *pool {
		return &pool{Pool: host.Pool{Kind: muster.ZFS, Name: "zones", GUID: "1", Stamp: stamp}, credential: c}
	}
	for _, c := range []struct {
		name  string
		pools map[string]*pool
		fail  string
		role  host.Role
		want  string
	}{
		{"bare", nil, "", host.RoleEnroll, "it has no pool"},
		{"node", map[string]*pool{"1": mk(me, good)}, "", host.RoleNode, "holds its credential"},
		{"foreign", map[string]*pool{"1": mk(other, good)}, "", host.RoleEnroll, "guid 1) does not carry"},
		{"no stamp", map[string]*pool{"1": mk("", good)}, "", host.RoleEnroll, "does not carry"},
		{"no credential", map[string]*pool{"1": mk(me, nil)}, "", host.RoleEnroll, "no usable credential: there is none"},
		{"another's credential", map[string]*pool{"1": mk(me, &setup.Credential{ServerUUID: other})}, "", host.RoleEnroll, "belongs to machine " + other},
		{"two", map[string]*pool{"1": mk(me, good), "2": {Pool: host.Pool{Name: "zones", GUID: "2", Stamp: me}}}, "", host.RoleEnroll, "two pools"},
		{"import fails", map[string]*pool{"1": mk(me, good)}, "import", host.RoleEnroll, "cannot be imported: boom"},
		{"pools unreadable", nil, "pools", host.RoleEnroll, "cannot be read: boom"},
	} {
		m := newMachine()
		m.pools = c.pools
		m.fail[c.fail] = errors.New("boom")
		b, _ := host.Start("node", me, m)
		if b.Role != c.role || !strings.Contains(b.Reason, c.want) {
			t.Errorf("%s: got %+v, want %s because %q", c.name, b, c.role, c.want)
		}
		if p := m.imported(); p != nil && b.Role != host.RoleNode {
			t.Errorf("%s: the pool was left open", c.name)
		}
	}
}
