package lifecycle

import "muster.internal"

// An Actor is one who may raise events.
type Actor string

const (
	Operator  Actor = "operator"             // a person, or a key that acts for one
	Anonymous Actor = "anonymous machine"    // without a credential
	Poller    Actor = "polling machine"      // holds the poll token of its registration
	Redeemer  Actor = "machine with a token" // an enrolment token, which an operator issued
	Booter    Actor = "booter"
	Host      Actor = "host" // authenticated by the bound key
	Clock     Actor = "clock"
	Control   Actor = "control plane" // what it decides by itself, from policy and reports
)

// Actors lists every actor, in the order in which people should read them.
var Actors = []Actor{Operator, Anonymous, Poller, Redeemer, Booter, Host, Clock, Control}

// A Subject is what an event is about, and the first segment of its route.
type Subject string

const (
	Registrations Subject = "registrations" // member -1
	BootRecords   Subject = "boot-records"  // member indexes State.Boots
	Nodes         Subject = "nodes"         // member -1
	Disks         Subject = "disks"         // member indexes State.Disks
)

// Events by their names in audit and feed.
const (
	Register      muster.Event = "register"
	Redeem        muster.Event = "redeem"
	Approve       muster.Event = "approve"
	Deliver       muster.Event = "deliver"
	Announce      muster.Event = "announce"
	Survey        muster.Event = "survey"
	ApproveSetup  muster.Event = "approve_setup"
	Take          muster.Event = "take"
	SetupComplete muster.Event = "setup_complete"
	SetupFailed   muster.Event = "setup_failed"
	Void          muster.Event = "void"
	CancelSetup   muster.Event = "cancel_setup"
	Refresh       muster.Event = "refresh"
	Disable       muster.Event = "disable"
	FactoryReset  muster.Event = "factory_reset"
	Delete        muster.Event = "delete"
	Readmit       muster.Event = "readmit"
	Expire        muster.Event = "expire"      // an overdue setup
	ExpireCode    muster.Event = "expire_code" // a claim code that nobody approved
	ExpireKey     muster.Event = "expire_key"  // a key that nobody fetched

	Sight        muster.Event = "sight"
	Admit        muster.Event = "admit"
	StartProbe   muster.Event = "probe"
	Dismiss      muster.Event = "dismiss"
	ExpireProbe  muster.Event = "expire_probe"
	SetRecord    muster.Event = "set"
	Enroll       muster.Event = "enroll"
	Decommission muster.Event = "decommission"
	Reactivate   muster.Event = "reactivate"
	RescueOn     muster.Event = "rescue_on"
	RescueOff    muster.Event = "rescue_off"
	ExpireRescue muster.Event = "expire_rescue"
	Pin          muster.Event = "pin"
	Unpin        muster.Event = "unpin"
	JoinCard     muster.Event = "join_card"

	Confirm          muster.Event = "confirm"
	Quiesced         muster.Event = "quiesced"
	Resumed          muster.Event = "resumed"
	DecommissionNode muster.Event = "decommission_node"
	NoProvision      muster.Event = "no_provision"
	Quiesce          muster.Event = "quiesce"
	Resume           muster.Event = "resume"
	GracefulRemove   muster.Event = "graceful_remove"
	Expunge          muster.Event = "expunge"

	AdoptDisk        muster.Event = "adopt_disk"
	RemoveDisk       muster.Event = "remove_disk"
	KeepDisk         muster.Event = "keep_disk"
	ExpungeDisk      muster.Event = "expunge_disk"
	DecommissionDisk muster.Event = "decommission_disk"
)

// Info is what is said of an event: who raises it, what it is about, and which
// lifecycle must accept it. Verb is how an operator says it: the last segment
// of the route, or the method where the route has none. It is empty when
// nobody can say it (yet).
type Info struct {
	Event   muster.Event
	By      Actor
	Subject Subject
	Owner   string
	Verb    string
	Doc     string
}

