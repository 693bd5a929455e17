package muster

import (
	"context"
	"encoding/json"
	"io"
	"time"
)

// A Fleet is everything an operator can ask of muster. The control plane is
// one, and so is an API client: console and command line cannot tell which
// they have. Errors that are meant for people are *Problem.
type Fleet interface {
	Explaining
	Progress

	Registrations(ctx context.Context, f RegistrationFilter) ([]Registration, error)
	Registration(ctx context.Context, serverUUID string) (Registration, error)
	// ApproveCode approves the pending registration that shows this claim code.
	ApproveCode(ctx context.Context, code string) (Registration, error)
	// PlanSetup says what an approval would build, and changes nothing.
	PlanSetup(ctx context.Context, serverUUID string, r SetupRequest) (SetupPlan, error)
	// ApproveSetup is the only way into setting_up.
	ApproveSetup(ctx context.Context, serverUUID string, a SetupApproval) (SetupGrant, error)
	// RaiseRegistration raises an operator's event that needs no input: disable,
	// factory_reset, cancel_setup, readmit.
	RaiseRegistration(ctx context.Context, serverUUID string, e Event) (Registration, error)
	DeleteRegistration(ctx context.Context, serverUUID string) error

	BootRecords(ctx context.Context, f BootFilter) ([]BootRecord, error)
	BootRecord(ctx context.Context, mac string) (BootRecord, error)
	// SetBootRecord changes what an operator may set; nil leaves a field alone.
	SetBootRecord(ctx context.Context, mac string, c BootChange) (BootRecord, error)
	// RaiseBootRecord raises enroll, decommission or reactivate.
	RaiseBootRecord(ctx context.Context, mac string, e Event) (BootRecord, error)

	BootPolicy(ctx context.Context) (BootPolicy, error)
	SetBootPolicy(ctx context.Context, p BootPolicy) (BootPolicy, error)

	Nodes(ctx context.Context) ([]Node, error)
	// IssueTicket makes a short-lived ticket to an approved machine.
	IssueTicket(ctx context.Context, serverUUID string, r TicketRequest) (Ticket, error)

	Images(ctx context.Context) ([]Image, error)
	// Image finds an image by name or by manifest digest.
	Image(ctx context.Context, ref string) (Image, error)
	// HasBlob tells whether a blob need not be sent again.
	HasBlob(ctx context.Context, digest string) (bool, error)
	// PutBlob stores content that must have this digest and size.
	PutBlob(ctx context.Context, digest string, size int64, r io.Reader) error
	// AddImage stores a manifest whose blobs are all there.
	AddImage(ctx context.Context, i Image) (Image, error)
	RemoveImage(ctx context.Context, name string) error

	Doors

	Keys(ctx context.Context) ([]APIKey, error)
	CreateKey(ctx context.Context, n NewKey) (CreatedKey, error)
	RevokeKey(ctx context.Context, id string) error

	// Audit returns entries with a sequence number above after, oldest first.
	Audit(ctx context.Context, f AuditFilter) ([]AuditEntry, error)
	VerifyAudit(ctx context.Context) (AuditVerdict, error)

	Exits
	Declarations
	Grants
	Labelling
	Claims
	Planning
	Inventories
	Foresight

	Booters(ctx context.Context) ([]BooterStatus, error)
	// RemoveBooter forgets a booter that is gone for good, and the bus sessions
	// that it held; one that still reports is refused.
	RemoveBooter(ctx context.Context, name string) error
	Machines
	Version(ctx context.Context) (Version, error)
}

// A RegistrationFilter with a zero field does not filter by it. Lists come
// ordered by server UUID; After is the last one of the page before.
type RegistrationFilter struct {
	State RegistrationState
	After string
	Limit int // 0: 1000
}

// A BootFilter is the same for boot records, ordered by MAC.
type BootFilter struct {
	State BootState
	After string
	Limit int
}

// An AuditFilter selects entries; Wait lets the call wait for new ones.
type AuditFilter struct {
	After   int64
	Subject string
	Limit   int
	Wait    time.Duration
}

// A BootChange is what an operator may set on a boot record.
type BootChange struct {
	Mode       *BootMode   `json:"mode,omitempty"`
	RescueFor  *int        `json:"rescue_seconds,omitempty"` // default 4 h, at most 24 h
	AssignedPI *string     `json:"assigned_pi,omitempty"`    // image name; "" clears
	KernelArgs *[]string   `json:"kernel_args,omitempty"`
	Networking *Networking `json:"networking,omitempty"`
	OwnUUID    *string     `json:"own_uuid,omitempty"` // "" clears
}

