package lifecycle

import (
	"time"

	"muster.internal"
)

// Times that the rows count.
const (
	ClaimDeadline = time.Hour // of a claim code, and of a key that nobody fetched
	ProbeDeadline = 15 * time.Minute
	RescueDefault = 4 * time.Hour
	RescueAtMost  = 24 * time.Hour
)

const none muster.RegistrationState = NoRegistration

// The registration, and what hangs on it: claim code, key, bundle, pinned
// image, tombstone. Names that many rows use are short.
func registrationRows() []*lifecycle {
	const (
		pending  = muster.Pending
		appr     = muster.Approved
		disabled = muster.Disabled
		awaiting = muster.AwaitingSetup
		setting  = muster.SettingUp
	)
	type R = row[muster.RegistrationState]
	type P = place[muster.RegistrationState]
	return []*lifecycle{
		define("registration", "how far the control plane knows and trusts a machine", perMachine,
			func(s *State, _ int) *muster.RegistrationState { return &s.Registration },
			[]P{
				{State: none, Doc: "nobody has heard of the machine, or it was deleted"},
				{State: pending, Doc: "it asked to be let in, and waits for an operator", End: &end[muster.RegistrationState]{
					After: LapseDeadline, Raises: Lapse, Leads: none, Out: Disable, Unless: wasIn}},
				{State: awaiting, Doc: "a bare machine announced itself; it holds nothing, and waits for an operator", End: &end[muster.RegistrationState]{
					After: LapseDeadline, Raises: Lapse, Leads: none, Out: Delete, Unless: wasIn}},
				{State: setting, Doc: "an operator approved the destructive install, and it runs", End: &end[muster.RegistrationState]{
					After: muster.SetupDeadline, Raises: Expire, Leads: awaiting, Out: CancelSetup}},
				{State: appr, Doc: "a member of the fleet"},
				{State: disabled, Doc: "an operator took it out of service; its key is dead, its record kept"},
			},
			append(replaceRegistration(), []R{
				{On: Register, From: in(none, pending), When: all(letsIn), Needs: all(untombstoned, sameMachine), To: appr, Doc: "it takes a slot of the window"},
				{On: Register, From: in(none, pending, disabled), When: all(not(letsIn)), Needs: all(untombstoned, sameMachine), To: pending, Doc: "a new claim code and poll token each time"},
				{On: Redeem, From: in(none, pending, disabled), Needs: all(untombstoned, sameMachine, tokenGood), To: appr, Doc: "a token is used once"},
				{On: Redeem, From: in(appr), Needs: all(sameMachine, tokenGood, mayReplace), Stay: true, Doc: "the same node; the old key is dead"},
				{On: Approve, From: in(pending), Needs: all(claimOpen, code), To: appr},
				{On: ExpireKey, From: in(appr), Needs: all(keyUndelivered, overdue), To: disabled, Doc: "the machine registers again"},

				{On: Announce, From: in(none), Needs: all(untombstoned, sameMachine, admitted), To: awaiting},
				{On: Announce, From: in(awaiting), Needs: all(sameMachine), Stay: true, Doc: "sysinfo is refreshed"},
				{On: Announce, From: in(pending, appr, setting), Needs: all(sameMachine), Stay: true, Doc: "only last_seen moves"},
				{On: Announce, From: in(disabled), Needs: all(untombstoned, sameMachine), Stay: true, Doc: "only last_seen moves"},
				{On: Survey, From: in(awaiting), Needs: all(session), Stay: true, Doc: "the disks are written down"},

				{On: ApproveSetup, From: in(awaiting), Needs: all(sessionAlive, surveyed, layout, planSeen, confirmed), To: setting, Doc: "the only way in; a new epoch"},
				{On: Take, From: in(setting), Needs: all(bundleReady, epoch, session), Stay: true, Doc: "once an epoch"},
				{On: SetupComplete, From: in(setting), Needs: all(bundleTaken, epoch, proof), To: appr},
				{On: SetupComplete, From: in(appr), Needs: all(epoch, proof), Already: true},
				{On: Refresh, From: in(setting), Needs: all(bundleTaken, epoch), To: appr, Doc: "the key proves what a lost report would have"},
				{On: Refresh, From: in(appr), Needs: all(keyLive), Stay: true, Doc: "inventory is refreshed"},
				{On: SetupFailed, From: in(setting), Needs: all(epoch), To: awaiting},
				{On: SetupFailed, From: in(awaiting), Needs: all(epoch), Already: true},
				{On: Void, From: in(setting), When: all(otherSession), Needs: all(mayVoid), To: awaiting},
				{On: Void, From: in(setting), When: all(not(otherSession)), Needs: all(sessionOver, bundleReady), To: awaiting, Doc: "an approval is good for one connection alone"},
				{On: Expire, From: in(setting), Needs: all(overdue), To: awaiting},
				{On: CancelSetup, From: in(setting), To: awaiting},
				{On: CancelSetup, From: in(awaiting), Already: true},

				{On: Disable, From: in(pending, appr), To: disabled},
				{On: Disable, From: in(disabled), Already: true},
				{On: FactoryReset, From: in(appr, disabled), Needs: all(untombstoned, nothingPlaced, noReservation, noMove, unclaimed, acknowledged, enrollmentPI), To: awaiting},
				{On: Delete, From: in(pending, awaiting, disabled), Needs: all(nothingPlaced, unclaimed), To: none},
				{On: Delete, From: in(none), Already: true},
				{On: Lapse, From: in(pending, awaiting), Needs: all(overdue, neverIn), To: none},
				{On: Expunge, From: in(pending, appr, disabled), To: disabled},
				{On: DecommissionNode, From: in(pending, appr, disabled), To: disabled, Doc: "it may register again, as a new node"},
			}...)),
		claimRows(), credentialRows(), bundleRows(), imageRows(), tombstoneRows(), pastRows(),
	}
}

