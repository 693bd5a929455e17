package muster

import (
	"context"
	"time"
)

// Tracing is how a booter tells what passed between it and machines.
type Tracing interface {
	// ReportTraces replaces what is known of what this booter and these
	// machines last said to each other.
	ReportTraces(ctx context.Context, booter string, ts []BootTrace) error
}

// Explaining tells people why a machine boots, or does not.
type Explaining interface {
	// ExplainBoot joins what booters saw of a NIC with its record, the boot
	// policy and its machine. A NIC that nobody ever saw has an explanation too.
	ExplainBoot(ctx context.Context, mac string) (BootExplanation, error)
}

// Bounds of a trace.
const (
	// TraceSteps is how many exchanges are remembered of one machine.
	TraceSteps = 16
	// TracePacket is how many bytes are kept of a DHCP message; firmware's are
	// shorter (RFC 2131 section 2 lets it expect 576 of anybody).
	TracePacket = 640
	// TraceBatch is how many machines one report may hold.
	TraceBatch = 128
)

// A BootTrace is what one booter remembers of one machine's last exchanges,
// oldest first. It holds no secret: what boot scripts and files say is not part
// of it, and HTTP requests are named by what they are for.
type BootTrace struct {
	Booter string     `json:"booter"`
	MAC    string     `json:"mac"`
	At     time.Time  `json:"at"` // of the last exchange
	Steps  []BootStep `json:"steps"`
}

// A BootStep is one exchange, or several in a row that differ in nothing but
// their time.
type BootStep struct {
	First time.Time `json:"first"`
	At    time.Time `json:"at"` // the last of Count
	Count int       `json:"count"`

	Via       string `json:"via"`    // DHCP, TFTP or HTTP
	Asked     string `json:"asked"`  // DISCOVER, a file's name, what an HTTP request is for
	Source    string `json:"source"` // address and port that it came from
	Interface string `json:"interface,omitempty"`
	Packet    []byte `json:"packet,omitempty"` // DHCP: the message, up to TracePacket bytes
	Answer    []byte `json:"answer,omitempty"` // DHCP: what was sent, up to TracePacket bytes
	To        string `json:"to,omitempty"`     // DHCP: where the answer went

	BootVerdict

	// Outcome of a transfer: done, cut (the client went away in the middle),
	// aborted (it said so), lost (it fell silent), failed (by our fault);
	// empty: under way, or DHCP.
	Outcome string `json:"outcome,omitempty"`
	Sent    int64  `json:"sent,omitempty"` // bytes
	Size    int64  `json:"size,omitempty"` // of the whole file
	Millis  int64  `json:"milliseconds,omitempty"`
}

// A BootVerdict is a boot decision as it is shown and kept.
type BootVerdict struct {
	Serve   bool      `json:"serve"`
	Reason  string    `json:"reason"` // "served", or why not, by its name
	Rule    string    `json:"rule,omitempty"`
	Quirk   string    `json:"quirk,omitempty"`  // the row of firmware quirks that applied
	Why     string    `json:"why"`              // for people
	Record  BootState `json:"record,omitempty"` // the boot record's state; empty: there was none
	Mode    string    `json:"mode,omitempty"`
	Stage   string    `json:"stage,omitempty"`
	Arch    int       `json:"arch"`
	Loader  string    `json:"loader,omitempty"`
	Image   *ImageRef `json:"image,omitempty"`
	Address string    `json:"address,omitempty"` // with prefix length
}

