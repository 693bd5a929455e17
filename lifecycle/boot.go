package lifecycle

import "muster.internal"

// The boot record of one NIC, and what it carries: mode, binding, address,
// image, probe.
func bootRows() []*lifecycle {
	const (
		unseen = Unseen
		disc   = muster.Discovered
		enring = muster.Enrolling
		enred  = muster.Enrolled
		decom  = muster.BootDecommissioned
	)
	type R = row[muster.BootState]
	// gone is what the end of a machine does to its records: all of them, but
	// for those that another machine holds.
	gone := func(e muster.Event) []R {
		return []R{
			{On: e, From: in(disc, enring, enred), When: all(not(foreign)), To: decom},
			{On: e, From: in(enring, enred), When: all(foreign), Stay: true, Doc: "another machine's record"},
			{On: e, From: in(unseen, decom), Stay: true},
		}
	}
	rows := []R{
		{On: Sight, From: in(unseen), To: disc},
		{On: Sight, From: in(disc, enring, enred, decom), Stay: true, Doc: "last_seen moves"},
		{On: Admit, From: in(disc), Needs: all(autoEnroll, onAllowlist, onNetwork, addressable), To: enring},
		{On: Admit, From: in(enring), Already: true},
		{On: SetRecord, From: in(unseen), To: disc},
		{On: SetRecord, From: in(disc, enring, enred, decom), Stay: true},
		{On: Enroll, From: in(unseen, disc), Needs: all(onNetwork, addressable), To: enring},
		{On: Enroll, From: in(enring), Already: true},
		{On: Decommission, From: in(unseen, disc, enring, enred), To: decom},
		{On: Decommission, From: in(decom), Already: true},
		{On: Reactivate, From: in(decom), Needs: all(untombstoned), To: disc},
		{On: Reactivate, From: in(unseen, disc), Already: true},
		{On: ExpireRecord, From: in(disc, enring), Needs: all(overdue, unwanted, plain), To: unseen, Doc: "it is made again when the card is seen again"},
		{On: RescueOn, From: in(unseen), To: disc},
		{On: RescueOn, From: in(disc, enring, enred, decom), Stay: true},
		{On: Pin, From: in(unseen), To: disc},
		{On: Pin, From: in(disc, enring, enred, decom), Stay: true},
		{On: SetupComplete, From: in(enring), When: all(enrolls), To: enred},
		{On: SetupComplete, From: in(enring), When: all(not(enrolls)), Stay: true},
		{On: SetupComplete, From: in(unseen, disc, enred, decom), Stay: true},
		{On: Refresh, From: in(enring), When: all(enrolls), To: enred},
		{On: Refresh, From: in(enring), When: all(not(enrolls)), Stay: true},
		{On: Refresh, From: in(unseen, disc, enred, decom), Stay: true},
		{On: JoinCard, From: in(disc, enring), When: all(joins), To: enred},
		{On: JoinCard, From: in(disc, enring), When: all(not(joins)), Stay: true, Doc: "the end of a setup enrolls it, or an operator"},
		{On: JoinCard, From: in(enred, decom), Stay: true},
		{On: FactoryReset, From: in(enred), When: all(resets), To: enring},
		{On: FactoryReset, From: in(enred), When: all(not(resets)), Stay: true},
		{On: FactoryReset, From: in(unseen, disc, enring, decom), Stay: true},
	}
	for _, e := range []muster.Event{Delete, Expunge, DecommissionNode, Supersede} {
		rows = append(rows, gone(e)...)
	}
	return []*lifecycle{
		define("boot record", "what one admin NIC is served when it asks the network for something to boot", perRecord,
			func(s *State, m int) *muster.BootState { return &s.Boots[m].State },
			[]place[muster.BootState]{
				{State: unseen, Doc: "never reported; reads as discovered"},
				{State: disc, Doc: "seen; served nothing", End: &end[muster.BootState]{
					After: LapseDeadline, Raises: ExpireRecord, Leads: unseen, Out: Enroll, Unless: settled}},
				{State: enring, Doc: "served the boot policy's enrollment image", End: &end[muster.BootState]{
					After: UnannouncedDeadline, Raises: ExpireRecord, Leads: unseen, Out: Decommission, Unless: settled}},
				{State: enred, Doc: "served its own assigned image"},
				{State: decom, Doc: "served nothing, until an operator reactivates it"},
			}, rows),
		modeRows(), bindingRows(), addressRows(), assignedRows(), probeRows(),
	}
}

func modeRows() *lifecycle {
	type R = row[muster.BootMode]
	return define("mode", "stands beside the boot record's state: rescue is honoured in every one", perRecord,
		func(s *State, m int) *muster.BootMode { return &s.Boots[m].Mode },
		[]place[muster.BootMode]{
			{State: muster.NormalMode, Doc: "as the state says"},
			{State: muster.RescueMode, Doc: "served the rescue image, whatever the state", End: &end[muster.BootMode]{
				After: RescueDefault, Raises: ExpireRescue, Leads: muster.NormalMode, Out: RescueOff}},
		},
		[]R{
			{On: RescueOn, From: in(muster.NormalMode), To: muster.RescueMode},
			{On: RescueOn, From: in(muster.RescueMode), Stay: true, Doc: "its time starts anew"},
			{On: RescueOff, From: in(muster.RescueMode), To: muster.NormalMode},
			{On: RescueOff, From: in(muster.NormalMode), Already: true},
			{On: ExpireRescue, From: in(muster.RescueMode), Needs: all(overdue), To: muster.NormalMode},
		})
}

