package lifecycle

import "muster.internal"

// The node that a machine is: an operator's intent, and what is true.
func nodeRows() []*lifecycle {
	return []*lifecycle{policyRows(), nodeStateRows()}
}

// adopting are the events at which a registration becomes approved: the
// machine's live node is found again, or a new one is made.
var adopting = []muster.Event{Approve, Redeem, SetupComplete, Refresh}

// ending are the events after which the machine's node is no more.
var ending = []muster.Event{FactoryReset, Delete}

func policyRows() *lifecycle {
	const (
		serve   = muster.PolicyInService
		noProv  = muster.PolicyNoProvision
		quiesce = muster.PolicyQuiesce
		remove  = muster.PolicyGracefulRemove
		gone    = muster.PolicyExpunged
	)
	type R = row[muster.NodePolicy]
	rows := []R{
		{On: NoProvision, From: in(serve, quiesce), To: noProv},
		{On: NoProvision, From: in(noProv), Already: true},
		{On: Quiesce, From: in(serve, noProv), To: quiesce},
		{On: Quiesce, From: in(quiesce), Already: true},
		{On: GracefulRemove, From: in(serve, noProv, quiesce), To: remove},
		{On: GracefulRemove, From: in(remove), Already: true},
		{On: Resume, From: in(noProv, quiesce), To: serve},
		{On: Resume, From: in(remove), Needs: all(nodeLive), To: serve, Doc: "as long as the removal is not finished"},
		{On: Resume, From: in(serve), Already: true},
		{On: Expunge, From: in(serve, noProv, quiesce), To: gone},
		{On: Expunge, From: in(remove), Needs: all(nodeLive), To: gone},
		{On: Expunge, From: in(gone), Already: true},
	}
	for _, e := range adopting {
		rows = append(rows, R{On: e, From: in(NoPolicy), To: serve, Doc: "a new node"})
		if e == SetupComplete { // a machine that is being set up has no live node
			rows = append(rows, R{On: e, From: in(remove, gone), To: serve, Doc: "the machine comes back as a new node"})
			continue
		}
		rows = append(rows,
			R{On: e, From: in(remove, gone), When: all(nodeGone), To: serve, Doc: "the machine comes back as a new node"},
			R{On: e, From: in(remove), When: all(nodeLive), Stay: true},
			R{On: e, From: in(serve, noProv, quiesce), Stay: true, Doc: "the same node"})
	}
	// A window takes no machine that has a node: it would have been disabled.
	rows = append(rows,
		R{On: Register, From: in(NoPolicy, remove, gone), When: all(letsIn), To: serve, Doc: "a new node"},
		R{On: Register, From: in(NoPolicy, serve, noProv, quiesce, remove, gone), When: all(not(letsIn)), Stay: true})
	for _, e := range ending {
		rows = append(rows,
			R{On: e, From: in(serve, noProv, quiesce), To: gone},
			R{On: e, From: in(remove), When: all(nodeLive), To: gone},
			R{On: e, From: in(remove), When: all(nodeGone), Stay: true},
			R{On: e, From: in(NoPolicy, gone), Stay: true})
	}
	rows = append(rows, replacePolicy()...)
	return define("node policy", "what an operator wants of a node", perMachine,
		func(s *State, _ int) *muster.NodePolicy { return &s.NodePolicy },
		[]place[muster.NodePolicy]{
			{State: NoPolicy, Doc: "there is no node"},
			{State: serve, Doc: "it may be given anything"},
			{State: noProv, Doc: "nothing new"},
			{State: quiesce, Doc: "nothing at all, for a while"},
			{State: remove, Doc: "replace everything, then let it go", End: &end[muster.NodePolicy]{
				Raises: DecommissionNode, Leads: remove, Out: Resume, Unless: nodeGone}},
			{State: gone, Doc: "it is gone, or must be treated so", End: &end[muster.NodePolicy]{
				Raises: DecommissionNode, Leads: gone, Unless: nodeGone}},
		}, rows)
}

func nodeStateRows() *lifecycle {
	const (
		initial  = muster.NodeInitializing
		serving  = muster.NodeInService
		quiesced = muster.NodeQuiesced
		decom    = muster.NodeDecommissioned
	)
	type R = row[muster.NodeState]
	rows := []R{
		{On: Confirm, From: in(initial), Needs: all(keyLive, inventoryIn), To: serving},
		{On: Confirm, From: in(serving), Already: true},
		{On: Quiesced, From: in(initial, serving), Needs: all(toQuiesce, nothingRuns, unclaimed), To: quiesced},
		{On: Quiesced, From: in(quiesced), Already: true},
		{On: Resumed, From: in(quiesced), Needs: all(toServe), To: serving},
		{On: Resumed, From: in(serving), Already: true},
		{On: DecommissionNode, From: in(initial, serving, quiesced), Needs: all(nodeLeaving, nothingPlaced, unclaimed), To: decom},
		{On: DecommissionNode, From: in(decom), Already: true},
	}
	for _, e := range adopting {
		rows = append(rows,
			R{On: e, From: in(NoNode, decom), To: initial, Doc: "a new node"})
		if e == SetupComplete {
			continue
		}
		rows = append(rows,
			R{On: e, From: in(initial, serving, quiesced), Stay: true, Doc: "the same node"})
	}
	rows = append(rows,
		R{On: Register, From: in(NoNode, decom), When: all(letsIn), To: initial, Doc: "a new node"},
		R{On: Register, From: in(NoNode, initial, serving, quiesced, decom), When: all(not(letsIn)), Stay: true})
	for _, e := range ending {
		rows = append(rows,
			R{On: e, From: in(initial, serving, quiesced), To: decom},
			R{On: e, From: in(NoNode, decom), Stay: true})
	}
	rows = append(rows, replaceNode()...)
	return define("node state", "what is true of a node", perMachine,
		func(s *State, _ int) *muster.NodeState { return &s.NodeState },
		[]place[muster.NodeState]{
			{State: NoNode, Doc: "there is no node"},
			{State: initial, Doc: "made, and its inventory awaited"},
			{State: serving, Doc: "it serves"},
			{State: quiesced, Doc: "nothing runs on it"},
			{State: decom, Doc: "it is no more; the machine would come back as a new node"},
		}, rows)
}

