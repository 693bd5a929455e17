package explain

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/boot"
	"muster.internal/capture"
	"muster.internal/dhcp"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// TestEveryReasonHasItsAdvice: whatever boot.Decide may give as a reason, an
// operator is told what can be done.
func TestEveryReasonHasItsAdvice(t *testing.T) {
	for _, r := range boot.Reasons() {
		if reasonRows[r.String()] == nil {
			t.Errorf("reason %s has no row", r)
		}
	}
}

// step is something that was served seconds before noon.
func step(ago int, via, asked, stage, outcome string) muster.BootStep {
	at := noon.Add(-time.Duration(ago) * time.Second)
	return muster.BootStep{First: at, At: at, Count: 1, Via: via, Asked: asked, Outcome: outcome,
		BootVerdict: muster.BootVerdict{Serve: true, Reason: "served", Stage: stage, Mode: "enroll", Loader: "snponly.efi", Image: &muster.ImageRef{Name: "img"}}}
}

// TestStages: where a machine is whose every question was answered, and what
// its registration adds.
func TestStages(t *testing.T) {
	lease := []muster.BootStep{step(600, "DHCP", "DISCOVER", "loader", ""), step(599, "DHCP", "REQUEST", "loader", "")}
	after := func(more ...muster.BootStep) []muster.BootStep {
		return append(append([]muster.BootStep(nil), lease...), more...)
	}
	reg := func(s muster.RegistrationState, ago int) *muster.Registration {
		at := noon.Add(-time.Duration(ago) * time.Second)
		return &muster.Registration{ServerUUID: "4c4c4544-0043-5810-8032-b8c04f503533", Serial: "8CX2P53", State: s, LastSeen: at, SurveyedAt: &at}
	}
	loop := []muster.BootStep{}
	for i := range 5 {
		loop = append(loop, step(100-10*i, "DHCP", "REQUEST", "loader", ""), step(99-10*i, "TFTP", "snponly.efi", "loader", "done"))
	}
	var twice, again []muster.BootStep
	for i := range 4 {
		files := []muster.BootStep{step(100-10*i, "HTTP", "kernel", "file", "done"), step(99-10*i, "HTTP", "initrd", "file", "done")}
		if again = append(again, files...); i < 2 {
			twice = append(twice, files...)
		}
	}
	refused := step(30, "HTTP", "script.ipxe", "script", "")
	refused.Serve, refused.Reason = false, "not_staged"
	for name, c := range map[string]struct {
		steps   []muster.BootStep
		machine *muster.Registration
		verdict muster.ExplainVerdict
		cause   string
	}{
		"never":                       {nil, nil, muster.BootNeverSeen, ""},
		"offers are not heard":        {lease[:1], nil, muster.BootStuck, "offer_unheard"},
		"never asks for the loader":   {lease, nil, muster.BootStuck, "loader_unasked"},
		"the transfer breaks off":     {after(step(500, "TFTP", "snponly.efi", "loader", "lost")), nil, muster.BootStuck, "transfer_lost"},
		"the loader says nothing":     {after(step(500, "TFTP", "snponly.efi", "loader", "done")), nil, muster.BootStuck, "loader_silent"},
		"no script is asked for":      {after(step(500, "DHCP", "REQUEST", "start", "")), nil, muster.BootStuck, "script_unasked"},
		"stops after the first stage": {after(step(500, "HTTP", "start.ipxe", "start", "done")), nil, muster.BootStuck, "start_silent"},
		"the kernel is cut off":       {after(step(500, "HTTP", "kernel", "file", "cut")), nil, muster.BootStuck, "transfer_cut"},
		"refused its script":          {after(refused), nil, muster.BootRefused, "not_staged"},
		"is loading":                  {after(step(2, "HTTP", "kernel", "file", "")), nil, muster.BootUnderway, ""},
		"never announces itself":      {after(step(500, "HTTP", "initrd", "file", "done")), nil, muster.BootStuck, "no_announce"},
		"goes round":                  {loop, nil, muster.BootLoop, "loop_loader"},
		"loads its image again":       {again, nil, muster.BootLoop, "loop_file"},
		"has booted twice":            {twice, nil, muster.BootUnderway, ""},
		"waits for approval":          {after(step(500, "HTTP", "initrd", "file", "done")), reg(muster.AwaitingSetup, 400), muster.BootWaiting, "is_awaiting_setup"},
		"is being set up":             {lease, reg(muster.SettingUp, 5), muster.BootInstall, ""},
		"runs":                        {lease, reg(muster.Approved, 5), muster.BootRunning, ""},
		"ran, and is stuck":           {after(step(90, "HTTP", "start.ipxe", "start", "done")), reg(muster.Approved, 4000), muster.BootStuck, "start_silent"},
	} {
		x := Boot(Evidence{Now: noon, Record: muster.BootRecord{MAC: "52:54:00:77:00:01", State: muster.Enrolling}, Policy: muster.DefaultBootPolicy(),
			Machine: c.machine, Traces: []muster.BootTrace{{Booter: "b1", Steps: c.steps}}, Image: func(string) *muster.Image { return nil }})
		if x.Verdict != c.verdict || c.cause != "" && x.Cause != c.cause || x.Summary == "" {
			t.Errorf("%s: %s %s, want %s %s: %s", name, x.Verdict, x.Cause, c.verdict, c.cause, x.Summary)
		}
		if c.verdict == muster.BootStuck && len(x.Advice) == 0 {
			t.Errorf("%s: nothing to do", name)
		}
	}
}

