// Package muster holds the nouns of the system: the words that the database,
// the wire, the screen and the machine must all understand alike. It decides
// nothing and does nothing: no I/O, no clock, no dice.
//
// The states, modes and scopes are strings because they are stored and sent;
// their spelling is part of the API.
package muster

import (
	"encoding/json"
	"time"

	"muster.internal/module"
)

// RegistrationState says how far the control plane knows and trusts one
// machine. Clients keep a fallback for a state they do not know.
type RegistrationState string

const (
	Pending       RegistrationState = "pending"
	Approved      RegistrationState = "approved"
	Disabled      RegistrationState = "disabled"
	AwaitingSetup RegistrationState = "awaiting_setup"
	SettingUp     RegistrationState = "setting_up"
)

// RegistrationStates lists every state, in the order in which people should
// read them.
var RegistrationStates = []RegistrationState{Pending, Approved, Disabled, AwaitingSetup, SettingUp}

// BootState says what one admin NIC may be served when it asks the network for
// something to boot.
type BootState string

const (
	Discovered         BootState = "discovered"
	Enrolling          BootState = "enrolling"
	Enrolled           BootState = "enrolled"
	BootDecommissioned BootState = "decommissioned"
)

// BootStates lists every state.
var BootStates = []BootState{Discovered, Enrolling, Enrolled, BootDecommissioned}

// BootMode stands beside the boot state.
type BootMode string

const (
	NormalMode BootMode = "normal"
	RescueMode BootMode = "rescue"
)

// NodePolicy is an operator's intent for a node.
type NodePolicy string

const (
	PolicyInService      NodePolicy = "in_service"
	PolicyNoProvision    NodePolicy = "no_provision"
	PolicyQuiesce        NodePolicy = "quiesce"
	PolicyGracefulRemove NodePolicy = "graceful_remove"
	PolicyExpunged       NodePolicy = "expunged"
)

// NodeState is what is true of a node; only the control plane moves it.
type NodeState string

const (
	NodeInitializing   NodeState = "initializing"
	NodeInService      NodeState = "in_service"
	NodeQuiesced       NodeState = "quiesced"
	NodeDecommissioned NodeState = "decommissioned"
)

// DiskPolicy and DiskState are a disk's intent and truth.
type (
	DiskPolicy string
	DiskState  string
)

const (
	DiskInService      DiskState = "in_service"
	DiskDecommissioned DiskState = "decommissioned"

	DiskPolicyInService      DiskPolicy = "in_service"
	DiskPolicyGracefulRemove DiskPolicy = "graceful_remove"
	DiskPolicyExpunged       DiskPolicy = "expunged"
)

// An Event is something that happens to a machine, by its name on the wire:
// the last segment of POST /v1/registrations/{key}/{event}. Package lifecycle
// says what each does.
type Event string

