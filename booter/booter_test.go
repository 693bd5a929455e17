package booter

import (
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/bus"
	"muster.internal/dhcp"
)

// TestFirstBoot is a new machine's way through the boot server: unheard of,
// silence, reported, admitted, then DHCP, TFTP and HTTP in the order in which
// firmware and iPXE use them.
func TestFirstBoot(t *testing.T) {
	p := newPlane()
	ref := p.addImage("enroll-1", "the kernel", "the initrd")
	p.do(func() {
		p.policy.EnrollmentPI, p.policy.Networks = ref, adminNetwork()
		p.admit = func(s muster.Sighting, r muster.BootRecord) muster.BootRecord {
			if r.State == muster.Discovered {
				r.State, r.Network, r.Address = muster.Enrolling, "admin", "10.77.0.101"
			}
			return r
		}
	})
	b, _ := run(t, loopback(t, p))
	staged(t, b, ref)
	f := newFirmware(t, b, mac(1), 7)
	ack := f.lease()
	if string(ack.Get(dhcp.OptBootFile)) != "52-54-00-77-00-01/snponly.efi" || ack.YIAddr.String() != "10.77.0.101" ||
		string(ack.Get(dhcp.OptVendorInfo)) != "\x06\x01\x08\xff" || string(ack.Get(dhcp.OptRelayInfo)) != "\x01\x03br1\x13\x00" {
		t.Fatalf("%+v", ack)
	}
	if got, err := fetch(t, b, string(ack.File), 1468, 4); err != nil || len(got) != 170001 {
		t.Fatalf("loader: %d bytes, %v", len(got), err)
	}
	f.ipxe = true
	url := string(f.lease().File)
	start := get(t, url, 200)
	script := strings.Replace(url, "start.ipxe", "script.ipxe", 1)
	if !strings.Contains(start, script+"?uuid=${uuid}&serial=${serial:uristring}") {
		t.Fatalf("first stage:\n%s", start)
	}
	body := get(t, script+"?uuid=00112233-4455-6677-8899-aabbccddeea1&serial=SN%201&product=x", 200)
	for _, want := range []string{"muster.mac=" + mac(1), "muster.ip=10.77.0.101/16", "muster.gw=10.77.0.254", "muster.mode=enroll", "muster.bus=guest:s3cret:127.0.0.1:"} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in\n%s", want, body)
		}
	}
	var files []string
	for _, w := range strings.Fields(body) {
		if strings.Contains(w, "/file/") {
			files = append(files, get(t, w, 200))
		}
	}
	if strings.Join(files, "|") != "the kernel|the initrd" {
		t.Errorf("files %q", files)
	}
	until(t, "the service tag is reported", func() bool {
		for _, s := range p.sightings() {
			if s.ServiceTag == "SN 1" && s.UUID == "00112233-4455-6677-8899-aabbccddeea1" && s.Arch == 7 && s.CircuitID == "br1" {
				return true
			}
		}
		return false
	})
	if got := b.seenMACs("00112233-4455-6677-8899-aabbccddeea1"); len(got) != 1 || got[0] != mac(1) {
		t.Errorf("MACs of the machine: %v", got)
	}
	if p.most > 1 {
		t.Errorf("%d reports at the same time", p.most)
	}
}

func get(t *testing.T, url string, want int) string {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != want {
		t.Fatalf("%s: %s, %v, %s", url, r.Status, err, b)
	}
	return string(b)
}

