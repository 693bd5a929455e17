package booter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/boot"
	"muster.internal/dhcp"
	"muster.internal/tftp"
	"muster.internal/udp"
)

func parseAddr(s string) netip.Addr { return netip.MustParseAddr(s) }

func decision(mac string) boot.Decision {
	m, _ := dhcp.ParseMAC(mac)
	return boot.Decision{MAC: m, Reason: boot.Unknown, Rule: boot.RuleUnknown}
}

// fetch is a TFTP client on a socket of its own.
func fetch(t testing.TB, b *Booter, name string, blksize, window int) ([]byte, error) {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	req := tftp.Request{Name: name, Mode: "octet", BlkSize: blksize, Window: window, TSize: blksize > 0}
	to := netip.AddrPortFrom(parseAddr("127.0.0.1"), uint16(b.Ports().TFTP))
	if _, err := c.WriteToUDPAddrPort(tftp.AppendRequest(nil, req), to); err != nil {
		return nil, err
	}
	r := tftp.NewReceiver(req, 1<<24)
	buf := make([]byte, 4096)
	for !r.Done {
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		n, src, err := c.ReadFromUDPAddrPort(buf)
		if err != nil {
			return nil, err
		}
		p, err := tftp.Parse(buf[:n])
		if err != nil {
			return nil, err
		}
		answer, err := r.Receive(nil, p)
		if err != nil {
			return nil, err
		}
		if len(answer) > 0 {
			c.WriteToUDPAddrPort(answer, src)
		}
	}
	if r.Size >= 0 && r.Size != int64(len(r.Data)) {
		return nil, fmt.Errorf("told %d bytes, sent %d", r.Size, len(r.Data))
	}
	return r.Data, nil
}

// serving is a booter with two machines that may boot and one that may not.
func serving(t *testing.T) (*Booter, Config) {
	t.Helper()
	p := newPlane()
	ref := p.addImage("node-1", strings.Repeat("kernel", 100000), "initrd")
	p.do(func() { p.policy.Networks = adminNetwork() })
	p.set(enrolled(1, ref))
	p.set(enrolled(2, ref))
	p.set(muster.BootRecord{MAC: mac(3), State: muster.BootDecommissioned, Mode: muster.NormalMode})
	cfg := loopback(t, p)
	b, _ := run(t, cfg)
	staged(t, b, ref)
	return b, cfg
}

