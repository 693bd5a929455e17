// Package host is the brain of muster-host: in which order a setup is done and
// when it must not be, what a machine is when it has started, how it asks to be
// let in, when it speaks again, how it is made as it was declared, and how a
// linked node lives.
//
// It must never touch the machine itself: everything that has an effect goes
// through Hands, which package linux implements for real machines and package
// sim for imaginary ones. No I/O, no clock, no dice, no goroutine.
package host

import (
	"time"

	"muster.internal"
	"muster.internal/setup"
)

// A Pool is a storage pool found on the machine's disks, imported or not.
type Pool struct {
	Kind     muster.PoolKind
	Name     string
	GUID     string
	Stamp    string // the server UUID written on it; empty: foreign
	Imported bool   // in use now
}

// Hands do what the brain decides. Each call is one effect or one reading;
// errors are for people, and none holds a secret.
type Hands interface {
	// ServerUUID is what this machine announced as.
	ServerUUID() string
	// PrivateKey is the key pair's half that this boot keeps to itself.
	PrivateKey() []byte
	Now() time.Time
	SetClock(t time.Time) error
	// Disks surveys disks and what is on them, and changes nothing.
	Disks() ([]muster.Disk, error)
	// Pools finds pools by the name of ours, imported or importable.
	Pools() ([]Pool, error)
	// DryRun checks that the plan's pool could be built, and changes nothing.
	DryRun(p muster.SetupPlan) error
	// Destroy gives up a pool of this machine.
	Destroy(p Pool) error
	// Wipe removes what the approval says is on the planned disks.
	Wipe(p muster.SetupPlan) error
	// Create builds the pool, marked from its first moment as this machine's.
	Create(p muster.SetupPlan) error
	// Stamp makes the file system that holds the machine's state, and writes
	// the server UUID on it.
	Stamp(p muster.SetupPlan) error
	// WriteCredential stores it on the pool so that it survives a power cut.
	WriteCredential(c setup.Credential) error
	// Export closes the pool; what was written is on the disks then.
	Export(p muster.SetupPlan) error
}

// clockTolerance is how far the clock may be from what it was set to, once set.
const clockTolerance = 5 * time.Second