// A Registration is what the control plane knows of one machine by the UUID
// that its hardware reports. Secrets (claim code, poll token, keys) are never
// part of it.
type Registration struct {
	ServerUUID   string            `json:"server_uuid"`
	State        RegistrationState `json:"state"`
	Hostname     string            `json:"hostname,omitempty"`
	Manufacturer string            `json:"manufacturer,omitempty"`
	Product      string            `json:"product,omitempty"`
	Serial       string            `json:"serial,omitempty"` // empty when the hardware has none or a placeholder
	MACs         []string          `json:"macs,omitempty"`   // canonical, as the machine reported them
	Door         Door              `json:"door"`             // how it came in
	NodeID       string            `json:"node_id,omitempty"`

	RegisteredAt time.Time  `json:"registered_at"`
	LastSeen     time.Time  `json:"last_seen"`
	ApprovedAt   *time.Time `json:"approved_at,omitempty"`
	RefreshedAt  *time.Time `json:"refreshed_at,omitempty"` // the host itself authenticated, last time

	ClaimCodeExpires *time.Time `json:"claim_code_expires_at,omitempty"`
	BoundKeyID       string     `json:"bound_api_key_id,omitempty"`

	SetupEpoch     int64      `json:"setup_epoch,omitempty"`
	SetupDeadline  *time.Time `json:"setup_deadline,omitempty"`
	BundleTaken    bool       `json:"bundle_taken,omitempty"`
	OperationID    string     `json:"operation_id,omitempty"`
	LastSetupError string     `json:"last_setup_error,omitempty"`
	AssignedPI     *ImageRef  `json:"assigned_pi,omitempty"`
	DiskLayout     *SetupPlan `json:"disk_layout,omitempty"` // what was approved

	// Away says why a machine that is to be set up is not on the boot bus.
	Away string `json:"away,omitempty"`

	Disks      []Disk     `json:"disks,omitempty"`       // as surveyed over the bus
	SurveyedAt *time.Time `json:"surveyed_at,omitempty"` // nil: no approval can be offered yet

	ConsolePort int    `json:"console_listen_port,omitempty"`
	ConsolePin  string `json:"console_tls_spki_sha256_hex,omitempty"`

	// ComesAs says as what node a machine that is not in would come in.
	ComesAs *ComesAs `json:"comes_as,omitempty"`
	// Tombstone is set while the machine is kept out because it was expunged.
	Tombstone    *Expunged        `json:"tombstone,omitempty"`
	RootPassword *RootPasswordSet `json:"root_password,omitempty"`

	Conflicts []Conflict      `json:"conflicts,omitempty"`
	Sysinfo   json.RawMessage `json:"sysinfo,omitempty"` // redacted
}

// Door is the way by which a registration came into being.
type Door string

const (
	DoorNetboot Door = "netboot"
	DoorClaim   Door = "claim"
	DoorWindow  Door = "window" // an auto-approve window
	DoorToken   Door = "token"  // an enrolment token
)

