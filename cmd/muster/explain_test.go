package main

import (
	"context"
	"slices"
	"time"

	muster "muster.internal"
	"muster.internal/dhcp"
	"muster.internal/explain"
)

// ExplainBoot joins what the story's fleet holds, as the control plane does.
func (m *memory) ExplainBoot(_ context.Context, mac string) (muster.BootExplanation, error) {
	if m.followed++; m.followed > 1 && m.idle != nil {
		m.idle()
	}
	e := explain.Evidence{Now: noon, Record: *m.rec(mac), Policy: m.policy, Booters: m.booters, Head: 7,
		Image: func(digest string) *muster.Image {
			if i, err := m.Image(context.Background(), digest); err == nil {
				return &i
			}
			return nil
		}}
	for _, r := range m.regs {
		if slices.Contains(r.MACs, mac) {
			e.Machine = r
		}
	}
	if t, ok := m.traces[mac]; ok {
		e.Traces = []muster.BootTrace{t}
	}
	return explain.Boot(e), m.up()
}

// heard makes a trace of a card whose firmware asks again and again.
func heard(mac string) muster.BootTrace {
	m, err := dhcp.ParseMAC(mac)
	if err != nil {
		panic(err)
	}
	p := &dhcp.Packet{Op: dhcp.BootRequest, XID: 42}
	p.SetMAC(m)
	p.Set(dhcp.OptMessageType, []byte{byte(dhcp.Discover)})
	p.Set(dhcp.OptClassID, []byte("PXEClient:Arch:00007:UNDI:003000"))
	p.Set(dhcp.OptArch, []byte{0, 7})
	s := muster.BootStep{First: noon.Add(-5 * time.Minute), At: noon.Add(-3 * time.Second), Count: 9, Via: "DHCP", Asked: "DISCOVER", Source: "0.0.0.0:68",
		Interface: "eth1", Packet: p.Append(nil)}
	d, _ := explain.Site{Now: noon, Policy: muster.DefaultBootPolicy()}.Decide(p)
	s.BootVerdict = d.Verdict()
	return muster.BootTrace{Booter: "rack1", MAC: mac, At: s.At, Steps: []muster.BootStep{s}}
}
