package main

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	muster "muster.internal"
	"muster.internal/boot"
	"muster.internal/capture"
	"muster.internal/dhcp"
	"muster.internal/explain"
)

const captures = "../../dhcp/testdata/pcap/"

// captured are the DHCP requests of a capture of real firmware.
func captured(t *testing.T, name string) (ps [][]byte) {
	t.Helper()
	f, err := os.Open(captures + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, err := capture.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range c.Frames {
		if f.Proto == capture.UDP && f.Dst.Port() == dhcp.ServerPort && f.Payload[0] == dhcp.BootRequest {
			ps = append(ps, f.Payload)
		}
	}
	return ps
}

// A silence is one case of docs/explain.md.
type silence struct {
	title  string
	pcap   string
	packet int                      // of the capture's requests, the one heard
	record muster.BootRecord        // State empty: there is none
	policy func(*muster.BootPolicy) // changes what the policy says
	change func(s *explain.Site)    // and what the booter has
	after  func(e *explain.Evidence)
	edit   func(p *dhcp.Packet) // what this firmware says otherwise
	loaded bool                 // it was answered, and got all of its image
}

const (
	biosCard = "gold-a-bios-ipxe2019-virtio.pcap"
	uefiCard = "gold-b-ovmf-pxe-snponly2025.pcap"
)

func silences() []silence {
	admitted := muster.BootRecord{State: muster.Enrolling, Mode: muster.NormalMode, Network: "rack1", Address: "10.77.0.101"}
	with := func(f func(r *muster.BootRecord)) muster.BootRecord { r := admitted; f(&r); return r }
	unadmitted := func(note string) muster.BootRecord {
		return muster.BootRecord{State: muster.Discovered, Mode: muster.NormalMode, Note: note}
	}
	return []silence{
		{title: "The control plane has no record: the booter's reports do not arrive", pcap: uefiCard},
		{title: "The boot policy lets nobody in by itself", pcap: uefiCard, record: unadmitted("the boot policy does not take in machines by itself (auto_enroll is off)"),
			policy: func(p *muster.BootPolicy) { p.AutoEnroll = false }},
		{title: "It is not on the allowlist", pcap: biosCard, record: unadmitted("the allowlist has neither its service tag nor its MAC prefix")},
		{title: "Its network is full", pcap: uefiCard, record: unadmitted("its network has no free address left")},
		{title: "It came in on a network that the policy does not know", pcap: "gold-f-relay-opt82-serverside.pcap", record: unadmitted("it came in on none of the boot policy's networks")},
		{title: "It is decommissioned", pcap: uefiCard, record: with(func(r *muster.BootRecord) { r.State = muster.BootDecommissioned })},
		{title: "No image is set", pcap: uefiCard, record: admitted, policy: func(p *muster.BootPolicy) { p.EnrollmentPI = nil }},
		{title: "The booter has not staged the image", pcap: uefiCard, record: admitted, change: func(s *explain.Site) { s.Image = nil },
			after: func(e *explain.Evidence) {
				e.Booters[0].Staged, e.Booters[0].Errors = nil, []string{"staging debian-12-3: no space left on device"}
			}},
		{title: "The image has nothing for its architecture", pcap: "gold-d-aavmf-pxe-ipxe2025.pcap", record: admitted},
		{title: "Its kernel arguments are never served", pcap: biosCard, record: with(func(r *muster.BootRecord) { r.KernelArgs = []string{"quiet", "destroy_zpools=true"} })},
		{title: "It has no address", pcap: uefiCard, record: with(func(r *muster.BootRecord) { r.Address = "" })},
		{title: "Its network was taken out of the policy", pcap: uefiCard, record: admitted, policy: func(p *muster.BootPolicy) { p.Networks = nil }},
		{title: "It takes another DHCP server's offer", pcap: uefiCard, packet: 1, record: admitted},
		{title: "It does not ask for something to boot", pcap: biosCard, packet: 2, record: admitted},
		{title: "Its firmware is of a kind that nothing is served to", pcap: uefiCard, record: admitted, edit: func(p *dhcp.Packet) { p.Set(dhcp.OptArch, []byte{0, 6}) }},
		{title: "The booter's host lacks the boot loader", pcap: uefiCard, record: admitted, change: func(s *explain.Site) {
			s.NoLoader = map[string]bool{}
			for _, l := range boot.Loaders() {
				s.NoLoader[l] = true
			}
		}},
		{title: "It loaded its image, and strict mode refuses what it announces", pcap: uefiCard, record: admitted, loaded: true, policy: func(p *muster.BootPolicy) { p.AutoEnroll = false }},
		{title: "It loaded its image, and waits because its evidence is another machine's", pcap: uefiCard, record: admitted, loaded: true, after: func(e *explain.Evidence) {
			e.Waiting = []muster.Machine{{ID: "019add0c-7b00-7000-8000-000000000066", State: muster.MachineConflict, Incumbent: uuidWeb1, Reason: "same UUID, other serial number and other disks",
				Verbs: []string{"separate", "accept", "forget"}, FirstSeen: noon.Add(-4 * time.Minute), LastSeen: noon.Add(-20 * time.Second)}}
		}},
		{title: "It was expunged", pcap: uefiCard, record: with(func(r *muster.BootRecord) { r.State, r.ServerUUID = muster.BootDecommissioned, uuidWeb1 }),
			after: func(e *explain.Evidence) {
				e.Tombstone = func(string) *muster.Expunged {
					return &muster.Expunged{At: noon.Add(-50 * time.Hour), By: "operator:admin", Reason: "stolen from rack 4"}
				}
			}},
	}
}

// explained makes one case true and explains it: a packet as it was captured,
// put through the decision that gates the booter.
func (c silence) explained(t *testing.T) muster.BootExplanation {
	t.Helper()
	var p dhcp.Packet
	if err := p.Parse(slices.Clone(captured(t, c.pcap)[c.packet])); err != nil {
		t.Fatal(err)
	}
	if c.edit != nil {
		c.edit(&p)
	}
	raw := p.Append(nil)
	m, _ := p.MAC()
	image := muster.Image{Name: "debian-12-3", Digest: "sha256:0123456789abcdef", Kind: muster.LinuxImage, Variants: []muster.ImageVariant{{Arch: "amd64"}}}
	pol := muster.DefaultBootPolicy()
	pol.EnrollmentPI = &muster.ImageRef{Name: image.Name, Digest: image.Digest}
	pol.Networks = []muster.AdminNetwork{{Name: "rack1", Prefix: "10.77.0.0/24", Start: "10.77.0.101", End: "10.77.0.200"}}
	if c.policy != nil {
		c.policy(&pol)
	}
	rec := c.record
	rec.MAC = m.String()
	seen, own := noon.Add(-5*time.Second), "10.77.0.2"
	e := explain.Evidence{Now: noon, Policy: pol, Head: 40, Image: func(string) *muster.Image { return &image },
		Booters: []muster.BooterStatus{{Booter: "rack1", Address: own, Seq: 40, Staged: []string{image.Digest}, LastSeen: &seen}}}
	site := explain.Site{Now: noon, Policy: pol, Image: e.Image, Servers: []netip.Addr{netip.MustParseAddr(own)}}
	if rec.State == "" {
		rec.State, rec.Synthesized = muster.Discovered, true
	} else {
		site.Record = &rec
	}
	if c.change != nil {
		c.change(&site)
	}
	if c.after != nil {
		c.after(&e)
	}
	d, ok := site.Decide(&p)
	if !ok || d.Serve != c.loaded {
		t.Fatalf("%s: %+v", c.title, d.Verdict())
	}
	step := muster.BootStep{First: noon.Add(-4 * time.Minute), At: noon.Add(-3 * time.Second), Count: 11, Via: "DHCP", Asked: p.Type().String(),
		Source: "0.0.0.0:68", Interface: "eth1", Packet: raw, BootVerdict: d.Verdict()}
	steps := []muster.BootStep{step}
	if c.loaded {
		steps = c.wholeBoot(step, image)
	}
	e.Record, e.Traces = rec, []muster.BootTrace{{Booter: "rack1", MAC: rec.MAC, At: step.At, Steps: steps}}
	return explain.Boot(e)
}

// wholeBoot is a boot whose first question was ask, and which got everything.
func (c silence) wholeBoot(ask muster.BootStep, image muster.Image) []muster.BootStep {
	ask.First, ask.At, ask.Count = noon.Add(-6*time.Minute), noon.Add(-6*time.Minute), 1
	steps := []muster.BootStep{ask}
	for i, name := range []string{"vmlinuz", "initrd"} {
		at := noon.Add(-5*time.Minute + time.Duration(i)*time.Second)
		steps = append(steps, muster.BootStep{First: at, At: at, Count: 1, Via: "HTTP", Asked: name, Outcome: "done",
			BootVerdict: muster.BootVerdict{Serve: true, Stage: boot.File.String(), Mode: boot.Enroll.String(), Image: &muster.ImageRef{Name: image.Name, Digest: image.Digest}}})
	}
	return steps
}

// TestExplainDocs writes docs/explain.md: what the command says of silences of
// every kind. Every command that it advises is one that there is.
func TestExplainDocs(t *testing.T) {
	const path = "../../docs/explain.md"
	var b bytes.Buffer
	b.WriteString("# Why does this machine not boot?\n\nWhat `muster boot explain MAC` says of each kind of silence. Written by a test, from packets\n" +
		"that real firmware sent and the very decision that gates the booter: `make generate`.\n")
	verdicts := map[string]bool{}
	for _, c := range silences() {
		x := c.explained(t)
		verdicts[string(x.Verdict)+" "+x.Cause] = true
		var out bytes.Buffer
		(&app{env: env{now: func() time.Time { return noon }}}).drawExplanation(&out, x)
		fmt.Fprintf(&b, "\n## %s\n\n```text\n%s```\n", c.title, out.String())
		for _, line := range strings.Split(out.String(), "\n") {
			if len([]rune(line)) > 80 && !strings.HasPrefix(line, "      ") {
				t.Errorf("%s: wider than 80 columns: %q", c.title, line)
			}
		}
		for _, v := range x.Advice {
			realCommand(t, v.Command)
		}
	}
	if len(verdicts) < 14 {
		t.Errorf("only %d kinds of silence: %v", len(verdicts), sortedKeys(verdicts))
	}
	compare(t, path, b.String())
}

// realCommand fails for a muster command that this program does not take.
func realCommand(t *testing.T, command string) {
	t.Helper()
	words := strings.Fields(strings.ReplaceAll(command, "'", ""))
	if len(words) == 0 || words[0] != "muster" {
		return
	}
	root := (&app{env: env{getenv: func(string) string { return "" }}}).root()
	c, rest, err := root.Find(words[1:])
	if err != nil || c == root || c.HasSubCommands() {
		t.Errorf("%q is no command: %v", command, err)
		return
	}
	if err := c.ParseFlags(rest); err != nil {
		t.Errorf("%q: %v", command, err)
	}
}

func compare(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is stale: make generate", path)
	}
}

