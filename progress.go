package muster

import (
	"context"
	"encoding/json"
	"time"
)

// Progress is what can be watched: one install from near, and everything that
// changes from afar.
type Progress interface {
	// InstallLog tells how one setup went or goes.
	InstallLog(ctx context.Context, q InstallQuery) (InstallLog, error)
	// Events calls f for each event until ctx ends or f returns an error. An
	// event without Kind is a mark: everything up to its ID has been told. One
	// comes when what was asked for from the past is told, and from time to time
	// after that. Who is too slow is told so (unavailable), and asks again after
	// the last ID that it has heard.
	Events(ctx context.Context, q EventQuery, f func(FeedEvent) error) error
}

// ForProgress is what a booter tells of an install on its way.
type ForProgress interface {
	SetupProgress(ctx context.Context, serverUUID string, p SetupProgress) error
}

// Bounds of what is kept and told of one install.
const (
	MaxProgressText  = 512 // bytes of one line
	MaxProgressSteps = 256 // lines of one report
)

// A SetupStep is one line of an install's log: the beginning of a step, or,
// without Step, a line that the script said.
type SetupStep struct {
	At      time.Time `json:"at"`
	Step    string    `json:"step,omitempty"`
	Percent int       `json:"percent"` // of the install, when the line came
	Text    string    `json:"text,omitempty"`
}

// A SetupProgress is a batch of lines, oldest first. Session is the one that the
// approval is bound to.
type SetupProgress struct {
	Epoch   int64       `json:"setup_epoch"`
	Session string      `json:"session"`
	Steps   []SetupStep `json:"steps"`
	Dropped int         `json:"dropped,omitempty"` // lines that the booter left out before these
}

// An InstallOutcome is how a setup ended, or that it has not.
type InstallOutcome string

const (
	InstallRunning  InstallOutcome = "running"
	InstallComplete InstallOutcome = "complete"
	InstallFailed   InstallOutcome = "failed"
)

// InstallOutcomes lists every outcome.
var InstallOutcomes = []InstallOutcome{InstallRunning, InstallComplete, InstallFailed}

// An InstallLine is a numbered line of an install's log. Numbers start at 1;
// where some are missing, lines were left out to bound the log.
type InstallLine struct {
	N int64 `json:"n"`
	SetupStep
}

// An InstallLog is what is known of one approved setup. It is kept after its
// end, whatever that was.
type InstallLog struct {
	OperationID string         `json:"operation_id"`
	ServerUUID  string         `json:"server_uuid"`
	Epoch       int64          `json:"setup_epoch"`
	StartedAt   time.Time      `json:"started_at"`
	EndedAt     *time.Time     `json:"ended_at,omitempty"`
	Outcome     InstallOutcome `json:"outcome"`
	Reason      string         `json:"reason,omitempty"` // of a failure
	Step        string         `json:"step,omitempty"`   // the last that began
	StepText    string         `json:"step_text,omitempty"`
	Percent     int            `json:"percent"`
	Last        int64          `json:"last"` // number of the last line
	Lines       []InstallLine  `json:"lines" nullable:"false"`
	Stdout      string         `json:"stdout,omitempty"` // the end of what the script answered, without secrets
	Stderr      string         `json:"stderr,omitempty"`
}

// An InstallQuery names a setup by its operation, or by its machine and epoch.
type InstallQuery struct {
	OperationID string
	ServerUUID  string
	Epoch       int64 // 0: the newest
	After       int64 // only lines with a higher number
	// Wait is how long to wait for a line after After, or for the end.
	Wait time.Duration
}

// A FeedEvent is a change (ID is its number in the audit and in the change
// feed) or a line of an install on its way (no ID: it cannot be resumed from,
// the install log has it).
type FeedEvent struct {
	ID      int64           `json:"id,omitempty"`
	Kind    string          `json:"kind"`    // registration.approve_setup, boot-record.admit, registration.progress, …
	Subject string          `json:"subject"` // registration/UUID, boot-record/MAC, …
	At      time.Time       `json:"at"`
	Actor   string          `json:"actor,omitempty"`
	Detail  json.RawMessage `json:"detail,omitempty"`
}

// ProgressKind is the kind of events that tell of an install on its way. Their
// detail is a ProgressDetail.
const ProgressKind = "registration.progress"

// A ProgressDetail is the detail of a progress event.
type ProgressDetail struct {
	OperationID string `json:"operation_id"`
	Epoch       int64  `json:"setup_epoch"`
	InstallLine
}

// FromNow, as EventQuery.After, asks for what is yet to come.
const FromNow = -1

// An EventQuery selects events.
type EventQuery struct {
	After   int64  // the last ID heard; 0: from the beginning; FromNow
	Last    int    // with FromNow: look back over that many changes first
	Subject string // exactly
	Kind    string // a kind, or what it begins with
}