// The disks of a node, in the same two words.
func diskRows() []*lifecycle {
	const (
		serve  = muster.DiskPolicyInService
		remove = muster.DiskPolicyGracefulRemove
		gone   = muster.DiskPolicyExpunged
		live   = muster.DiskInService
		decom  = muster.DiskDecommissioned
	)
	type P = row[muster.DiskPolicy]
	type S = row[muster.DiskState]
	policy := []P{
		{On: AdoptDisk, From: in(NoDiskPolicy), Needs: all(nodeStays), To: serve},
		{On: AdoptDisk, From: in(remove, gone), Needs: all(nodeStays, diskGone), To: serve, Doc: "as a new disk"},
		{On: AdoptDisk, From: in(serve), Already: true},
		{On: RemoveDisk, From: in(serve), To: remove},
		{On: RemoveDisk, From: in(remove), Already: true},
		{On: KeepDisk, From: in(remove), Needs: all(diskLive), To: serve},
		{On: KeepDisk, From: in(serve), Already: true},
		{On: ExpungeDisk, From: in(serve), To: gone},
		{On: ExpungeDisk, From: in(remove), Needs: all(diskLive), To: gone},
		{On: ExpungeDisk, From: in(gone), Already: true},
	}
	state := []S{
		{On: AdoptDisk, From: in(NoDisk, decom), To: live},
		{On: DecommissionDisk, From: in(live), Needs: all(diskLeaving, hostConfirmed), To: decom},
		{On: DecommissionDisk, From: in(decom), Already: true},
	}
	for _, e := range []muster.Event{SetupComplete, Refresh} {
		policy = append(policy,
			P{On: e, From: in(NoDiskPolicy, remove, gone), When: all(adopts), To: serve, Doc: "the disks of the approved plan"},
			P{On: e, From: in(NoDiskPolicy, remove, gone), When: all(not(adopts)), Stay: true})
		state = append(state,
			S{On: e, From: in(NoDisk, decom), When: all(adopts), To: live},
			S{On: e, From: in(NoDisk, decom), When: all(not(adopts)), Stay: true})
	}
	// Only a machine that is being set up has no disk in service for certain.
	policy = append(policy, P{On: Refresh, From: in(serve), Stay: true})
	state = append(state, S{On: Refresh, From: in(live), Stay: true})
	for _, e := range []muster.Event{Expunge, DecommissionNode, FactoryReset, Delete} {
		policy = append(policy,
			P{On: e, From: in(serve), To: gone},
			P{On: e, From: in(remove), When: all(diskLive), To: gone},
			P{On: e, From: in(remove), When: all(diskGone), Stay: true},
			P{On: e, From: in(NoDiskPolicy, gone), Stay: true})
		if e == Expunge {
			continue // its disks stay in service until the host confirms, or the node is decommissioned
		}
		state = append(state,
			S{On: e, From: in(live), To: decom},
			S{On: e, From: in(NoDisk, decom), Stay: true})
	}
	// The disks go with their node.
	policy = append(policy, P{On: Supersede, From: in(NoDiskPolicy, serve, remove, gone), To: NoDiskPolicy})
	state = append(state, S{On: Supersede, From: in(NoDisk, live, decom), To: NoDisk})
	return []*lifecycle{
		define("disk policy", "what an operator wants of a disk", perDisk,
			func(s *State, m int) *muster.DiskPolicy { return &s.Disks[m].Policy },
			[]place[muster.DiskPolicy]{
				{State: NoDiskPolicy, Doc: "not adopted"},
				{State: serve, Doc: "in use"},
				{State: remove, Doc: "replace what is on it, then let it go", End: &end[muster.DiskPolicy]{
					Raises: DecommissionDisk, Leads: remove, Out: KeepDisk, Unless: diskGone}},
				{State: gone, Doc: "it is gone, or must be treated so", End: &end[muster.DiskPolicy]{
					Raises: DecommissionDisk, Leads: gone, Unless: diskGone}},
			}, policy),
		define("disk state", "what is true of a disk", perDisk,
			func(s *State, m int) *muster.DiskState { return &s.Disks[m].State },
			[]place[muster.DiskState]{
				{State: NoDisk, Doc: "not adopted"},
				{State: live, Doc: "in use"},
				{State: decom, Doc: "no longer in use; adopted again it is a new disk"},
			}, state),
	}
}
