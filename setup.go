package muster

import "time"

// PoolKind chooses the storage pool that setup builds.
type PoolKind string

const (
	ZFS   PoolKind = "zfs"
	Btrfs PoolKind = "btrfs"
)

// PoolName is the pool that every node has; its stamp says whose it is.
const PoolName = "zones"

// StampProperty is the ZFS user property, on zones/var, that holds the server
// UUID; a pool without it is foreign.
const StampProperty = "org.smartos:server_uuid"

// Compressions that a pool may be built with; the first is the default.
var Compressions = []string{"on", "off", "lz4", "lzjb", "gzip", "zle", "zstd"}

// SetupDeadline is how long an approved setup may take.
const SetupDeadline = 45 * time.Minute

// A SetupRequest is what an operator chooses about a setup. The zero value
// lets the layout rules choose.
type SetupRequest struct {
	Pool        PoolKind `json:"pool,omitempty"`   // default zfs
	Layout      string   `json:"layout,omitempty"` // single, mirror, raidz1, raidz2, raidz3
	Spares      *int     `json:"spares,omitempty"`
	Width       *int     `json:"width,omitempty"`
	NoCache     bool     `json:"no_cache,omitempty"`
	Exclude     []string `json:"exclude,omitempty"`       // disk paths or names
	Compression string   `json:"disk_compress,omitempty"` // one of Compressions
	Hostname    string   `json:"hostname,omitempty"`      // RFC 1123 label
	// Rebuild permits replacing an existing pool that carries this machine's
	// own stamp. A pool without the stamp is never replaced.
	Rebuild bool `json:"rebuild,omitempty"`
}

// A SetupPlan is the exact pool that an approval would build, disk by disk.
type SetupPlan struct {
	ServerUUID  string       `json:"server_uuid"`
	Serial      string       `json:"serial,omitempty"`
	Pool        PoolKind     `json:"pool"`
	Layout      string       `json:"layout"`
	VDevs       []VDev       `json:"vdevs"`
	Spares      []Disk       `json:"spares,omitempty"`
	Logs        []Disk       `json:"logs,omitempty"`
	Cache       []Disk       `json:"cache,omitempty"`
	Unused      []UnusedDisk `json:"unused,omitempty"`
	Capacity    int64        `json:"capacity"` // bytes, before file system overhead
	Compression string       `json:"disk_compress"`
	Hostname    string       `json:"hostname,omitempty"`
	Rebuild     bool         `json:"rebuild,omitempty"`
	Image       *ImageRef    `json:"assigned_pi,omitempty"`
	// PublicKey is what the machine announced at this boot: a plan is for this
	// boot of this machine, and not for another that says the same of itself.
	PublicKey string   `json:"public_key,omitempty"`
	Warnings  []string `json:"warnings,omitempty"`
	// Digest covers everything above: what the operator saw is what is approved.
	Digest string `json:"digest"`
}

// A VDev is one group of a pool. Type is empty for a single disk, else mirror,
// raidz, raidz2 or raidz3.
type VDev struct {
	Type  string `json:"type,omitempty"`
	Disks []Disk `json:"disks"`
}

// An UnusedDisk is a disk that the plan leaves alone, and why.
type UnusedDisk struct {
	Disk
	Why string `json:"why"`
}

// Members returns every disk that the plan would write to.
func (p *SetupPlan) Members() []Disk {
	var ds []Disk
	for _, v := range p.VDevs {
		ds = append(ds, v.Disks...)
	}
	return append(append(append(ds, p.Spares...), p.Logs...), p.Cache...)
}

// A SetupApproval destroys what is on the planned disks. Plan is the digest
// that the operator saw; Confirm repeats the machine's serial number (its
// server UUID when it has none).
type SetupApproval struct {
	SetupRequest
	Plan    string `json:"plan"`
	Confirm string `json:"confirm"`
}

// A SetupGrant answers an approval. OperationID is found again in audit,
// events and install log.
type SetupGrant struct {
	Registration Registration `json:"registration"`
	OperationID  string       `json:"operation_id"`
	Epoch        int64        `json:"setup_epoch"`
	Deadline     time.Time    `json:"setup_deadline"`
}

// An Install is what a booter needs to know of a setup that was approved. It
// holds no secret.
type Install struct {
	ServerUUID  string    `json:"server_uuid"`
	Epoch       int64     `json:"setup_epoch"`
	Session     string    `json:"session"` // the bus session that the approval is bound to
	Taken       bool      `json:"taken"`
	Deadline    time.Time `json:"deadline"`
	OperationID string    `json:"operation_id"`
}

// A TakeRequest asks for the bundle, once.
type TakeRequest struct {
	Epoch   int64  `json:"setup_epoch"`
	Session string `json:"session"`
}

// A TakenBundle is what is sent to the machine: the script, byte for byte the
// same for every node, and the environment with all that differs. The secrets
// in it are sealed to the key that the machine announced.
type TakenBundle struct {
	Epoch  int64             `json:"setup_epoch"`
	Script string            `json:"script"`
	Env    map[string]string `json:"env"`
}

// A SetupOutcome ends a setup. Proof is the sentinel's, present on success.
type SetupOutcome struct {
	Epoch   int64    `json:"setup_epoch"`
	Session string   `json:"session,omitempty"`
	Proof   string   `json:"proof,omitempty"`
	Reason  string   `json:"reason,omitempty"` // of a failure; cut to 512 bytes
	Log     string   `json:"log,omitempty"`    // tail of what the script said
	Stdout  string   `json:"stdout,omitempty"` // the ends of the two, for the install log
	Stderr  string   `json:"stderr,omitempty"`
	MACs    []string `json:"macs,omitempty"` // admin NICs seen by DHCP in this boot
}