func claimRows() *lifecycle {
	type R = row[Claim]
	return define("claim code", "the six characters by which an operator lets in a pending machine", perMachine,
		func(s *State, _ int) *Claim { return &s.Claim },
		[]place[Claim]{
			{State: NoClaim, Doc: "there is none: the machine registers again to get one"},
			{State: ClaimOpen, Doc: "it is shown at the machine", End: &end[Claim]{After: ClaimDeadline, Raises: ExpireCode, Leads: NoClaim, Out: Disable}},
		},
		[]R{
			{On: Register, From: in(NoClaim, ClaimOpen), When: all(not(letsIn)), To: ClaimOpen, Doc: "an older code is dead"},
			{On: Register, From: in(NoClaim, ClaimOpen), When: all(letsIn), To: NoClaim, Doc: "none is needed"},
			{On: Redeem, From: in(NoClaim, ClaimOpen), To: NoClaim},
			{On: TakeOver, From: in(NoClaim, ClaimOpen), To: NoClaim},
			{On: Supersede, From: in(NoClaim, ClaimOpen), To: NoClaim},
			{On: Approve, From: in(ClaimOpen), To: NoClaim, Doc: "single use"},
			{On: ExpireCode, From: in(ClaimOpen), Needs: all(overdue), To: NoClaim},
			{On: Disable, From: in(NoClaim, ClaimOpen), To: NoClaim},
			{On: Delete, From: in(NoClaim, ClaimOpen), To: NoClaim},
			{On: Lapse, From: in(NoClaim, ClaimOpen), To: NoClaim},
			{On: Expunge, From: in(NoClaim, ClaimOpen), To: NoClaim},
			{On: DecommissionNode, From: in(NoClaim, ClaimOpen), To: NoClaim},
		})
}

func credentialRows() *lifecycle {
	type R = row[Credential]
	return define("credential", "the agent key that is bound to the machine, with its ticket keys", perMachine,
		func(s *State, _ int) *Credential { return &s.Credential },
		[]place[Credential]{
			{State: NoCredential, Doc: "no key"},
			{State: Reserved, Doc: "an id; the secret is made when the booter takes the bundle", End: &end[Credential]{
				After: muster.SetupDeadline, Raises: Expire, Leads: NoCredential, Out: CancelSetup}},
			{State: Undelivered, Doc: "an id; the secret is made when the machine polls for it", End: &end[Credential]{
				After: ClaimDeadline, Raises: ExpireKey, Leads: NoCredential, Out: Disable}},
			{State: Live, Doc: "it authenticates the machine"},
		},
		[]R{
			{On: Register, From: in(NoCredential), When: all(letsIn), To: Undelivered},
			{On: Register, From: in(NoCredential), When: all(not(letsIn)), Stay: true},
			{On: Redeem, From: in(NoCredential, Undelivered), To: Live, Doc: "the plaintext leaves once, in the answer"},
			{On: Redeem, From: in(Live), Stay: true, Doc: "another key in its place"},
			{On: TakeOver, From: in(NoCredential), To: Live, Doc: "the plaintext leaves once, in the answer"},
			{On: Supersede, From: in(NoCredential, Undelivered, Live), To: NoCredential, Doc: "dead at once"},
			{On: Approve, From: in(NoCredential), To: Undelivered},
			{On: Deliver, From: in(Undelivered), To: Live, Doc: "the plaintext leaves once"},
			{On: ExpireKey, From: in(Undelivered), To: NoCredential},
			{On: ApproveSetup, From: in(NoCredential), To: Reserved},
			{On: Take, From: in(Reserved), To: Live, Doc: "the plaintext leaves once, sealed"},
			{On: SetupFailed, From: in(Reserved, Live), To: NoCredential},
			{On: Void, From: in(Reserved, Live), To: NoCredential},
			{On: Expire, From: in(Reserved, Live), To: NoCredential},
			{On: CancelSetup, From: in(Reserved, Live), To: NoCredential},
			{On: Disable, From: in(NoCredential, Undelivered, Live), To: NoCredential},
			{On: FactoryReset, From: in(NoCredential, Undelivered, Live), To: NoCredential},
			{On: Expunge, From: in(NoCredential, Undelivered, Live), To: NoCredential},
			{On: DecommissionNode, From: in(NoCredential, Undelivered, Live), To: NoCredential},
		})
}

