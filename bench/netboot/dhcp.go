//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"muster.internal/bench/measure"
	"muster.internal/udp"
)

// dhcp compares DISCOVER, OFFER, REQUEST, ACK as firmware asks and a relay
// passes it on, and then asks whether the booter's cost depends on how many
// records it has.
func (b *bench) dhcp(ctx context.Context) ([]comparison, error) {
	us, _, err := b.booterWith("muster", b.records, []byte("a loader"), []byte("an initrd"))
	if err != nil {
		return nil, err
	}
	peers, err := b.dhcpPeers()
	if err != nil {
		return nil, err
	}
	const window = 32
	ready := func(server) bool {
		l, err := b.newDHCPLoad(1)
		if err != nil {
			return false
		}
		defer l.conn.Close()
		_, failed, err := l.run(1, 1, 300*time.Millisecond)
		return err == nil && failed == 0
	}
	exchanges := func(machines, count int) work {
		return func(t *turn, r *result) (done, failed int, took time.Duration, err error) {
			l, err := b.newDHCPLoad(machines)
			if err != nil {
				return 0, 0, 0, err
			}
			defer l.conn.Close()
			began := time.Now()
			done, failed, err = l.run(count, window, 2*time.Second)
			took = time.Since(began)
			return done, failed, took, err
		}
	}
	four := newComparison(fmt.Sprintf("DHCP: a machine's four messages, relayed, %d reservations, %d at once", b.records, window), "CPU us")
	if err := b.compare(ctx, four, append([]server{us}, peers...), ready, exchanges(b.records, 20_000), 1e6); err != nil {
		return nil, err
	}
	four.atMost(0.3, "muster", "kea")
	four.atMost(0.5, "muster", "coredhcp")
	four.faster(3, "muster", "kea")

	one := newComparison("DHCP: DISCOVER to OFFER, one machine at a time", "CPU us")
	single := func(t *turn, r *result) (done, failed int, took time.Duration, err error) {
		l, err := b.newDHCPLoad(b.records)
		if err != nil {
			return 0, 0, 0, err
		}
		defer l.conn.Close()
		began := time.Now()
		done, failed, err = l.run(1000, 1, 2*time.Second)
		took = time.Since(began)
		r.P50 = append(r.P50, measure.Median(l.offers))
		return done, failed, took, err
	}
	if err := b.compare(ctx, one, append([]server{us}, peers...), ready, single, 1e6); err != nil {
		return nil, err
	}

	same, all, err := b.flat(ctx, ready, exchanges)
	if err != nil {
		return []comparison{*four, *one}, err
	}
	return []comparison{*four, *one, *same, *all}, nil
}

// flat asks whether the cost depends on the number of records: first with the
// same few machines asking, so that only the search differs, then with all of
// them by turns, so that what is kept of each comes out of memory again.
func (b *bench) flat(ctx context.Context, ready func(server) bool, exchanges func(machines, count int) work) (same, all *comparison, err error) {
	const few, count = 10, 20_000
	var servers []server
	records := map[string]int{}
	for _, n := range []int{few, b.records, b.many} {
		s, _, err := b.booterWith(fmt.Sprintf("muster-%d", n), n, []byte("a loader"), []byte("an initrd"))
		if err != nil {
			return nil, nil, err
		}
		servers, records[s.name] = append(servers, s), n
	}
	same = newComparison(fmt.Sprintf("DHCP: the same %d machines, with more and more records", few), "CPU us")
	if err := b.compare(ctx, same, servers, ready, exchanges(few, count), 1e6); err != nil {
		return nil, nil, err
	}
	same.atMost(1.2, servers[2].name, servers[0].name)
	all = newComparison("DHCP: all machines by turns, with more records", "CPU us")
	if err := b.compare(ctx, all, servers[1:], ready, func(t *turn, r *result) (int, int, time.Duration, error) {
		return exchanges(records[t.s.name], count)(t, r)
	}, 1e6); err != nil {
		return nil, nil, err
	}
	all.atMost(1.2, servers[2].name, servers[1].name)
	return same, all, nil
}