func bindingRows() *lifecycle {
	type R = row[Binding]
	var rows []R
	for _, e := range []muster.Event{SetupComplete, Refresh} {
		rows = append(rows,
			R{On: e, From: in(Unbound, BoundHere), When: all(enrolls), To: BoundHere},
			R{On: e, From: in(Unbound, BoundHere, BoundOther), When: all(not(enrolls)), Stay: true})
	}
	rows = append(rows,
		R{On: JoinCard, From: in(Unbound), When: all(joins), To: BoundHere},
		R{On: JoinCard, From: in(Unbound, BoundHere, BoundOther), When: all(not(joins)), Stay: true},
		R{On: Reactivate, From: in(Unbound, BoundHere, BoundOther), To: Unbound})
	return define("binding", "which machine a boot record belongs to", perRecord,
		func(s *State, m int) *Binding { return &s.Boots[m].Bound },
		[]place[Binding]{
			{State: Unbound, Doc: "to none yet"},
			{State: BoundHere, Doc: "to this machine"},
			{State: BoundOther, Doc: "to another one: nothing that happens to this machine touches it"},
		}, rows)
}

func addressRows() *lifecycle {
	type R = row[Address]
	return define("address", "the address reserved for a NIC", perRecord,
		func(s *State, m int) *Address { return &s.Boots[m].Address },
		[]place[Address]{
			{State: NoAddress, Doc: "none: nothing can be served"},
			{State: AddressReserved, Doc: "reserved; kept when the record is decommissioned and reactivated"},
		},
		[]R{
			{On: Admit, From: in(NoAddress, AddressReserved), To: AddressReserved, Doc: "the lowest free one of its network, unless it has one"},
			{On: Enroll, From: in(NoAddress, AddressReserved), To: AddressReserved},
			{On: StartProbe, From: in(NoAddress, AddressReserved), To: AddressReserved},
			{On: Dismiss, From: in(AddressReserved), To: NoAddress},
			{On: ExpireProbe, From: in(AddressReserved), To: NoAddress},
			{On: ExpireRecord, From: in(NoAddress, AddressReserved), To: NoAddress},
		})
}

func assignedRows() *lifecycle {
	type R = row[Image]
	both := in(NoImage, Assigned)
	var rows []R
	for _, e := range []muster.Event{SetupComplete, Refresh} {
		rows = append(rows,
			R{On: e, From: both, When: all(enrolls), To: Assigned, Doc: "the image that the approval pinned"},
			R{On: e, From: both, When: all(not(enrolls)), Stay: true})
	}
	rows = append(rows,
		R{On: JoinCard, From: both, When: all(joins), To: Assigned, Doc: "the image of the machine's others"},
		R{On: JoinCard, From: both, When: all(not(joins)), Stay: true},
		R{On: FactoryReset, From: in(Assigned), When: all(resets), To: NoImage},
		R{On: FactoryReset, From: both, When: all(not(resets)), Stay: true},
		R{On: Reactivate, From: both, To: NoImage},
		R{On: Pin, From: in(NoImage), To: Assigned},
		R{On: Pin, From: in(Assigned), Stay: true, Doc: "another image"},
		R{On: Unpin, From: in(Assigned), Needs: all(imageUnneeded), To: NoImage},
		R{On: Unpin, From: in(NoImage), Already: true})
	return define("assigned image", "a boot record's own image", perRecord,
		func(s *State, m int) *Image { return &s.Boots[m].Assigned },
		[]place[Image]{
			{State: NoImage, Doc: "none"},
			{State: Assigned, Doc: "what the record is served once it is enrolled"},
		}, rows)
}

func probeRows() *lifecycle {
	type R = row[Probe]
	both := in(ProbeOff, ProbeOn)
	rows := []R{
		{On: StartProbe, From: in(ProbeOff), Needs: all(isDiscovered, autoEnroll, tagWanted, onNetwork, addressable), To: ProbeOn},
		{On: StartProbe, From: in(ProbeOn), Already: true},
		{On: Dismiss, From: in(ProbeOn), Needs: all(not(onAllowlist)), To: ProbeOff},
		{On: Dismiss, From: in(ProbeOff), Already: true},
		{On: ExpireProbe, From: in(ProbeOn), Needs: all(overdue), To: ProbeOff},
		{On: JoinCard, From: both, When: all(joins), To: ProbeOff},
		{On: JoinCard, From: both, When: all(not(joins)), Stay: true},
	}
	for _, e := range []muster.Event{Admit, Enroll, Decommission, Delete, Expunge, DecommissionNode, Supersede} {
		rows = append(rows, R{On: e, From: both, To: ProbeOff})
	}
	return define("probe", "whether a NIC may boot just far enough to tell its service tag", perRecord,
		func(s *State, m int) *Probe { return &s.Boots[m].Probe },
		[]place[Probe]{
			{State: ProbeOff, Doc: "no"},
			{State: ProbeOn, Doc: "an address is reserved, and only the first-stage script is served", End: &end[Probe]{
				After: ProbeDeadline, Raises: ExpireProbe, Leads: ProbeOff, Out: Enroll}},
		}, rows)
}
