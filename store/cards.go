package store

import (
	"fmt"
	"slices"

	"muster.internal"
	"muster.internal/inventory"
	"muster.internal/lifecycle"
)

// giveCards tells the machine behind a newcomer's cards its UUID: all that were
// seen and are no other machine's, and the one that it came by in any case.
func (t *tx) giveCards(n *muster.Machine, uuid, why string) error {
	for _, mac := range cardsOf(n) {
		r, err := findRecord(t, mac)
		if err != nil {
			return err
		}
		foreign := r.ServerUUID != "" && r.ServerUUID != uuid
		if r.stored == lifecycle.Unseen && mac != n.BootMAC || foreign && mac != n.BootMAC || r.OwnUUID == uuid {
			continue
		}
		if foreign && r.State == muster.Enrolled {
			return muster.Problemf(muster.CodeConflict, "network card %s boots for machine %s: first muster boot decommission %s and muster boot reactivate %s", mac, r.ServerUUID, mac, mac)
		}
		if r.stored == lifecycle.Unseen {
			next, err := r.raise(lifecycle.SetRecord, lifecycle.Facts{})
			if err != nil {
				return err
			}
			r.settle(next, "", nil)
		}
		r.touched = true
		if err := t.give(r, uuid, why); err != nil {
			return err
		}
	}
	return nil
}

// cardsOf are all that a newcomer showed, the one that it came by included.
func cardsOf(n *muster.Machine) []string {
	if n.BootMAC == "" || slices.Contains(n.MACs, n.BootMAC) {
		return n.MACs
	}
	return append(slices.Clone(n.MACs), n.BootMAC)
}

// moveNIC takes the newcomer's cards from the known machine.
func (t *tx) moveNIC(n *muster.Machine, of string) error {
	n.Reason = "its network cards are its own now: it gets in when it speaks again"
	return t.takeCards(n, of)
}

// moveToKnown gives a registered machine the cards that it shows and another
// one had.
func (t *tx) moveToKnown(n *muster.Machine, of string, cards []string) error {
	n.MACs = cards
	if err := t.takeCards(n, of); err != nil {
		return err
	}
	m, err := t.load(n.ServerUUID, cards...)
	if err != nil {
		return err
	}
	for _, mac := range cards {
		m.reg.addMAC(mac)
	}
	if m.reg.seq, err = t.record("evidence", subject(m.uuid), detail{"macs": m.reg.MACs, "from": of}); err != nil {
		return err
	}
	n.MACs, n.Reason = m.reg.MACs, "the card is its own from now on"
	if err := t.putRegistration(m.reg, m.had); err != nil {
		return err
	}
	return t.joinCards(m.uuid, cards)
}

// takeCards takes from the known machine the cards that the newcomer shows.
// Their records start over, with their addresses.
func (t *tx) takeCards(n *muster.Machine, of string) error {
	m, err := t.load(of, n.MACs...)
	if err != nil {
		return err
	}
	var moved []string
	for _, mac := range n.MACs {
		if !slices.Contains(m.reg.MACs, mac) && (m.boot(mac) < 0 || m.boots[m.boot(mac)].ServerUUID != m.uuid) {
			continue
		}
		moved = append(moved, mac)
		m.reg.MACs = slices.DeleteFunc(slices.Clone(m.reg.MACs), func(s string) bool { return s == mac })
	}
	if len(moved) == 0 {
		return nil
	}
	seq, err := t.record(string(lifecycle.MoveNIC), subject(m.uuid), detail{"macs": moved, "to": n.UUID})
	if err != nil {
		return err
	}
	m.reg.seq = seq
	if err := t.putRegistration(m.reg, m.had); err != nil {
		return err
	}
	for _, mac := range moved {
		if err := t.startOver(mac, m.uuid); err != nil {
			return err
		}
	}
	return nil
}

// startOver brings a bound record back to discovered: decommissioned, and
// reactivated.
func (t *tx) startOver(mac, of string) error {
	m, i, err := t.onRecord(mac)
	if err != nil {
		return err
	}
	c := &recordChange{t: t, m: m, i: i, r: m.boots[i]}
	if c.r.stored == lifecycle.Unseen || c.r.ServerUUID != of && c.r.OwnUUID != of {
		return nil
	}
	c.r.OwnUUID, c.touched = "", true
	if c.r.ServerUUID == of {
		for _, e := range []muster.Event{lifecycle.Decommission, lifecycle.Reactivate} {
			if _, err := c.raise(e, lifecycle.Facts{}); err != nil {
				return err
			}
		}
	}
	return c.put(lifecycle.MoveNIC, detail{"state": c.r.State, "address": c.r.Address, "from": of})
}

// joinCards serves a machine's new cards what its others are served, if it is
// set up: nothing else ever would, for it is not set up again. A card that is
// passed around joins nobody.
func (t *tx) joinCards(uuid string, cards []string) error {
	sh, err := t.shared()
	if err != nil {
		return err
	}
	m, err := t.load(uuid, cards...)
	if err != nil {
		return err
	}
	image := m.image()
	for _, mac := range cards {
		c := &recordChange{t: t, m: m, i: m.boot(mac), r: m.boots[m.boot(mac)]}
		if _, is := sh.MAC(mac); is || c.r.stored == lifecycle.Unseen {
			continue
		}
		if _, err := c.raise(lifecycle.JoinCard, lifecycle.Facts{}); err != nil {
			return err
		}
		if !c.touched {
			continue
		}
		c.r.AssignedPI, c.r.Note = image, ""
		if err := c.put(lifecycle.JoinCard, detail{"state": c.r.State, "address": c.r.Address, "server_uuid": uuid, "assigned_pi": image}); err != nil {
			return err
		}
	}
	return nil
}

