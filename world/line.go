package world

import (
	"encoding/json"
	"fmt"
	"time"

	"muster.internal"
	"muster.internal/api"
	"muster.internal/credential"
	"muster.internal/host"
	"muster.internal/sim"
)

// A line is a machine's to its control plane, for package sim.
type line struct{ *machine }

// callCertificate asks for a certificate, with the agent's key.
const callCertificate = "certificate"

func (l line) Call(what string, in, out any) error {
	proof := api.Proof{Certificate: l.identity.Certificate}
	if what == sim.CallRefresh {
		proof = api.Proof{Bearer: l.key}
	}
	return l.call(what, in, out, proof)
}

func (m *machine) call(what string, in, out any, proof api.Proof) error {
	text, err := json.Marshal(in)
	if err != nil {
		return err
	}
	r := m.wait(ask{what: what, text: text, proof: proof})
	if r.err != nil || out == nil {
		return r.err
	}
	return json.Unmarshal(r.text, out)
}

func (l line) Certify(anew, rekey bool) error {
	m := l.machine
	now := m.w.now.Add(m.skew)
	if !anew && !rekey && m.identity.Fresh(now) {
		return nil
	}
	id := m.identity
	if id.Key == nil || rekey {
		var err error
		if id, err = credential.NewIdentity(); err != nil {
			return err
		}
	}
	csr, err := id.Request()
	if err != nil {
		return err
	}
	var c muster.Certificate
	if err := m.call(callCertificate, muster.CertificateRequest{CSR: csr}, &c, api.Proof{Bearer: m.key}); err != nil {
		if m.identity.Good(now) && !anew && !rekey {
			return nil // it is tried again
		}
		return err
	}
	if id, err = id.WithPEM(c.Certificate); err != nil {
		return err
	}
	m.identity = id
	return nil
}

func (l line) Node() string { return l.identity.NodeID() }

func (l line) Forget() error {
	l.identity, l.key = credential.Identity{}, ""
	return nil
}

func (l line) Reboot() error {
	m := l.machine
	m.w.after(time.Second, func() {
		m.powerOff()
		m.w.after(time.Minute, m.powerOn)
	})
	return nil
}

func (l line) Sleep(d time.Duration) error { l.wait(ask{sleep: d}); return nil }

func (l line) Moment() host.Moment {
	return host.Moment{Wall: l.w.now.Add(l.skew), Boot: fmt.Sprint(l.name, " ", l.boots), Up: l.w.now.Sub(l.since)}
}

func (l line) Dice() float64 { return l.w.dice.Float64() }

func (l line) Say(text string) { l.w.say("%s says: %s", l.name, l.w.named(text)) }
