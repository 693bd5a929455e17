// Package booter is the boot server: DHCP, TFTP, HTTP and the boot bus of one
// segment. It answers from memory, by decisions of package boot, and asks the
// control plane nothing while a machine waits for a packet.
//
// It must never send a DHCPNAK, serve a byte that package boot has not decided
// to serve, or send an install twice.
package booter

import (
	"maps"
	"net/netip"
	"slices"
	"sync"

	"muster.internal"
	"muster.internal/boot"
	"muster.internal/dhcp"
)

// A Directory is what the booter knows of machines, policy and approved
// installs: a copy that follows the control plane's change feed. Lookups are
// O(1) and allocate nothing. Values handed out are shared and must not be
// changed.
type Directory struct {
	mu       sync.RWMutex
	seq      int64
	machines map[dhcp.MAC]*boot.Machine
	policy   *boot.Policy
	installs []muster.Install
	live     bool // the control plane has spoken since this process started
	proxy    bool // a DHCP server of the site gives addresses: given, not the records', count
	given    map[dhcp.MAC]netip.Addr
	givenTo  map[netip.Addr]dhcp.MAC
	changed  chan struct{} // closed at the next change
}

// newDirectory returns an empty directory: every machine is unknown.
func newDirectory() *Directory {
	p := muster.DefaultBootPolicy()
	return &Directory{machines: map[dhcp.MAC]*boot.Machine{}, policy: boot.NewPolicy(&p), changed: make(chan struct{})}
}

// Record returns the boot record of a MAC in any usual spelling. Not ok: the
// control plane has never told of it. Beside a DHCP server of the site its
// address is the one that server was seen to give; empty: none was seen.
func (d *Directory) Record(mac string) (muster.BootRecord, bool) {
	m, err := dhcp.ParseMAC(mac)
	if err != nil {
		return muster.BootRecord{}, false
	}
	r := d.lookup(m)
	if r == nil {
		return muster.BootRecord{}, false
	}
	out := r.BootRecord
	if d.proxy {
		d.mu.RLock()
		defer d.mu.RUnlock()
		if out.Address = ""; d.given[m].IsValid() {
			out.Address = d.given[m].String()
		}
	}
	return out, true
}

// give notes the address that the site's DHCP server has given to a machine,
// as the machine itself or that server says. An address is one machine's: the
// last that has it.
func (d *Directory) give(m dhcp.MAC, a netip.Addr) {
	if !d.proxy || !a.Is4() || a.IsUnspecified() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.given[m] == a || d.machines[m] == nil {
		return // strangers are not remembered
	}
	if d.given == nil {
		d.given, d.givenTo = map[dhcp.MAC]netip.Addr{}, map[netip.Addr]dhcp.MAC{}
	}
	if other, ok := d.givenTo[a]; ok {
		delete(d.given, other)
	}
	delete(d.givenTo, d.given[m])
	d.given[m], d.givenTo[a] = a, m
	d.wake()
}

// givenAddresses are those that the site's DHCP server was seen to give; for
// the cache.
func (d *Directory) givenAddresses() map[string]netip.Addr {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if len(d.given) == 0 {
		return nil
	}
	all := make(map[string]netip.Addr, len(d.given))
	for m, a := range d.given {
		all[m.String()] = a
	}
	return all
}

// Installs returns the setups that are approved and not over.
func (d *Directory) Installs() []muster.Install {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return slices.Clone(d.installs)
}

// Changed returns a channel that is closed at the next change. Take it before
// reading, or a change in between goes unnoticed.
func (d *Directory) Changed() <-chan struct{} {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.changed
}

// Live tells whether the control plane has spoken since this process started;
// before that the directory is what the cache remembers.
func (d *Directory) Live() bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.live
}

// Seq is the position in the change feed.
func (d *Directory) Seq() int64 {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.seq
}

// lookup finds a machine; nil: unknown.
func (d *Directory) lookup(m dhcp.MAC) *boot.Machine {
	r, _ := d.judgedBy(m)
	return r
}

// judgedBy is what a decision about a machine goes by; for the packet path.
func (d *Directory) judgedBy(m dhcp.MAC) (*boot.Machine, *boot.Policy) {
	d.mu.RLock()
	r, p := d.machines[m], d.policy
	d.mu.RUnlock()
	return r, p
}

// Apply takes in an answer of the change feed to the question what came after
// position after. The answer to 0 is everything and replaces what is known.
// Records whose MAC cannot be read are left out, and returned.
func (d *Directory) Apply(after int64, f muster.BooterFeed) (odd []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	news := after == 0 || len(f.Records) > 0 || f.Policy != nil || !d.live || !slices.Equal(d.installs, f.Installs)
	if after == 0 {
		d.machines = make(map[dhcp.MAC]*boot.Machine, len(f.Records))
	}
	for i := range f.Records {
		if !d.put(&f.Records[i]) {
			odd = append(odd, f.Records[i].MAC)
		}
	}
	if f.Policy != nil {
		d.policy = boot.NewPolicy(f.Policy)
	}
	d.seq, d.installs, d.live = f.Seq, slices.Clone(f.Installs), true
	if news {
		d.wake()
	}
	return odd
}

// Learn takes in records that came as the answer to a sighting, ahead of the
// feed.
func (d *Directory) Learn(records []muster.BootRecord) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range records {
		d.put(&records[i])
	}
	d.wake()
}

// put reads r and stores it unless a later one is known.
func (d *Directory) put(r *muster.BootRecord) bool {
	m, err := dhcp.ParseMAC(r.MAC)
	if err != nil {
		return false
	}
	if old := d.machines[m]; old == nil || r.Seq >= old.Seq {
		d.machines[m] = boot.NewMachine(r)
	}
	return true
}

func (d *Directory) wake() {
	close(d.changed)
	d.changed = make(chan struct{})
}

// snapshot copies the directory as one answer of the feed; for the cache.
func (d *Directory) snapshot() muster.BooterFeed {
	d.mu.RLock()
	defer d.mu.RUnlock()
	f := muster.BooterFeed{Seq: d.seq, Policy: d.policy.BootPolicy, Installs: slices.Clone(d.installs),
		Records: make([]muster.BootRecord, 0, len(d.machines))}
	keys := slices.SortedFunc(maps.Keys(d.machines), func(a, b dhcp.MAC) int { return slices.Compare(a[:], b[:]) })
	for _, m := range keys {
		f.Records = append(f.Records, d.machines[m].BootRecord)
	}
	return f
}

// restore takes in a snapshot from the cache. The control plane has not
// confirmed it, and installs are never resumed from it: only a session that the
// control plane still stands by may be sent anything.
func (d *Directory) restore(f muster.BooterFeed) {
	f.Installs = nil
	d.Apply(0, f)
	d.mu.Lock()
	d.live = false
	d.mu.Unlock()
}