// TestProbe: a machine whose service tag is wanted gets the first stage, tells
// the tag, and only then is admitted.
func TestProbe(t *testing.T) {
	p := newPlane()
	ref := p.addImage("enroll-1", "the kernel", "the initrd")
	p.do(func() {
		p.policy.EnrollmentPI, p.policy.Networks = ref, adminNetwork()
		p.admit = func(s muster.Sighting, r muster.BootRecord) muster.BootRecord {
			switch {
			case r.State != muster.Discovered:
			case s.ServiceTag == "RIGHT":
				r.State, r.Probe = muster.Enrolling, false
			case s.ServiceTag != "":
				r.Probe, r.Address, r.Note = false, "", "service tag "+s.ServiceTag+" is not on the allowlist"
			default:
				r.Probe, r.Network, r.Address = true, "admin", "10.77.0.101"
			}
			return r
		}
	})
	b, _ := run(t, loopback(t, p))
	staged(t, b, ref)
	for n, tag := range []string{"RIGHT", "WRONG"} {
		f := newFirmware(t, b, mac(n), 0)
		f.ipxe = true
		url := string(f.lease().File)
		get(t, url, 200)
		script := strings.Replace(url, "start", "script", 1) + "?serial=" + tag
		if body := get(t, script, 404); !strings.Contains(body, "service tag") {
			t.Errorf("a probed machine is told %q", body)
		}
		if tag == "RIGHT" {
			until(t, "the machine is admitted", func() bool {
				r, err := http.Get(script)
				if err != nil {
					t.Fatal(err)
				}
				r.Body.Close()
				return r.StatusCode == 200
			})
		} else {
			until(t, "the machine is turned away", func() bool {
				r, _ := b.Directory().Record(mac(n))
				return r.Note != ""
			})
			get(t, url, 404)
			if a := f.ask(f.message(dhcp.Discover), 50*time.Millisecond); a != nil {
				t.Errorf("turned away, and answered: %+v", a)
			}
		}
	}
}

// TestControlPlaneAway: known machines boot while the control plane is gone,
// even after a restart of the booter; unknown ones get silence, are kept, and
// are reported once it is back.
func TestControlPlaneAway(t *testing.T) {
	p := newPlane()
	ref := p.addImage("node-1", "the kernel", "the initrd")
	p.do(func() { p.policy.Networks = adminNetwork() })
	p.set(enrolled(1, ref))
	cfg := loopback(t, p)
	b, stop := run(t, cfg)
	staged(t, b, ref)
	stop()

	p.do(func() { p.down = true })
	log := &lines{t: t}
	cfg.Log = slog.New(slog.NewTextHandler(log, nil))
	b, stop = run(t, cfg)
	staged(t, b, ref) // from disk, checked
	f := newFirmware(t, b, mac(1), 7)
	f.ipxe = true
	url := strings.Replace(string(f.lease().File), "start", "script", 1)
	if body := get(t, url, 200); !strings.Contains(body, "muster.mode=node") {
		t.Errorf("%s", body)
	}
	stranger := newFirmware(t, b, mac(2), 7)
	if a := stranger.ask(stranger.message(dhcp.Discover), 50*time.Millisecond); a != nil {
		t.Errorf("a stranger was answered: %+v", a)
	}
	until(t, "the silence is logged", func() bool {
		return strings.Contains(log.String(), "mac="+mac(2)) && strings.Contains(log.String(), "reason=unknown")
	})
	if b.Directory().Live() || len(p.sightings()) != 0 {
		t.Error("the control plane was meant to be away")
	}
	p.do(func() { p.down = false })
	until(t, "the stranger is reported after all", func() bool {
		for _, s := range p.sightings() {
			if s.MAC == mac(2) {
				return true
			}
		}
		return false
	})
	until(t, "the directory is live again", func() bool { return b.Directory().Live() })
	stop()
	if p.blobGets != 2 {
		t.Errorf("%d blobs were fetched, though two were enough for both runs", p.blobGets)
	}
}

// TestCatchUp: what changed while the booter was off counts, not what its cache
// remembers; and who asks meanwhile is answered then.
func TestCatchUp(t *testing.T) {
	p := newPlane()
	ref := p.addImage("node-1", "the kernel", "the initrd")
	p.do(func() { p.policy.Networks = adminNetwork() })
	p.set(enrolled(1, ref))
	p.set(enrolled(2, ref))
	cfg := loopback(t, p)
	b, stop := run(t, cfg)
	staged(t, b, ref)
	stop()

	gone := enrolled(1, ref)
	gone.State = muster.BootDecommissioned
	p.set(gone)
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	p.do(func() { p.hold = hold })
	b, _ = run(t, cfg)
	t.Cleanup(release) // first of all: the booter's end waits for the feed
	f, other := newFirmware(t, b, mac(1), 7), newFirmware(t, b, mac(2), 7)
	for range 6 { // as firmware does; a cache would be ready by then
		if a := f.ask(f.message(dhcp.Discover), 50*time.Millisecond); a != nil {
			t.Fatalf("a decommissioned machine is served from the cache: %+v", a)
		}
	}
	p.do(func() { p.hold = nil })
	release()
	other.lease()
	if a := f.ask(f.message(dhcp.Discover), 50*time.Millisecond); a != nil {
		t.Errorf("a decommissioned machine is served: %+v", a)
	}
}

