package booter

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"muster.internal"
	"muster.internal/boot"
	"muster.internal/dhcp"
	"muster.internal/udp"
)

// A responder answers DHCP messages one at a time. All its memory is reused:
// an exchange creates no garbage.
type responder struct {
	b     *Booter
	atPXE bool      // it answers on the port of PXE boot servers
	now   time.Time // of the message: the clock is read once for each
	x     boot.Exchange
	judge boot.Judge
}

func newResponder(b *Booter, atPXE bool) *responder {
	r := &responder{b: b, atPXE: atPXE}
	r.judge = func(q boot.Request) (boot.Decision, *muster.BootRecord) { return b.decideAt(q, r.now) }
	return r
}

// answer turns a message into an answer and its way; nil: silence.
func (r *responder) answer(msg []byte, src netip.AddrPort, index int) ([]byte, dhcp.Route) {
	b, x := r.b, &r.x
	r.now = b.now()
	out, err := x.Answer(msg, r.atPXE, r.judge, b.site, b.cfg.Address)
	if err != nil {
		if errors.Is(err, boot.ErrNotEthernet) {
			b.tally.add(countNotEthernet)
		} else {
			b.tally.add(countMalformed)
		}
		return nil, dhcp.Route{}
	}
	now, d := r.now, &x.Decision
	if d.Sight {
		b.sight.packet(&x.Packet, &x.Request, d, x.Record != nil, index, now)
		b.watch.Asked(d, now)
	}
	b.witness(x, now)
	if out == nil {
		b.quiet.note(boot.DHCP, d, now)
		b.traces.packet(&x.Request, d, msg, nil, src, src, index, now)
		return nil, dhcp.Route{}
	}
	if x.Request.Type == dhcp.Discover {
		b.tally.add(countOffers)
	} else {
		b.tally.add(countAcks)
		if d.Stage == boot.Start {
			b.stepped(d, x.Packet.XID, now)
		}
	}
	if d.Holder {
		b.tally.add(countRenewals)
	}
	way := r.way(src)
	b.traces.packet(&x.Request, d, msg, out, src, way.To, index, now)
	return out, way
}

// way is where the answer just made goes.
func (r *responder) way(src netip.AddrPort) dhcp.Route {
	if r.atPXE {
		return dhcp.PXEDestination(src)
	}
	yours := r.x.Decision.Address.Addr()
	if r.x.Decision.Proxied {
		yours = netip.Addr{}
	}
	return dhcp.Destination(&r.x.Packet, yours, src)
}

// A voice sends answers from one socket.
type voice struct {
	b     *Booter
	conn  *udp.Messages
	port  uint16
	bound bool           // to one address, which the kernel sends from
	out   []udp.Datagram // answers that are due
	macs  []dhcp.MAC     // and whose they are
}

// serveDHCP answers on one socket until it is closed. One goroutine is enough:
// an answer takes less time than the two system calls around it, and these never
// wait.
func (b *Booter) serveDHCP(ctx context.Context, conn *net.UDPConn, atPXE bool) error {
	r := newResponder(b, atPXE)
	at := conn.LocalAddr().(*net.UDPAddr)
	quick, err := udp.NewMessages(conn)
	if err != nil {
		return err
	}
	v := &voice{b: b, conn: quick, port: uint16(at.Port), bound: !at.IP.IsUnspecified()}
	in := make([]udp.Datagram, udp.BatchSize)
	for i := range in {
		in[i] = udp.Datagram{Payload: make([]byte, dhcp.MaxSize+1), Control: make([]byte, 128)}
	}
	for {
		n, err := quick.Read(in)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			if passingRead(err) {
				continue
			}
			return err
		}
		for _, d := range in[:n] {
			index := arrival(d.Control)
			if out, way := r.answer(d.Payload, d.Far, index); out != nil {
				v.say(out, way, r.x.Decision.MAC, index)
			}
		}
		v.flush()
	}
}

// say sends an answer with the next flush. A frame, which goes at once, that
// cannot be made becomes a broadcast, which RFC 2131 §4.1 allows where unicast
// is not possible.
func (v *voice) say(out []byte, way dhcp.Route, m dhcp.MAC, index int) {
	b := v.b
	if way.Frame {
		if b.frames != nil && index != 0 && !v.bound {
			from := netip.AddrPortFrom(b.cfg.Address, v.port)
			err := b.frames.send(index, m, from, way.To, out)
			if err == nil {
				b.tally.add(countFrames)
				return
			}
			b.tally.add(countFrameErrors)
		}
		way.To = dhcp.Everybody
	}
	n := len(v.out)
	v.out = slices.Grow(v.out, 1)[:n+1]
	d := &v.out[n] // its memory is used again
	d.Payload, d.Control, d.Far = append(d.Payload[:0], out...), d.Control[:0], way.To
	v.macs = append(v.macs, m)
	if !v.bound {
		if way.To.Addr() != dhcp.Everybody.Addr() {
			index = 0 // the routes know where a relay is
		}
		d.Control = departure(d.Control, b.cfg.Address, index)
	}
}

// flush sends what is due. One answer that cannot be sent stops no other.
func (v *voice) flush() {
	for at := 0; at < len(v.out); {
		sent, err := v.conn.Write(v.out[at:])
		if at += sent; err == nil {
			continue
		}
		if !errors.Is(err, syscall.ENOBUFS) { // the interface is behind: the client asks again
			v.b.tally.add(countSendErrors)
			v.b.log.Warn("a DHCP answer could not be sent", "mac", v.macs[at].String(), "to", v.out[at].Far.String(), "error", err)
		}
		at++
	}
	v.out, v.macs = v.out[:0], v.macs[:0]
}

// stepped keeps account of a stage that was served, and says when it is a loop.
func (b *Booter) stepped(d *boot.Decision, xid uint32, now time.Time) {
	l := b.watch.Served(d, xid, now)
	if l.Count == 0 {
		return
	}
	b.tally.add(countLoops)
	told := *d
	told.Loop = l
	told = told.Deny(boot.Looping)
	b.log.Warn("a machine goes round in a loop; serving it rests", "mac", d.MAC.String(), "stage", l.Stage.String(), "times", l.Count, "until", l.Until, "why", told.Why())
}
