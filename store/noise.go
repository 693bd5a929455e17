package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"muster.internal"
	"muster.internal/lifecycle"
)

// Caps on what machines that nobody approved may leave behind. They keep a
// flood of made-up addresses from filling the disk; each ends by itself.
const (
	cardsPerBooter  = 5000  // discovered cards that one booter saw first
	cardsInAll      = 10000 // discovered or enrolling ones behind which no machine said who it is
	machinesWaiting = 10000 // pending or awaiting_setup
	machinesOfMAC   = 64    // of those, behind one card: a dongle that is passed around
	reserveAtMost   = 64    // addresses of a network that policy leaves to operators; an eighth of a small one
)

// An unannounced card is one that no operator touched, that is bound to no
// machine, and that no machine has named as its own.
const unannounced = `touched = 0 AND server_uuid = '' AND state IN ('discovered', 'enrolling')
 AND NOT EXISTS (SELECT 1 FROM evidence e WHERE e.kind = 'mac' AND e.value = boot_records.mac)`

var (
	noiseCards = define("noise/cards", `
SELECT origin, network, CASE WHEN address <> '' THEN 1 ELSE 0 END, count(*) FROM boot_records WHERE `+unannounced+`
GROUP BY origin, network, CASE WHEN address <> '' THEN 1 ELSE 0 END`)
	noiseMachines = define("noise/machines", `SELECT count(*) FROM registrations WHERE state IN ('pending', 'awaiting_setup')`)
	noiseOfMAC    = define("noise/of-mac", `SELECT count(*) FROM registrations WHERE state = 'awaiting_setup' AND boot_mac = $1`)
	isAnnounced   = define("noise/announced", `SELECT machine_id FROM evidence WHERE kind = 'mac' AND value = $1 LIMIT 1`)
	cardsDue      = define("clock/cards", `
SELECT mac FROM boot_records WHERE `+unannounced+` AND mode = 'normal' AND pi_name = '' AND pi_digest = '' AND probe_since IS NULL
 AND last_seen <= CASE WHEN state = 'enrolling' THEN CAST($1 AS bigint) ELSE CAST($2 AS bigint) END ORDER BY last_seen, mac LIMIT 5000`)
	lapsesDue = define("clock/lapses", `
SELECT server_uuid FROM registrations r WHERE state IN ('pending', 'awaiting_setup') AND last_seen <= $1
 AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.server_uuid = r.server_uuid AND n.state <> 'decommissioned')
 AND NOT EXISTS (SELECT 1 FROM boot_records b WHERE b.server_uuid = r.server_uuid AND b.server_uuid <> '') ORDER BY server_uuid LIMIT 5000`)
	dropRecord    = define("boot-records/drop", `DELETE FROM boot_records WHERE mac = $1 AND state = $2 AND seq = $3`)
	networksInUse = define("networks/use", `SELECT network, address FROM boot_records WHERE address <> ''`)
)

// noise counts unannounced cards.
type noise struct {
	all      int
	byBooter map[string]int // discovered
	onNet    map[string]int // with an address
}

func countNoise(from source) (noise, error) {
	n := noise{byBooter: map[string]int{}, onNet: map[string]int{}}
	err := from.each(noiseCards, nil, func(scan func(...any) error) error {
		var origin, network string
		var has, count int
		if err := scan(&origin, &network, &has, &count); err != nil {
			return err
		}
		n.all += count
		if has == 1 {
			n.onNet[network] += count
		} else {
			n.byBooter[origin] += count
		}
		return nil
	})
	return n, err
}

// count loads the noise once a transaction.
func (a *admission) count() (*noise, error) {
	if a.noise == nil {
		n, err := countNoise(a.t)
		if err != nil {
			return nil, err
		}
		a.noise = &n
	}
	return a.noise, nil
}

// roomForCard tells whether one more card may be written down.
func (a *admission) roomForCard() (bool, error) {
	n, err := a.count()
	if err != nil || n.all >= cardsInAll || n.byBooter[a.booter] >= cardsPerBooter {
		return false, err
	}
	n.all++
	n.byBooter[a.booter]++
	return true, nil
}

// roomForMachine refuses one more unapproved machine when there are too many.
func (t *tx) roomForMachine(mac string) error {
	var n int
	if _, err := t.get(noiseMachines, nil, &n); err != nil {
		return err
	}
	if n >= machinesWaiting {
		p := muster.Problemf(muster.CodeTooMany, "%d machines wait for an operator already, which is the most that are kept: approve or delete some; those that fall silent lapse after %s", n, days(lifecycle.LapseDeadline))
		p.RetryAfter = 600
		return p
	}
	if mac == "" {
		return nil
	}
	if _, err := t.get(noiseOfMAC, []any{mac}, &n); err != nil || n < machinesOfMAC {
		return err
	}
	p := muster.Problemf(muster.CodeTooMany, "%d machines that came by network card %s wait for an operator already, which is the most that are kept of one card", n, mac)
	p.RetryAfter = 600
	return p
}