// A cache that cannot be read costs nothing but the machines it knew.
func TestDamagedCache(t *testing.T) {
	p := newPlane()
	cfg := loopback(t, p)
	if err := os.WriteFile(filepath.Join(cfg.Dir, "directory.json"), []byte(`{"records":[{`), 0o600); err != nil {
		t.Fatal(err)
	}
	b, _ := run(t, cfg)
	until(t, "the control plane has spoken", func() bool { return b.Directory().Live() })
}

// TestStaging: only what is whole is served; what is damaged is fetched anew.
func TestStaging(t *testing.T) {
	p := newPlane()
	ref := p.addImage("node-1", "the kernel", "the initrd")
	p.do(func() { p.policy.Networks, p.truncate = adminNetwork(), true })
	p.set(enrolled(1, ref))
	cfg := loopback(t, p)
	b, stop := run(t, cfg)
	until(t, "the failure is reported", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.status.Errors) == 1 && strings.Contains(p.status.Errors[0], "node-1")
	})
	f := newFirmware(t, b, mac(1), 7)
	if a := f.ask(f.message(dhcp.Discover), 50*time.Millisecond); a != nil {
		t.Fatal("a machine is sent to an image that is not here")
	}
	p.do(func() { p.truncate = false })
	staged(t, b, ref)
	until(t, "what is staged is reported", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.status.Staged) == 1 && p.status.Staged[0] == ref.Digest && len(p.status.Errors) == 0
	})
	stop()

	var blob string
	filepath.WalkDir(filepath.Join(cfg.Dir, "blobs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			blob = path
		}
		return err
	})
	if err := os.WriteFile(blob, []byte("damaged"), 0o644); err != nil {
		t.Fatal(err)
	}
	p.do(func() { p.blobGets = 0 })
	b, _ = run(t, cfg)
	staged(t, b, ref)
	if raw, err := os.ReadFile(blob); err != nil || string(raw) == "damaged" || p.blobGets != 1 {
		t.Errorf("%q, %v, %d fetched", raw, err, p.blobGets)
	}
}

