package booter

import (
	"context"
	"net"
	"net/netip"

	"muster.internal/boot"
	"muster.internal/dhcp"
)

// A responder answers DHCP messages one at a time. All its memory is reused:
// an exchange creates no garbage.
type responder struct {
	b        *Booter
	packet   dhcp.Packet
	out, buf []byte
}

// answer turns a message into an answer and its destination; nil: silence.
func (r *responder) answer(msg []byte, src netip.AddrPort, index int) ([]byte, netip.AddrPort) {
	b := r.b
	p := &r.packet
	if p.Parse(msg) != nil || p.Op != dhcp.BootRequest {
		b.tally.add(countMalformed)
		return nil, src
	}
	q, ok := boot.FromDHCP(p)
	if !ok {
		b.tally.add(countNotEthernet)
		return nil, src
	}
	d, rec := b.decide(q)
	now := b.now()
	if d.Sight {
		b.sight.packet(p, &q, &d, rec != nil, index, now)
	}
	if !d.Serve {
		b.quiet.note(boot.DHCP, &d, now)
		b.traces.packet(&q, &d, msg, nil, src, src, index, now)
		return nil, src
	}
	if q.Type == dhcp.Discover {
		b.tally.add(countOffers)
	} else {
		b.tally.add(countAcks)
	}
	r.out = boot.AppendOffer(r.out[:0], r.buf, &d, p, b.site, b.cfg.Address)
	dst := dhcp.Destination(p, src)
	b.traces.packet(&q, &d, msg, r.out, src, dst, index, now)
	return r.out, dst
}

// serveDHCP answers until the socket is closed. One goroutine is enough: an
// answer takes less time than the two system calls around it.
func (b *Booter) serveDHCP(ctx context.Context) error {
	r := &responder{b: b, out: make([]byte, 0, 2048), buf: make([]byte, 0, 512)}
	in, oob, from := make([]byte, dhcp.MaxSize+1), make([]byte, 128), make([]byte, 0, 64)
	bound := !b.dhcp.LocalAddr().(*net.UDPAddr).IP.IsUnspecified()
	for {
		n, on, _, src, err := b.dhcp.ReadMsgUDPAddrPort(in, oob)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			if passingRead(err) {
				continue
			}
			return err
		}
		index := arrival(oob[:on])
		out, dst := r.answer(in[:n], src, index)
		if out == nil {
			continue
		}
		from = from[:0]
		if !bound {
			if dst.Addr() != netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
				index = 0 // the routes know where a relay is
			}
			from = departure(from, b.cfg.Address, index)
		}
		if _, _, err := b.dhcp.WriteMsgUDPAddrPort(out, from, dst); err != nil {
			b.tally.add(countSendErrors)
			b.log.Warn("a DHCP answer could not be sent", "mac", macOf(&r.packet), "to", dst.String(), "error", err)
		}
	}
}

func macOf(p *dhcp.Packet) string {
	m, _ := p.MAC()
	return m.String()
}