// A Conflict is another live machine that claims this one's identity. The
// newcomer waits; the incumbent keeps its place.
type Conflict struct {
	MAC    string    `json:"mac"`
	Serial string    `json:"serial,omitempty"`
	Source string    `json:"source,omitempty"` // address it spoke from
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// A BootRecord is the netboot identity of one admin NIC.
type BootRecord struct {
	MAC         string      `json:"mac"` // canonical: lower case, colons
	State       BootState   `json:"state"`
	Mode        BootMode    `json:"mode"`
	RescueUntil *time.Time  `json:"rescue_until,omitempty"`
	ServerUUID  string      `json:"server_uuid,omitempty"` // bound at setup-complete
	Network     string      `json:"network,omitempty"`     // name of the admin network
	Address     string      `json:"address,omitempty"`     // reserved, without prefix length
	Networking  *Networking `json:"networking,omitempty"`
	AssignedPI  *ImageRef   `json:"assigned_pi,omitempty"`
	KernelArgs  []string    `json:"kernel_args,omitempty"`
	// Probe is set while only the first-stage script may be served, to learn
	// the service tag that the allowlist wants.
	Probe      bool   `json:"probe,omitempty"`
	ServiceTag string `json:"service_tag,omitempty"`
	SeenUUID   string `json:"seen_uuid,omitempty"` // option 97 or iPXE, as claimed
	// OwnUUID is what the machine behind this NIC must call itself, where its
	// firmware says what other machines say, too.
	OwnUUID string `json:"own_uuid,omitempty"`
	// AwaitsUUID is set while only the first-stage script may be served, to
	// learn what a UUID of its own can be derived from.
	AwaitsUUID bool       `json:"awaits_uuid,omitempty"`
	Arch       int        `json:"arch"` // option 93
	Provenance string     `json:"provenance,omitempty"`
	FirstSeen  *time.Time `json:"first_seen,omitempty"`
	LastSeen   *time.Time `json:"last_seen,omitempty"`
	Note       string     `json:"note,omitempty"` // why nothing can be served, for people
	// RootPassword is set, for booters, when the machine has one: what it is, is
	// fetched for one boot at a time.
	RootPassword bool  `json:"root_password,omitempty"`
	Synthesized  bool  `json:"synthesized,omitempty"` // never reported: no row exists
	Seq          int64 `json:"seq,omitempty"`         // change feed position of its last change
}

// Networking is what a booted machine configures its admin NIC with.
type Networking struct {
	Address   string   `json:"address"` // CIDR, e.g. 10.77.0.101/24
	Gateway   string   `json:"gateway,omitempty"`
	Resolvers []string `json:"resolvers,omitempty"`
	Hostname  string   `json:"hostname,omitempty"`
}

// A BootPolicy is the site's answer to a machine it has never seen.
type BootPolicy struct {
	AutoEnroll    bool           `json:"auto_enroll"`
	AnswerOnlyPXE bool           `json:"answer_only_pxe"`
	Allow         []AllowEntry   `json:"allow"` // empty admits all
	EnrollmentPI  *ImageRef      `json:"enrollment_pi,omitempty"`
	RescuePI      *ImageRef      `json:"rescue_pi,omitempty"`
	Networks      []AdminNetwork `json:"networks"`
	// NodeConfig is written to the node.config of SmartOS machines, which their
	// services evaluate at boot: datacenter_name, dns_domain, ntp_hosts, ….
	NodeConfig map[string]string `json:"node_config,omitempty"`
	// AdoptDisks says what becomes of a disk that turns up in a node.
	AdoptDisks DiskAdoption `json:"adopt_disks,omitempty"`
	Seq        int64        `json:"seq,omitempty"`
}

// A DiskAdoption says who takes a disk into the fleet that turns up in a node.
type DiskAdoption string

const (
	AdoptExplicit DiskAdoption = "explicit" // an operator, each
	AdoptAuto     DiskAdoption = "auto"     // nobody need, if it is empty and never was adopted there
)

// DefaultBootPolicy is the policy of a new installation.
func DefaultBootPolicy() BootPolicy {
	return BootPolicy{AutoEnroll: true, AnswerOnlyPXE: true, Allow: []AllowEntry{}, Networks: []AdminNetwork{}}
}

// An AllowEntry has exactly one of its fields set.
type AllowEntry struct {
	ServiceTag string `json:"service_tag,omitempty"` // compared without case
	MACPrefix  string `json:"mac_prefix,omitempty"`  // canonical octets, e.g. 52:54:00
}

// An AdminNetwork is one segment on which machines boot. The lowest free
// address between Start and End is reserved for each.
type AdminNetwork struct {
	Name      string   `json:"name"`
	Prefix    string   `json:"prefix"`            // CIDR
	Start     string   `json:"start"`             // first address to give out
	End       string   `json:"end"`               // last one
	Gateway   string   `json:"gateway,omitempty"` //
	Resolvers []string `json:"resolvers,omitempty"`
	// A request belongs here when it came in on Interface, or through a relay
	// whose giaddr lies in Prefix or is listed in Giaddrs, or with CircuitID.
	Interface string   `json:"interface,omitempty"`
	Giaddrs   []string `json:"giaddrs,omitempty"`
	CircuitID string   `json:"circuit_id,omitempty"`
	Lease     int      `json:"lease_seconds,omitempty"` // 0: 3600
}

// An ImageRef is a platform image by name, with the digest that the name meant
// when it was set; both are kept.
type ImageRef struct {
	Name   string `json:"name"`
	Digest string `json:"digest,omitempty"` // of the manifest: "sha256:…"
}

// An Image is a platform image's manifest.
type Image struct {
	Name     string         `json:"name"`
	Digest   string         `json:"digest,omitempty"` // of the canonical JSON of all else
	Kind     ImageKind      `json:"kind"`
	Variants []ImageVariant `json:"variants"`
	Comment  string         `json:"comment,omitempty"`
	AddedAt  *time.Time     `json:"added_at,omitempty"`
}

// ImageKind chooses how an image is rendered for a boot loader.
type ImageKind string

const (
	LinuxImage   ImageKind = "linux"
	SmartOSImage ImageKind = "smartos"
)

// An ImageVariant is an image's content for one architecture ("amd64",
// "arm64", as Go spells them).
type ImageVariant struct {
	Arch  string      `json:"arch"`
	Files []ImageFile `json:"files"`
	Args  []string    `json:"args,omitempty"` // kernel arguments every boot of it carries
}

// An ImageFile has a role in the boot: kernel, initrd, rootfs (linux); unix,
// boot_archive, hash (smartos).
type ImageFile struct {
	Role   string `json:"role"`
	Digest string `json:"digest"` // "sha256:" and 64 hex digits
	Size   int64  `json:"size"`
}

// A Node is a machine that belongs to the fleet. Hardware that was
// decommissioned and comes back is a new node.
type Node struct {
	ID         string     `json:"node_id"`
	ServerUUID string     `json:"server_uuid"`
	Hostname   string     `json:"hostname,omitempty"`
	Policy     NodePolicy `json:"policy"`
	State      NodeState  `json:"state"`
	// ByHand: people declare it, and nothing is placed on it until they hand it
	// over.
	ByHand    bool       `json:"declared_by_hand,omitempty"`
	CreatedAt time.Time  `json:"created_at"`
	LastSeen  *time.Time `json:"last_seen,omitempty"`
	Link      *NodeLink  `json:"link,omitempty"` // absent: it has never been linked
	// Labels, reservoir and note are what people said of it.
	Labels    map[string]string `json:"labels,omitempty"`
	Reservoir module.Capacity   `json:"reservoir,omitzero"`
	Note      string            `json:"note,omitempty"`
}

// A Disk is a block device as a machine sees it, with what is on it.
type Disk struct {
	Path      string    `json:"path"`            // /dev/vdb
	Paths     []string  `json:"paths,omitempty"` // every path to the same disk, when more than one
	Vendor    string    `json:"vendor,omitempty"`
	Model     string    `json:"model,omitempty"`
	Serial    string    `json:"serial,omitempty"`
	WWN       string    `json:"wwn,omitempty"`       // WWN, EUI-64 or NGUID
	Size      int64     `json:"size"`                // bytes
	Transport string    `json:"transport,omitempty"` // SCSI, ATA, NVMe, virtio
	SSD       bool      `json:"solid_state"`
	Removable bool      `json:"removable,omitempty"`
	Contents  []Content `json:"contents,omitempty"`
}

// Content is something found on a disk: a pool, a file system, a partition
// table. Stamp is the server UUID written on a pool of ours.
type Content struct {
	Kind  string `json:"kind"`           // zpool, btrfs, partitions, ext4, lvm, unknown, …
	Name  string `json:"name,omitempty"` // pool or label
	GUID  string `json:"guid,omitempty"`
	Stamp string `json:"stamp,omitempty"`
}

// An AuditEntry is one link of the chain. Seq is also the position in the
// change feed.
type AuditEntry struct {
	Seq      int64           `json:"seq"`
	At       time.Time       `json:"at"`
	Actor    string          `json:"actor"`   // operator:NAME, key:ID, anonymous, clock
	Action   string          `json:"action"`  // the lifecycle event or the name of the change
	Subject  string          `json:"subject"` // registration/UUID, boot-record/MAC, …
	Detail   json.RawMessage `json:"detail,omitempty"`
	PrevHash string          `json:"prev_hash"`
	Hash     string          `json:"hash"`
}

// An AuditVerdict is what a walk along the chain found.
type AuditVerdict struct {
	OK         bool   `json:"ok"`
	VerifiedTo int64  `json:"verified_to"`         // the last entry that is proved
	BrokenAt   int64  `json:"broken_at,omitempty"` // the first that is not
	Reason     string `json:"reason,omitempty"`
	Head       string `json:"head,omitempty"` // hash of VerifiedTo
}