// A BootExplanation says how a NIC's boot stands, why, and what can be done.
type BootExplanation struct {
	MAC string    `json:"mac"`
	At  time.Time `json:"at"` // when this was true
	// Verdict is the whole in one word; programs may compare it.
	Verdict ExplainVerdict `json:"verdict"`
	// Cause is, with silent and refused, the decision's reason; else what holds
	// the machine up, by name.
	Cause   string     `json:"cause,omitempty"`
	Summary string     `json:"summary"`         // one or two sentences
	Since   *time.Time `json:"since,omitempty"` // the verdict holds since
	LastAsk *time.Time `json:"last_ask,omitempty"`

	Record   BootRecord        `json:"record"`
	Machine  *ExplainedMachine `json:"machine,omitempty"`
	Firmware *BootFirmware     `json:"firmware,omitempty"` // of its last DHCP message
	// Now is what the last DHCP message would be answered at this moment.
	Now     *BootVerdict      `json:"now,omitempty"`
	Booters []ExplainedBooter `json:"booters"`
	Steps   []ExplainedStep   `json:"steps"` // of all booters, oldest first
	Advice  []BootAdvice      `json:"advice"`
}

// ExplainVerdict is how a boot stands.
type ExplainVerdict string

const (
	BootNeverSeen ExplainVerdict = "never_seen" // no booter has heard of it
	BootSilent    ExplainVerdict = "silent"     // its DHCP messages are not answered
	BootRefused   ExplainVerdict = "refused"    // it got an address, and then not what it asked for
	BootStuck     ExplainVerdict = "stuck"      // it was served, and did not come to the next stage
	BootLoop      ExplainVerdict = "loop"       // it goes through the same stage again and again
	BootUnderway  ExplainVerdict = "underway"   // it is being served right now
	BootBooted    ExplainVerdict = "booted"     // it got all of its files and has not been heard of since
	BootWaiting   ExplainVerdict = "waiting"    // it booted and waits for an operator
	BootInstall   ExplainVerdict = "installing" // it is being set up
	BootRunning   ExplainVerdict = "running"    // it booted, and its host reports
	BootElsewhere ExplainVerdict = "elsewhere"  // it takes another server's offers
)

// An ExplainedMachine is what matters here of a NIC's registration.
type ExplainedMachine struct {
	ServerUUID string            `json:"server_uuid"`
	State      RegistrationState `json:"state"`
	Hostname   string            `json:"hostname,omitempty"`
	Serial     string            `json:"serial,omitempty"`
	LastSeen   time.Time         `json:"last_seen"`
	Surveyed   bool              `json:"surveyed"`
	LastError  string            `json:"last_setup_error,omitempty"`
	Conflicts  int               `json:"conflicts,omitempty"`
}

// BootFirmware is what a DHCP message tells of who sent it.
type BootFirmware struct {
	Message string `json:"message"` // DISCOVER, REQUEST, …
	Stage   string `json:"stage"`   // firmware, iPXE or an operating system
	Arch    int    `json:"arch"`    // option 93; below 0: absent
	Name    string `json:"name"`    // of the architecture
	Class   string `json:"class,omitempty"`
	UUID    string `json:"uuid,omitempty"`
	Giaddr  string `json:"giaddr,omitempty"`
	Circuit string `json:"circuit_id,omitempty"`
	Server  string `json:"server,omitempty"` // option 54: the server that it chose
	Claims  string `json:"claims,omitempty"` // the address that it asks for
}

// An ExplainedBooter is how a booter fares, as far as this NIC is concerned.
type ExplainedBooter struct {
	Booter   string     `json:"booter"`
	LastSeen *time.Time `json:"last_seen,omitempty"`
	Alive    bool       `json:"alive"`  // it reported within the last two minutes
	Behind   int64      `json:"behind"` // changes that it has not followed yet
	Staged   bool       `json:"staged"` // it has the image that this NIC boots; true when there is none
	Heard    bool       `json:"heard"`  // it heard this NIC
	Errors   []string   `json:"errors,omitempty"`
}

// An ExplainedStep is an exchange with the booter that took part in it.
type ExplainedStep struct {
	Booter string `json:"booter"`
	BootStep
}

// BootAdvice is something that an operator can do; Command is complete, and
// empty when it is nothing that a command does.
type BootAdvice struct {
	Text    string `json:"text"`
	Command string `json:"command,omitempty"`
}
