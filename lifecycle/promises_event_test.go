package lifecycle

import (
	"slices"
	"time"

	"muster.internal"
)

// after is what must be true once an event was accepted, be it new or a
// repetition.
var after = map[muster.Event]func(s *State, m int) bool{
	Register:      func(s *State, _ int) bool { return among(s.Registration, muster.Pending, muster.Approved) },
	Approve:       registered(muster.Approved),
	Redeem:        func(s *State, _ int) bool { return s.Registration == muster.Approved && s.Credential == Live },
	TakeOver:      func(s *State, _ int) bool { return s.Registration == muster.Approved && s.Credential == Live },
	Supersede:     registered(muster.Disabled),
	Deliver:       func(s *State, _ int) bool { return s.Credential == Live },
	Announce:      func(s *State, _ int) bool { return s.Registration != NoRegistration },
	Survey:        registered(muster.AwaitingSetup),
	ApproveSetup:  registered(muster.SettingUp),
	Take:          func(s *State, _ int) bool { return s.Bundle == BundleTaken && s.Credential == Live },
	SetupComplete: registered(muster.Approved),
	Refresh:       registered(muster.Approved),
	SetupFailed:   registered(muster.AwaitingSetup),
	Void:          registered(muster.AwaitingSetup),
	Expire:        registered(muster.AwaitingSetup),
	CancelSetup:   registered(muster.AwaitingSetup),
	Disable:       registered(muster.Disabled),
	FactoryReset:  registered(muster.AwaitingSetup),
	Delete:        registered(NoRegistration),
	Readmit:       func(s *State, _ int) bool { return s.Tombstone == NoTombstone },
	ExpireCode:    func(s *State, _ int) bool { return s.Claim == NoClaim },
	ExpireKey:     registered(muster.Disabled),
	Lapse:         registered(NoRegistration),

	Contest:        waits(muster.MachineConflict),
	Accept:         func(s *State, _ int) bool { return s.Machine != muster.MachineConflict },
	Separate:       func(s *State, _ int) bool { return s.Machine != muster.MachineConflict },
	MoveNIC:        func(s *State, _ int) bool { return s.Machine != muster.MachineConflict },
	Forget:         func(s *State, _ int) bool { return s.Machine != muster.MachineConflict },
	ExpireConflict: waits(NoMachine),
	ExpireRecord:   recorded(Unseen),

	Sight:        func(s *State, m int) bool { return s.Boots[m].State != Unseen },
	SetRecord:    func(s *State, m int) bool { return s.Boots[m].State != Unseen },
	Admit:        recorded(muster.Enrolling),
	Enroll:       recorded(muster.Enrolling),
	Decommission: recorded(muster.BootDecommissioned),
	Reactivate:   recorded(Unseen, muster.Discovered),
	StartProbe:   func(s *State, m int) bool { return s.Boots[m].Probe == ProbeOn },
	Dismiss:      func(s *State, m int) bool { return s.Boots[m].Probe == ProbeOff },
	ExpireProbe:  func(s *State, m int) bool { return s.Boots[m].Probe == ProbeOff },
	RescueOn:     func(s *State, m int) bool { return modeOf(s.Boots[m]) == muster.RescueMode },
	RescueOff:    func(s *State, m int) bool { return modeOf(s.Boots[m]) == muster.NormalMode },
	ExpireRescue: func(s *State, m int) bool { return modeOf(s.Boots[m]) == muster.NormalMode },
	Pin:          func(s *State, m int) bool { return s.Boots[m].Assigned == Assigned },
	Unpin:        func(s *State, m int) bool { return s.Boots[m].Assigned == NoImage },
	JoinCard:     func(s *State, m int) bool { return s.Boots[m].State != Unseen },

	Confirm:          func(s *State, _ int) bool { return s.NodeState == muster.NodeInService },
	Quiesced:         func(s *State, _ int) bool { return s.NodeState == muster.NodeQuiesced },
	Resumed:          func(s *State, _ int) bool { return s.NodeState == muster.NodeInService },
	DecommissionNode: func(s *State, _ int) bool { return s.NodeState == muster.NodeDecommissioned },
	NoProvision:      func(s *State, _ int) bool { return s.NodePolicy == muster.PolicyNoProvision },
	Quiesce:          func(s *State, _ int) bool { return s.NodePolicy == muster.PolicyQuiesce },
	Resume:           func(s *State, _ int) bool { return s.NodePolicy == muster.PolicyInService },
	GracefulRemove:   func(s *State, _ int) bool { return s.NodePolicy == muster.PolicyGracefulRemove },
	Expunge:          func(s *State, _ int) bool { return s.NodePolicy == muster.PolicyExpunged },

	AdoptDisk:        func(s *State, m int) bool { return s.Disks[m].Policy == muster.DiskPolicyInService },
	RemoveDisk:       func(s *State, m int) bool { return s.Disks[m].Policy == muster.DiskPolicyGracefulRemove },
	KeepDisk:         func(s *State, m int) bool { return s.Disks[m].Policy == muster.DiskPolicyInService },
	ExpungeDisk:      func(s *State, m int) bool { return s.Disks[m].Policy == muster.DiskPolicyExpunged },
	DecommissionDisk: func(s *State, m int) bool { return s.Disks[m].State == muster.DiskDecommissioned },
}

