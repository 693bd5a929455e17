package lab

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	muster "muster.internal"
)

func randomHex() (string, error) {
	b := make([]byte, 16)
	_, err := rand.Read(b)
	return hex.EncodeToString(b), err
}

// watch follows the audit: what the control plane did is told beside what the
// machines say, and with Auto every setup that can be approved is.
func (d *Dev) watch(ctx context.Context) {
	f := d.admin()
	filter := muster.AuditFilter{Limit: 1000}
	for { // what happened before this start is no news
		es, err := f.Audit(ctx, filter)
		if err != nil || len(es) == 0 {
			break
		}
		filter.After = es[len(es)-1].Seq
	}
	tried := map[string]int{}
	for ctx.Err() == nil {
		if d.cfg.Auto {
			d.approveAll(ctx, f, tried)
		}
		filter.Wait = 25 * time.Second
		es, err := f.Audit(ctx, filter)
		if err != nil {
			if sleep(ctx, time.Second) != nil {
				return
			}
			continue
		}
		for _, e := range es {
			filter.After = e.Seq
			d.tell(d.audited(e))
		}
	}
}

// words are what the audit's actions mean to somebody who watches; the others
// are told as they are. {actor} is who did it, the rest is the entry's detail.
var words = map[string]string{
	"admit":          "the boot policy lets it in with {address}",
	"sight":          "is seen by the booter",
	"announce":       "its announcement is on record, serial {serial}",
	"survey":         "its disks are on record: its setup can be approved",
	"approve_setup":  "setup approved by {actor}",
	"take":           "the booter takes its sealed bundle",
	"setup_complete": "setup proved: approved, its boot record enrolled, a node made",
	"setup_failed":   "setup failed: {reason}",
	"void":           "setup void: {reason}",
	"expire":         "setup took too long: {reason}",
	"refresh":        "authenticates with its own key",
	"session_lost":   "left the boot bus",
	"reconnected":    "is back on the boot bus in the middle of its setup",
	"confirm":        "its node is {to}",
	"disable":        "disabled by {actor}",
	"delete":         "forgotten by {actor}",
	"decommission":   "its boot record is served nothing any more, by {actor}",
	"reactivate":     "its boot record is discovered again, by {actor}",
}

// audited tells an audit entry as a happening.
func (d *Dev) audited(e muster.AuditEntry) Happening {
	name, text := inWords(e, d.names)
	return Happening{At: e.At, Machine: name, Stage: StageControl, Text: text}
}

// inWords is what an audit entry says, and of which machine; names are by UUID
// and by MAC address.
func inWords(e muster.AuditEntry, names map[string]string) (name, text string) {
	var detail map[string]any
	_ = json.Unmarshal(e.Detail, &detail) // what is not there reads as nothing
	pairs := []string{"{actor}", e.Actor}
	for k, v := range detail {
		if s, ok := v.(string); ok {
			pairs = append(pairs, "{"+k+"}", s)
		}
	}
	_, key, _ := strings.Cut(e.Subject, "/")
	name = names[key]
	if name == "" {
		uuid, _ := detail["server_uuid"].(string)
		name = names[uuid]
	}
	said, known := words[e.Action]
	if !known || name == "" {
		said = e.Subject + " " + e.Action + " by {actor}"
	}
	return name, strings.NewReplacer(pairs...).Replace(said)
}

// tries is how often Auto approves one machine: a setup that fails again and
// again is for people.
const tries = 3

// approveAll approves what awaits it, as the first operator would: it sees the
// plan and repeats the serial number.
func (d *Dev) approveAll(ctx context.Context, f muster.Fleet, tried map[string]int) {
	rs, err := f.Registrations(ctx, muster.RegistrationFilter{State: muster.AwaitingSetup})
	if err != nil {
		return
	}
	for _, r := range rs {
		if r.SurveyedAt == nil || tried[r.ServerUUID] >= tries {
			continue
		}
		name := d.names[r.ServerUUID]
		req := muster.SetupRequest{Hostname: name}
		p, err := f.PlanSetup(ctx, r.ServerUUID, req)
		if err == nil {
			confirm := p.Serial
			if confirm == "" {
				confirm = p.ServerUUID
			}
			tried[r.ServerUUID]++
			_, err = f.ApproveSetup(ctx, r.ServerUUID, muster.SetupApproval{SetupRequest: req, Plan: p.Digest, Confirm: confirm})
		}
		if err != nil && ctx.Err() == nil {
			tried[r.ServerUUID]++
			d.tell(Happening{time.Now(), name, StageControl, "not approved: " + err.Error()})
		}
	}
}
