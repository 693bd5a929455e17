package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path"
	"strings"
	"time"

	"muster.internal/dhcp"
	"muster.internal/sim"
	"muster.internal/tftp"
)

// A wire joins one simulated firmware to a real booter over loopback, as a
// relay agent on its segment would: DHCP with giaddr and a source port of its
// own (RFC 8357), since port 67 is root's; TFTP and HTTP as they are.
type wire struct {
	relay   netip.Addr     // giaddr, an address of loopback
	dhcp    netip.AddrPort // where the booter answers
	tftp    netip.AddrPort
	circuit string // option 82's circuit id
	hurry   float64
	http    *http.Client
	say     func(string)
}

const maxBootFile = 256 << 20

// DHCP implements sim.Wire.
func (w *wire) DHCP(ctx context.Context, message []byte, patience time.Duration) ([]byte, error) {
	var p dhcp.Packet
	if err := p.Parse(message); err != nil {
		return nil, err
	}
	p.GIAddr = w.relay
	p.Hops++
	info := append([]byte{dhcp.RelayCircuitID, byte(len(w.circuit))}, w.circuit...)
	p.Set(dhcp.OptRelayInfo, append(info, dhcp.RelaySourcePort, 0))
	c, err := net.DialUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(w.relay, 0)), net.UDPAddrFromAddrPort(w.dhcp))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	c.SetDeadline(time.Now().Add(w.scaled(patience)))
	if _, err := c.Write(p.Append(nil)); err != nil {
		return nil, w.silence(ctx, err)
	}
	answer := make([]byte, dhcp.MaxSize)
	n, err := c.Read(answer)
	if err != nil {
		return nil, w.silence(ctx, err)
	}
	return w.forward(answer[:n])
}

// forward takes the relay's own option off an answer, as relays do.
func (w *wire) forward(answer []byte) ([]byte, error) {
	var p dhcp.Packet
	if err := p.Parse(answer); err != nil {
		return nil, err
	}
	if p.GIAddr != w.relay {
		return nil, fmt.Errorf("an answer for relay %s came to %s", p.GIAddr, w.relay)
	}
	p.Delete(dhcp.OptRelayInfo)
	return p.Append(nil), nil
}

// silence is what no answer in time, and nobody listening, come to.
func (w *wire) silence(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return sim.ErrSilence
	}
	return err
}

// TFTP implements sim.Wire. Firmware knows port 69; here it is the booter's.
func (w *wire) TFTP(ctx context.Context, _ netip.Addr, name string) ([]byte, error) {
	c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(w.relay, 0)))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	req := tftp.Request{Name: name, Mode: "octet", BlkSize: 1468, Window: 4, TSize: true}
	r := tftp.NewReceiver(req, maxBootFile)
	out, to := tftp.AppendRequest(nil, req), w.tftp
	buf := make([]byte, 64<<10)
	for tries := 0; ; {
		if len(out) > 0 {
			if _, err := c.WriteToUDPAddrPort(out, to); err != nil {
				return nil, err
			}
		}
		if r.Done {
			return r.Data, nil
		}
		c.SetReadDeadline(time.Now().Add(tftp.DefaultTimeout))
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		n, from, err := c.ReadFromUDPAddrPort(buf)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			if tries++; tries > tftp.MaxTries {
				return nil, sim.ErrSilence
			}
			if out = out[:0]; to == w.tftp {
				out = tftp.AppendRequest(out, req)
			} else {
				out = r.Timeout(out)
			}
			continue
		case to == w.tftp:
			to = from // the transfer's own port
		case from != to:
			continue // a stranger's
		}
		p, err := tftp.Parse(buf[:n])
		if err != nil {
			return nil, err
		}
		if out, err = r.Receive(out[:0], p); err != nil {
			return nil, err
		}
	}
}

// HTTP implements sim.Wire. What is named by its digest is checked against it,
// which is more than iPXE does.
func (w *wire) HTTP(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := w.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxBootFile))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(b[:min(len(b), 200)])))
	}
	if dir, name := path.Split(req.URL.Path); strings.HasSuffix(dir, "/file/") {
		if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != name {
			return nil, fmt.Errorf("%s has another digest than its name says", url)
		}
	}
	return b, nil
}

// Sleep implements sim.Wire.
func (w *wire) Sleep(ctx context.Context, d time.Duration) error { return sleep(ctx, w.scaled(d)) }

// Say implements sim.Wire.
func (w *wire) Say(line string) { w.say(line) }

// scaled is a wait of firmware in an installation that is in a hurry.
func (w *wire) scaled(d time.Duration) time.Duration {
	if w.hurry > 1 {
		return time.Duration(float64(d) / w.hurry)
	}
	return d
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
