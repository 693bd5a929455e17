package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"muster.internal/booter"
	"muster.internal/bus"
	"muster.internal/dhcp"
	"muster.internal/setup"

	muster "muster.internal"
)

// waits holds announcements back until it is let go.
type waits struct {
	muster.ForBooter
	goOn <-chan struct{}
}

func (w waits) Announce(ctx context.Context, a muster.Announcement) (muster.Announced, error) {
	select {
	case <-w.goOn:
	case <-ctx.Done():
		return muster.Announced{}, ctx.Err()
	}
	return w.ForBooter.Announce(ctx, a)
}

// second runs another booter of the installation, as another host would, and
// returns it with a wire to it.
func (in *installation) second() (*booter.Booter, *wire) {
	in.t.Helper()
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(in.d.cfg.Dir, "booter", name))
		if err != nil {
			in.t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
	keyed := func(scope muster.Scope) muster.ForBooter {
		c, err := in.d.client(read(string(scope) + ".key"))
		if err != nil {
			in.t.Fatal(err)
		}
		in.t.Cleanup(c.Close)
		return c
	}
	ipxe, err := loaderDir(in.d.cfg.Dir)
	if err != nil {
		in.t.Fatal(err)
	}
	b, err := booter.Listen(booter.Config{Name: "dev-2", Control: keyed(muster.ScopeBooter), Enroll: keyed(muster.ScopeURenroll), Dir: in.t.TempDir(),
		IPXE: ipxe, Address: in.d.host(3), BusUser: "dev", BusPassword: read("bus.password"), Log: in.d.cfg.Log.With("booter", "dev-2")})
	if err != nil {
		in.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	in.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			in.t.Errorf("the second booter ended with: %v", err)
		}
	})
	p := b.Ports()
	return b, &wire{relay: in.d.host(2), circuit: "sim", hurry: 20, http: &http.Client{Timeout: time.Minute}, say: func(string) {},
		dhcp: netip.AddrPortFrom(in.d.host(3), uint16(p.DHCP)), tftp: netip.AddrPortFrom(in.d.host(3), uint16(p.TFTP))}
}

// asks is what a machine's firmware, and iPXE, say by DHCP.
func asks(m dhcp.MAC) (all []*dhcp.Packet) {
	for _, t := range []dhcp.MessageType{dhcp.Discover, dhcp.Request} {
		for _, ipxe := range []bool{false, true} {
			p := &dhcp.Packet{Op: dhcp.BootRequest, XID: uint32(len(all) + 1)}
			p.SetMAC(m)
			p.Set(dhcp.OptMessageType, []byte{byte(t)})
			p.Set(dhcp.OptClassID, []byte("PXEClient:Arch:00007:UNDI:003016"))
			p.Set(dhcp.OptArch, []byte{0, 7})
			if ipxe {
				p.Set(dhcp.OptUserClass, []byte("iPXE"))
			}
			all = append(all, p)
		}
	}
	return all
}

// answersTo is the answers to them, with the booter's own address and ports left
// out: its server identifier and where its files are.
func answersTo(ctx context.Context, w *wire, m dhcp.MAC) (all []string) {
	for _, p := range asks(m) {
		raw, err := w.DHCP(ctx, p.Append(nil), 20*time.Second)
		if err != nil {
			all = append(all, err.Error())
			continue
		}
		own := w.dhcp.Addr()
		four := own.As4()
		raw = bytes.ReplaceAll(raw, four[:], []byte("SRVR"))
		var a dhcp.Packet
		if err := a.Parse(raw); err != nil {
			all = append(all, err.Error())
			continue
		}
		file := string(a.Get(dhcp.OptBootFile))
		if _, rest, ok := strings.Cut(file, "/boot/"); ok {
			file = "URL/boot/" + rest
		}
		s := fmt.Sprintf("%v your %v from %v flags %x file %s\n", a.Type(), a.YIAddr, a.SIAddr, a.Flags, file)
		for _, o := range a.Options {
			if o.Code == dhcp.OptBootFile {
				continue
			}
			s += fmt.Sprintf("  %d %q\n", o.Code, bytes.ReplaceAll(o.Value, []byte(own.String()), []byte("SERVER")))
		}
		all = append(all, s)
	}
	return all
}

