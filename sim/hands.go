package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster.internal/host"
	"muster.internal/setup"

	muster "muster.internal"
)

// Hands are what the real host's brain works with on this machine. Host.Setup
// and host.Start take them.
func (m *Machine) Hands() *Hands { return &Hands{m} }

// Hands work on an imaginary machine.
type Hands struct{ m *Machine }

var (
	_ host.Hands  = (*Hands)(nil)
	_ host.Keeper = (*Hands)(nil)
)

// ServerUUID implements host.Hands.
func (h *Hands) ServerUUID() string { return h.m.Self() }

// PrivateKey implements host.Hands.
func (h *Hands) PrivateKey() []byte { return h.m.private }

// Now implements host.Hands.
func (h *Hands) Now() time.Time { return h.m.True().Add(h.m.off + h.m.Faults.WrongClock) }

// SetClock implements host.Hands.
func (h *Hands) SetClock(t time.Time) error {
	if err := h.m.effect(); err != nil {
		return err
	}
	if h.m.Faults.StuckClock {
		return errors.New("the hardware clock does not take the time")
	}
	h.m.off = t.Sub(h.m.True())
	return nil
}

// Disks implements host.Hands.
func (h *Hands) Disks() ([]muster.Disk, error) { return h.m.Survey() }

// Pools implements host.Hands: those whose members are all there.
func (h *Hands) Pools() ([]host.Pool, error) {
	if !h.m.on {
		return nil, ErrOff
	}
	there := map[string]bool{}
	for _, d := range h.m.Disks {
		there[d.Identity()] = true
	}
	var all []host.Pool
	for _, p := range h.m.Pools {
		whole := true
		for _, id := range p.Members {
			whole = whole && there[id]
		}
		if whole {
			all = append(all, host.Pool{Kind: p.Kind, Name: p.Name, GUID: p.GUID, Stamp: p.Stamp, Imported: p.imported})
		}
	}
	slices.SortFunc(all, func(a, b host.Pool) int { return strings.Compare(a.GUID, b.GUID) })
	return all, nil
}

// DryRun implements host.Hands: a disk of a pool cannot be used, unless that
// pool is this machine's own and to be rebuilt.
func (h *Hands) DryRun(p muster.SetupPlan) error {
	if !h.m.on {
		return ErrOff
	}
	for _, d := range p.Members() {
		for _, q := range h.m.Pools {
			if slices.Contains(q.Members, d.Identity()) && !(p.Rebuild && q.Stamp == p.ServerUUID) {
				return fmt.Errorf("%s is part of pool '%s' (guid %s)", d.Path, q.Name, q.GUID)
			}
		}
	}
	return nil
}

// Destroy implements host.Hands.
func (h *Hands) Destroy(p host.Pool) error {
	if err := h.m.effect(); err != nil {
		return err
	}
	h.m.Pools = slices.DeleteFunc(h.m.Pools, func(q Pool) bool { return q.GUID == p.GUID })
	return nil
}

// Wipe implements host.Hands, disk by disk.
func (h *Hands) Wipe(p muster.SetupPlan) error {
	for _, d := range p.Members() {
		if err := h.m.effect(); err != nil {
			return err
		}
		if own := h.m.byPath(d.Path); own != nil {
			own.Contents = nil
		}
	}
	return nil
}

// Create implements host.Hands. A power cut comes before it or after it: then
// the pool is there, marked, and empty.
func (h *Hands) Create(p muster.SetupPlan) error {
	if err := h.m.effect(); err != nil {
		return err
	}
	if err := h.DryRun(muster.SetupPlan{VDevs: p.VDevs, Spares: p.Spares, Logs: p.Logs, Cache: p.Cache}); err != nil {
		return err
	}
	q := Pool{Kind: p.Pool, Name: muster.PoolName, GUID: h.m.nextGUID(), Stamp: p.ServerUUID, imported: true}
	for _, d := range p.Members() {
		q.Members = append(q.Members, d.Identity())
	}
	h.m.Pools = append(h.m.Pools, q)
	return h.m.effect()
}

// nextGUID numbers a machine's pools.
func (m *Machine) nextGUID() string {
	n := 1
	for _, p := range m.Pools {
		if rest, ok := strings.CutPrefix(p.GUID, m.UUID[:8]+"-"); ok {
			var k int
			if _, err := fmt.Sscan(rest, &k); err == nil {
				n = max(n, k+1)
			}
		}
	}
	return fmt.Sprintf("%s-%d", m.UUID[:8], n)
}

// Stamp implements host.Hands.
func (h *Hands) Stamp(p muster.SetupPlan) error {
	if err := h.m.effect(); err != nil {
		return err
	}
	q := h.imported()
	if q == nil {
		return errors.New("no pool is imported")
	}
	q.Stamp = p.ServerUUID
	return nil
}

// WriteCredential implements host.Hands.
func (h *Hands) WriteCredential(c setup.Credential) error {
	if err := h.m.effect(); err != nil {
		return err
	}
	q := h.imported()
	if q == nil {
		return errors.New("no pool is imported")
	}
	q.Credential = &c
	return nil
}

// Export implements host.Hands.
func (h *Hands) Export(muster.SetupPlan) error {
	if err := h.m.effect(); err != nil {
		return err
	}
	if q := h.imported(); q != nil {
		q.imported = false
	}
	return nil
}

// Import implements host.Keeper.
func (h *Hands) Import(p host.Pool) error {
	for i := range h.m.Pools {
		if h.m.Pools[i].GUID == p.GUID {
			h.m.Pools[i].imported = true
			return nil
		}
	}
	return fmt.Errorf("no pool has guid %s", p.GUID)
}

// ReadCredential implements host.Keeper.
func (h *Hands) ReadCredential() (setup.Credential, error) {
	if q := h.imported(); q != nil && q.Credential != nil {
		return *q.Credential, nil
	}
	return setup.Credential{}, errors.New("there is none")
}

// Release implements host.Keeper.
func (h *Hands) Release(p host.Pool) error {
	for i := range h.m.Pools {
		if h.m.Pools[i].GUID == p.GUID {
			h.m.Pools[i].imported = false
		}
	}
	return nil
}

func (h *Hands) imported() *Pool {
	for i := range h.m.Pools {
		if h.m.Pools[i].imported {
			return &h.m.Pools[i]
		}
	}
	return nil
}