func bundleRows() *lifecycle {
	type R = row[Bundle]
	return define("bundle", "what an approved setup hands to the machine", perMachine,
		func(s *State, _ int) *Bundle { return &s.Bundle },
		[]place[Bundle]{
			{State: NoBundle, Doc: "no setup is approved"},
			{State: BundleReady, Doc: "the booter may take it, once", End: &end[Bundle]{
				After: muster.SetupDeadline, Raises: Expire, Leads: NoBundle, Out: CancelSetup}},
			{State: BundleTaken, Doc: "the booter has it, and the install may be running", End: &end[Bundle]{
				After: muster.SetupDeadline, Raises: Expire, Leads: NoBundle, Out: CancelSetup}},
		},
		[]R{
			{On: ApproveSetup, From: in(NoBundle), To: BundleReady},
			{On: Take, From: in(BundleReady), To: BundleTaken},
			{On: SetupComplete, From: in(BundleTaken), To: NoBundle},
			{On: Refresh, From: in(BundleTaken), To: NoBundle},
			{On: Refresh, From: in(NoBundle), Stay: true},
			{On: SetupFailed, From: in(BundleReady, BundleTaken), To: NoBundle},
			{On: Void, From: in(BundleReady, BundleTaken), To: NoBundle},
			{On: Expire, From: in(BundleReady, BundleTaken), To: NoBundle},
			{On: CancelSetup, From: in(BundleReady, BundleTaken), To: NoBundle},
		})
}

func imageRows() *lifecycle {
	type R = row[Image]
	both := in(NoImage, Assigned)
	return define("pinned image", "the image that the machine will boot once it is set up", perMachine,
		func(s *State, _ int) *Image { return &s.Image },
		[]place[Image]{
			{State: NoImage, Doc: "none: the end of a setup enrolls no boot record"},
			{State: Assigned, Doc: "the policy's enrollment image as it was at the approval"},
		},
		[]R{
			{On: ApproveSetup, From: in(NoImage), When: all(enrollmentPI), To: Assigned},
			{On: ApproveSetup, From: in(NoImage), When: all(not(enrollmentPI)), Stay: true},
			{On: SetupFailed, From: both, To: NoImage},
			{On: Void, From: both, To: NoImage},
			{On: Expire, From: both, To: NoImage},
			{On: CancelSetup, From: both, To: NoImage},
			{On: FactoryReset, From: both, To: NoImage},
			{On: Delete, From: both, To: NoImage},
			{On: Expunge, From: both, To: NoImage},
			{On: Supersede, From: both, To: NoImage},
			{On: DecommissionNode, From: both, To: NoImage},
		})
}

func tombstoneRows() *lifecycle {
	type R = row[Tombstone]
	return define("tombstone", "what keeps an expunged machine out", perMachine,
		func(s *State, _ int) *Tombstone { return &s.Tombstone },
		[]place[Tombstone]{
			{State: NoTombstone, Doc: "nothing keeps it out"},
			{State: Tombstoned, Doc: "it was expunged: nothing but an operator's readmit lets it register again; outlives the registration"},
		},
		[]R{
			{On: Expunge, From: in(NoTombstone), To: Tombstoned},
			{On: Readmit, From: in(Tombstoned), Needs: all(nodeGone), To: NoTombstone},
		})
}

func pastRows() *lifecycle {
	type R = row[Past]
	both := in(NoPast, WasDisabled)
	return define("past", "what an auto-approve window must remember of a machine", perMachine,
		func(s *State, _ int) *Past { return &s.Past },
		[]place[Past]{
			{State: NoPast, Doc: "an open window may let it in"},
			{State: WasDisabled, Doc: "it was taken out once: it takes a person's word to let it in again"},
		},
		[]R{
			{On: Disable, From: both, To: WasDisabled},
			{On: ExpireKey, From: in(NoPast), To: WasDisabled},
			{On: Expunge, From: both, To: WasDisabled},
			{On: DecommissionNode, From: both, To: WasDisabled},
			{On: Supersede, From: both, To: WasDisabled},
			{On: TakeOver, From: both, To: NoPast, Doc: "a person's word"},
			{On: Approve, From: both, To: NoPast, Doc: "a person's word"},
			{On: Redeem, From: both, To: NoPast, Doc: "a person's word"},
			{On: ApproveSetup, From: both, To: NoPast, Doc: "a person's word"},
			{On: Delete, From: both, To: NoPast},
		})
}
