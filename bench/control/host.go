//go:build linux

package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"muster.internal"
	"muster.internal/client"
	"muster.internal/credential"
	tokens "muster.internal/enrol"
	"muster.internal/host"
	"muster.internal/resource"
)

// A simulated host is a node without a machine: what it applies always works.
// It is host.Link for package host.
type simulated struct {
	f        *fleet
	n        int
	nodeID   string
	key      string
	identity credential.Identity
	line     *client.Client

	held                host.Held
	owned               []resource.Owned
	mirrored, described bool

	waits    atomic.Bool  // a poll is under way
	reported atomic.Int64 // the newest generation
}

// enrol redeems a token of its own.
func (h *simulated) enrol(ctx context.Context) error {
	issued, err := h.f.m.Admin.IssueEnrolmentToken(ctx, muster.NewEnrolmentToken{})
	if err != nil {
		return err
	}
	t, err := tokens.Decode(issued.Token)
	if err != nil {
		return err
	}
	uuid := fmt.Sprintf("6d757374-6572-4000-8000-%012x", h.n)
	reply, err := h.f.anyone.Enrol(ctx, muster.EnrolRequest{
		TokenID: t.ID, Secret: base64.RawURLEncoding.EncodeToString(t.Secret), Nonce: fmt.Sprintf("%032x", h.n),
		ServerUUID: uuid, Hostname: fmt.Sprintf("host%05d", h.n),
		Sysinfo: fmt.Appendf(nil, `{"UUID":%q,"Serial Number":"B-%d"}`, uuid, h.n),
	})
	h.nodeID, h.key = reply.NodeID, reply.APIKey
	return err
}

func (h *simulated) Moment() host.Moment {
	return host.Moment{Wall: time.Now(), Boot: "bench", Up: time.Since(h.f.began)}
}
func (h *simulated) Dice() float64             { return rand.Float64() }
func (h *simulated) Say(string)                {}
func (h *simulated) Node() string              { return h.identity.NodeID() }
func (h *simulated) Held() (host.Held, error)  { return h.held, nil }
func (h *simulated) Hold(held host.Held) error { h.held = held; return nil }
func (h *simulated) Lost() (bool, error)       { return false, nil }
func (h *simulated) Reboot() error             { return errors.New("nobody restarts it") }
func (h *simulated) Forget() error             { return errors.New("nobody retires it") }
func (h *simulated) Recover() error            { return nil }
func (h *simulated) Proven() error             { return nil }
func (h *simulated) Updated() bool             { return false }

func (h *simulated) Pause(d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-h.f.ctx.Done():
		return h.f.ctx.Err()
	}
}

func (h *simulated) Apply(d *resource.Declaration, trigger string) (resource.Report, error) {
	now := time.Now()
	r := resource.Report{Generation: d.Generation, Trigger: trigger, Started: now, Finished: now, Version: muster.Build, Outcome: resource.OutcomeOK}
	h.owned, h.mirrored = nil, false
	for _, x := range d.Resources {
		r.Lines = append(r.Lines, resource.Line{Ref: x.Ref(), Outcome: resource.OutcomeOK, Did: "created"})
		h.owned = append(h.owned, resource.Owned{Ref: x.Ref(), Origin: resource.OriginCreated, Since: now, Generation: d.Generation})
	}
	return r, nil
}

// Certify gets a certificate once, for a key pair of its own.
func (h *simulated) Certify(_, _ bool) (err error) {
	if h.line != nil {
		return nil
	}
	if h.identity, err = credential.NewIdentity(); err != nil {
		return err
	}
	var q muster.CertificateRequest
	if q.CSR, err = h.identity.Request(); err != nil {
		return err
	}
	byKey, err := h.f.m.Client(h.key, client.Trust{CA: h.f.m.CA})
	if err != nil {
		return err
	}
	defer byKey.Close()
	c, err := timed(h.f, func() (muster.Certificate, error) { return byKey.LinkCertificate(h.f.ctx, q) })
	if err != nil {
		return err
	}
	block, _ := pem.Decode([]byte(c.Certificate))
	if block == nil {
		return errors.New("no certificate in the answer")
	}
	if h.identity, err = h.identity.With(block.Bytes); err != nil {
		return err
	}
	h.line, err = h.f.m.Client("", client.Trust{CA: h.f.m.CA, Pair: h.identity.TLS()})
	return err
}

func (h *simulated) Describe() error {
	if h.described {
		return nil
	}
	p := muster.Profile{Profile: json.RawMessage(`{"architecture":"x86_64","os":"debian","service_manager":"systemd","package_manager":"apt"}`)}
	_, err := timed(h.f, func() (struct{}, error) { return struct{}{}, h.line.LinkProfile(h.f.ctx, p) })
	h.described = err == nil
	return err
}

func (h *simulated) Mirror() error {
	if h.mirrored || h.owned == nil {
		return nil
	}
	_, err := timed(h.f, func() (struct{}, error) { return struct{}{}, h.line.SetLinkOwned(h.f.ctx, h.owned) })
	h.mirrored = err == nil
	return err
}

// Health has nothing to say, and nothing of the machine wakes it.
func (h *simulated) Health() error { return nil }
func (h *simulated) Woken() string { return "" }

func (h *simulated) Report(r resource.Report) error {
	_, err := timed(h.f, func() (struct{}, error) { return struct{}{}, h.line.LinkReport(h.f.ctx, r) })
	if err == nil {
		h.reported.Store(r.Generation)
	}
	return err
}

func (h *simulated) Next(holds int64) (muster.LinkAnswer, error) {
	// It waits once its question is on its way, not while it has no connection.
	ctx := httptrace.WithClientTrace(h.f.ctx, &httptrace.ClientTrace{WroteRequest: func(w httptrace.WroteRequestInfo) { h.waits.Store(w.Err == nil) }})
	defer h.waits.Store(false)
	a, err := h.line.LinkNext(ctx, muster.LinkPoll{Holds: holds, Version: muster.Build, Capability: muster.Capability, BootID: "bench"})
	if err != nil {
		h.f.unanswered.Add(1)
	}
	return a, err
}
