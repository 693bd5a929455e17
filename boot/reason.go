package boot

import (
	"fmt"

	"muster.internal"
)

// A Rule names the row that decided.
type Rule string

const (
	RuleClass     Rule = "answer-only-boot-clients"
	RuleServer    Rule = "leave-other-servers-alone"
	RuleUnknown   Rule = "unknown-machine"
	RuleState     Rule = "state-serves-nothing"
	RuleProbe     Rule = "probe-for-service-tag"
	RuleEnrolling Rule = "enrolling-boots-enrollment-image"
	RuleEnrolled  Rule = "enrolled-boots-assigned-image"
	RuleRescue    Rule = "rescue-before-state"
	RuleFirmware  Rule = "firmware-must-be-known"
	RuleHolder    Rule = "holder-keeps-its-address"
	RuleProxy     Rule = "site-gives-addresses"
	RuleLoop      Rule = "loops-are-stopped"
)

// A Reason is why nothing is served. Its name is a counter and a key to look
// for in the log.
type Reason byte

const (
	Served Reason = iota
	MessageType
	NotPXE
	OtherServer
	Unknown
	Discovered
	Decommissioned
	Probing
	AwaitingUUID
	UnknownArch
	NoArch
	NoImage
	BadStamp
	NotStaged
	NoVariant
	BadArgs
	NoAddress
	NoNetwork
	OtherAddress
	LoaderMissing
	NotOffered
	Declined
	Released
	SiteGives
	Looping
	reasonCount
)

// reasons are the rows: name, the rule that it belongs to (empty: the one that
// chose the mode), and the sentence for people.
var reasons = [reasonCount]struct {
	name string
	rule Rule
	say  func(d *Decision) string
}{
	Served: {"served", "", func(d *Decision) string {
		if d.Image == nil {
			return fmt.Sprintf("gets %s by mode %s", d.Stage, d.Mode)
		}
		return fmt.Sprintf("gets %s of image %s by mode %s", d.Stage, d.Image.Name, d.Mode)
	}},
	MessageType: {"message_type", RuleServer, func(d *Decision) string {
		return "sent a DHCP message that a boot server has no answer to; only DISCOVER and REQUEST are answered"
	}},
	NotPXE: {"not_pxe", RuleClass, func(d *Decision) string {
		return "asks for an address but not for something to boot; set answer_only_pxe to false in the boot policy to answer it"
	}},
	OtherServer: {"other_server", RuleServer, func(d *Decision) string {
		return "has chosen another DHCP server; if it should boot from here, that server must not offer it an address"
	}},
	Unknown: {"unknown", RuleUnknown, func(d *Decision) string {
		return "has never been heard of; it is reported to the control plane, whose boot policy decides (muster boot show " + d.MAC.String() + ")"
	}},
	Discovered: {"discovered", RuleState, func(d *Decision) string {
		return "is discovered and not admitted by the boot policy; see its note with muster boot show " + d.MAC.String()
	}},
	Decommissioned: {"decommissioned", RuleState, func(d *Decision) string {
		return "is decommissioned, which serves nothing but rescue; muster boot reactivate " + d.MAC.String() + " lets it in again"
	}},
	Probing: {"probing", RuleProbe, func(d *Decision) string {
		return "has told its service tag, which the control plane compares with the allowlist; nothing else is served meanwhile"
	}},
	AwaitingUUID: {"awaiting_uuid", RuleEnrolling, func(d *Decision) string {
		return "has a UUID that many boards share, and waits for one of its own, which is derived from serial number and MAC address; see its note with muster boot show " + d.MAC.String()
	}},
	UnknownArch: {"unknown_arch", RuleFirmware, func(d *Decision) string {
		return "has firmware that nothing is served to: " + ArchName(d.Arch) + "; boot it by BIOS, UEFI x64 or UEFI arm64, if it can"
	}},
	NoArch: {"no_arch", RuleFirmware, func(d *Decision) string {
		return "does not tell its architecture (option 93), and a wrong boot program would hang it; use its firmware's own PXE or HTTP boot, not an operating system's DHCP client"
	}},
	NoImage: {"no_image", "", func(d *Decision) string {
		return "may boot by mode " + d.Mode.String() + ", but no image is set for it; " + d.whereToSet()
	}},
	BadStamp: {"bad_stamp", "", func(d *Decision) string {
		return fmt.Sprintf("would boot image %q, whose name a boot script cannot carry; %s", d.Named.Name, d.whereToSet())
	}},
	NotStaged: {"not_staged", "", func(d *Decision) string {
		return "boots image " + d.Named.Name + " (" + d.Named.Digest + "), which this booter does not have yet; it fetches it by itself, its status names what goes wrong"
	}},
	NoVariant: {"no_variant", "", func(d *Decision) string {
		return "boots image " + d.Named.Name + ", which has nothing for " + ArchName(d.Arch) + "; add an image that has, and assign it"
	}},
	BadArgs: {"bad_kernel_args", "", func(d *Decision) string {
		return "has kernel arguments that are never served; correct them with muster boot set " + d.MAC.String()
	}},
	NoAddress: {"no_address", "", func(d *Decision) string {
		return "has no address reserved; muster boot enroll " + d.MAC.String() + " reserves one, if its admin network has any left"
	}},
	NoNetwork: {"no_network", "", func(d *Decision) string {
		return "has an address, but its admin network is not in the boot policy; put it back, or set the record's networking"
	}},
	OtherAddress: {"other_address", RuleServer, func(d *Decision) string {
		return "asks for another address than the one reserved for it, " + d.Address.Addr().String() + "; it will ask anew"
	}},
	LoaderMissing: {"loader_missing", RuleFirmware, func(d *Decision) string {
		return "needs " + d.Loader + ", which the booter's iPXE directory does not have, or has empty; " + archOf(d.Arch).brings
	}},
	NotOffered: {"not_offered", "", func(d *Decision) string {
		return "asked for a file that is not part of what it boots"
	}},
	Declined: {"declined", RuleServer, func(d *Decision) string {
		return "declines the address it was given: somebody else on the segment uses it; find who answers to it (arping) and take that machine off, the reservation stays"
	}},
	Released: {"released", RuleServer, func(d *Decision) string {
		return "gives its address back; nothing needs to be done, its reservation stays"
	}},
	SiteGives: {"site_gives_address", RuleProxy, func(d *Decision) string {
		return "takes its address from the site's DHCP server, since this booter only proxies; what to boot it asks separately"
	}},
	Looping: {"loop", RuleLoop, func(d *Decision) string {
		return fmt.Sprintf("was served its %s %d times without going on from there; serving it rests until %s; %s", d.Loop.Stage, d.Loop.Count,
			d.Loop.Until.UTC().Format("15:04:05 UTC"), d.loopHint())
	}},
}