// TestOtherBooterOfOurs: a booter that keeps silent because the machine chose
// the one beside it says nothing about the boot.
func TestOtherBooterOfOurs(t *testing.T) {
	p := &dhcp.Packet{Op: dhcp.BootRequest}
	p.SetMAC(dhcp.MAC{0x52, 0x54, 0, 0x77, 0, 1})
	p.Set(dhcp.OptMessageType, []byte{byte(dhcp.Request)})
	p.Set(dhcp.OptServerID, []byte{10, 77, 0, 3})
	other := step(1, "DHCP", "REQUEST", "loader", "")
	other.Serve, other.Reason, other.Packet = false, boot.OtherServer.String(), p.Append(nil)
	e := Evidence{Now: noon, Record: muster.BootRecord{MAC: "52:54:00:77:00:01"}, Policy: muster.DefaultBootPolicy(), Image: func(string) *muster.Image { return nil },
		Booters: []muster.BooterStatus{{Booter: "b1", Address: "10.77.0.2"}, {Booter: "b2", Address: "10.77.0.3"}},
		Traces: []muster.BootTrace{{Booter: "b1", Steps: []muster.BootStep{other}},
			{Booter: "b2", Steps: []muster.BootStep{step(2, "DHCP", "REQUEST", "loader", "")}}}}
	if x := Boot(e); x.Verdict != muster.BootUnderway {
		t.Errorf("%s: %s", x.Verdict, x.Summary)
	}
	e.Booters[1].Address = "10.77.0.4" // now it is a stranger's
	if x := Boot(e); x.Verdict != muster.BootElsewhere {
		t.Errorf("%s: %s", x.Verdict, x.Summary)
	}
}

// TestTwoServers: a second DHCP server on the wire is pointed out.
func TestTwoServers(t *testing.T) {
	f := capture.File{}
	for i, server := range []byte{1, 2} {
		p := &dhcp.Packet{Op: dhcp.BootReply, YIAddr: netip.AddrFrom4([4]byte{10, 77, 0, 9})}
		p.SetMAC(dhcp.MAC{2, 0, 0, 0, 0, 1})
		p.Set(dhcp.OptMessageType, []byte{byte(dhcp.Offer)})
		p.Set(dhcp.OptServerID, []byte{10, 77, 0, server})
		f.Frames = append(f.Frames, capture.Frame{Number: i + 1, At: noon, Proto: capture.UDP, Src: netip.MustParseAddrPort("10.77.0.1:67"),
			Dst: netip.MustParseAddrPort("255.255.255.255:68"), Payload: p.Append(nil)})
	}
	f.Frames = append(f.Frames, capture.Frame{Number: 3, At: noon, Proto: capture.UDP, Src: netip.MustParseAddrPort("10.77.0.1:67"),
		Dst: netip.MustParseAddrPort("255.255.255.255:68"), Payload: []byte("nonsense")})
	w := ReadWire(f, func(string) Site { return Site{Now: noon} })
	if len(w.Servers) != 2 || len(w.Warnings) != 1 || len(w.Faults) != 1 || len(w.Attempts) != 1 {
		t.Errorf("%+v", w)
	}
}

// FuzzWire: whatever a capture holds, it is read without a panic.
func FuzzWire(f *testing.F) {
	files, _ := filepath.Glob("../dhcp/testdata/pcap/*.pcap")
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte("\x0a\x0d\x0d\x0a\x1c\x00\x00\x00\x4d\x3c\x2b\x1a\x01\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := capture.Read(bytes.NewReader(b))
		if err != nil {
			return
		}
		w := ReadWire(c, func(string) Site { return Site{Now: noon, Policy: muster.DefaultBootPolicy()} })
		ReplayWire(w)
	})
}