// events is the list, in the order in which people should read it.
func events() []Info {
	return append([]Info{
		{Register, Anonymous, Registrations, "registration", "", "ask to be let in: by an open auto-approve window, else a claim code is shown at the machine"},
		{Redeem, Redeemer, Registrations, "registration", "", "come in by an enrolment token; the key is in the answer"},
		{Approve, Operator, Registrations, "registration", "approve", "let in the machine that shows this claim code"},
		{Deliver, Poller, Registrations, "credential", "", "hand the new agent key to the machine that polls for it, once"},
		{Announce, Booter, Registrations, "registration", "", "a bare machine says over the boot bus what it is"},
		{Survey, Booter, Registrations, "registration", "", "report what a read-only look at the machine's disks found"},
		{ApproveSetup, Operator, Registrations, "registration", "approve-setup", "destroy what is on the planned disks and install the machine"},
		{Take, Booter, Registrations, "registration", "", "fetch the bundle for the one live connection that the approval is bound to"},
		{SetupComplete, Booter, Registrations, "registration", "", "report the proof that the install worked"},
		{SetupFailed, Booter, Registrations, "registration", "", "report that the install failed, and why"},
		{Void, Control, Registrations, "registration", "", "withdraw an approval because another connection claims the machine's name, or its own ended before the bundle was taken"},
		{CancelSetup, Operator, Registrations, "registration", "cancel-setup", "give up on the running setup; its key stops working"},
		{Expire, Clock, Registrations, "registration", "", "give up on a setup that did not report in time"},
		{Refresh, Host, Registrations, "registration", "", "the installed machine itself reports, with its key"},
		{Disable, Operator, Registrations, "registration", "disable", "take the machine out of service and revoke its key"},
		{FactoryReset, Operator, Registrations, "registration", "factory-reset", "send the machine back to its first boot, as a new node; no data is destroyed before the next approval"},
		{Delete, Operator, Registrations, "registration", "delete", "forget the machine; its boot records stop serving"},
		{Readmit, Operator, Registrations, "tombstone", "readmit", "lift the tombstone of an expunged machine"},
		{ExpireCode, Clock, Registrations, "claim code", "", "withdraw a claim code that nobody approved"},
		{ExpireKey, Clock, Registrations, "registration", "", "withdraw an approval whose key nobody fetched"},

		{Sight, Booter, BootRecords, "boot record", "", "a NIC asked the network for something to boot"},
		{Admit, Control, BootRecords, "boot record", "", "enroll the NIC as the boot policy says"},
		{StartProbe, Control, BootRecords, "probe", "", "let the NIC boot just far enough to tell its service tag"},
		{Dismiss, Control, BootRecords, "probe", "", "the service tag is not on the allowlist: take the address back"},
		{ExpireProbe, Clock, BootRecords, "probe", "", "give up on a NIC that never told its service tag"},
		{SetRecord, Operator, BootRecords, "boot record", "set", "set kernel arguments or networking"},
		{Enroll, Operator, BootRecords, "boot record", "enroll", "serve the enrollment image to this NIC"},
		{Decommission, Operator, BootRecords, "boot record", "decommission", "serve nothing to this NIC any more"},
		{Reactivate, Operator, BootRecords, "boot record", "reactivate", "let a decommissioned NIC start again"},
		{RescueOn, Operator, BootRecords, "mode", "set", "boot the rescue image, for a while"},
		{RescueOff, Operator, BootRecords, "mode", "set", "boot as usual again"},
		{ExpireRescue, Clock, BootRecords, "mode", "", "end a rescue whose time is over"},
		{Pin, Operator, BootRecords, "assigned image", "set", "give the record an image of its own"},
		{Unpin, Operator, BootRecords, "assigned image", "set", "take the record's own image away"},
		{JoinCard, Operator, BootRecords, "boot record", "", "an operator said that the NIC is in this machine: serve it what the machine's others are served"},

		{Confirm, Control, Nodes, "node state", "", "the node's inventory has arrived: it may serve"},
		{NoProvision, Operator, Nodes, "node policy", "no-provision", "place nothing new on the node"},
		{Quiesce, Operator, Nodes, "node policy", "quiesce", "move away what can move, stop the rest"},
		{Quiesced, Control, Nodes, "node state", "", "nothing runs on the node any more"},
		{Resume, Operator, Nodes, "node policy", "resume", "take the node back into service"},
		{Resumed, Control, Nodes, "node state", "", "the node serves again"},
		{GracefulRemove, Operator, Nodes, "node policy", "graceful-remove", "replace everything on the node, then let it go"},
		{Expunge, Operator, Nodes, "node policy", "expunge", "the machine is gone or must go: cut it off at once, for good"},
		{DecommissionNode, Control, Nodes, "node state", "", "nothing is left on a node that leaves"},

		{AdoptDisk, Operator, Disks, "disk policy", "", "take the disk into the fleet"},
		{RemoveDisk, Operator, Disks, "disk policy", "graceful-remove", "replace what is on the disk, then let it go"},
		{KeepDisk, Operator, Disks, "disk policy", "keep", "take back a removal that is not finished"},
		{ExpungeDisk, Operator, Disks, "disk policy", "expunge", "the disk is gone or must go, for good"},
		{DecommissionDisk, Control, Disks, "disk state", "", "the host has confirmed that it no longer uses the disk"},
	}, append(identityEvents(), replaceEvents()...)...)
}
