package booter

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/boot"
	"muster.internal/dhcp"
)

// TestTracesTellABoot goes through a boot by real sockets, and finds every
// exchange of it at the control plane, without a secret.
func TestTracesTellABoot(t *testing.T) {
	p := newPlane()
	ref := p.addImage("node-1", "kernel", "initrd")
	p.policy.Networks = adminNetwork()
	p.set(enrolled(1, ref))
	p.set(muster.BootRecord{MAC: mac(2), State: muster.BootDecommissioned})
	b, _ := run(t, loopback(t, p))
	staged(t, b, ref)

	fw := newFirmware(t, b, mac(1), 7)
	fw.lease()
	hyphens := strings.ReplaceAll(mac(1), ":", "-")
	if _, err := fetch(t, b, hyphens+"/snponly.efi", 1468, 4); err != nil {
		t.Fatal(err)
	}
	fw.ipxe = true
	fw.lease()
	base := "http://" + b.site.HTTP.String() + "/boot/" + hyphens
	var digests []string
	for _, f := range p.images[ref.Digest].Variants[0].Files {
		digests = append(digests, strings.TrimPrefix(f.Digest, "sha256:"))
	}
	for _, path := range []string{"start.ipxe", "script.ipxe?uuid=&serial=S%20ECRET&product=", "file/" + digests[0], "file/" + digests[1], "file/hidden-nonce-0123"} {
		r, err := http.Get(base + "/" + path)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
	}
	silent := newFirmware(t, b, mac(2), 7)
	for range 5 {
		silent.ask(silent.message(dhcp.Discover), 10*time.Millisecond)
	}
	var got, quiet muster.BootTrace
	until(t, "the traces are told", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		got, quiet = p.traces[mac(1)], p.traces[mac(2)]
		return len(got.Steps) == 10 && len(quiet.Steps) == 1 && quiet.Steps[0].Count == 5
	})
	var out []string
	for _, s := range got.Steps {
		out = append(out, strings.TrimSpace(fmt.Sprint(s.Via, " ", s.Asked, " ", s.Stage, " ", s.Reason, " ", s.Outcome)))
		if (s.Via == "DHCP") != (len(s.Packet) > 200 && len(s.Answer) >= dhcp.MinSize) {
			t.Errorf("%s %s: %d bytes asked, %d answered", s.Via, s.Asked, len(s.Packet), len(s.Answer))
		}
		for _, secret := range []string{"s3cret", "ECRET", "hidden"} {
			if strings.Contains(fmt.Sprintf("%s %s %+v", s.Packet, s.Answer, s), secret) {
				t.Errorf("a trace holds %s: %+v", secret, s)
			}
		}
	}
	want := []string{"DHCP DISCOVER loader served", "DHCP REQUEST loader served", "TFTP snponly.efi loader served done",
		"DHCP DISCOVER start served", "DHCP REQUEST start served", "HTTP start.ipxe start served done", "HTTP script.ipxe script served done",
		"HTTP kernel file served done", "HTTP initrd file served done", "HTTP another file file not_offered"}
	if !slices.Equal(out, want) {
		t.Errorf("told:\n%s", strings.Join(out, "\n"))
	}
	if s := quiet.Steps[0]; s.Serve || s.Reason != "decommissioned" || s.Record != muster.BootDecommissioned || !strings.Contains(s.Why, "muster boot reactivate") {
		t.Errorf("the silence: %+v", s)
	}
}