// dhcpPeers writes the peers' configurations: the same reservations, boot
// file by architecture where they can.
func (b *bench) dhcpPeers() ([]server, error) {
	dir := filepath.Join(b.dir, "dhcp-peers")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	type kv = map[string]any
	var reservations []kv
	var leases strings.Builder
	for n := range b.records {
		reservations = append(reservations, kv{"hw-address": macText(n), "ip-address": addressText(n)})
		fmt.Fprintf(&leases, "%s %s\n", macText(n), addressText(n))
	}
	kea, err := json.Marshal(kv{"Dhcp4": kv{
		"interfaces-config": kv{"interfaces": []string{"s0"}, "dhcp-socket-type": "udp"},
		// Not persisted: its fastest way, and the nearest to what a booter does.
		"lease-database": kv{"type": "memfile", "persist": false},
		"valid-lifetime": 3600, "match-client-id": false,
		"reservations-global": false, "reservations-in-subnet": true, "reservations-out-of-pool": true,
		"host-reservation-identifiers": []string{"hw-address"},
		"multi-threading":              kv{"enable-multi-threading": false},
		"client-classes":               []kv{{"name": "uefi", "test": "option[93].hex == 0x0007", "boot-file-name": "snponly.efi", "next-server": serverIP}},
		"subnet4": []kv{{"id": 1, "subnet": "10.0.0.0/8", "pools": []kv{}, "reservations": reservations,
			"option-data": []kv{{"name": "routers", "data": serverIP}, {"name": "domain-name-servers", "data": serverIP}}}},
		"loggers": []kv{{"name": "kea-dhcp4", "severity": "WARN", "output_options": []kv{{"output": "stdout"}}}},
	}})
	if err != nil {
		return nil, err
	}
	for name, text := range map[string]string{
		"kea.json":   string(kea),
		"leases.txt": leases.String(),
		"coredhcp.yml": "server4:\n  listen: \"%s0\"\n  plugins:\n    - lease_time: 3600s\n    - server_id: " + serverIP + "\n    - dns: " + serverIP +
			"\n    - router: " + serverIP + "\n    - netmask: 255.0.0.0\n    - file: " + filepath.Join(dir, "leases.txt") + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	return installed([]server{
		{name: "kea", args: []string{"kea-dhcp4", "-c", filepath.Join(dir, "kea.json")}, env: []string{"KEA_PIDFILE_DIR=" + dir, "KEA_LOCKFILE_DIR=" + dir}},
		{name: "coredhcp", args: []string{b.coredhcp, "-c", filepath.Join(dir, "coredhcp.yml"), "-L", "error", "-N"}},
	}), nil
}

// A dhcpLoad plays a relay with many machines behind it, on one socket. A load
// that costs more than the server would measure itself: it reads and writes as
// the booter does.
type dhcpLoad struct {
	conn     *net.UDPConn
	quick    *udp.Messages
	in, out  []udp.Datagram
	machines int
	next     int
	xid      uint32
	pending  map[uint32]*asking // by transaction
	offers   []float64          // us from DISCOVER to OFFER
}

// asking is a machine in the middle of its four messages.
type asking struct {
	n       int
	request bool // REQUEST was sent
	at      time.Time
}

func (b *bench) newDHCPLoad(machines int) (*dhcpLoad, error) {
	l := &dhcpLoad{machines: machines, pending: map[uint32]*asking{}}
	for range udp.BatchSize {
		l.in = append(l.in, udp.Datagram{Payload: make([]byte, 2048)})
	}
	return l, b.atLoad(func() (err error) {
		if l.conn, err = net.DialUDP("udp4", &net.UDPAddr{IP: net.ParseIP(loadIP), Port: 67}, &net.UDPAddr{IP: net.ParseIP(serverIP), Port: 67}); err == nil {
			l.quick, err = udp.NewMessages(l.conn)
		}
		return err
	})
}

// run takes count machines through their four messages, window at a time. What
// is not answered in time has failed.
func (l *dhcpLoad) run(count, window int, patience time.Duration) (done, failed int, err error) {
	for done+failed < count {
		for len(l.pending) < min(window, count-done-failed) {
			l.begin()
		}
		if _, err := l.quick.Write(l.out); err != nil {
			return done, failed, err
		}
		l.out = l.out[:0]
		l.conn.SetReadDeadline(time.Now().Add(patience))
		n, err := l.quick.Read(l.in)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded): // all that is under way has gone unanswered
			failed += len(l.pending)
			clear(l.pending)
		case err != nil && done == 0 && patience < time.Second: // it is not there yet
			return 0, count, nil
		case err != nil:
			return done, failed, err
		}
		for _, d := range l.in[:n] {
			over, err := l.answered(d.Payload)
			if err != nil {
				return done, failed, err
			}
			if over {
				done++
			}
		}
	}
	return done, failed, nil
}

