package muster

import (
	"context"
	"time"
)

// Exits are the ways out of a fleet, and back into it. Registrations leave by
// RaiseRegistration (disable, factory_reset, readmit) and DeleteRegistration.
type Exits interface {
	// Node is one node with what it holds; a decommissioned one, too.
	Node(ctx context.Context, nodeID string) (NodeDetail, error)
	// RaiseNode raises no_provision, quiesce, resume or graceful_remove.
	RaiseNode(ctx context.Context, nodeID string, e Event) (Node, error)
	// ExpungeNode cuts a node off for good.
	ExpungeNode(ctx context.Context, nodeID string, x Expunge) (NodeDetail, error)
	// AcknowledgeForeign says that the workloads which are not muster's, and run
	// on a node now, may be lost.
	AcknowledgeForeign(ctx context.Context, nodeID string) (NodeDetail, error)
	// RaiseDisk raises remove_disk, keep_disk or expunge_disk.
	RaiseDisk(ctx context.Context, diskID string, e Event) (NodeDisk, error)
	// ExpungeDisk says that a disk is gone or must go, for good.
	ExpungeDisk(ctx context.Context, diskID string, x Expunge) (NodeDisk, error)

	// SetRootPassword keeps the crypt(3) hash of a machine's root password, for
	// its own boots and nobody else.
	SetRootPassword(ctx context.Context, serverUUID string, p RootPassword) (RootPasswordSet, error)
	ClearRootPassword(ctx context.Context, serverUUID string) error

	// RotateKey gives a key another secret, which is shown once.
	RotateKey(ctx context.Context, id string, r KeyRotation) (CreatedKey, error)
}

// A NodeDetail is a node with what it holds.
type NodeDetail struct {
	Node
	Serial     string            `json:"serial,omitempty"` // of its machine
	Disks      []NodeDisk        `json:"disks"`
	Placements []Placement       `json:"placements"` // that are not removed
	Moves      []Move            `json:"moves"`      // that are not finished
	Foreign    []ForeignWorkload `json:"foreign"`
	Orders     []NodeOrder       `json:"orders"` // that its host has not done yet
	// Claims are those on the node itself that leaving waits for, and of a node
	// that is no more those that were not waited for.
	Claims   []Claim   `json:"claims"`
	Expunged *Expunged `json:"expunged,omitempty"`
}

// A NodeDisk is a disk that the fleet holds or held.
type NodeDisk struct {
	ID        string     `json:"disk_id"`
	NodeID    string     `json:"node_id"`
	Disk      Disk       `json:"disk"`
	Policy    DiskPolicy `json:"policy"`
	State     DiskState  `json:"state"`
	CreatedAt time.Time  `json:"created_at"`
	// Member: it is of its node's pool, and not for placements.
	Member bool              `json:"pool_member,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	Claims []Claim           `json:"claims,omitempty"` // on this disk
	// MissingSince is set while its node's host does not see it. It may be put
	// back: that changes neither policy nor state.
	MissingSince *time.Time `json:"missing_since,omitempty"`
}

// PlacementKind tells what a node brings with itself from what was put there.
type PlacementKind string

const (
	PlacementBase    PlacementKind = "base"
	PlacementPerNode PlacementKind = "per_node"
	PlacementPerDisk PlacementKind = "per_disk"
	PlacementService PlacementKind = "service"
)

// PlacementState is how far a placement is.
type PlacementState string

const (
	PlacementReserved PlacementState = "reserved"
	PlacementPlaced   PlacementState = "placed"
	PlacementMoving   PlacementState = "moving"
	PlacementRemoved  PlacementState = "removed"
	PlacementLost     PlacementState = "lost"
)

// A Placement is one replica of a module on a node.
type Placement struct {
	ID     string         `json:"placement_id"`
	Module string         `json:"module"`
	Kind   PlacementKind  `json:"kind"`
	State  PlacementState `json:"state"`
}

// A Move brings a placement from one node to another.
type Move struct {
	ID        string    `json:"move_id"`
	Placement string    `json:"placement_id"`
	From      string    `json:"from_node"`
	To        string    `json:"to_node"`
	StartedAt time.Time `json:"started_at"`
}

// A ForeignWorkload runs on a machine and is not ours.
type ForeignWorkload struct {
	Kind           string     `json:"kind"` // vm, container, …
	Name           string     `json:"name"`
	FirstSeen      time.Time  `json:"first_seen"`
	AcknowledgedAt *time.Time `json:"acknowledged_at,omitempty"`
	AcknowledgedBy string     `json:"acknowledged_by,omitempty"`
}

// An Expunge names the machine a second time: its serial number, or its server
// UUID when it has none; of a disk, its serial number or its id.
type Expunge struct {
	Confirm string `json:"confirm"`
	Reason  string `json:"reason"` // one line, for whoever asks later
}

// Expunged says since when, by whom and why a machine is cut off, and which
// booters have followed the feed that far.
type Expunged struct {
	At      time.Time            `json:"at"`
	By      string               `json:"by"`
	Reason  string               `json:"reason,omitempty"`
	Seq     int64                `json:"seq"`
	Booters []BooterConfirmation `json:"booters,omitempty"`
}

// A BooterConfirmation says whether a booter knows of something.
type BooterConfirmation struct {
	Booter    string     `json:"booter"`
	Confirmed bool       `json:"confirmed"`
	LastSeen  *time.Time `json:"last_seen,omitempty"`
}

// A RootPassword is either the password, which is hashed and forgotten, or its
// SHA-512 crypt(3) hash ($6$…). It is never shown again.
type RootPassword struct {
	Password string `json:"password,omitempty"`
	Hash     string `json:"hash,omitempty"`
}

// RootPasswordSet is all that is ever said of a root password.
type RootPasswordSet struct {
	SetAt time.Time `json:"set_at"`
	SetBy string    `json:"set_by"`
	// FetchedAt is when a boot of the machine got it last.
	FetchedAt *time.Time `json:"fetched_at,omitempty"`
}

// A KeyRotation says how long the old secret is good beside the new one.
type KeyRotation struct {
	Overlap int `json:"overlap_seconds,omitempty"` // 0: it is dead at once; at most 7 days
}

// BootSecrets are what a booter fetches for one boot, and for that boot alone.
type BootSecrets interface {
	// TakeRootPassword is the crypt(3) hash for an enrolled NIC's boot. A nonce
	// gets it once.
	TakeRootPassword(ctx context.Context, mac string, q BootSecretRequest) (BootSecret, error)
}

// A BootSecretRequest names one boot.
type BootSecretRequest struct {
	Booter string `json:"booter"`
	Nonce  string `json:"nonce"` // 32 hex digits
}

// A BootSecret is what one boot gets.
type BootSecret struct {
	RootPasswordHash string `json:"root_password_hash"`
}