func registered(r muster.RegistrationState) func(*State, int) bool {
	return func(s *State, _ int) bool { return s.Registration == r }
}

func recorded(bs ...muster.BootState) func(*State, int) bool {
	return func(s *State, m int) bool { return slices.Contains(bs, s.Boots[m].State) }
}

// mustEnd are the states that are no rest: how long each may last (0: until
// the control plane's next pass), and how an operator gets out before.
var mustEnd = map[string]struct {
	after time.Duration
	out   muster.Event
}{
	"registration/setting_up":     {45 * time.Minute, CancelSetup},
	"credential/reserved":         {45 * time.Minute, CancelSetup},
	"bundle/ready":                {45 * time.Minute, CancelSetup},
	"bundle/taken":                {45 * time.Minute, CancelSetup},
	"claim code/open":             {time.Hour, Disable},
	"credential/undelivered":      {time.Hour, Disable},
	"probe/on":                    {15 * time.Minute, Enroll},
	"registration/pending":        {7 * 24 * time.Hour, Disable},
	"registration/awaiting_setup": {7 * 24 * time.Hour, Delete},
	"machine/conflict":            {24 * time.Hour, Forget},
	"boot record/discovered":      {7 * 24 * time.Hour, Enroll},
	"boot record/enrolling":       {30 * time.Minute, Decommission},
	"mode/rescue":                 {4 * time.Hour, RescueOff},
	"node policy/graceful_remove": {0, Resume},
	"node policy/expunged":        {0, ""},
	"disk policy/graceful_remove": {0, KeepDisk},
	"disk policy/expunged":        {0, ""},
}

// mayRaise is the word of whom each event is.
var mayRaise = map[Actor][]muster.Event{
	Operator: {Approve, ApproveSetup, CancelSetup, Disable, FactoryReset, Delete, Readmit,
		SetRecord, Enroll, Decommission, Reactivate, RescueOn, RescueOff, Pin, Unpin, JoinCard,
		NoProvision, Quiesce, Resume, GracefulRemove, Expunge, AdoptDisk, RemoveDisk, KeepDisk, ExpungeDisk,
		Accept, Separate, MoveNIC, Forget},
	Anonymous: {Register},
	Poller:    {Deliver},
	Redeemer:  {Redeem, Supersede, TakeOver},
	Booter:    {Announce, Survey, Take, SetupComplete, SetupFailed, Sight},
	Host:      {Refresh},
	Clock:     {Expire, ExpireCode, ExpireKey, ExpireProbe, ExpireRescue, ExpireConflict, ExpireRecord, Lapse},
	Control:   {Void, Admit, StartProbe, Dismiss, Confirm, Quiesced, Resumed, DecommissionNode, DecommissionDisk, Contest},
}

// repeatable are the events whose repetition, by people or by programs that
// lost the answer, must succeed whatever else is so.
var repeatable = []muster.Event{CancelSetup, Disable, Delete, SetRecord, Enroll, Decommission, Reactivate,
	RescueOn, RescueOff, Pin, Unpin, NoProvision, Quiesce, Resume, GracefulRemove, Expunge, AdoptDisk, RemoveDisk, KeepDisk, ExpungeDisk,
	Announce, Sight, SetupComplete, SetupFailed, Admit, StartProbe, Dismiss, DecommissionNode, DecommissionDisk, Confirm, Quiesced, Resumed}

// already tells whether the step was the repetition of what had been done.
func (s *step) already() bool {
	owner := s.rules.hearing[s.e][0]
	row, _ := owner.l.match(owner.rows, s.old, s.m, s.f)
	return row != nil && row.Already
}

func modeOf(b Boot) muster.BootMode {
	if b.Mode == "" {
		return muster.NormalMode
	}
	return b.Mode
}