// begin has the next machine ask.
func (l *dhcpLoad) begin() {
	l.xid++
	a := &asking{n: l.next % l.machines, at: time.Now()}
	l.next += 7919 // a prime: neighbours in time are no neighbours in the table
	l.pending[l.xid] = a
	l.say(l.xid, a, nil)
}

// say queues a machine's DISCOVER, or with a server's identifier its REQUEST.
func (l *dhcpLoad) say(xid uint32, a *asking, server []byte) {
	n := len(l.out)
	l.out = slices.Grow(l.out, 1)[:n+1] // its memory is used again
	l.out[n].Payload = appendMessage(l.out[n].Payload[:0], xid, a, server)
}

// answered takes in one answer, and tells whether a machine is done with it.
func (l *dhcpLoad) answered(in []byte) (over bool, err error) {
	if len(in) < 240 {
		return false, nil
	}
	id := binary.BigEndian.Uint32(in[4:])
	a := l.pending[id]
	if a == nil {
		return false, nil
	}
	if want := address(a.n); [4]byte(in[16:20]) != want {
		return false, fmt.Errorf("%s was given %v", macText(a.n), net.IP(in[16:20]))
	}
	switch kind := option(in, 53); {
	case len(kind) == 1 && kind[0] == 2 && !a.request:
		l.offers = append(l.offers, float64(time.Since(a.at).Nanoseconds())/1e3)
		a.request = true
		l.say(id, a, option(in, 54))
	case len(kind) == 1 && kind[0] == 5 && a.request:
		delete(l.pending, id)
		return true, nil
	}
	return false, nil
}

// appendMessage appends what 64-bit UEFI sends, passed on by a relay: a DISCOVER, or with
// a server's identifier a REQUEST.
func appendMessage(p []byte, xid uint32, a *asking, server []byte) []byte {
	p = append(p, make([]byte, 240)...)
	p[0], p[1], p[2], p[3] = 1, 1, 6, 1
	binary.BigEndian.PutUint32(p[4:], xid)
	copy(p[24:], net.ParseIP(loadIP).To4())
	m := mac(a.n)
	copy(p[28:], m[:])
	copy(p[236:], []byte{0x63, 0x82, 0x53, 0x63})
	kind := byte(1)
	if server != nil {
		kind = 3
	}
	p = append(p, 53, 1, kind, 57, 2, 0x05, 0xc0)
	if server != nil {
		where := address(a.n)
		p = append(append(p, 54, 4), server...)
		p = append(append(p, 50, 4), where[:]...)
	}
	p = append(p, 55, 9, 1, 3, 6, 43, 54, 60, 66, 67, 97, 97, 17, 0)
	p = append(p, make([]byte, 10)...)
	p = append(p, m[:]...)
	p = append(p, 94, 3, 1, 3, 0, 93, 2, 0, 7)
	class := "PXEClient:Arch:00007:UNDI:003000"
	p = append(append(p, 60, byte(len(class))), class...)
	return append(p, 255)
}

// option finds one in an answer; nil: it is not there.
func option(p []byte, code byte) []byte {
	for p = p[240:]; len(p) > 1 && p[0] != 255; {
		if p[0] == 0 {
			p = p[1:]
			continue
		}
		n := int(p[1])
		if len(p) < 2+n {
			return nil
		}
		if p[0] == code {
			return p[2 : 2+n]
		}
		p = p[2+n:]
	}
	return nil
}
