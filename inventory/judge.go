package inventory

import (
	"fmt"
	"slices"
	"strings"

	"muster.internal"
)

// Evidence is what tells one machine from another.
type Evidence struct {
	UUID string
	// SharedUUID says that this UUID is on many boards.
	SharedUUID bool
	Serial     string   // without placeholders
	MACs       []string // permanent ones, without shared ones
	Disks      []string // identities
	// Stamps are the UUIDs of the machines that the pools on the disks were
	// made for.
	Stamps []string
	// Key names the credential with which the machine showed that it is a node;
	// empty for one that has none yet.
	Key string
}

// Evidence draws the evidence from what a machine said of itself.
func (f Facts) Evidence() Evidence { return builtin.Evidence(f) }

// Outcome is a judgement's name.
type Outcome string

const (
	Same               Outcome = "same"
	SameHardwareNewKey Outcome = "same_hardware_new_key"
	SameKeyNewHardware Outcome = "same_key_new_hardware"
	Conflict           Outcome = "conflict"
	New                Outcome = "new"
)

// A Verdict is an outcome with its reason, for people. A conflict has a case,
// which says what can be done about it.
type Verdict struct {
	Outcome Outcome
	Case    Case
	Reason  string
}

// relation is how one kind of evidence compares.
type relation string

const (
	agrees   relation = "agrees"
	differs  relation = "differs"
	missing  relation = "missing" // one side has none
	whole    relation = "whole"   // agrees, in every member: fits where agrees does, too
	whatever relation = ""        // in a rule only
)

// A rule names what must hold of UUID, serial, MACs and disks. The first that
// fits decides; the last fits always.
type rule struct {
	uuid, serial, macs, disks relation
	outcome                   Outcome
	kind                      Case
	why                       string
}

var rules = []rule{
	// One UUID: what else agrees?
	{agrees, agrees, agrees, whatever, Same, "", "UUID, serial number and a NIC are the same"},
	{agrees, agrees, differs, agrees, Same, "", "UUID, serial number and a disk are the same; its NICs were replaced"},
	{agrees, differs, agrees, agrees, Same, "", "UUID, a NIC and a disk are the same, though the serial number is another"},
	{agrees, agrees, missing, whatever, Same, "", "UUID and serial number are the same"},
	{agrees, missing, agrees, whatever, Same, "", "UUID and a NIC are the same"},
	{agrees, missing, missing, agrees, Same, "", "UUID and a disk are the same"},
	{agrees, missing, missing, missing, Same, "", "the UUID is the same and nothing speaks against it"},
	{agrees, agrees, differs, whatever, Conflict, OneChassis, "UUID and serial number are the same, but no NIC and no disk is: some vendors give a whole chassis one identity"},
	{agrees, differs, agrees, whatever, Conflict, SerialChanged, "UUID and a NIC are the same, but the serial number is another"},
	{agrees, differs, whatever, agrees, Conflict, DisksMoved, "the UUID and a disk are the same, but serial number and NICs are others: its disks may have moved to another machine"},
	{agrees, differs, whatever, whatever, Conflict, OneUUID, "the UUID is the same, but the serial number is another"},
	{agrees, whatever, differs, whatever, Conflict, OneUUID, "the UUID is the same, but no NIC is"},
	{agrees, whatever, whatever, whatever, Conflict, OneUUID, "the UUID is the same, but no disk is"},
	// Another UUID.
	{differs, agrees, agrees, whatever, Conflict, UUIDChanged, "serial number and a NIC are the same, but the UUID is another: its firmware or BMC was changed"},
	{differs, missing, agrees, agrees, Conflict, UUIDChanged, "a NIC and a disk are the same, but the UUID is another: its firmware or BMC was changed"},
	{differs, differs, agrees, agrees, Conflict, BoardSwapped, "a NIC and a disk are the same, but UUID and serial number are others: its board was replaced"},
	{differs, whatever, agrees, whatever, Conflict, NICMoved, "a NIC is the same, but the UUID is another: the card or dongle moved, or two machines have one MAC address"},
	{differs, agrees, whatever, agrees, Conflict, UUIDChanged, "serial number and a disk are the same, but the UUID is another"},
	{differs, whatever, whatever, whole, Conflict, BoardSwapped, "its disks are the same, but the UUID is another: its board was replaced, its disks moved, or two virtual machines see one disk"},
	{differs, whatever, whatever, whatever, New, "", "the UUID is another and no NIC is shared"},
	// A UUID that says nothing.
	{missing, whatever, agrees, whatever, Same, "", "a NIC is the same (the UUID is a vendor's default and says nothing)"},
	{missing, agrees, whatever, agrees, Same, "", "serial number and a disk are the same (the UUID is a vendor's default and says nothing)"},
	{missing, whatever, whatever, whatever, Conflict, DefaultUUID, "the UUID is a vendor's default that many boards share, and no NIC is the same: give the machine a UUID of its own in its firmware"},
}

