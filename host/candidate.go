package host

import (
	"fmt"
	"time"

	"muster.internal/resource"
)

const (
	// CandidateWithin is how long a version may be without having linked before
	// it is asked whether the one before it could.
	CandidateWithin   = 5 * time.Minute
	candidateFailures = 3 // ends of its process that were no good ones
)

// A Candidate is a version of this program that was installed and has not linked
// yet. Digests are of the executables.
type Candidate struct {
	Digest   string `json:"digest"`
	Since    Moment `json:"since"` // it was started first, in this run of the kernel
	Failures int    `json:"failures,omitempty"`
}

// A RolledBack is a version in whose place the one before it was put.
type RolledBack struct {
	Digest  string    `json:"digest"`
	Package string    `json:"package,omitempty"` // its version, as the package manager says it
	Reason  string    `json:"reason"`
	At      time.Time `json:"at"`
}

// A Verdict is what becomes of the version that is installed.
type Verdict int

const (
	Proven  Verdict = iota // it has linked before, or there is none that has
	OnTrial                // it may have its time
	Overdue                // it is to blame, if the one before it can link now
	Refused                // the one before it takes its place
)

// Judge decides about the installed version beside the proven one, and tells why
// one is refused. failed says that its process just ended as it should not have.
// That it does not link while nobody could is not held against it; that it
// cannot run is.
func (c Candidate) Judge(installed, proven string, last RolledBack, failed bool, within time.Duration, now Moment) (Candidate, Verdict, string) {
	switch {
	case proven == "" || installed == proven:
		return Candidate{}, Proven, ""
	case installed == last.Digest:
		return Candidate{}, Refused, "it was rolled back before: " + last.Reason
	case installed != c.Digest:
		c = Candidate{Digest: installed, Since: now}
	case c.Since.Boot != now.Boot:
		c.Since = now // the machine was off for a part of its time, and nobody knows for how long
	}
	if failed {
		c.Failures++
	}
	switch {
	case c.Failures >= candidateFailures:
		return c, Refused, fmt.Sprintf("it failed %d times and never was linked", c.Failures)
	case now.Up-c.Since.Up >= within:
		return c, Overdue, fmt.Sprintf("it was not linked within %v, and the version before it can", within)
	}
	return c, OnTrial, ""
}

// ownPackage is what installs this program.
var ownPackage = resource.NewRef(resource.KindPackage, "muster-host")

// refuses tells whether a package is declared to be the version that was rolled
// back, whatever a person has installed since: it is not installed again.
func (b RolledBack) refuses(r *resource.Resource, is resource.State) bool {
	return b.Package != "" && r.Ref() == ownPackage &&
		(r.Package.Version == b.Package || r.Package.Version == "" && is[resource.FieldVersion] == b.Package)
}