// image is what the machine boots: its enrolled records' own, which an operator
// may have changed since its setup, or else the one that its setup pinned.
func (m *machine) image() *muster.ImageRef {
	for _, r := range m.boots {
		if r.State == muster.Enrolled && r.ServerUUID == m.uuid && r.AssignedPI != nil {
			return r.AssignedPI
		}
	}
	return m.reg.AssignedPI
}

// holder is the registered machine that has a card which another registered one
// shows and never had; nil: there is none. The cards are that machine's.
func (t *tx) holder(m *machine, sh *inventory.Shared, what said, but ...string) (*machine, []string, inventory.Verdict, error) {
	new := slices.DeleteFunc(sh.Evidence(what.facts).MACs, func(mac string) bool { return slices.Contains(m.reg.MACs, mac) })
	h, v, err := t.rival(m.uuid, sh, inventory.Evidence{UUID: m.uuid, MACs: new}, but...)
	if err != nil || h == nil {
		return nil, nil, v, err
	}
	cards := slices.DeleteFunc(new, func(mac string) bool { return !slices.Contains(h.reg.MACs, mac) })
	v.Case, v.Reason = inventory.NICTwice, fmt.Sprintf("NIC %s is machine %s's, and machine %s shows it, which is registered itself: the card or dongle moved, or two machines have one MAC address",
		cards[0], h.uuid, m.uuid)
	return h, cards, v, nil
}

// withhold takes from what a machine says the cards that others have, for as
// long as no operator said whose they are. It returns what is odd about that.
func (t *tx) withhold(m *machine, sh *inventory.Shared, what *said) (odd inventory.Verdict, err error) {
	for {
		h, cards, v, err := t.holder(m, sh, *what)
		if err != nil || h == nil {
			return odd, err
		}
		if odd.Case == "" {
			odd = v
		}
		theirs := func(mac string) bool { return slices.Contains(cards, mac) }
		what.facts.MACs = slices.DeleteFunc(slices.Clone(what.facts.MACs), theirs)
		if theirs(what.facts.AdminMAC) {
			what.facts.AdminMAC = ""
		}
		m.boots = slices.DeleteFunc(m.boots, func(r *record) bool { return theirs(r.MAC) && r.ServerUUID != m.uuid })
	}
}

// odd writes down what is odd about a machine that shows its key: that other
// hardware uses it than it was given to, for the key proves more than the
// hardware does; or that it shows cards that another machine has.
func (t *tx) odd(m *machine, what *said) error {
	if len(what.redacted) == 0 {
		return nil
	}
	sh, err := t.shared()
	if err != nil {
		return err
	}
	known, now := sh.EvidenceOf(m.reg.Registration), sh.Evidence(what.facts)
	known.Key, now.Key = m.reg.BoundKeyID, m.reg.BoundKeyID
	odd, err := t.withhold(m, sh, what)
	if err != nil {
		return err
	}
	if v := inventory.Judge(known, now); v.Outcome == inventory.SameKeyNewHardware {
		odd = v
	}
	return t.noteOddity(m.uuid, odd, what.facts)
}

// noteOddity keeps what is odd about a registered machine. That it shows
// another's card is over when it does not any more; the rest waits for an
// operator.
func (t *tx) noteOddity(uuid string, v inventory.Verdict, f inventory.Facts) error {
	n, err := findHardware(t, machineOf, uuid)
	if err != nil || n == nil || n.Case == string(v.Case) && n.Reason == v.Reason || v.Case == "" && n.Case != string(inventory.NICTwice) {
		return err
	}
	if v.Case == "" {
		v.Reason = ""
	}
	seq, err := t.record("hardware_changed", "machine-of/"+uuid, detail{"case": v.Case, "reason": v.Reason, "serial": f.Serial, "macs": f.MACs})
	if err != nil {
		return err
	}
	_, err = t.exec(setOddity, uuid, string(v.Case), v.Reason, seq)
	return err
}

// twice finds, for a registered machine that shows another's card, the other one
// and the cards, from what it said last. There is none when the other is gone.
func (t *tx) twice(n *muster.Machine, sh *inventory.Shared) (*machine, []string, error) {
	none := &machine{reg: &registration{}}
	var document string
	found, err := t.get(getSysinfo, []any{n.ServerUUID}, &document)
	if err != nil || !found {
		return none, nil, err
	}
	f, err := inventory.Parse([]byte(document))
	if err != nil {
		return none, nil, err
	}
	m, err := t.load(n.ServerUUID)
	if err != nil {
		return none, nil, err
	}
	h, cards, _, err := t.holder(m, sh, said{facts: f})
	if h == nil {
		h = none
	}
	return h, cards, err
}