// Judge says whether newcomer is the machine that is known. It never decides
// by a sum of weights: one named rule fits, and gives the reason.
func Judge(known, newcomer Evidence) Verdict {
	v := judgeHardware(known, newcomer)
	if known.Key == "" || newcomer.Key == "" {
		return v
	}
	sameKey := known.Key == newcomer.Key
	switch {
	case sameKey && v.Outcome != Same:
		return Verdict{SameKeyNewHardware, KeyMoved, "it holds this node's credential, but " + v.Reason}
	case !sameKey && v.Outcome == Same:
		return Verdict{SameHardwareNewKey, "", v.Reason + "; its credential is another"}
	}
	return v
}

func judgeHardware(a, b Evidence) Verdict {
	uuid := compareUUIDs(a, b)
	serial := compareTexts(a.Serial, b.Serial)
	macs, mac := compareSets(a.MACs, b.MACs)
	disks, disk := compareDisks(a, b)
	for _, r := range rules {
		if fits(r.uuid, uuid) && fits(r.serial, serial) && fits(r.macs, macs) && fits(r.disks, disks) {
			return Verdict{r.outcome, r.kind, r.why + details(a, b, serial, mac, disk)}
		}
	}
	panic("inventory: the last rule of each UUID relation fits always")
}

func fits(want, have relation) bool {
	return want == whatever || want == have || want == agrees && have == whole
}

// details quotes the evidence, so that people can look it up.
func details(a, b Evidence, serial relation, mac, disk string) string {
	var parts []string
	if serial == differs {
		parts = append(parts, fmt.Sprintf("serial %s, now %s", a.Serial, b.Serial))
	}
	if mac != "" {
		parts = append(parts, "NIC "+mac)
	}
	if disk != "" {
		parts = append(parts, "disk "+disk)
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, "; ") + ")"
}

func compareUUIDs(a, b Evidence) relation {
	switch {
	case a.UUID == "" || b.UUID == "":
		return missing
	case !muster.SameUUID(a.UUID, b.UUID):
		return differs
	case a.SharedUUID || b.SharedUUID || SharedUUID(a.UUID):
		return missing
	}
	return agrees
}

// compareDisks takes a pool that was made for the other machine for all of its
// disks.
func compareDisks(a, b Evidence) (relation, string) {
	for _, p := range [][2]Evidence{{a, b}, {b, a}} {
		for _, s := range p[1].Stamps {
			if p[0].UUID != "" && !p[0].SharedUUID && muster.SameUUID(s, p[0].UUID) {
				return whole, "with the pool of " + s
			}
		}
	}
	r, common := compareSets(a.Disks, b.Disks)
	if r == agrees && within(a.Disks, b.Disks) && within(b.Disks, a.Disks) {
		r = whole
	}
	return r, common
}

func within(as, bs []string) bool {
	return !slices.ContainsFunc(as, func(a string) bool { return !slices.Contains(bs, a) })
}

func compareTexts(a, b string) relation {
	switch {
	case a == "" || b == "":
		return missing
	case strings.EqualFold(a, b):
		return agrees
	}
	return differs
}

// compareSets returns the first common member, too.
func compareSets(a, b []string) (relation, string) {
	if len(a) == 0 || len(b) == 0 {
		return missing, ""
	}
	for _, x := range a {
		if slices.Contains(b, x) {
			return agrees, x
		}
	}
	return differs, ""
}
