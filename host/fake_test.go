package host_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster.internal"
	"muster.internal/host"
	"muster.internal/setup"
)

const (
	me    = "00112233-4455-6677-8899-aabbccddeea1"
	other = "00112233-4455-6677-8899-aabbccddeea2"
)

var errPower = errors.New("the power went out")

// A machine is a small true model of one: what is on its disks outlives a power
// cut, what is in memory does not.
type machine struct {
	uuid    string
	private []byte
	public  []byte
	clock   time.Time

	disks []muster.Disk    // Contents hold what is neither a pool nor empty
	pools map[string]*pool // by guid
	log   []string         // effects, in order
	made  int              // pools made so far, for guids

	cut      int // power goes out at this effect, counted from 1; 0: never
	fail     map[string]error
	badClock bool
	always   bool // its operator says rebuild, whatever is there
}

type pool struct {
	host.Pool
	members    []string // identities
	credential *setup.Credential
}

func newMachine(disks ...muster.Disk) *machine {
	m := &machine{uuid: me, clock: time.Unix(1000, 0), disks: disks, pools: map[string]*pool{}, fail: map[string]error{}}
	m.boot()
	return m
}

// boot forgets what memory held.
func (m *machine) boot() {
	var err error
	if m.private, m.public, err = setup.GenerateKey(); err != nil {
		panic(err)
	}
	m.clock, m.cut = time.Unix(1000, 0), 0
	for _, p := range m.pools {
		p.Imported = false
	}
}

// effect is one thing that a power cut can come before. It returns an error for
// what a test wants to fail.
func (m *machine) effect(name string) error {
	if m.log = append(m.log, name); m.cut == len(m.log) {
		panic(errPower)
	}
	return m.fail[name]
}

func (m *machine) ServerUUID() string { return m.uuid }
func (m *machine) PrivateKey() []byte { return m.private }
func (m *machine) Now() time.Time     { return m.clock }

func (m *machine) SetClock(t time.Time) error {
	if err := m.effect("clock"); err != nil {
		return err
	}
	if !m.badClock {
		m.clock = t
	}
	return nil
}

func (m *machine) Disks() ([]muster.Disk, error) {
	var all []muster.Disk
	for _, d := range m.disks {
		d.Contents = slices.Clone(d.Contents)
		for _, p := range m.pools {
			if slices.Contains(p.members, d.Identity()) {
				d.Contents = append(d.Contents, muster.Content{Kind: "zpool", Name: p.Name, GUID: p.GUID, Stamp: p.Stamp})
			}
		}
		all = append(all, d)
	}
	return all, m.fail["survey"]
}

func (m *machine) Pools() ([]host.Pool, error) {
	var all []host.Pool
	for _, p := range m.pools {
		all = append(all, p.Pool)
	}
	slices.SortFunc(all, func(a, b host.Pool) int { return strings.Compare(a.GUID, b.GUID) })
	return all, m.fail["pools"]
}

func (m *machine) DryRun(muster.SetupPlan) error { return m.fail["dry run"] }

func (m *machine) Destroy(p host.Pool) error {
	if err := m.effect("destroy"); err != nil {
		return err
	}
	delete(m.pools, p.GUID)
	return nil
}

func (m *machine) Wipe(p muster.SetupPlan) error {
	for _, d := range p.Members() {
		if err := m.effect("wipe " + d.Path); err != nil {
			return err
		}
		for i := range m.disks {
			if m.disks[i].Identity() == d.Identity() {
				m.disks[i].Contents = nil
			}
		}
	}
	return nil
}

// Create labels the disks first and marks the pool a moment later.
func (m *machine) Create(p muster.SetupPlan) error {
	if err := m.effect("create"); err != nil {
		return err
	}
	var ids []string
	for _, d := range p.Members() {
		ids = append(ids, d.Identity())
		for _, q := range m.pools {
			if slices.Contains(q.members, d.Identity()) {
				return fmt.Errorf("%s is part of pool %s", d.Path, q.GUID)
			}
		}
	}
	m.made++
	guid := fmt.Sprintf("made-%d", m.made)
	m.pools[guid] = &pool{Pool: host.Pool{Kind: p.Pool, Name: muster.PoolName, GUID: guid, Imported: true}, members: ids}
	if err := m.effect("mark"); err != nil {
		return err
	}
	m.pools[guid].Stamp = p.ServerUUID
	return nil
}

func (m *machine) imported() *pool {
	for _, p := range m.pools {
		if p.Imported {
			return p
		}
	}
	return nil
}

func (m *machine) Stamp(p muster.SetupPlan) error {
	if err := m.effect("stamp"); err != nil {
		return err
	}
	m.imported().Stamp = p.ServerUUID
	return nil
}

func (m *machine) WriteCredential(c setup.Credential) error {
	if err := m.effect("credential"); err != nil {
		return err
	}
	m.imported().credential = &c
	return nil
}

func (m *machine) Export(muster.SetupPlan) error {
	if err := m.effect("export"); err != nil {
		return err
	}
	if p := m.imported(); p != nil {
		p.Imported = false
	}
	return nil
}

func (m *machine) Import(p host.Pool) error {
	if err := m.fail["import"]; err != nil {
		return err
	}
	m.pools[p.GUID].Imported = true
	return nil
}

func (m *machine) ReadCredential() (setup.Credential, error) {
	p := m.imported()
	if p == nil || p.credential == nil {
		return setup.Credential{}, errors.New("there is none")
	}
	return *p.credential, nil
}

func (m *machine) Release(p host.Pool) error {
	m.pools[p.GUID].Imported = false
	return nil
}
