package main

import (
	"context"
	"time"

	muster "muster.internal"
)

func (m *memory) BootRecords(_ context.Context, f muster.BootFilter) ([]muster.BootRecord, error) {
	var out []muster.BootRecord
	for _, mac := range sortedKeys(m.recs) {
		if r := m.recs[mac]; mac > f.After && (f.State == "" || r.State == f.State) {
			out = append(out, *r)
		}
	}
	return out, m.up()
}

func (m *memory) rec(mac string) *muster.BootRecord {
	if r := m.recs[mac]; r != nil {
		return r
	}
	return &muster.BootRecord{MAC: mac, State: muster.Discovered, Mode: muster.NormalMode, Synthesized: true}
}

func (m *memory) BootRecord(_ context.Context, mac string) (muster.BootRecord, error) {
	return *m.rec(mac), m.up()
}

func (m *memory) SetBootRecord(_ context.Context, mac string, c muster.BootChange) (muster.BootRecord, error) {
	r := m.rec(mac)
	r.Synthesized = false
	if c.Mode != nil {
		r.Mode = *c.Mode
		until := noon.Add(4 * time.Hour)
		if c.RescueFor != nil {
			until = noon.Add(time.Duration(*c.RescueFor) * time.Second)
		}
		r.RescueUntil = &until
	}
	if c.AssignedPI != nil {
		r.AssignedPI = imageRef(*c.AssignedPI)
	}
	if c.KernelArgs != nil {
		r.KernelArgs = *c.KernelArgs
	}
	if c.Networking != nil {
		r.Networking = c.Networking
	}
	m.recs[mac] = r
	m.note("set", "boot-record/"+mac)
	return *r, nil
}

func (m *memory) RaiseBootRecord(_ context.Context, mac string, e muster.Event) (muster.BootRecord, error) {
	to := map[muster.Event]muster.BootState{"enroll": muster.Enrolling, "decommission": muster.BootDecommissioned, "reactivate": muster.Discovered}
	r := m.rec(mac)
	if e == "reactivate" && r.State != muster.BootDecommissioned {
		return *r, conflict(string(r.State), "decommission set_mode", "boot record %s is not decommissioned", mac)
	}
	r.State, r.Synthesized = to[e], false
	m.recs[mac] = r
	m.note(string(e), "boot-record/"+mac)
	return *r, nil
}

func (m *memory) BootPolicy(context.Context) (muster.BootPolicy, error) { return m.policy, m.up() }

func (m *memory) SetBootPolicy(_ context.Context, p muster.BootPolicy) (muster.BootPolicy, error) {
	for _, n := range p.Networks {
		if n.End == "" {
			return p, muster.Invalid("networks[0].end", "the last address of network %s is missing", n.Name)
		}
	}
	m.policy = p
	m.note("set", "boot-policy")
	return p, nil
}
