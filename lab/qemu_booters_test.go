package lab

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/capture"
	"muster.internal/dhcp"
)

// said counts the lines of a program after a mark that match.
func said(p *Program, mark int, re *regexp.Regexp) (n int) {
	for _, l := range p.Lines(mark) {
		if re.MatchString(l.Text) {
			n++
		}
	}
	return n
}

// boots is how a booter tells that a machine fetched its boot script.
func boots(m *Machine) *regexp.Regexp { return regexp.MustCompile(`msg=boots mac=` + m.MAC) }

var sendsSetup = regexp.MustCompile(`msg=install .*step=sent`)

// besides runs another booter on the site's segment, as another host would.
func (s *Site) besides(t *testing.T, ctx context.Context, address string) *Program {
	t.Helper()
	st := must[*Stranger](t)(s.NewStranger(ctx, address))
	b := s.newBooter(st.namespace, "muster-booter-2", st.Interface)
	if err := s.Serve(ctx, b); err != nil {
		t.Fatal(err)
	}
	if err := s.Staged(ctx, b); err != nil {
		t.Fatal(err)
	}
	return b
}

// offersTo is what each server has offered a machine since it was switched on,
// by the transaction: one string that leaves out the server's own address.
func offersTo(t *testing.T, m *Machine) map[uint32]map[netip.Addr]string {
	t.Helper()
	raw := must[[]byte](t)(os.ReadFile(m.Wire()))
	file := must[capture.File](t)(capture.Read(bytes.NewReader(raw)))
	all := map[uint32]map[netip.Addr]string{}
	for _, f := range file.Frames {
		var p dhcp.Packet
		if f.Proto != capture.UDP || f.Src.Port() != dhcp.ServerPort || p.Parse(f.Payload) != nil || p.Type() != dhcp.Offer {
			continue
		}
		server := p.Addr(dhcp.OptServerID)
		if all[p.XID] == nil {
			all[p.XID] = map[netip.Addr]string{}
		}
		raw, four := fmt.Sprintf("from %s, flags %x, file %s", p.SIAddr, p.Flags, p.File), server.As4()
		for _, o := range p.Options {
			raw += fmt.Sprintf("\n  %d %q", o.Code, bytes.ReplaceAll(o.Value, four[:], []byte(server.String())))
		}
		all[p.XID][server] = p.YIAddr.String() + " " + strings.ReplaceAll(raw, server.String(), "SERVER")
	}
	return all
}

// alike: whatever the machine asked, both booters have answered the same.
func alike(t *testing.T, m *Machine) {
	t.Helper()
	n := 0
	for xid, offers := range offersTo(t, m) {
		one, two := offers[netip.MustParseAddr(ServerIP)], offers[netip.MustParseAddr(secondIP)]
		if one == "" || two == "" {
			t.Logf("transaction %x: only one has offered: %v", xid, offers)
			continue
		}
		if n++; one != two {
			t.Errorf("transaction %x: one offers\n%s\nthe other\n%s", xid, one, two)
		}
	}
	if n == 0 {
		t.Error("the booters have never answered the same packet")
	}
}

const secondIP = "10.77.0.2"

// Two booters on one segment answer a machine alike, and one alone sets it up.
// The machine boots through the other when the one that it has booted from dies:
// before its setup, when an operator has approved it meanwhile for a connection
// that is gone, and as a node.
func TestLabTwoBooters(t *testing.T) {
	t.Parallel()
	ctx, s := newLab(t, 15*time.Minute)
	both := []*Program{s.Booter, s.besides(t, ctx, secondIP)}
	m := s.machine(t, ctx, 1, BIOS)
	surveyed(t, ctx, s, m)
	alike(t, m)

	killed := time.Now()
	alive, dead := killWhoServed(t, m, both)
	void := approve(t, ctx, s, m, muster.SetupRequest{Layout: "mirror"})
	if err := m.Reset(); err != nil {
		t.Fatal(err)
	}
	r := must[muster.Registration](t)(s.WaitRegistration(ctx, m, "is surveyed through the other booter", surveyedAfter(killed)))
	if said(alive, 0, boots(m)) == 0 || r.LastSetupError == "" {
		t.Errorf("it did not boot through %s, or the approval for the dead connection did not end: %q", alive.name, r.LastSetupError)
	}
	t.Log("the reason:", r.LastSetupError)
	noKeys(t, ctx, s, m)

	if err := s.Serve(ctx, dead); err != nil {
		t.Fatal(err)
	}
	if g := approve(t, ctx, s, m, muster.SetupRequest{Layout: "mirror"}); g.Epoch <= void.Epoch {
		t.Errorf("epoch %d after %d", g.Epoch, void.Epoch)
	}
	cameBack(t, ctx, s, m)
	if n := []int{said(both[0], 0, sendsSetup), said(both[1], 0, sendsSetup)}; n[0]+n[1] != 1 || said(alive, 0, sendsSetup) != 1 {
		t.Errorf("the booters sent the setup %v times", n)
	}

	killed = time.Now()
	alive, _ = killWhoServed(t, m, both)
	mark := alive.Mark()
	if err := m.Reset(); err != nil {
		t.Fatal(err)
	}
	must[muster.Registration](t)(s.WaitRegistration(ctx, m, "is back through the other booter", refreshedAfter(killed)))
	if said(alive, mark, boots(m)) == 0 {
		t.Errorf("it did not boot through %s%s", alive.name, alive.Tail())
	}
	checkNode(t, ctx, s, m)
}