// Version is what a server says of itself.
type Version struct {
	Version    string `json:"version"`
	Capability int    `json:"capability"`
	// URL and CA are what a machine needs to reach this control plane: CA is
	// PEM, its fingerprint is what tokens carry.
	URL string `json:"url,omitempty"`
	CA  string `json:"ca,omitempty"`
	// Time is what the control plane's clock says: its certificates go by it.
	Time *time.Time `json:"time,omitempty"`
}

// ForBooter is what a booter asks of the control plane. Two keys of different
// reach serve it: ur_enroll announces and surveys, booter does the rest.
type ForBooter interface {
	Tracing
	ForProgress

	// Feed waits up to wait for a change after seq. After 0 it is everything.
	Feed(ctx context.Context, booter string, after int64, wait time.Duration) (BooterFeed, error)
	// Sight reports requests seen on the wire and returns the records they led to.
	Sight(ctx context.Context, booter string, s []Sighting) ([]BootRecord, error)
	// ReportBooter says what is staged and how the booter fares.
	ReportBooter(ctx context.Context, s BooterStatus) error
	ImageByDigest(ctx context.Context, digest string) (Image, error)
	Blob(ctx context.Context, digest string) (io.ReadCloser, error)

	Announce(ctx context.Context, a Announcement) (Announced, error)
	Survey(ctx context.Context, serverUUID string, s Survey) error
	// SessionChanged tells that a connection other than the approved one now
	// holds, or tried to hold, the machine's queue name.
	SessionChanged(ctx context.Context, serverUUID string, c SessionChange) error

	TakeBundle(ctx context.Context, serverUUID string, r TakeRequest) (TakenBundle, error)
	SetupComplete(ctx context.Context, serverUUID string, o SetupOutcome) error
	SetupFailed(ctx context.Context, serverUUID string, o SetupOutcome) error

	BootSecrets
}

// A BooterFeed holds what changed after the position asked for. Installs are
// always complete.
type BooterFeed struct {
	Seq      int64        `json:"seq"`
	Records  []BootRecord `json:"records"`
	Policy   *BootPolicy  `json:"policy,omitempty"`
	Installs []Install    `json:"installs"`
}

// A Sighting is one machine that asked the network for something to boot.
type Sighting struct {
	MAC        string `json:"mac"`
	Arch       int    `json:"arch"`
	UUID       string `json:"uuid,omitempty"`
	ServiceTag string `json:"service_tag,omitempty"` // from the first-stage script
	// Script says that the first-stage script spoke: an empty service tag is
	// all that the firmware has.
	Script    bool      `json:"script,omitempty"`
	Interface string    `json:"interface,omitempty"`
	Giaddr    string    `json:"giaddr,omitempty"`
	CircuitID string    `json:"circuit_id,omitempty"`
	Class     string    `json:"class,omitempty"`
	At        time.Time `json:"at"`
}

// A BooterStatus is what a booter reports of itself.
type BooterStatus struct {
	Booter   string           `json:"booter"`            // its name
	Address  string           `json:"address,omitempty"` // as machines see it; never given to one
	Seq      int64            `json:"seq"`               // how far it has followed the feed
	Staged   []string         `json:"staged"`            // manifest digests it can serve
	Errors   []string         `json:"errors,omitempty"`
	Counters map[string]int64 `json:"counters,omitempty"`
	// Proxy: it gives no addresses, a DHCP server of the site does.
	Proxy bool `json:"proxy,omitempty"`
	// Run names this run of the booter, and Sessions the bus sessions that it
	// holds, as of Seq: those of another run, or not among them, are over. Held
	// is how many there are: which, is not shown.
	Run      string   `json:"run,omitempty"`
	Sessions []string `json:"sessions,omitempty"`
	Held     int      `json:"bus_sessions,omitempty"`
	// Stopped: this is the last report of its run, and none of its connections
	// is left.
	Stopped      bool             `json:"stopped,omitempty"`
	OtherServers []OtherServer    `json:"other_servers,omitempty"`
	Loops        []LoopingMachine `json:"loops,omitempty"`
	LastSeen     *time.Time       `json:"last_seen,omitempty"`
}

