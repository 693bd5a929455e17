package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"

	muster "muster.internal"
	"muster.internal/capture"
	"muster.internal/explain"
)

// explainWire explains a capture.
func (a *app) explainWire(ctx context.Context, o explainFlags) error {
	w, err := a.readWire(ctx, o)
	if err != nil {
		return err
	}
	if err := a.show(w, func(out io.Writer) { a.drawWire(out, w) }); err != nil {
		return err
	}
	return incomplete(w)
}

// replayWire decides again what a capture shows.
func (a *app) replayWire(ctx context.Context, o explainFlags) error {
	w, err := a.readWire(ctx, o)
	if err != nil {
		return err
	}
	changes := explain.ReplayWire(w)
	if err := a.show(list(changes), func(out io.Writer) { a.drawChanges(out, changes) }); err != nil {
		return err
	}
	return incomplete(w)
}

// incomplete is the failure that a capture comes to which could not be read
// whole, once what could be read is shown.
func incomplete(w explain.Wire) error {
	if w.Incomplete == "" {
		return nil
	}
	return fmt.Errorf("the capture is not whole: %s; what is missing may be what matters", w.Incomplete)
}

// readWire reads a capture, and decides with what the control plane knows.
func (a *app) readWire(ctx context.Context, o explainFlags) (explain.Wire, error) {
	var in io.Reader = a.stdin
	if o.pcap != "-" {
		f, err := os.Open(a.abs(o.pcap))
		if err != nil {
			return explain.Wire{}, err
		}
		defer f.Close()
		in = f
	}
	file, err := capture.Read(in)
	if err != nil {
		return explain.Wire{}, &hinted{err: err, hint: "write one with tcpdump -w FILE, or save one from Wireshark as pcap or pcapng"}
	}
	if o.offline {
		none := explain.Site{Now: a.now(), Policy: muster.DefaultBootPolicy(), Servers: answering(file)}
		return explain.ReadWire(file, func(string) explain.Site { return none }), nil
	}
	f, err := a.fleet(ctx)
	if err != nil {
		return explain.Wire{}, err
	}
	k, err := a.knownSite(ctx, f)
	if err != nil {
		return explain.Wire{}, err
	}
	sites := map[string]explain.Site{}
	w := explain.ReadWire(file, func(mac string) explain.Site {
		s, ok := sites[mac]
		if !ok {
			r, e := f.BootRecord(ctx, mac)
			if e != nil && err == nil {
				err = e
			}
			s = k.site(r)
			sites[mac] = s
		}
		return s
	})
	return w, err
}

// answering are the servers of a capture. Without a control plane nobody knows
// which are ours: each is taken to be, so that what is meant for it is judged.
func answering(f capture.File) []netip.Addr {
	none := explain.ReadWire(f, func(string) explain.Site { return explain.Site{} })
	var as []netip.Addr
	for _, s := range none.Servers {
		if at, err := netip.ParseAddr(s.Address); err == nil {
			as = append(as, at)
		}
	}
	return as
}

// known is what the control plane decides with, read once.
type known struct {
	a       *app
	policy  muster.BootPolicy
	images  map[string]*muster.Image
	booters []muster.BooterStatus
}

func (a *app) knownSite(ctx context.Context, f muster.Fleet) (*known, error) {
	k := &known{a: a, images: map[string]*muster.Image{}}
	var err error
	if k.policy, err = f.BootPolicy(ctx); err != nil {
		return nil, err
	}
	if k.booters, err = f.Booters(ctx); err != nil {
		return nil, err
	}
	for _, b := range k.booters {
		for _, digest := range b.Staged {
			if _, ok := k.images[digest]; ok {
				continue
			}
			i, err := f.Image(ctx, digest)
			switch {
			case muster.IsCode(err, muster.CodeNotFound):
				k.images[digest] = nil
			case err != nil:
				return nil, err
			default:
				k.images[digest] = &i
			}
		}
	}
	return k, nil
}

// site is what any booter decides with on a record: one that has all that any
// of them has.
func (k *known) site(r muster.BootRecord) explain.Site {
	s := explain.Site{Now: k.a.now(), Policy: k.policy, Image: func(digest string) *muster.Image { return k.images[digest] }}
	if !r.Synthesized {
		s.Record = &r
	}
	for _, b := range k.booters {
		if at, err := netip.ParseAddr(b.Address); err == nil {
			s.Servers = append(s.Servers, at)
		}
	}
	return s
}

// asBooter narrows a site to what one booter has.
func (k *known) asBooter(s explain.Site, name string) explain.Site {
	for _, b := range k.booters {
		if b.Booter != name {
			continue
		}
		staged := b.Staged
		s.Image = func(digest string) *muster.Image {
			if slices.Contains(staged, digest) {
				return k.images[digest]
			}
			return nil
		}
		if at, err := netip.ParseAddr(b.Address); err == nil {
			s.Servers = []netip.Addr{at}
		}
	}
	return s
}