func days(d time.Duration) string { return fmt.Sprintf("%d days", d/(24*time.Hour)) }

// A pool is the addresses of one network that may be given out.
type pool struct {
	net      *muster.AdminNetwork
	from, to netip.Addr
	never    map[netip.Addr]bool // in the range, and somebody's already
	total    int
	reserve  int // left to operators
}

// newPool: the addresses of gateway, resolvers, relays and booters are never
// given, nor those of network and broadcast, which no range may hold.
func newPool(n *muster.AdminNetwork, booters []string) pool {
	p := pool{net: n, from: netip.MustParseAddr(n.Start), to: netip.MustParseAddr(n.End), never: map[netip.Addr]bool{}}
	for _, s := range slices.Concat([]string{n.Gateway}, n.Resolvers, n.Giaddrs, booters) {
		if at, err := netip.ParseAddr(s); err == nil && p.holds(at) {
			p.never[at] = true
		}
	}
	p.total = size(p.from, p.to) - len(p.never)
	p.reserve = min(reserveAtMost, p.total/8)
	return p
}

func (p pool) holds(at netip.Addr) bool { return at.Is4() && !at.Less(p.from) && !p.to.Less(at) }

func size(from, to netip.Addr) int {
	a, b := from.As4(), to.As4()
	n := func(o [4]byte) int { return int(o[0])<<24 | int(o[1])<<16 | int(o[2])<<8 | int(o[3]) }
	return n(b) - n(a) + 1
}

// booterAddresses are where booters serve: they are never given to a machine.
func booterAddresses(from source) ([]string, error) {
	var all []string
	err := from.each(bootersAll, nil, func(scan func(...any) error) error {
		var document string
		var seen int64
		if err := scan(&document, &seen); err != nil {
			return err
		}
		var b muster.BooterStatus
		if err := json.Unmarshal([]byte(document), &b); err == nil && b.Address != "" {
			all = append(all, b.Address)
		}
		return nil
	})
	return all, err
}

// NetworkUsage counts the addresses of every admin network.
func (s *Store) NetworkUsage(ctx context.Context) ([]muster.NetworkUsage, error) {
	var all []muster.NetworkUsage
	err := s.snapshot(ctx, "counting addresses", func(r *reading) error {
		all = []muster.NetworkUsage{}
		policy, err := findPolicy(r)
		if err != nil {
			return err
		}
		booters, err := booterAddresses(r)
		if err != nil {
			return err
		}
		n, err := countNoise(r)
		if err != nil {
			return err
		}
		used := map[netip.Addr]string{}
		if err := r.each(networksInUse, nil, func(scan func(...any) error) error {
			var network, address string
			if err := scan(&network, &address); err != nil {
				return err
			}
			at, err := netip.ParseAddr(address)
			used[at] = network
			return err
		}); err != nil {
			return err
		}
		for i := range policy.Networks {
			p := newPool(&policy.Networks[i], booters)
			all = append(all, p.usage(used, n.onNet[p.net.Name]))
		}
		return nil
	})
	return all, err
}

func (p pool) usage(used map[netip.Addr]string, unannounced int) muster.NetworkUsage {
	u := muster.NetworkUsage{Name: p.net.Name, Total: p.total, Unannounced: unannounced, UnannouncedCap: p.total - p.reserve}
	for at, network := range used {
		switch {
		case p.holds(at) && !p.never[at]:
			u.Used++
		case network == p.net.Name:
			u.Outside++
		}
	}
	u.Free = u.Total - u.Used
	switch {
	case u.Free == 0:
		u.Note = "no address is free: new machines are met with silence; widen start to end, or wait until unused reservations expire"
	case u.Unannounced >= u.UnannouncedCap:
		u.Note = fmt.Sprintf("%d addresses are held by cards behind which no machine said who it is: the rest is kept for muster boot enroll, and new cards are met with silence until some expire", u.Unannounced)
	}
	return u
}