// An Announcement is a machine without a credential saying, over the boot bus,
// what it is. The booter has checked its shape; the control plane does again.
type Announcement struct {
	ServerUUID string          `json:"server_uuid"` // from the topic
	MAC        string          `json:"mac"`         // from the queue name
	Session    string          `json:"session"`     // names one live connection
	Source     string          `json:"source"`      // its address
	PublicKey  string          `json:"public_key,omitempty"`
	Booter     string          `json:"booter"`
	Run        string          `json:"run,omitempty"` // of the booter
	Sysinfo    json.RawMessage `json:"sysinfo"`
}

// Announced answers an announcement.
type Announced struct {
	State  RegistrationState `json:"state"`
	Survey bool              `json:"survey"` // wanted: a disk survey over this session
}

// A Survey is what a read-only look at a machine's disks found.
type Survey struct {
	Session string `json:"session"`
	Disks   []Disk `json:"disks"`
}

// A SessionChange names who came instead.
type SessionChange struct {
	Session   string `json:"session"`        // the new one; empty: refused or gone
	Lost      string `json:"lost,omitempty"` // the one that ended; empty: refused, and no other was touched
	MAC       string `json:"mac"`
	Source    string `json:"source"`
	PublicKey string `json:"public_key,omitempty"`
	Reason    string `json:"reason"`
}

// ForHost is what the host on a machine asks of the control plane.
type ForHost interface {
	// Register, RegisterStatus and Enrol are anonymous.
	Register(ctx context.Context, r RegisterRequest) (RegisterReply, error)
	RegisterStatus(ctx context.Context, pollToken string, wait time.Duration) (RegisterStatus, error)
	// Enrol redeems an enrolment token.
	Enrol(ctx context.Context, r EnrolRequest) (EnrolReply, error)
	// Refresh and Heartbeat take the bound agent key.
	Refresh(ctx context.Context, r RefreshRequest) (Registration, error)
	Heartbeat(ctx context.Context, h Heartbeat) (HeartbeatReply, error)
}

// A RegisterRequest is the claim-code door. Console port and pin come together
// or not at all.
type RegisterRequest struct {
	ServerUUID  string          `json:"server_uuid"`
	Hostname    string          `json:"hostname"`
	AdminIP     string          `json:"admin_ip,omitempty"`
	Sysinfo     json.RawMessage `json:"sysinfo"`
	ConsolePort int             `json:"console_listen_port,omitempty"`
	ConsolePin  string          `json:"console_tls_spki_sha256_hex,omitempty"`
}

// A RegisterReply carries the code for people and the token for the machine.
type RegisterReply struct {
	ServerUUID       string            `json:"server_uuid"`
	State            RegistrationState `json:"state"`
	ClaimCode        string            `json:"claim_code,omitempty"` // XXX-XXX
	ClaimCodeExpires *time.Time        `json:"claim_code_expires_at,omitempty"`
	PollToken        string            `json:"poll_token"`
}

// A RegisterStatus delivers the agent key exactly once.
type RegisterStatus struct {
	State  RegistrationState `json:"state"`
	APIKey string            `json:"api_key,omitempty"`
	// Delivered says that the key has been handed out before: who asks again
	// has lost it, and registers again.
	Delivered bool `json:"delivered,omitempty"`
}

// A RefreshRequest replaces what the control plane knows of a live machine.
type RefreshRequest struct {
	Hostname string          `json:"hostname,omitempty"`
	Epoch    int64           `json:"setup_epoch,omitempty"` // of the setup that made this credential
	Sysinfo  json.RawMessage `json:"sysinfo,omitempty"`
	Disks    []Disk          `json:"disks,omitempty"`
	Version  string          `json:"version,omitempty"` // of the running host
}

// A Heartbeat says that the machine lives.
type Heartbeat struct {
	Version string `json:"version,omitempty"`
}

// A HeartbeatReply sets when to come again.
type HeartbeatReply struct {
	NextSeconds int `json:"next_seconds"`
}

// Accounts are the people who operate a fleet. Login is anonymous; the rest
// takes an admin in person.
type Accounts interface {
	Login(ctx context.Context, l Login) (Token, error)
	Operators(ctx context.Context) ([]Operator, error)
	CreateOperator(ctx context.Context, n NewOperator) (Operator, error)
	// ChangeOperator changes a person's role or password; tokens of the old
	// password are dead. The last admin stays one.
	ChangeOperator(ctx context.Context, name string, c OperatorChange) (Operator, error)
	// RemoveOperator ends a person's access at once. The last admin stays.
	RemoveOperator(ctx context.Context, name string) error
	// ChangePassword is every operator's own.
	ChangePassword(ctx context.Context, c PasswordChange) error
}