// TestTracesAreBounded: whatever comes, no more is remembered than there is
// place for, noise does not push out machines that are known, and a storm
// becomes few rows.
func TestTracesAreBounded(t *testing.T) {
	p := newPlane()
	tr := newTraces("b", p, slog.New(slog.DiscardHandler), &tally{})
	now := time.Unix(1e9, 0)
	src := netip.MustParseAddrPort("10.0.0.1:68")
	msg := make([]byte, 2000)
	at := func(n int) dhcp.MAC { return dhcp.MAC{2, 0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)} }
	note := func(n int, known bool, typ dhcp.MessageType, reason boot.Reason) {
		d := boot.Decision{MAC: at(n), Reason: reason}
		if known {
			d.State = muster.Enrolled
		}
		tr.packet(&boot.Request{MAC: d.MAC, Type: typ}, &d, msg, nil, src, src, 0, now)
	}
	for n := range tracedKnown {
		note(n, true, dhcp.Discover, boot.NoAddress)
	}
	for n := range 20_000 { // made-up MACs
		note(1<<20+n, false, dhcp.Discover, boot.Unknown)
	}
	if len(tr.machines) != tracedKnown+tracedStrange || tr.known.n != tracedKnown || tr.strange.n != tracedStrange {
		t.Fatalf("%d machines are remembered, %d of them known, %d strange", len(tr.machines), tr.known.n, tr.strange.n)
	}
	note(1<<20+19_999, true, dhcp.Discover, boot.NoAddress) // one of them becomes known
	if tr.known.n != tracedKnown || tr.strange.n != tracedStrange-1 || tr.machines[at(0)] != nil {
		t.Fatalf("known %d, strange %d", tr.known.n, tr.strange.n)
	}
	for i := range 100 { // alternating, so that nothing folds
		note(7, true, []dhcp.MessageType{dhcp.Discover, dhcp.Request}[i%2], boot.NoAddress)
	}
	m := tr.machines[at(7)]
	if len(m.steps) != muster.TraceSteps || len(m.steps[0].packet) != muster.TracePacket {
		t.Fatalf("%d steps with %d bytes", len(m.steps), len(m.steps[0].packet))
	}
	if s := m.copy(); s[0].id >= s[len(s)-1].id {
		t.Error("steps are not in their order")
	}

	// One batch a second: a minute of the storm is at most sixty batches.
	rows := 0
	for range 60 {
		batch, _ := tr.take(now)
		rows += len(batch)
		now = now.Add(traceEvery)
		for n := range 2000 {
			note(n+100, true, dhcp.Discover, boot.NoAddress)
		}
	}
	if most := 60 * muster.TraceBatch; rows == 0 || rows > most {
		t.Errorf("%d rows a minute, at most %d", rows, most)
	}
	// A machine that does the same again and again is told every 15 s.
	quiet := newTraces("b", p, slog.New(slog.DiscardHandler), &tally{})
	tr, rows = quiet, 0
	for range 60 {
		note(1, true, dhcp.Discover, boot.NoAddress)
		batch, _ := tr.take(now)
		rows += len(batch)
		now = now.Add(time.Second)
	}
	if rows != 4 {
		t.Errorf("one silent machine is told %d times a minute, not 4", rows)
	}
}

// TestTracesComeBack: what could not be told is told later, as it is then.
func TestTracesComeBack(t *testing.T) {
	p := newPlane()
	tr := newTraces("b", p, slog.New(slog.DiscardHandler), &tally{})
	now := time.Unix(1e9, 0)
	d := boot.Decision{MAC: dhcp.MAC{2, 1}, State: muster.Enrolled, Reason: boot.NoImage}
	q := boot.Request{MAC: d.MAC, Type: dhcp.Discover}
	tr.packet(&q, &d, []byte("one"), nil, netip.AddrPort{}, netip.AddrPort{}, 0, now)
	batch, left := tr.take(now)
	if len(batch) != 1 || left {
		t.Fatalf("%d, %v", len(batch), left)
	}
	tr.again(batch)
	tr.packet(&q, &d, []byte("two"), nil, netip.AddrPort{}, netip.AddrPort{}, 0, now)
	if batch, _ = tr.take(now); len(batch) != 1 || batch[0].Steps[0].Count != 2 || string(batch[0].Steps[0].Packet) != "two" {
		t.Errorf("%+v", batch)
	}
	if batch, left = tr.take(now); len(batch) != 0 || left {
		t.Errorf("told twice: %+v", batch)
	}
}
