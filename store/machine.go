package store

import (
	"errors"
	"slices"

	"muster.internal"
	"muster.internal/lifecycle"
)

// A machine is everything that the rows may look at about one machine, as it
// stands in the open transaction. Nothing is decided here: what may happen is
// lifecycle's to say.
type machine struct {
	uuid  string
	reg   *registration
	had   muster.RegistrationState // as stored; lifecycle.NoRegistration: no row
	boots []*record
	node  muster.Node
	disks []*disk
	tomb  *tombstone // nil: nothing keeps it out

	reason string // of the expunge that is being written
	// The ends of what a setup's script answered, for its log.
	stdout, stderr string
}

// load reads a machine with the records bound to it, those of the MACs it
// reported, and those of macs.
func (t *tx) load(uuid string, macs ...string) (*machine, error) {
	m, err := findMachine(t, uuid, macs...)
	if err == nil && m.had == lifecycle.NoRegistration {
		m.reg.RegisteredAt = t.now
	}
	return m, err
}

func findMachine(from source, uuid string, macs ...string) (*machine, error) {
	m := &machine{uuid: uuid}
	reg, err := registered(from, uuid)
	if err != nil {
		return nil, err
	}
	if reg != nil {
		uuid, m.uuid = reg.ServerUUID, reg.ServerUUID
	} else {
		// A tombstone outlives its registration, in every spelling.
		other := muster.SwapUUID(uuid)
		buried, err := findTombstone(from, other)
		if err != nil {
			return nil, err
		}
		if buried != nil {
			uuid, m.uuid = other, other
		}
		reg = &registration{Registration: muster.Registration{ServerUUID: uuid}}
	}
	m.reg, m.had = reg, reg.State
	if m.boots, err = records(from, recordsOfMachine, uuid); err != nil {
		return nil, err
	}
	for _, mac := range slices.Concat(reg.MACs, macs) {
		if m.boot(mac) >= 0 {
			continue
		}
		r, err := findRecord(from, mac)
		if err != nil {
			return nil, err
		}
		m.boots = append(m.boots, r)
	}
	if m.tomb, err = findTombstone(from, uuid); err != nil {
		return nil, err
	}
	if m.node, err = findNode(from, uuid); err != nil {
		return nil, err
	}
	m.disks, err = findDisks(from, m.node.ID, reg.DiskLayout)
	return m, err
}

func (m *machine) boot(mac string) int {
	return slices.IndexFunc(m.boots, func(r *record) bool { return r.MAC == mac })
}

// look is the machine as the rows see it.
func (m *machine) look() lifecycle.State {
	s := lifecycle.State{
		Registration: m.had,
		Credential:   m.reg.credential,
		Bundle:       m.reg.bundle,
		NodePolicy:   m.node.Policy,
		NodeState:    m.node.State,
	}
	if m.had != lifecycle.NoRegistration {
		s.Machine = muster.MachineKnown
	}
	if len(m.reg.claimHash) > 0 {
		s.Claim = lifecycle.ClaimOpen
	}
	if m.reg.wasDisabled {
		s.Past = lifecycle.WasDisabled
	}
	if m.tomb != nil {
		s.Tombstone = lifecycle.Tombstoned
	}
	if m.reg.AssignedPI != nil {
		s.Image = lifecycle.Assigned
	}
	for _, r := range m.boots {
		s.Boots = append(s.Boots, r.look(m.uuid))
	}
	for _, d := range m.disks {
		s.Disks = append(s.Disks, lifecycle.Disk{Policy: d.policy, State: d.state, Planned: d.planned != nil})
	}
	return s
}

// raise asks the rows what becomes of the machine. changed is false when the
// event leaves every lifecycle where it is.
func (m *machine) raise(e muster.Event, f lifecycle.Facts) (next lifecycle.State, changed bool, err error) {
	old := m.look()
	next, err = lifecycle.Apply(old, e, -1, f)
	return next, err == nil && !next.Equal(old), refusal(err, "machine "+m.uuid)
}

// refusal makes a refused event the problem that the caller gets.
func refusal(err error, subject string) error {
	var r *lifecycle.Refusal
	if !errors.As(err, &r) {
		return err
	}
	r.Subject = subject
	return r.Problem()
}