// TestCapturesDocs: what --pcap says of each capture that there is.
func TestCapturesDocs(t *testing.T) {
	files, err := filepath.Glob(captures + "*.pcap")
	if err != nil || len(files) < 7 {
		t.Fatalf("%d captures, %v", len(files), err)
	}
	for _, f := range files {
		var out, errs bytes.Buffer
		e := env{stdout: &out, stderr: &errs, getenv: func(string) string { return "" }, now: func() time.Time { return noon }, abs: func(p string) string { return p }}
		if code := run(t.Context(), e, []string{"boot", "explain", "--pcap", f, "--offline"}); code != 0 {
			t.Fatalf("%s: exit %d, %s", f, code, errs.String())
		}
		compare(t, "testdata/wire/"+strings.TrimSuffix(filepath.Base(f), ".pcap")+".txt", out.String())
	}
}

// TestIncompleteCaptures: of a capture that is cut off or damaged everything
// that can be read is shown, and the exit code says that it was not all.
func TestIncompleteCaptures(t *testing.T) {
	whole, err := os.ReadFile(captures + uefiCard)
	if err != nil {
		t.Fatal(err)
	}
	damaged := slices.Clone(whole)
	damaged[24+16+14] = 0x41 // the first frame's IP header is too short
	short := slices.Clone(whole)
	short[24+12]++ // there was more of the first frame
	for name, c := range map[string]struct {
		file []byte
		says string
	}{
		"whole":                    {whole, ""},
		"cut in the last frame":    {whole[:len(whole)-100], "after frame 7 the file breaks off: its end is missing"},
		"cut behind a header":      {whole[:24+16], "after frame 0 the file breaks off"},
		"a header that is damaged": {damaged, "the headers of 1 frames are damaged"},
		"captured in part":         {short, "of 1 frames the file holds the beginning alone"},
	} {
		for _, command := range []string{"explain", "replay"} {
			for _, format := range []string{"table", "json"} {
				var out, errs bytes.Buffer
				e := env{stdin: bytes.NewReader(c.file), stdout: &out, stderr: &errs, getenv: func(string) string { return "" }, now: func() time.Time { return noon }}
				code := run(t.Context(), e, []string{"boot", command, "--pcap", "-", "--offline", "--output", format})
				if want := map[bool]int{true: exitOK, false: exitFailed}[c.says == ""]; code != want || !strings.Contains(errs.String(), c.says) || out.Len() == 0 && !strings.Contains(errs.String(), "no request is stored") {
					t.Errorf("%s, %s, %s: exit code %d, want %d\n%s%s", name, command, format, code, want, out.String(), errs.String())
				}
			}
		}
	}
}
