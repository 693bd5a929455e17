package inventory

import "slices"

// A Case names what is odd about a machine, so that it can be looked up.
type Case string

const (
	OneUUID       Case = "one_uuid"
	OneChassis    Case = "one_chassis"
	SerialChanged Case = "serial_changed"
	DisksMoved    Case = "disks_moved"
	UUIDChanged   Case = "uuid_changed"
	BoardSwapped  Case = "board_swapped"
	NICMoved      Case = "nic_moved"
	NICTwice      Case = "nic_twice"
	DefaultUUID   Case = "default_uuid"
	KeyMoved      Case = "key_moved"
)

// An operator's verbs, the last segments of POST /v1/machines/{id}/{verb}.
const (
	VerbAccept   = "accept"
	VerbSeparate = "separate"
	VerbMoveNIC  = "move-nic"
	VerbForget   = "forget"
)

// A CaseRow says of a case what it looks like and what an operator can do, the
// likeliest first.
type CaseRow struct {
	Case  Case
	Looks string
	Verbs []string
}

// Cases is the table that refusals, the command line and the documentation
// share.
var Cases = []CaseRow{
	{OneUUID, "two machines have one UUID", []string{VerbSeparate, VerbAccept, VerbForget}},
	{OneChassis, "two machines have one UUID and one serial number, as the blades of some chassis do", []string{VerbSeparate, VerbAccept, VerbForget}},
	{SerialChanged, "UUID and NIC are the same, the serial number is another: firmware was updated, or the board replaced", []string{VerbAccept, VerbSeparate, VerbForget}},
	{DisksMoved, "the disks of a machine are in other hardware, which takes its UUID from them", []string{VerbAccept, VerbSeparate, VerbForget}},
	{UUIDChanged, "everything is the same but the UUID: a BMC's fault, or other firmware settings", []string{VerbAccept, VerbForget}},
	{BoardSwapped, "the disks, or the pool on them, are a known machine's, in hardware with another UUID", []string{VerbAccept, VerbSeparate, VerbForget}},
	{NICMoved, "a known machine's NIC is in hardware with another UUID, or a dongle is passed around", []string{VerbMoveNIC, VerbAccept, VerbForget}},
	{NICTwice, "a registered machine shows a NIC that another registered machine has: it was moved, or two have one MAC address", []string{VerbMoveNIC, VerbSeparate, VerbForget}},
	{DefaultUUID, "the UUID is a vendor's default, and nothing else tells which machine it is", []string{VerbSeparate, VerbForget}},
	{KeyMoved, "a node's credential is used by other hardware than it was given to", []string{VerbAccept}},
}

// Row finds a case; the zero row has no verbs.
func (c Case) Row() CaseRow {
	if i := slices.IndexFunc(Cases, func(r CaseRow) bool { return r.Case == c }); i >= 0 {
		return Cases[i]
	}
	return CaseRow{}
}

// Verbs are what an operator can do about the case.
func (c Case) Verbs() []string { return c.Row().Verbs }