// killWhoServed kills the one of two booters that the machine has booted from
// last.
func killWhoServed(t *testing.T, m *Machine, both []*Program) (alive, dead *Program) {
	t.Helper()
	last := [2]time.Duration{-1, -1}
	for n, p := range both {
		for _, l := range p.Lines(0) {
			if boots(m).MatchString(l.Text) {
				last[n] = l.At
			}
		}
	}
	if last[0] == last[1] {
		t.Fatal(m.Name, "has booted from neither")
	}
	alive, dead = both[0], both[1]
	if last[0] > last[1] {
		alive, dead = dead, alive
	}
	if err := dead.Kill(); err != nil {
		t.Fatal(err)
	}
	t.Log(m.Name, "booted from", dead.name+", which is dead now")
	return alive, dead
}

// siteDHCP runs a DHCP server that is not muster's, which gives addresses of
// its own and nothing to boot, and refuses those of others.
func (s *Site) siteDHCP(t *testing.T, ctx context.Context, address string) *Program {
	t.Helper()
	if _, err := exec.LookPath("dnsmasq"); err != nil {
		t.Skip("needs dnsmasq (Debian package dnsmasq-base)")
	}
	st := must[*Stranger](t)(s.NewStranger(ctx, address))
	p := st.newProgram("dnsmasq", s.Dir, s.Control.start, func() *exec.Cmd {
		return exec.Command("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--pid-file=", "--leasefile-ro", "--log-facility=-", "--log-dhcp",
			"--port=0", "--interface="+st.Interface, "--bind-interfaces", "--no-ping", "--dhcp-authoritative", "--dhcp-option=option:router",
			"--dhcp-range=10.77.0.201,10.77.0.220,1h")
	})
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	must[Line](t)(p.WaitFor(ctx, 0, regexp.MustCompile(`DHCP, IP range`)))
	return p
}

// A DHCP server that nobody told muster of is shown to the operator, by its
// address. Beside a booter that only says what to boot it is the one that gives
// addresses, and machines boot, are set up and come back.
func TestLabSiteDHCP(t *testing.T) {
	t.Parallel()
	ctx, s := newLab(t, 15*time.Minute)
	if missing := Missing(UEFI); len(missing) > 0 {
		t.Skip("needs ", strings.Join(missing, ", "))
	}
	const site = "10.77.0.66"
	s.siteDHCP(t, ctx, site)
	bios, uefi := s.machine(t, ctx, 1, BIOS), s.machine(t, ctx, 2, UEFI)
	if err := bios.PowerOn(); err != nil {
		t.Fatal(err)
	}
	warns := regexp.MustCompile(`warning: muster-booter: a second DHCP server, ` + regexp.QuoteMeta(site) + `,.* \(it (refused|offered \S+ to) ` + bios.MAC)
	var shown string
	if err := s.Until(ctx, "muster booter ls warns of the other server", func() (_ bool, err error) {
		shown, err = s.CLI(ctx, "booter", "ls")
		return warns.MatchString(shown), err
	}); err != nil {
		t.Fatalf("%v\n%s", err, shown)
	}
	t.Log(shown)
	events := must[string](t)(s.CLI(ctx, "events", "--last", "1000", "--kind", "booter.second_dhcp_server"))
	if !strings.Contains(events, site) {
		t.Errorf("muster events does not tell of it: %q", events)
	}
	bios.Cut()

	if err := s.Booter.Stop(); err != nil { // as it is advised
		t.Fatal(err)
	}
	s.Booter = s.newBooter(s.namespace, "muster-booter", s.Bridge, "--proxy")
	if err := s.Serve(ctx, s.Booter); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*Machine{bios, uefi} {
		if err := m.PowerOn(); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range []*Machine{bios, uefi} {
		must[muster.Registration](t)(s.Surveyed(ctx, m))
		given := slices.ContainsFunc(m.Lines(0), func(l Line) bool {
			return strings.Contains(l.Text, "muster-host: network up") && strings.Contains(l.Text, "10.77.0.2")
		})
		if !given {
			t.Errorf("%s has another address than the site's server gives%s", m.Name, m.Tail())
		}
		approve(t, ctx, s, m, muster.SetupRequest{Layout: "mirror"})
	}
	for _, m := range []*Machine{bios, uefi} {
		cameBack(t, ctx, s, m)
	}
}