// whereToSet tells where the image of this mode is chosen.
func (d *Decision) whereToSet() string {
	if d.Mode == Node {
		return "set its assigned_pi with muster boot set " + d.MAC.String()
	}
	return "set one in the boot policy with muster policy set"
}

// loopHint tells where to look, by what did not happen.
func (d *Decision) loopHint() string {
	switch d.Loop.Stage {
	case Loader:
		return "its firmware loads the boot program but that never asks for more: look at its console, turn Secure Boot off, or try another boot mode (BIOS, UEFI, HTTP)"
	case Start:
		return "its iPXE gets an address but never fetches the script: see whether it reaches the booter's HTTP port"
	}
	return "its iPXE gets the script but boots nothing by it: look at its console, and whether the image is for such a machine"
}

// ofBoot tells whether a reason is only about what would be booted, so that an
// address alone can still be had.
func (r Reason) ofBoot() bool {
	switch r {
	case UnknownArch, NoArch, NoImage, BadStamp, NotStaged, NoVariant, BadArgs, LoaderMissing, Looping:
		return true
	}
	return false
}

func (r Reason) String() string { return reasons[r].name }

// Reasons lists every reason for silence.
func Reasons() []Reason {
	rs := make([]Reason, 0, reasonCount-1)
	for r := Served + 1; r < reasonCount; r++ {
		rs = append(rs, r)
	}
	return rs
}

func (r Reason) rule(chosen Rule) Rule {
	if own := reasons[r].rule; own != "" {
		return own
	}
	return chosen
}

// Why is the decision as one sentence for people: which machine, what, why,
// and what to do next.
func (d Decision) Why() string {
	state := ""
	if d.State != "" && d.State != muster.Discovered {
		state = " (" + string(d.State) + ")"
	}
	return d.MAC.String() + state + " " + reasons[d.Reason].say(&d)
}

// Deny turns a decision to serve into silence for a reason found later.
func (d Decision) Deny(r Reason) Decision {
	d.Serve = false
	return d.silent(r)
}
