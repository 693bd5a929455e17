package muster

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"muster.internal/resource"
)

// ForLink is what the host of a node asks of the control plane, once it has a
// certificate. The certificate says which node speaks: there is no node in any
// of it, so that none can speak for another.
type ForLink interface {
	// LinkCertificate signs a new certificate. It takes the agent key, or the
	// certificate there is, also when it has expired; nothing else takes one that
	// has.
	LinkCertificate(ctx context.Context, r CertificateRequest) (Certificate, error)
	// LinkNext waits until there is something new for this node, as long as the
	// control plane finds right.
	LinkNext(ctx context.Context, p LinkPoll) (LinkAnswer, error)
	// LinkReport says how an apply went. One that is late or doubled is no error.
	LinkReport(ctx context.Context, r resource.Report) error
	// LinkProfile says what the machine is; the host says it when it has changed.
	LinkProfile(ctx context.Context, p Profile) error
	// LinkHardware says what the machine is made of; the host says it when it has
	// changed.
	LinkHardware(ctx context.Context, h Hardware) error
	// SetLinkOwned mirrors the whole of what the host answers for, and LinkOwned
	// gives the mirror back to a host that has lost its store.
	SetLinkOwned(ctx context.Context, owned []resource.Owned) error
	LinkOwned(ctx context.Context) ([]resource.Owned, error)
	// SetLinkHealth says the whole of what the host sees of the placements that it
	// checks; it says it when it has changed.
	SetLinkHealth(ctx context.Context, all []PlacementHealth) error
	// LinkKey gives a host that was asked to rekey its next agent key. It is good
	// for LinkCertificate alone, and with that takes the place of the one there is.
	LinkKey(ctx context.Context) (LinkKey, error)
}

// A LinkKey is a node's next agent key.
type LinkKey struct {
	APIKey string `json:"api_key"`
}

// LinkBusyEvery is how often a host says that it is busy.
const LinkBusyEvery = 30 * time.Second

// LinkAtMost is how long LinkNext waits at most.
const LinkAtMost = time.Minute

// CertificateLife is how long a node's certificate is good. It is renewed at
// half of it.
const CertificateLife = 30 * 24 * time.Hour

// A CertificateRequest holds a PKCS #10 request (RFC 2986) in PEM. The key is
// ECDSA on P-256; nothing else in it is heard.
type CertificateRequest struct {
	CSR string `json:"csr"`
}

// A Certificate speaks for one node, and dies with the agent key that it was
// signed for.
type Certificate struct {
	Certificate string    `json:"certificate"` // PEM
	NotAfter    time.Time `json:"not_after"`
	RenewAfter  time.Time `json:"renew_after"`
	NodeID      string    `json:"node_id"`
}

// A LinkPoll says how far the host is.
type LinkPoll struct {
	Holds      int64  `json:"holds"` // generation of the declaration that it holds; 0: none
	Version    string `json:"version"`
	Capability int    `json:"capability"`
	BootID     string `json:"boot_id"` // of the machine's kernel
	// Busy says that the host is at a long apply, and only wants not to be taken
	// for away: it is answered at once, with nothing.
	Busy bool `json:"busy,omitempty"`
}

// A LinkAnswer holds what is new, if anything is.
type LinkAnswer struct {
	Generation int64 `json:"generation"` // of the newest declaration; 0: there is none
	// Declaration is there when it is newer than what the host holds.
	Declaration *resource.Declaration `json:"declaration,omitempty"`
	// Orders are called verbs on the wire: hosts that were built with that name
	// would not hear another.
	Orders []OrderKind `json:"verbs,omitempty"`
	// NextSeconds is when to ask again. After an answer with something in it a
	// host asks again once it has taken it in, without waiting.
	NextSeconds int `json:"next_seconds"`
}

// An OrderKind asks a host for something. The list is closed: there is no way to
// have a host run anything.
type OrderKind string

const (
	OrderReportNow OrderKind = "report_now" // apply, and report, changed or not
	OrderRetire    OrderKind = "retire"     // give everything up, then drop the identity
	OrderRekey     OrderKind = "rekey"      // make a new key pair, with a new agent key
	OrderReboot    OrderKind = "reboot"     // restart the machine, once
	// OrderRebootDrained is OrderReboot for its host, which is told so once nothing
	// runs on the node any more; afterwards the node serves again.
	OrderRebootDrained OrderKind = "reboot_drained"
)

// OrderKinds are all of them.
var OrderKinds = []OrderKind{OrderReportNow, OrderRetire, OrderRekey, OrderReboot, OrderRebootDrained}

// Words say what a host is asked for.
func (k OrderKind) Words() string {
	switch k {
	case OrderReportNow:
		return "report"
	case OrderRetire:
		return "give everything up"
	case OrderRekey:
		return "make a new key pair"
	case OrderReboot:
		return "restart the machine"
	case OrderRebootDrained:
		return "restart the machine once nothing runs on it"
	}
	return string(k)
}

