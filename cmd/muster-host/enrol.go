package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"muster.internal"
	"muster.internal/client"
	tokens "muster.internal/enrol"
	"muster.internal/setup"
)

const (
	enrolTries = 5               // of the same redemption, when its answer was lost
	enrolPause = 2 * time.Second // between them
)

// enrol lets this machine in by an enrolment token.
func enrol(ctx context.Context, e *env) error {
	var from, uuid string
	state, again := stateDir, false
	err := e.flags("enrol", func(f *flag.FlagSet) {
		f.Usage = func() { enrolHelp(f) }
		f.BoolVar(&again, "again", false, "also when this machine is enrolled already: its credential is replaced, and what it owns stays owned")
		f.StringVar(&from, "token", "", "where the enrolment token is: - for standard input, @FILE for a file; without it, it is asked for")
		f.StringVar(&state, "state", stateDir, "directory to keep the credential in")
		f.StringVar(&uuid, "uuid", "", "the machine's UUID, where its firmware has none of its own")
	})
	if err != nil {
		return err
	}
	word, err := e.token(from)
	if err != nil {
		return err
	}
	t, err := tokens.Decode(word)
	if err != nil {
		return exit{exitTokenDamaged, err}
	}
	if !again {
		if err := enrolled(state, t); err != nil {
			return exit{exitEnrolled, err}
		}
	}
	if uuid != "" {
		if uuid, err = muster.ParseUUID(uuid); err != nil {
			return err
		}
		e.machine.Identify(uuid)
	}
	// Nothing of the secret is sent before the CA was compared.
	ca, err := authority(ctx, t.URL, hex.EncodeToString(t.Fingerprint), "")
	if err != nil {
		return enrolRefused(err)
	}
	return e.redeem(ctx, t, ca, state)
}

// token reads the word from where it cannot be seen: whatever is an argument is
// in the list of processes.
func (e *env) token(from string) (string, error) {
	file, isFile := strings.CutPrefix(from, "@")
	switch {
	case from == "-":
		return readToken(e.in)
	case isFile:
		f, err := os.Open(file)
		if err != nil {
			return "", err
		}
		defer f.Close()
		return readToken(f)
	case from != "":
		fmt.Fprintln(e.err, "muster-host enrol: --token takes - (standard input) or @FILE, never the token itself: everybody on this machine can read arguments; if this was one, have it revoked")
		return "", status(exitUsage)
	}
	in, ok := e.in.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		fmt.Fprintln(e.err, "muster-host enrol: there is no terminal to ask for the token: --token - reads standard input, --token @FILE a file")
		return "", status(exitUsage)
	}
	fmt.Fprint(e.err, "Enrolment token (not shown): ")
	b, err := term.ReadPassword(int(in.Fd()))
	fmt.Fprintln(e.err)
	return string(b), err
}

// readToken reads no more than a token can have.
func readToken(r io.Reader) (string, error) {
	b, err := io.ReadAll(io.LimitReader(r, 4<<10))
	return string(b), err
}

func (e *env) redeem(ctx context.Context, t tokens.Token, ca []byte, state string) error {
	api, err := client.New(t.URL, "", client.Trust{CA: ca})
	if err != nil {
		return err
	}
	defer api.Close()
	f, err := e.machine.Facts()
	if err != nil {
		return err
	}
	f.Version = muster.Build
	if f.Disks, err = e.machine.Devices(); err != nil {
		return err
	}
	d := &door{ctx: ctx, e: e, api: api, facts: f, state: state, credential: setup.Credential{URL: t.URL, CA: string(ca), ServerUUID: f.UUID}}
	if err := d.Ready(); err != nil {
		return fmt.Errorf("the credential could not be stored here, so the token was not used: %w", err)
	}
	info, err := e.machine.Describe(f)
	if err != nil {
		return err
	}
	nonce := make([]byte, 16)
	rand.Read(nonce)
	q := muster.EnrolRequest{TokenID: t.ID, Secret: base64.RawURLEncoding.EncodeToString(t.Secret), Nonce: hex.EncodeToString(nonce),
		ServerUUID: f.UUID, Hostname: f.Hostname, AdminIP: f.AdminIP, Sysinfo: info}
	reply, err := d.insist(q)
	if err != nil {
		return enrolRefused(err)
	}
	if err := d.Store(reply.APIKey); err != nil {
		return fmt.Errorf("the key was delivered and could not be stored, and it is delivered once: have an operator issue a token for this node (muster token issue --as %s): %w", reply.NodeID, err)
	}
	e.say("let in as node %s; the credential is in %s", reply.NodeID, credentialFile(state))
	return nil
}

// insist repeats a redemption whose answer did not come, with the same nonce:
// the control plane knows it again and makes another key.
func (d *door) insist(q muster.EnrolRequest) (reply muster.EnrolReply, err error) {
	for try := 1; ; try++ {
		reply, err = d.api.Enrol(d.ctx, q)
		var p *muster.Problem
		var cert *tls.CertificateVerificationError
		if err == nil || try == enrolTries || errors.As(err, &p) && p.Status < 500 || errors.As(err, &cert) {
			return reply, err
		}
		d.e.say("no answer, trying again: %v", err)
		if err := d.Pause(enrolPause); err != nil {
			return reply, err
		}
	}
}