func TestListenRefuses(t *testing.T) {
	p := newPlane()
	for name, f := range map[string]func(*Config){
		"no name":         func(c *Config) { c.Name = "" },
		"no control":      func(c *Config) { c.Control = nil },
		"bus password":    func(c *Config) { c.BusPassword = "a:b" },
		"no address":      func(c *Config) { c.Address, c.Interface = netip.Addr{}, "no-such-link" },
		"foreign address": func(c *Config) { c.Address = parseAddr("192.0.2.1") },
	} {
		cfg := loopback(t, p)
		f(&cfg)
		if b, err := Listen(cfg); err == nil {
			b.Close()
			t.Errorf("%s was accepted", name)
		}
	}
	cfg := loopback(t, p)
	cfg.Ports = Ports{-1, -1, 0, -1, -1}
	b, err := Listen(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if got := b.Ports(); got.DHCP != -1 || got.TFTP != -1 || got.HTTP <= 0 || got.Bus != -1 {
		t.Errorf("%+v", got)
	}
}

// A feed that goes back makes the booter read everything again.
func TestFeedGoesBack(t *testing.T) {
	p := newPlane()
	p.do(func() { p.seq = 100 })
	p.set(enrolled(1, nil))
	b, _ := run(t, loopback(t, p))
	until(t, "the record is known", func() bool { _, ok := b.Directory().Record(mac(1)); return ok })
	p.do(func() { p.records, p.seq = map[string]muster.BootRecord{}, 5 })
	p.set(enrolled(2, nil))
	until(t, "the directory follows", func() bool {
		_, one := b.Directory().Record(mac(1))
		_, two := b.Directory().Record(mac(2))
		return !one && two
	})
}

// Sightings are bounded, whatever is made up on the wire.
func TestStrangersAreBounded(t *testing.T) {
	tl := &tally{}
	s := newSightings("b", newPlane(), newDirectory(), slog.New(slog.DiscardHandler), tl)
	now := time.Unix(1795000000, 0)
	for n := range sightStrange + 1000 {
		m, _ := dhcp.ParseMAC(mac(n))
		s.mu.Lock()
		if e := s.entry(m, false, now); e != nil && !e.queued {
			s.due(m, e)
		}
		s.mu.Unlock()
	}
	if len(s.seen) != sightStrange || len(s.queue) != sightStrange || tl.snapshot()["sightings_dropped"] != 1000 {
		t.Errorf("%d seen, %d queued, %v", len(s.seen), len(s.queue), tl.snapshot())
	}
	// Those who have been told make room after a while.
	for len(s.queue) > 0 {
		macs, _ := s.take()
		s.done(macs, nil)
	}
	m, _ := dhcp.ParseMAC("00:00:00:00:00:01")
	if s.entry(m, false, now.Add(time.Hour)) == nil || len(s.seen) != 1 {
		t.Errorf("%d seen", len(s.seen))
	}
}

func TestSilencesAreRateLimited(t *testing.T) {
	log := &lines{t: t}
	tl := &tally{}
	s := newSilences(slog.New(slog.NewTextHandler(log, nil)), tl)
	now := time.Unix(1795000000, 0)
	d := decision(mac(1))
	for range 100 {
		s.note(0, &d, now)
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("%d lines for one silence", n)
	}
	s.note(0, &d, now.Add(silenceEvery))
	for n := range 1000 {
		d := decision(mac(n + 2))
		s.note(0, &d, now.Add(silenceEvery))
	}
	if n := strings.Count(log.String(), "\n"); n != 1+silenceBurst {
		t.Errorf("%d lines for 1000 made-up machines at once", n)
	}
	if got := tl.snapshot(); got["dhcp_silent_unknown"] != 1101 || got["logs_suppressed"] != 1001-silenceBurst {
		t.Errorf("%v", got)
	}
}

// TestLastWord: a booter that was told to stop says that it does, and that it
// holds no machine's connection any more.
func TestLastWord(t *testing.T) {
	p := newPlane()
	r := enrolled(1, nil)
	r.State, r.Address = muster.Enrolling, "127.0.0.1"
	p.set(r)
	cfg := loopback(t, p)
	cfg.Enroll = newFakeControl()
	b, stop := run(t, cfg)
	until(t, "the record is known, and a first report made", func() bool {
		_, ok := b.Directory().Record(r.MAC)
		return ok && p.lastStatus().Run != ""
	})
	if first := p.lastStatus(); first.Stopped {
		t.Errorf("it says that it stops as it starts: %+v", first)
	}
	conn, err := bus.Dial(t.Context(), bus.Options{Addr: fmt.Sprintf("127.0.0.1:%d", b.Ports().Bus), User: cfg.BusUser, Password: cfg.BusPassword, UUID: uuidA, MAC: r.MAC})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	until(t, "it holds the machine's session", func() bool { return len(b.status().Sessions) == 1 })
	stop()
	last := p.lastStatus()
	if !last.Stopped || len(last.Sessions) != 0 || last.Run == "" || last.Run != b.bus.run || last.Booter != cfg.Name {
		t.Errorf("its last word: %+v", last)
	}
	// It is no failure that it cannot be told.
	b2, stop := run(t, loopback(t, p))
	until(t, "the next run reports", func() bool { return p.lastStatus().Run == b2.bus.run })
	p.do(func() { p.down = true })
	stop()
	if last := p.lastStatus(); last.Stopped {
		t.Errorf("told although it could not be: %+v", last)
	}
}

func (p *plane) lastStatus() muster.BooterStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}
