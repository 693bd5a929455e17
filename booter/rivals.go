package booter

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"muster.internal"
	"muster.internal/boot"
	"muster.internal/dhcp"
)

// A refusal is a DHCPNAK (RFC 2132 §9.6) of another server, one that thinks that
// the segment is its own. Nothing of ours sends one, so that dhcp has no name
// for it.
const refusal dhcp.MessageType = 6

const maxRivals = 64 // servers that are told apart; whoever makes up more does not fill memory

// rivals are the other DHCP servers of the segment. One that says what the boot
// records say is another booter, or as good as one; any other takes machines
// away from their addresses and is warned of, once.
type rivals struct {
	log   *slog.Logger
	tally *tally
	proxy bool // one is meant to be there

	mu   sync.Mutex
	seen map[netip.Addr]*muster.OtherServer
}

func newRivals(log *slog.Logger, t *tally, proxy bool) *rivals {
	return &rivals{log: log, tally: t, proxy: proxy, seen: map[netip.Addr]*muster.OtherServer{}}
}

// note takes in that a server gave, or was asked for, an address for a machine.
// Same: it is what the machine's record says.
func (r *rivals) note(server netip.Addr, m dhcp.MAC, offered netip.Addr, same bool, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.seen[server]
	if s == nil {
		if len(r.seen) >= maxRivals {
			r.tally.add(countServersUnlisted)
			return
		}
		s = &muster.OtherServer{Address: server.String(), FirstSeen: now}
		r.seen[server] = s
	}
	s.LastSeen = now
	if same {
		if s.Same++; s.Same == 1 {
			r.log.Info("another server answers as the boot records say; it is taken for another booter", "server", server)
		}
		return
	}
	r.tally.add(countForeignAnswers)
	if s.Differs++; s.Differs > 1 {
		return
	}
	if s.MAC = m.String(); offered.IsValid() && !offered.IsUnspecified() {
		s.Offered = offered.String()
	}
	if r.proxy {
		r.log.Info("a DHCP server of the site gives addresses here", "server", server, "mac", s.MAC, "offered", s.Offered)
		return
	}
	r.log.Warn("a second DHCP server answers on this segment; machines that take its offer do not boot from here",
		"server", server, "mac", s.MAC, "offered", s.Offered, "hint", "turn it off here, let it leave these machines alone, or run this booter with --proxy beside it")
}

// list is for the status.
func (r *rivals) list() []muster.OtherServer {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []muster.OtherServer
	for _, s := range r.seen {
		all = append(all, *s)
	}
	slices.SortFunc(all, func(a, b muster.OtherServer) int {
		return netip.MustParseAddr(a.Address).Compare(netip.MustParseAddr(b.Address))
	})
	return all
}

// witness takes in what a client's message tells of the server that it has
// chosen, and of the address that it has from it.
func (b *Booter) witness(x *boot.Exchange, now time.Time) {
	q := &x.Request
	if q.Type != dhcp.Request && q.Type != dhcp.Inform || !q.Claimed.IsValid() {
		return
	}
	if b.cfg.Proxy {
		b.dir.give(q.MAC, q.Claimed)
	}
	if !q.ServerID.IsValid() || q.ServerID == b.cfg.Address || q.ServerID.IsUnspecified() {
		return
	}
	if m := b.dir.lookup(q.MAC); m != nil && m.Address != "" {
		b.rivals.note(q.ServerID, q.MAC, q.Claimed, m.Reserves(q.Claimed), now)
	}
}

// listenServers hears what other DHCP servers say, until ctx ends.
func (b *Booter) listenServers(ctx context.Context) error {
	buf := make([]byte, dhcp.MaxSize+128)
	var p dhcp.Packet
	for {
		msg, from, err := b.frames.receive(buf)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, os.ErrClosed) {
				return nil
			}
			if passingRead(err) {
				continue
			}
			return err
		}
		b.heard(&p, msg, from)
	}
}

// heard takes in one message of another DHCP server, or of a relay.
func (b *Booter) heard(p *dhcp.Packet, msg []byte, from netip.Addr) {
	if p.Parse(msg) != nil || p.Op != dhcp.BootReply {
		return
	}
	t := p.Type()
	server := p.Addr(dhcp.OptServerID)
	if !server.IsValid() {
		server = from
	}
	m, ok := p.MAC()
	if !ok || t != dhcp.Offer && t != dhcp.Ack && t != refusal || server == b.cfg.Address || server.IsUnspecified() {
		return
	}
	// Another booter may know a machine before we do: its boot files name it.
	b.rivals.note(server, m, p.YIAddr, b.dir.lookup(m).Reserves(p.YIAddr) || boot.Ours(p, m), b.now())
	if t == dhcp.Ack {
		b.dir.give(m, p.YIAddr)
	}
}