// NoiseLimits says how near the caps are.
func (s *Store) NoiseLimits(ctx context.Context) ([]muster.NoiseLimit, error) {
	var all []muster.NoiseLimit
	err := s.snapshot(ctx, "counting noise", func(r *reading) error {
		n, err := countNoise(r)
		if err != nil {
			return err
		}
		var machines, newcomers int
		if _, err := r.get(noiseMachines, nil, &machines); err != nil {
			return err
		}
		if _, err := r.get(newcomerCount, nil, &newcomers); err != nil {
			return err
		}
		seconds := func(d time.Duration) int { return int(d / time.Second) }
		all = []muster.NoiseLimit{
			{Name: "cards behind which no machine said who it is", Used: n.all, Cap: cardsInAll, Expires: seconds(lifecycle.UnannouncedDeadline)},
			{Name: "machines that wait for an operator", Used: machines, Cap: machinesWaiting, Expires: seconds(lifecycle.LapseDeadline)},
			{Name: "newcomers in conflict", Used: newcomers, Cap: newcomersKept, Expires: seconds(lifecycle.ConflictDeadline)},
		}
		for _, b := range slices.Sorted(maps.Keys(n.byBooter)) {
			all = append(all, muster.NoiseLimit{Name: "cards without an address", Booter: b, Used: n.byBooter[b], Cap: cardsPerBooter, Expires: seconds(lifecycle.LapseDeadline)})
		}
		for i := range all {
			if all[i].Used >= all[i].Cap {
				all[i].Note = "the cap bites: nothing new is written down until some are approved, removed or expire"
			}
		}
		return nil
	})
	return all, err
}

// expireConflict forgets a newcomer that is not heard any more.
func (t *tx) expireConflict(id string) (bool, error) {
	n, err := findHardware(t, getMachine, id)
	if err != nil || n == nil || n.State != muster.MachineConflict {
		return false, err
	}
	due := !t.now.Before(n.LastSeen.Add(lifecycle.ConflictDeadline))
	if _, err := lifecycle.Apply(lifecycle.State{Machine: n.State}, lifecycle.ExpireConflict, -1, lifecycle.Facts{Overdue: due}); err != nil {
		return false, refusal(err, "machine "+id)
	}
	if _, err := t.record(string(lifecycle.ExpireConflict), machineSubject(id), detail{"uuid": n.UUID, "mac": n.BootMAC, "incumbent": n.Incumbent}); err != nil {
		return false, err
	}
	return true, t.forgetNewcomer(n)
}

// lapse forgets a machine that nobody approved and that fell silent.
func (t *tx) lapse(uuid string) (bool, error) {
	m, err := t.load(uuid)
	if err != nil || m.had == lifecycle.NoRegistration {
		return false, err
	}
	due := !t.now.Before(m.reg.LastSeen.Add(lifecycle.LapseDeadline))
	return true, t.end(m, lifecycle.Lapse, lifecycle.Facts{Overdue: due}, "nobody approved it, and it was not heard any more")
}

// A batch of cards that are forgotten has one entry in the audit.
const cardsPerEntry = 500

// expireCards forgets cards that nobody wanted, many in one transaction, and
// frees their addresses.
func (s *Store) expireCards(ctx context.Context, now time.Time) (int, error) {
	var macs []string
	err := s.read(ctx, "looking for cards that nobody wanted", func(r *reading) error {
		macs = macs[:0]
		return r.each(cardsDue, []any{micro(now.Add(-lifecycle.UnannouncedDeadline)), micro(now.Add(-lifecycle.LapseDeadline))}, func(scan func(...any) error) error {
			macs = append(macs, "")
			return scan(&macs[len(macs)-1])
		})
	})
	n := 0
	for chunk := range slices.Chunk(macs, cardsPerEntry) {
		gone := 0
		if e := s.write(ctx, "forgetting cards", now, muster.Clock, func(t *tx) (err error) {
			gone, err = t.forgetCards(chunk)
			return err
		}); e != nil {
			err = e
		}
		n += gone
	}
	return n, err
}

func (t *tx) forgetCards(macs []string) (int, error) {
	var gone []string
	freed := 0
	for _, mac := range macs {
		r, err := findRecord(t, mac)
		if err != nil {
			return 0, err
		}
		var of string
		announced, err := t.get(isAnnounced, []any{mac}, &of)
		if err != nil {
			return 0, err
		}
		after := lifecycle.LapseDeadline
		if r.State == muster.Enrolling {
			after = lifecycle.UnannouncedDeadline
		}
		next, err := r.raise(lifecycle.ExpireRecord, lifecycle.Facts{Overdue: over(t.now, r.LastSeen, after), Unwanted: !announced && !r.touched})
		if err != nil || next.State != lifecycle.Unseen {
			continue // it was seen, or touched, since
		}
		if err := t.change(dropRecord, mac, string(r.stored), r.storedSeq); err != nil {
			return 0, err
		}
		gone = append(gone, mac)
		if r.Address != "" {
			freed++
		}
	}
	if len(gone) == 0 {
		return 0, nil
	}
	_, err := t.record(string(lifecycle.ExpireRecord), "boot-records", detail{"macs": gone, "addresses_freed": freed})
	return len(gone), err
}
