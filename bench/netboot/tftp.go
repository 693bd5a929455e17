//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	tftpSize  = 1 << 20
	tftpBlock = 1468 // what fits a frame, and what firmware asks for
)

// tftp compares the loading of a boot program of 1 MiB, with the windows that
// firmware may ask for, and then by very many at once.
func (b *bench) tftp(ctx context.Context) ([]comparison, error) {
	loader := bytesOf(tftpSize)
	us, _, err := b.booterWith("muster", 10, loader, []byte("an initrd"))
	if err != nil {
		return nil, err
	}
	root := filepath.Join(b.dir, "tftp-root")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(root, "snponly.efi"), loader, 0o644); err != nil {
		return nil, err
	}
	peers := map[string][]server{
		"atftpd":  installed([]server{{name: "atftpd", args: []string{"atftpd", "--daemon", "--no-fork", "--user", "root.root", "--bind-address", serverIP, "--maxthread", "1000", "--logfile", filepath.Join(b.dir, "atftpd.txt"), root}}}),
		"dnsmasq": installed([]server{{name: "dnsmasq", args: []string{"dnsmasq", "-k", "--port=0", "--interface=s0", "--bind-interfaces", "--enable-tftp", "--tftp-root=" + root, "--tftp-max=1000", "--user=root", "-C", "/dev/null", "-x", filepath.Join(b.dir, "dnsmasq.pid")}}}),
	}
	name := func(s server) string {
		if s.name == "muster" {
			return strings.ReplaceAll(macText(0), ":", "-") + "/snponly.efi"
		}
		return "snponly.efi"
	}
	ready := func(s server) bool {
		return b.load1(name(s), 0, 500*time.Millisecond, loader) == nil
	}
	loads := func(clients, window int) work {
		return func(t *turn, r *result) (done, failed int, took time.Duration, err error) {
			began := time.Now()
			errs := make([]error, clients)
			var wg sync.WaitGroup
			for i := range clients {
				wg.Go(func() { errs[i] = b.load1(name(t.s), window, 30*time.Second, loader) })
			}
			wg.Wait()
			took = time.Since(began)
			for _, e := range errs {
				if e != nil {
					failed++
					err = e
				}
			}
			if failed == clients {
				return 0, failed, took, err
			}
			return clients - failed, failed, took, nil
		}
	}
	var all []comparison
	for _, c := range []struct {
		clients, window int
		what            string
		peer            string // that it is judged by
	}{{100, 16, "window 16", "atftpd"}, {100, 4, "window 4", "atftpd"}, {100, 0, "no window", "dnsmasq"}, {500, 16, "window 16", ""}} {
		cmp := newComparison(fmt.Sprintf("TFTP: 1 MiB, %s, %d clients at once", c.what, c.clients), "CPU ms")
		if err := b.compare(ctx, cmp, append([]server{us}, peers[c.peer]...), ready, loads(c.clients, c.window), 1e3); err != nil {
			return all, err
		}
		switch {
		case c.clients == 500:
			cmp.Goals = append(cmp.Goals, goal{"failures of muster", float64(cmp.of("muster").Failed), 0, false})
		case c.window == 16:
			cmp.atMost(0.4, "muster", "atftpd")
		case c.window == 4:
			cmp.atMost(0.65, "muster", "atftpd")
		default:
			cmp.atMost(1.5, "muster", "dnsmasq")
		}
		all = append(all, *cmp)
	}
	return all, nil
}

// load1 loads a file as firmware does (RFC 1350, 2347, 2348, 7440) and checks
// that it is what it should be.
func (b *bench) load1(name string, window int, patience time.Duration, want []byte) error {
	var conn *net.UDPConn
	if err := b.atLoad(func() (err error) {
		conn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(loadIP)})
		return err
	}); err != nil {
		return err
	}
	defer conn.Close()
	end := time.Now().Add(patience)
	ask := []byte("\x00\x01" + name + "\x00octet\x00blksize\x00" + strconv.Itoa(tftpBlock) + "\x00tsize\x000\x00")
	if window > 0 {
		ask = append(ask, "windowsize\x00"+strconv.Itoa(window)+"\x00"...)
	}
	to, last := &net.UDPAddr{IP: net.ParseIP(serverIP), Port: 69}, ask
	block, granted, unacked := 512, 1, 0
	got := make([]byte, 0, len(want))
	in := make([]byte, 4+tftpBlock)
	expect := uint16(1)
	send := func(p []byte) error {
		last = p
		_, err := conn.WriteToUDP(p, to)
		return err
	}
	ack := func(n uint16) error {
		unacked = 0
		return send(binary.BigEndian.AppendUint16([]byte{0, 4}, n))
	}
	if err := send(ask); err != nil {
		return err
	}
	for time.Now().Before(end) {
		conn.SetReadDeadline(time.Now().Add(min(time.Second, patience)))
		n, from, err := conn.ReadFromUDP(in)
		if err != nil {
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				if err := send(last); err != nil {
					return err
				}
				continue
			}
			return err
		}
		if n < 4 || to.Port != 69 && from.Port != to.Port {
			continue
		}
		switch in[1] {
		case 6:
			to = from
			for f := strings.Split(string(in[2:n]), "\x00"); len(f) > 1; f = f[2:] {
				v, _ := strconv.Atoi(f[1])
				switch f[0] {
				case "blksize":
					block = v
				case "windowsize":
					granted = v
				}
			}
			if err := ack(0); err != nil {
				return err
			}
		case 3:
			to = from
			if binary.BigEndian.Uint16(in[2:]) != expect { // one was lost: say where to go on, once a window
				if unacked == 0 {
					unacked = 1
					if err := ack(expect - 1); err != nil {
						return err
					}
				}
				continue
			}
			got = append(got, in[4:n]...)
			expect++
			unacked++
			if n-4 < block {
				if err := ack(expect - 1); err != nil {
					return err
				}
				if !bytes.Equal(got, want) {
					return fmt.Errorf("%s: other content", name)
				}
				return nil
			}
			if unacked >= granted {
				if err := ack(expect - 1); err != nil {
					return err
				}
			}
		case 5:
			return fmt.Errorf("%s: refused: %s", name, in[4:n])
		}
	}
	return fmt.Errorf("%s: not loaded after %v, %d bytes", name, patience, len(got))
}