func TestTFTP(t *testing.T) {
	b, cfg := serving(t)
	for _, name := range []string{"snponly.efi", "undionly.kpxe"} {
		want, err := os.ReadFile(filepath.Join(cfg.IPXE, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, opt := range [][2]int{{0, 0}, {1468, 0}, {1468, 4}, {1468, 16}, {1468, 100}, {512, 7}, {65464, 2}} {
			got, err := fetch(t, b, "52-54-00-77-00-01/"+name, opt[0], opt[1])
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s, block size %d, window %d: %d bytes, %v", name, opt[0], opt[1], len(got), err)
			}
		}
	}
	if got, err := fetch(t, b, "/52-54-00-77-00-01/autoexec.ipxe", 1468, 0); err != nil || len(got) != 0 {
		t.Errorf("autoexec.ipxe: %q, %v", got, err)
	}
	for name, want := range map[string]string{
		"52-54-00-77-00-03/snponly.efi":    "error 1: not served: decommissioned",
		"52-54-00-77-00-03/autoexec.ipxe":  "error 1: not served: decommissioned",
		"52-54-00-77-00-99/undionly.kpxe":  "error 1: not served: unknown",
		"52-54-00-77-00-01/pxelinux.0":     "error 1: no such file",
		"snponly.efi":                      "error 1: no such file",
		"52-54-00-77-00-01/../snponly.efi": "error 1: no such file",
		"../../etc/passwd":                 "error 1: no such file",
	} {
		if _, err := fetch(t, b, name, 0, 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

// TestTFTPRaw speaks packets that no ordinary client sends.
func TestTFTPRaw(t *testing.T) {
	b, _ := serving(t)
	say := func(raw string, patience time.Duration) string {
		c, err := net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: b.Ports().TFTP})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.Write([]byte(raw))
		c.SetReadDeadline(time.Now().Add(patience))
		buf := make([]byte, 600)
		n, _ := c.Read(buf)
		return string(buf[:n])
	}
	if got := say("\x00\x02x\x00octet\x00", 10*time.Second); !strings.HasPrefix(got, "\x00\x05\x00\x02") {
		t.Errorf("a write got %q", got)
	}
	if got := say("\x00\x0152-54-00-77-00-01/snponly.efi\x00netascii\x00", 10*time.Second); !strings.HasPrefix(got, "\x00\x05\x00\x00only mode octet") {
		t.Errorf("netascii got %q", got)
	}
	for _, silent := range []string{"", "\x00", "\x00\x05\x00\x01no\x00", "\x00\x04\x00\x01", "\x00\x03\x00\x01data", "rubbish"} {
		if got := say(silent, 30*time.Millisecond); got != "" {
			t.Errorf("%q was answered with %q", silent, got)
		}
	}
}

// TestSizeProbe is what EDK2 does: ask with tsize, refuse the OACK with error
// 8, and ask again from the same port.
func TestSizeProbe(t *testing.T) {
	b, _ := serving(t)
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	to := netip.AddrPortFrom(parseAddr("127.0.0.1"), uint16(b.Ports().TFTP))
	name := "52-54-00-77-00-01/snponly.efi"
	read := func() (tftp.Packet, netip.AddrPort) {
		buf := make([]byte, 2048)
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		n, src, err := c.ReadFromUDPAddrPort(buf)
		if err != nil {
			t.Fatal(err)
		}
		p, err := tftp.Parse(buf[:n])
		if err != nil {
			t.Fatal(err)
		}
		return p, src
	}
	probe := tftp.AppendRequest(nil, tftp.Request{Name: name, Mode: "octet", TSize: true, BlkSize: 1468, Window: 4})
	c.WriteToUDPAddrPort(probe, to)
	c.WriteToUDPAddrPort(probe, to) // firmware may repeat itself: one transfer
	p, src := read()
	if p.Op != tftp.OpOACK || p.TSize != 170001 || p.BlkSize != 1468 || p.Window != 4 {
		t.Fatalf("%+v", p)
	}
	until(t, "the repeated request is noticed", func() bool { return b.Counters()["tftp_doubled"] == 1 })
	c.WriteToUDPAddrPort(tftp.AppendError(nil, tftp.CodeBadOption, "User aborted the transfer"), src)
	c.WriteToUDPAddrPort(tftp.AppendRequest(nil, tftp.Request{Name: name, Mode: "octet", BlkSize: 1468, Window: 4}), to)
	p, again := read()
	if p.Op != tftp.OpOACK || again == src {
		t.Fatalf("the second request got %+v from %v", p, again)
	}
	r := tftp.NewReceiver(tftp.Request{}, 1<<20)
	for !r.Done {
		answer, err := r.Receive(nil, p)
		if err != nil {
			t.Fatal(err)
		}
		if len(answer) > 0 {
			c.WriteToUDPAddrPort(answer, again)
		}
		if !r.Done {
			p, _ = read()
		}
	}
	if len(r.Data) != 170001 {
		t.Errorf("%d bytes", len(r.Data))
	}
	until(t, "both transfers are over", func() bool {
		n := b.Counters()
		return n["tftp_transfers"] == 2 && n["tftp_done"] == 1 && n["tftp_aborted"]+n["tftp_lost"] == 1
	})
}

func TestManyTransfersAtOnce(t *testing.T) {
	b, _ := serving(t)
	var wg sync.WaitGroup
	errs := make(chan error, 100)
	for i := range 100 {
		wg.Go(func() {
			got, err := fetch(t, b, fmt.Sprintf("52-54-00-77-00-%02x/snponly.efi", i%2+1), 1468, []int{0, 4, 16}[i%3])
			if err == nil && len(got) != 170001 {
				err = fmt.Errorf("%d bytes", len(got))
			}
			errs <- err
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
}

// A window that the kernel cannot cut is sent packet by packet.
// TestSilentClientsKeepNobodyOut: requests from clients that then say nothing
// take every place, and a machine is served all the same; those who go on are
// not the ones who make room.
func TestSilentClientsKeepNobodyOut(t *testing.T) {
	b, _ := serving(t)
	ts := &transfers{b: b, max: 8, active: map[netip.AddrPort]*transfer{}}
	ctx, cancel := context.WithCancel(t.Context())
	defer func() { cancel(); ts.work.Wait() }()
	name := strings.ReplaceAll(mac(1), ":", "-") + "/" + boot.Loaders()[0]
	raw := tftp.AppendRequest(nil, tftp.Request{Name: name, Mode: "octet", Timeout: 255})
	ask := func() (*net.UDPConn, netip.AddrPort) {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, text := ts.request(ctx, raw, c.LocalAddr().(*net.UDPAddr).AddrPort()); text != "" {
			t.Fatal(text)
		}
		buf := make([]byte, 2048)
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		_, src, err := c.ReadFromUDPAddrPort(buf)
		if err != nil {
			t.Fatalf("a client is not answered: %v", err)
		}
		return c, src
	}
	going, at := ask()
	for range 100 {
		ask()
		// The first has the offer by now, or the block that it leads to.
		going.WriteToUDPAddrPort(tftp.AppendAck(nil, 0), at)
		going.SetReadDeadline(time.Now().Add(10 * time.Second))
		block := uint16(0)
		for buf := make([]byte, 2048); ; {
			n, _, err := going.ReadFromUDPAddrPort(buf)
			if err != nil {
				t.Fatalf("who goes on is dropped: %v", err)
			}
			if p, err := tftp.Parse(buf[:n]); err == nil && p.Op == tftp.OpData {
				block = p.Block
				break
			}
		}
		going.WriteToUDPAddrPort(tftp.AppendAck(nil, block), at)
	}
	ts.mu.Lock()
	n := len(ts.active)
	ts.mu.Unlock()
	if n > 8 {
		t.Errorf("%d transfers at once", n)
	}
}

func TestWithoutSegmentation(t *testing.T) {
	server, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	c, err := net.DialUDP("udp4", nil, server.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	window := bytes.Repeat([]byte{7}, 3*100+50)
	for _, segmented := range []bool{false, true} {
		if segmented && segment(c, 100) != nil {
			t.Skip("this kernel has no UDP segmentation: windows are sent packet by packet, as the other half of this test shows")
		}
		quick, err := udp.NewConn(c)
		if err != nil {
			t.Fatal(err)
		}
		w := &windowWriter{conn: c, quick: quick, size: 100, segmented: segmented}
		if err := w.write(window); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 1000)
		for _, want := range []int{100, 100, 100, 50} {
			server.SetReadDeadline(time.Now().Add(5 * time.Second))
			if n, err := server.Read(buf); err != nil || n != want {
				t.Fatalf("segmented %v: %d bytes, %v, want %d", segmented, n, err, want)
			}
		}
	}
}

// TestTFTPClients fetches with the clients that others wrote.
func TestTFTPClients(t *testing.T) {
	b, cfg := serving(t)
	want, err := os.ReadFile(filepath.Join(cfg.IPXE, "snponly.efi"))
	if err != nil {
		t.Fatal(err)
	}
	port := fmt.Sprint(b.Ports().TFTP)
	remote, out := "52-54-00-77-00-01/snponly.efi", filepath.Join(t.TempDir(), "out")
	for name, args := range map[string][]string{
		"atftp":    {"--get", "-r", remote, "-l", out, "127.0.0.1", port},
		"tftp-hpa": {"-m", "binary", "127.0.0.1", port, "-c", "get", remote, out},
	} {
		t.Run(name, func(t *testing.T) {
			variants := [][]string{args}
			if name == "atftp" {
				variants = append(variants, append([]string{"--option", "blksize 1468", "--option", "tsize 0"}, args...),
					append([]string{"--option", "blksize 1468", "--option", "windowsize 16"}, args...))
			}
			tool, err := exec.LookPath(strings.TrimSuffix(name, "-hpa"))
			if err != nil {
				t.Skipf("%s is not installed: apt-get install %s", name, name)
			}
			for _, v := range variants {
				os.Remove(out)
				ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
				said, err := exec.CommandContext(ctx, tool, v...).CombinedOutput()
				cancel()
				got, rerr := os.ReadFile(out)
				if err := errors.Join(err, rerr); err != nil || !bytes.Equal(got, want) {
					t.Errorf("%v: %d bytes, %v, %s", v, len(got), err, said)
				}
			}
		})
	}
}

// An empty or missing loader is never offered, and comes back by itself.
func TestLoaders(t *testing.T) {
	b, cfg := serving(t)
	path := filepath.Join(cfg.IPXE, "snponly.efi")
	f := newFirmware(t, b, mac(1), 7)
	f.lease()
	for name, spoil := range map[string]func() error{
		"empty":   func() error { return os.WriteFile(path, nil, 0o644) },
		"missing": func() error { return os.Remove(path) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		b.loaders.refresh()
		if a := f.ask(f.message(dhcp.Discover), 50*time.Millisecond); a != nil {
			t.Errorf("%s loader was offered", name)
		}
		if _, err := fetch(t, b, "52-54-00-77-00-01/snponly.efi", 0, 0); err == nil || !strings.Contains(err.Error(), "loader_missing") {
			t.Errorf("%s loader: %v", name, err)
		}
		if err := os.WriteFile(path, []byte("a new loader"), 0o644); err != nil {
			t.Fatal(err)
		}
		b.loaders.refresh()
		if got, err := fetch(t, b, "52-54-00-77-00-01/snponly.efi", 0, 0); err != nil || string(got) != "a new loader" {
			t.Errorf("%q, %v", got, err)
		}
	}
}