// save writes the difference between the machine and next, and whatever else
// was changed in its registration, at seq in the feed.
func (t *tx) save(m *machine, next lifecycle.State, seq int64) error {
	old := m.look()
	if err := t.saveTombstone(m, next, seq); err != nil {
		return err
	}
	if leaves(old, next) {
		if _, err := t.exec(dropRootPassword, m.uuid); err != nil {
			return err
		}
	}
	for i, r := range m.boots {
		if next.Boots[i] == old.Boots[i] {
			continue
		}
		r.settle(next.Boots[i], m.uuid, m.reg.AssignedPI)
		if err := t.putRecord(r, seq); err != nil {
			return err
		}
	}
	if err := t.putNode(m, next, seq); err != nil {
		return err
	}
	if err := t.putDisks(m, next, seq); err != nil {
		return err
	}
	was := m.had
	if err := t.saveRegistration(m, next, seq); err != nil {
		return err
	}
	return t.logSetup(m, was, next.Registration)
}

// leaves tells whether the machine is no longer the member that it was: what it
// comes back as, if it does, has no password from before.
func leaves(old, next lifecycle.State) bool {
	return next.Registration == lifecycle.NoRegistration ||
		next.Registration == muster.AwaitingSetup && (old.Registration == muster.Approved || old.Registration == muster.Disabled) ||
		old.NodeState != muster.NodeDecommissioned && next.NodeState == muster.NodeDecommissioned ||
		old.Tombstone != next.Tombstone
}

func (t *tx) saveRegistration(m *machine, next lifecycle.State, seq int64) error {
	r := m.reg
	if r.credential != lifecycle.NoCredential && next.Credential == lifecycle.NoCredential {
		// A machine that was a member may be expunged later, and must then be
		// told so when it comes with its key.
		if m.had == muster.Approved {
			if _, err := t.exec(buryKey, m.uuid, micro(t.now)); err != nil {
				return err
			}
		}
		if err := t.dropCredential(m.uuid); err != nil {
			return err
		}
		r.BoundKeyID = ""
	}
	r.State, r.credential, r.bundle = next.Registration, next.Credential, next.Bundle
	r.BundleTaken, r.wasDisabled = r.bundle == lifecycle.BundleTaken, next.Past == lifecycle.WasDisabled
	if next.Claim == lifecycle.NoClaim {
		r.claimHash, r.ClaimCodeExpires = nil, nil
	}
	if next.Bundle == lifecycle.NoBundle {
		r.SetupDeadline = nil
	}
	if next.Image == lifecycle.NoImage {
		r.AssignedPI = nil
	}
	if r.State == muster.Approved && m.had != muster.Approved {
		r.ApprovedAt, r.LastSetupError = &t.now, ""
	}
	if r.State == muster.Pending || r.State == muster.AwaitingSetup {
		r.ApprovedAt = nil
	}
	r.seq = seq
	if m.tomb != nil {
		if _, err := t.exec(expungeKeys, m.uuid); err != nil {
			return err
		}
	}
	if r.State == lifecycle.NoRegistration {
		if m.had == lifecycle.NoRegistration {
			return nil
		}
		for _, q := range []*query{dropForeign, forgetKeys, dropCollections, dropPlaces} {
			if _, err := t.exec(q, m.uuid); err != nil {
				return err
			}
		}
		if _, err := t.exec(dropSysinfo, m.uuid); err != nil {
			return err
		}
		if err := t.dropMachine(m.uuid); err != nil {
			return err
		}
		return t.change(dropRegistration, m.uuid, r.rev, string(m.had))
	}
	was := m.had
	m.had = r.State
	return t.putRegistration(r, was)
}

// dropCredential ends the agent key and the ticket keys: from the commit on
// they authenticate nobody.
func (t *tx) dropCredential(uuid string) error {
	if _, err := t.exec(dropAgentKey, uuid); err != nil {
		return err
	}
	_, err := t.exec(dropTickets, uuid)
	return err
}

func subject(uuid string) string      { return "registration/" + uuid }
func recordSubject(mac string) string { return "boot-record/" + mac }
