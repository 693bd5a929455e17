package control_test

import (
	"context"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/dhcp"
	"muster.internal/lifecycle"
)

// TestExplainBoot: what a booter tells is joined with record, policy, image and
// machine, and the present decision is asked.
func TestExplainBoot(t *testing.T) {
	engines(t, func(p *place) {
		ctx := p.Context()
		p.withViewer()
		explain := func(mac string) muster.BootExplanation {
			p.Helper()
			return must(p, func(ctx context.Context) (muster.BootExplanation, error) { return p.viewer.ExplainBoot(ctx, mac) })
		}
		if x := explain("52-54-00-99-00-01"); x.Verdict != muster.BootNeverSeen || x.Cause != "no_booter" || x.MAC != "52:54:00:99:00:01" {
			p.Errorf("%+v", x)
		}
		img := p.content()
		m := p.bare(1)
		rec := m.sighted()
		p.ok(p.booter.ReportBooter(ctx, muster.BooterStatus{Booter: "b1", Address: "10.77.0.2", Seq: 1}))

		mac, err := dhcp.ParseMAC(rec.MAC)
		p.ok(err)
		d := &dhcp.Packet{Op: dhcp.BootRequest, XID: 7}
		d.SetMAC(mac)
		d.Set(dhcp.OptMessageType, []byte{byte(dhcp.Discover)})
		d.Set(dhcp.OptClassID, []byte("PXEClient:Arch:00007:UNDI:003000"))
		d.Set(dhcp.OptArch, []byte{0, 7})
		trace := muster.BootTrace{MAC: rec.MAC, At: p.clock(), Steps: []muster.BootStep{{First: p.clock().Add(-time.Minute), At: p.clock(), Count: 3, Via: "DHCP", Asked: "DISCOVER",
			Source: "0.0.0.0:68", Packet: d.Append(nil), BootVerdict: muster.BootVerdict{Reason: "not_staged", Why: rec.MAC + " is not staged", Mode: "enroll", Stage: "loader"}}}}
		p.ok(p.booter.ReportTraces(ctx, "b1", []muster.BootTrace{trace}))
		x := explain(rec.MAC)
		if x.Verdict != muster.BootSilent || x.Cause != "not_staged" || x.Now == nil || x.Now.Serve || x.Firmware == nil || x.Firmware.Arch != 7 ||
			len(x.Steps) != 1 || len(x.Booters) != 1 || !x.Booters[0].Alive || !x.Booters[0].Heard || x.Booters[0].Staged {
			p.Errorf("%+v", x)
		}
		// Once it is staged the same packet would be served.
		p.ok(p.booter.ReportBooter(ctx, muster.BooterStatus{Booter: "b1", Address: "10.77.0.2", Seq: 1, Staged: []string{img.Digest}}))
		if x = explain(rec.MAC); x.Now == nil || !x.Now.Serve || !strings.Contains(x.Summary, "would be now") {
			p.Errorf("%+v", x)
		}
		// It announces itself, and waits for an operator.
		_, err = m.announce()
		p.ok(err)
		p.ok(m.survey())
		if x = explain(rec.MAC); x.Verdict != muster.BootWaiting || x.Machine == nil || x.Machine.ServerUUID != m.uuid ||
			len(x.Advice) < 2 || x.Advice[0].Command != "muster registration plan-setup "+m.serial {
			p.Errorf("%+v", x)
		}
		trace.Steps[0].Packet = make([]byte, muster.TracePacket+1)
		p.refused(p.booter.ReportTraces(ctx, "b1", []muster.BootTrace{trace}), muster.CodeInvalid)
		p.refused(p.booter.ReportTraces(ctx, "no such name", nil), muster.CodeInvalid)
	})
}

// TestExplainTombstone: a machine that was expunged is told so as long as its
// tombstone stands, when its registration is gone and its card another one, and
// in the other byte order.
func TestExplainTombstone(t *testing.T) {
	engines(t, func(p *place) {
		ctx := p.Context()
		m := p.bare(1)
		g := m.approved()
		p.ok(m.complete(m.opened(g.Epoch)))
		_, err := p.admin.ExpungeNode(ctx, p.registration(m.uuid).NodeID, muster.Expunge{Confirm: m.serial, Reason: "stolen"})
		p.ok(err)
		other := asked(p, "52:54:00:00:00:99", muster.SwapUUID(m.uuid))
		p.ok(p.booter.ReportTraces(ctx, "b1", []muster.BootTrace{other, asked(p, m.mac, m.uuid)}))
		expunged := func(when string, want bool) {
			p.Helper()
			for _, mac := range []string{m.mac, other.MAC} {
				x := must(p, func(ctx context.Context) (muster.BootExplanation, error) { return p.admin.ExplainBoot(ctx, mac) })
				if (x.Cause == "is_expunged") != want || want && !strings.Contains(x.Summary, "(stolen)") {
					p.Errorf("%s, %s: %s %s: %s", when, mac, x.Verdict, x.Cause, x.Summary)
				}
			}
		}
		expunged("registered", true)
		p.ok(p.admin.DeleteRegistration(ctx, m.uuid))
		expunged("forgotten", true)
		_, err = p.admin.RaiseRegistration(ctx, m.uuid, lifecycle.Readmit)
		p.ok(err)
		expunged("readmitted", false)
	})
}

// asked is a trace of firmware that asks and is not answered.
func asked(p *place, mac, uuid string) muster.BootTrace {
	p.Helper()
	m, err := dhcp.ParseMAC(mac)
	p.ok(err)
	raw, err := hex.DecodeString(strings.ReplaceAll(muster.SwapUUID(uuid), "-", "")) // SMBIOS's byte order
	p.ok(err)
	d := &dhcp.Packet{Op: dhcp.BootRequest, XID: 7}
	d.SetMAC(m)
	d.Set(dhcp.OptMessageType, []byte{byte(dhcp.Discover)})
	d.Set(dhcp.OptClassID, []byte("PXEClient:Arch:00007:UNDI:003000"))
	d.Set(dhcp.OptArch, []byte{0, 7})
	d.Set(dhcp.OptMachineID, append([]byte{0}, raw...))
	return muster.BootTrace{MAC: mac, At: p.clock(), Steps: []muster.BootStep{{First: p.clock(), At: p.clock(), Count: 1, Via: "DHCP", Asked: "DISCOVER",
		Source: "0.0.0.0:68", Packet: d.Append(nil), BootVerdict: muster.BootVerdict{Reason: "unknown", Why: mac + " is unknown"}}}}
}
