package main

import (
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"muster.internal"
	"muster.internal/dhcp"
)

// TestFramesAfterGivingUpRoot: the packet socket that was opened as root goes
// on working: a machine that has no address, and asks for no broadcast, is
// answered at its hardware address.
func TestFramesAfterGivingUpRoot(t *testing.T) {
	const mark = "MUSTER_TEST_NAMESPACE"
	if os.Getenv(mark) == "" {
		if os.Getuid() != 0 {
			t.Skip("it takes root to make a network namespace")
		}
		if _, err := exec.LookPath("ip"); err != nil {
			t.Skip("there is no ip (package iproute2) to make a link with")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c := exec.CommandContext(ctx, os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
		c.Env = append(os.Environ(), mark+"=1")
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		out, err := c.CombinedOutput()
		if err != nil && c.ProcessState == nil {
			t.Skip("this system does not let us make a network namespace: ", err)
		}
		if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	for _, c := range []string{"link set lo up", "link add seg0 type veth peer name seg1", "address add 10.77.0.1/24 dev seg0", "link set seg0 up", "link set seg1 up"} {
		if out, err := exec.Command("ip", strings.Fields(c)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", c, err, out)
		}
	}
	args := flags(t, "--user=nobody", "--interface=seg0", "--address=10.77.0.1", "--dhcp-port=67", "--tftp-port=-1", "--http-port=-1", "--bus-port=-1")
	dir := strings.TrimPrefix(args[9], "--dir=")
	remembered(t, dir)
	c, log := start(t, args)
	_, said := serving(t, log)
	if strings.Contains(said, "no packet socket") {
		t.Fatal(said)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_IP)))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	i, err := net.InterfaceByName("seg1")
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_IP), Ifindex: i.Index}); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}); err != nil {
		t.Fatal(err)
	}
	m := dhcp.MAC{0x52, 0x54, 0, 0x77, 0, 1}
	q := &dhcp.Packet{Op: dhcp.BootRequest, XID: 7}
	q.SetMAC(m)
	q.Set(dhcp.OptMessageType, []byte{byte(dhcp.Discover)})
	q.Set(dhcp.OptClassID, []byte("SUNW.i86pc"))
	eth := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, m[:]...)
	eth = dhcp.AppendDatagram(append(eth, 8, 0), netip.MustParseAddrPort("0.0.0.0:68"), netip.MustParseAddrPort("255.255.255.255:67"), q.Append(nil))
	if _, err := unix.Write(fd, eth); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2048)
	for {
		n, err := unix.Read(fd, buf)
		if err != nil {
			t.Fatal("no answer: ", err)
		}
		var a dhcp.Packet
		if n < 42 || a.Parse(buf[42:n]) != nil || a.Op != dhcp.BootReply {
			continue
		}
		if dhcp.MAC(buf[:6]) != m || a.YIAddr.String() != "10.77.0.101" || a.Type() != dhcp.Offer {
			t.Errorf("at %v: %+v", dhcp.MAC(buf[:6]), a)
		}
		break
	}
	c.Process.Signal(syscall.SIGTERM)
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// remembered leaves a booter's memory of one machine, since its control plane
// is away.
func remembered(t *testing.T, dir string) {
	t.Helper()
	pol := muster.DefaultBootPolicy()
	pol.Networks = []muster.AdminNetwork{{Name: "admin", Prefix: "10.77.0.0/24"}}
	raw, err := json.Marshal(muster.BooterFeed{Seq: 1, Policy: &pol, Records: []muster.BootRecord{{MAC: "52:54:00:77:00:01", State: muster.Enrolled,
		Mode: muster.NormalMode, Network: "admin", Address: "10.77.0.101"}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/directory.json", raw, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/bus-password", []byte("planted-secret-planted-1"), 0o644); err != nil {
		t.Fatal(err)
	}
	nobody, err := lookup("nobody")
	if err != nil {
		t.Skip("there is no user nobody to become")
	}
	if err := os.Chown(dir, nobody.uid, nobody.gid); err != nil {
		t.Fatal(err)
	}
}