// TestTwoBootersOnOneSegment: they answer a machine alike, before its setup and
// after it. The machine has a session with each, as after a power cut that the
// one booter has not noticed yet; its setup is sent once, to the later.
func TestTwoBootersOnOneSegment(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	letGo := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(letGo)
	in := start(t, t.TempDir(), 118, DevConfig{Machines: 1, Between: func(f muster.ForBooter) muster.ForBooter { return waits{f, goOn} }})
	m := in.d.machines[0]
	uuid := m.hw.UUID
	nic, err := dhcp.ParseMAC(m.hw.MACs[0])
	if err != nil {
		t.Fatal(err)
	}
	b2, w2 := in.second()
	alike := func(when string) {
		t.Helper()
		var one, two []string
		in.until("both booters answer alike "+when, func() bool {
			one, two = answersTo(t.Context(), m.wire, nic), answersTo(t.Context(), w2, nic)
			return slices.Equal(one, two) && strings.HasPrefix(one[0], "OFFER")
		})
		if len(one) != 4 || !strings.HasPrefix(one[2], "ACK") || !strings.Contains(one[1], "/start.ipxe") {
			t.Errorf("%s: %s", when, one)
		}
	}
	in.until("the machine has booted", func() bool { return in.count(m.hw.Name, "announces itself") > 0 })
	alike("before the setup")

	// The earlier session, with the second booter, of a boot that was cut off.
	rec, ok := b2.Directory().Record(nic.String())
	if !ok {
		t.Fatal("the second booter does not know the machine")
	}
	var surveys, setups atomic.Int32
	old := &bus.Agent{
		Options: bus.Options{Addr: netip.AddrPortFrom(in.d.host(3), uint16(b2.Ports().Bus)).String(), User: "dev", Password: b2Password(in),
			UUID: uuid, MAC: nic.String(), LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(rec.Address), 0))},
		Log: slog.New(slog.DiscardHandler),
		Sysinfo: func(context.Context) (json.RawMessage, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.hw.Sysinfo(muster.Build), nil
		},
		Handle: func(_ context.Context, msg bus.Message) bus.Reply {
			if msg.Script == setup.Script {
				setups.Add(1)
				return bus.Reply{ExitStatus: 1}
			}
			surveys.Add(1)
			return m.execute(msg, func(setup.Progress) {})
		},
		RetryError: time.Second, RetryClosed: time.Second, AnnounceEvery: time.Hour,
	}
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() { old.Run(ctx) })
	defer work.Wait()
	defer cancel()
	in.until("the earlier session is surveyed", func() bool { r := in.registration(uuid); return r.SurveyedAt != nil })
	first := in.registration(uuid).SurveyedAt

	letGo() // and now the later one, with the first booter
	in.until("the later session is surveyed", func() bool { r := in.registration(uuid); return r.SurveyedAt != nil && r.SurveyedAt.After(*first) })
	in.approve(uuid, muster.SetupRequest{})
	in.until("the machine is a node", func() bool { return in.count(m.hw.Name, member) > 0 })
	if n := in.count(m.hw.Name, "setup done"); n != 1 || setups.Load() != 0 || surveys.Load() == 0 {
		t.Errorf("set up %d times by the first booter, %d times by the second; %d surveys there", n, setups.Load(), surveys.Load())
	}
	in.settled(1)
	alike("after the setup")
}

func b2Password(in *installation) string {
	b, err := os.ReadFile(filepath.Join(in.d.cfg.Dir, "booter", "bus.password"))
	if err != nil {
		in.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}