// A NodeOrder is what a host is asked for and has not done yet. It is told when
// it comes, and again until it has done it.
type NodeOrder struct {
	Kind    OrderKind  `json:"verb"`
	AskedAt time.Time  `json:"asked_at"`
	AskedBy string     `json:"asked_by"`
	ToldAt  *time.Time `json:"told_at,omitempty"`
}

// A Profile is what a host says of its machine. Facts are the names that
// templates can use.
type Profile struct {
	Profile json.RawMessage   `json:"profile,omitempty"`
	Facts   map[string]string `json:"facts,omitempty"`
}

// Declarations is what operators see and say of what nodes are told to be.
type Declarations interface {
	// Declare tells a node what to be from now on. With a generation it must be
	// the one that stands. Actions are refused: they come to a machine with a
	// bundle or a file. One that says what stands already changes nothing.
	Declare(ctx context.Context, nodeID string, d resource.Declaration) (NodeDeclaration, error)
	// Declaration is the newest one, with hashes where contents are secret.
	Declaration(ctx context.Context, nodeID string) (NodeDeclaration, error)
	// ResolveConflict says a person's word on an adopted resource that is not as
	// declared. It goes to the host with the next generation of the declaration.
	ResolveConflict(ctx context.Context, nodeID string, r ConflictResolution) (NodeDeclaration, error)
	// OrderNode asks the host of a node for something.
	OrderNode(ctx context.Context, nodeID string, kind OrderKind) (NodeOrder, error)
	NodeReport(ctx context.Context, nodeID string) (NodeReport, error)
	// NodeBriefing is the newest report in four words.
	NodeBriefing(ctx context.Context, nodeID string) (resource.Briefing, error)
	NodeOwned(ctx context.Context, nodeID string) (NodeOwned, error)
	NodeProfile(ctx context.Context, nodeID string) (NodeProfile, error)
	// NodeHealth is what its host sees of the placements that it checks, and why it
	// sees nothing, if it cannot.
	NodeHealth(ctx context.Context, nodeID string) (NodeHealth, error)
}

// A NodeDeclaration is what a node is told to be, as it is shown.
type NodeDeclaration struct {
	NodeID      string               `json:"node_id"`
	Generation  int64                `json:"generation"`
	DeclaredAt  time.Time            `json:"declared_at"`
	DeclaredBy  string               `json:"declared_by"`
	Declaration resource.Declaration `json:"declaration"`
}

// A ConflictResolution is a person's word on one resource of a node.
type ConflictResolution struct {
	Ref     resource.Ref        `json:"ref"`
	Resolve resource.Resolution `json:"resolve"`
}

// A NodeReport is the newest that a node's host said of its applies.
type NodeReport struct {
	NodeID     string          `json:"node_id"`
	ReportedAt time.Time       `json:"reported_at"` // when this was heard first
	Report     resource.Report `json:"report"`
	// Notable is the newest report in which something was not ok.
	Notable *resource.Report `json:"notable,omitempty"`
}

// NodeOwned is what a node's host answers for, as it said last.
type NodeOwned struct {
	NodeID     string           `json:"node_id"`
	MirroredAt time.Time        `json:"mirrored_at"`
	Owned      []resource.Owned `json:"owned"`
}

// A PlacementHealth is what the host of a node sees of one placement that it is
// told to check.
type PlacementHealth struct {
	ID       string    `json:"id"`
	Healthy  bool      `json:"healthy"`
	CaughtUp bool      `json:"caught_up"`        // also of one that has nothing to catch up with
	Reason   string    `json:"reason,omitempty"` // why it is not
	Since    time.Time `json:"since"`            // it is so, by the node's clock
}

// NodeHealth is what a node's host said last of the placements that it checks.
type NodeHealth struct {
	NodeID     string            `json:"node_id"`
	SaidAt     time.Time         `json:"said_at"`          // when it was last otherwise
	Unable     string            `json:"unable,omitempty"` // why its host checks nothing
	Placements []PlacementHealth `json:"placements"`
}

// A NodeProfile is what a node's host says of its machine.
type NodeProfile struct {
	NodeID     string    `json:"node_id"`
	ProfiledAt time.Time `json:"profiled_at"`
	Profile
}

// A NodeLink says whether the host of a node is linked, or since when it is
// away.
type NodeLink struct {
	Linked     bool      `json:"linked"`
	LastLinked time.Time `json:"last_linked"` // away since then, unless linked
	Holds      int64     `json:"holds"`       // generation of the declaration that it holds
	Version    string    `json:"version,omitempty"`
	Capability int       `json:"capability,omitempty"`
}

// checkCapability is that of the first hosts that check placements.
const checkCapability = 3

// Unable is why this host checks no placements; empty: it does.
func (l *NodeLink) Unable() string {
	switch {
	case l == nil:
		return "its host was never linked"
	case l.Capability < checkCapability:
		return fmt.Sprintf("its host, muster-host %s (capability %d), is too old to check placements; update it, by declaring its package, for one", l.Version, l.Capability)
	}
	return ""
}
