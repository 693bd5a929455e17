// Package setup is the paper that passes between control plane and machine
// when a setup was approved: the two scripts that the boot bus carries, the
// order (all that differs between machines, as environment variables), the
// sealed bundle of secrets, and the lines by which a machine says how it went.
//
// It must never do any of what it describes: no I/O, no clock, no goroutine.
// The only chance in it is what the cryptography itself asks for.
package setup

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"muster.internal"
)

// Script is what the booter sends to a machine whose setup was approved. It is
// byte for byte the same for every machine; what differs is in the order.
const Script = "#!/bin/sh\nexec /bin/muster-host setup\n"

// SurveyScript asks a machine what disks it has and what is on them. It prints
// a JSON array of disks and changes nothing.
const SurveyScript = "#!/bin/sh\nexec /bin/muster-host survey --output json\n"

// ExitReboot is the exit status after which the agent on the machine answers
// 0 and restarts the machine a second later.
const ExitReboot = 113

// CredentialPath is where a machine of the fleet keeps its credential, below
// the root of its pool's file system.
const CredentialPath = "var/muster-host/credential"

// TicketKeys are the three HS256 keys of a node, 32 bytes each.
type TicketKeys struct {
	Console  []byte `json:"console"`
	Metadata []byte `json:"metadata"`
	Move     []byte `json:"move"`
}

// A Bundle holds the secrets of one setup. It is made in the transaction that
// hands it out, sealed to the key the machine announced, and stored nowhere.
type Bundle struct {
	ServerUUID string `json:"server_uuid"`
	Epoch      int64  `json:"setup_epoch"`
	// Plan is the digest of the approved plan. The order travels in the clear;
	// this binds it to what was sealed.
	Plan string `json:"plan"`
	// ProofKey (32 bytes) is what the sentinel is made with.
	ProofKey []byte     `json:"proof_key"`
	URL      string     `json:"url"`
	CA       string     `json:"ca"` // PEM
	APIKey   string     `json:"api_key"`
	Tickets  TicketKeys `json:"ticket_keys"`
}

// A Credential is what a machine keeps, on its pool or in its state directory.
type Credential struct {
	URL        string     `json:"url"`
	CA         string     `json:"ca"` // PEM
	APIKey     string     `json:"api_key"`
	ServerUUID string     `json:"server_uuid"`
	Epoch      int64      `json:"setup_epoch,omitempty"` // 0: came by another door
	Hostname   string     `json:"hostname,omitempty"`    // chosen at the approval
	Tickets    TicketKeys `json:"ticket_keys"`
}

// Credential is the part of the bundle that outlives the setup.
func (b Bundle) Credential() Credential {
	return Credential{URL: b.URL, CA: b.CA, APIKey: b.APIKey, ServerUUID: b.ServerUUID, Epoch: b.Epoch, Tickets: b.Tickets}
}

// PlanDigest is the digest that binds an approval to a plan: over everything
// in it but the digest itself. The same plan has the same digest on both sides
// of the wire.
func PlanDigest(p muster.SetupPlan) string {
	p.Digest = ""
	vdevs := make([]muster.VDev, 0, len(p.VDevs)) // nil and empty are the same plan
	for _, v := range p.VDevs {
		v.Disks = append([]muster.Disk{}, v.Disks...)
		vdevs = append(vdevs, v)
	}
	p.VDevs = vdevs
	b, err := json.Marshal(p)
	if err != nil {
		panic("setup: a plan is plain data: " + err.Error())
	}
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}
