package muster

import (
	"context"
	"encoding/json"
	"time"
)

// Doors are the ways in that an operator opens in advance: windows and
// enrolment tokens. Opening one takes an admin in person.
type Doors interface {
	// Window says how a window stands. One that was never opened is closed.
	Window(ctx context.Context, k WindowKind) (Window, error)
	// OpenWindow opens a window, in place of one that is open.
	OpenWindow(ctx context.Context, k WindowKind, n NewWindow) (Window, error)
	// CloseWindow closes a window; one that is closed stays closed.
	CloseWindow(ctx context.Context, k WindowKind) error

	// EnrolmentTokens lists every token that was issued, newest first.
	EnrolmentTokens(ctx context.Context) ([]EnrolmentToken, error)
	IssueEnrolmentToken(ctx context.Context, n NewEnrolmentToken) (IssuedEnrolmentToken, error)
	// RevokeEnrolmentToken ends a token that was not used.
	RevokeEnrolmentToken(ctx context.Context, id string) error
}

// WindowKind says what a window lets in.
type WindowKind string

const (
	// AutoApproveWindow lets machines in that register by themselves, without a
	// claim code.
	AutoApproveWindow WindowKind = "auto-approve"
	// EnrollmentWindow lets new machines announce themselves while the boot
	// policy's auto_enroll is off. It approves nothing.
	EnrollmentWindow WindowKind = "enrollment"
)

// WindowKinds lists every kind.
var WindowKinds = []WindowKind{AutoApproveWindow, EnrollmentWindow}

// WindowAtMost is how long a window may be open; longer wishes are cut to it.
const WindowAtMost = 24 * time.Hour

// A NewWindow asks for a window. Without a count it is bounded by time alone.
type NewWindow struct {
	Duration int  `json:"duration_seconds"`
	Count    *int `json:"count,omitempty"`
}

// A Window is one opening: as it stands, or how the last one ended.
type Window struct {
	Kind     WindowKind `json:"kind"`
	Open     bool       `json:"open"`
	OpenedBy string     `json:"opened_by,omitempty"`
	OpenedAt *time.Time `json:"opened_at,omitempty"`
	ClosesAt *time.Time `json:"closes_at,omitempty"`
	// Duration is what was set; Clamped says that more was asked for.
	Duration  int         `json:"duration_seconds,omitempty"`
	Clamped   bool        `json:"clamped,omitempty"`
	Count     *int        `json:"count,omitempty"`     // absent: as many as come
	Remaining *int        `json:"remaining,omitempty"` // of the count
	Taken     int         `json:"taken,omitempty"`     // machines that came in by it
	Ended     WindowEnded `json:"ended,omitempty"`     // how, when it is closed
	EndedAt   *time.Time  `json:"ended_at,omitempty"`
}

// WindowEnded says why a window is not open any more.
type WindowEnded string

const (
	WindowClosed   WindowEnded = "closed"   // by an operator
	WindowExpired  WindowEnded = "expired"  // its time was over
	WindowUsedUp   WindowEnded = "used_up"  // its last slot was taken
	WindowReplaced WindowEnded = "replaced" // another was opened; only in the audit
)

// Bounds of an enrolment token's life.
const (
	EnrolmentTokenLife   = time.Hour
	EnrolmentTokenAtMost = 30 * 24 * time.Hour
	// EnrolmentTokenRetry is how long the machine that redeemed a token may ask
	// again because the answer was lost.
	EnrolmentTokenRetry = 10 * time.Minute
)

// TokenState says what has become of an enrolment token.
type TokenState string

const (
	TokenUnused  TokenState = "unused"
	TokenUsed    TokenState = "used"
	TokenExpired TokenState = "expired"
	TokenRevoked TokenState = "revoked"
)

// A NewEnrolmentToken asks for a token. AsNode names a live node: the
// machine that redeems the token is that node from then on. If it is other
// hardware, the machine that was the node is out. The node's old key dies.
type NewEnrolmentToken struct {
	Comment   string `json:"comment,omitempty"`
	ExpiresIn int    `json:"expires_in_seconds,omitempty"` // 0: an hour
	AsNode    string `json:"as_node,omitempty"`
}

// An EnrolmentToken is a token as it is listed: without its secret.
type EnrolmentToken struct {
	ID        string     `json:"id"`
	State     TokenState `json:"state"`
	Comment   string     `json:"comment,omitempty"`
	AsNode    string     `json:"as_node,omitempty"`
	CreatedAt time.Time  `json:"created_at"`
	CreatedBy string     `json:"created_by"`
	ExpiresAt time.Time  `json:"expires_at"`
	UsedAt    *time.Time `json:"used_at,omitempty"`
	UsedBy    string     `json:"used_by,omitempty"` // the machine's server UUID
	RevokedAt *time.Time `json:"revoked_at,omitempty"`
	RevokedBy string     `json:"revoked_by,omitempty"`
}

// An IssuedEnrolmentToken shows the token itself, once. ComesAs says what a
// machine that redeems it would be, where the token names a node.
type IssuedEnrolmentToken struct {
	EnrolmentToken
	Token   string   `json:"token"`
	ComesAs *ComesAs `json:"comes_as,omitempty"`
}

// ComesAs says as what node a machine would come in, or came in: a new one, or
// the one that it was before.
type ComesAs struct {
	Outcome string `json:"outcome"` // new_node, same_node, replaces_hardware, refused_live, refused_expunged
	NodeID  string `json:"node_id,omitempty"`
	// Why is a sentence for people; it holds the ways out of a refusal.
	Why string `json:"why"`
}

// An EnrolRequest redeems an enrolment token. Nonce is drawn anew for every
// enrolment, and repeated when the answer was lost.
type EnrolRequest struct {
	TokenID     string          `json:"token_id"`
	Secret      string          `json:"secret"`
	Nonce       string          `json:"nonce"` // 32 hex digits
	ServerUUID  string          `json:"server_uuid"`
	Hostname    string          `json:"hostname,omitempty"`
	AdminIP     string          `json:"admin_ip,omitempty"`
	Sysinfo     json.RawMessage `json:"sysinfo"`
	ConsolePort int             `json:"console_listen_port,omitempty"`
	ConsolePin  string          `json:"console_tls_spki_sha256_hex,omitempty"`
}

// An EnrolReply carries the agent key, which was made in the transaction that
// let the machine in and is kept nowhere.
type EnrolReply struct {
	ServerUUID string            `json:"server_uuid"`
	State      RegistrationState `json:"state"`
	NodeID     string            `json:"node_id"`
	APIKey     string            `json:"api_key"`
	ComesAs    ComesAs           `json:"comes_as"`
}
