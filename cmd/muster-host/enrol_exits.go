package main

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io/fs"

	"muster.internal"
	"muster.internal/client"
	"muster.internal/credential"
	tokens "muster.internal/enrol"
)

// Exit statuses of enrol, for whatever installs machines by the hundred. After
// each of them the machine is as it was.
const (
	exitTokenDamaged = 10 + iota
	exitTokenUnknown
	exitTokenUsed
	exitTokenExpired
	exitTokenRevoked
	exitUntrusted
	exitUnreachable
	exitClock
	exitEnrolled
	exitRefused
)

// enrolStatuses is the table that is shown.
var enrolStatuses = []struct {
	status int
	when   string
}{
	{0, "the machine is let in, and its credential is stored"},
	{exitFailed, "something failed on this machine"},
	{exitUsage, "the command cannot be understood"},
	{exitTokenDamaged, "the token is cut short, mistyped or none; nothing was sent"},
	{exitTokenUnknown, "the control plane does not know the token: it is forged, or was forgotten"},
	{exitTokenUsed, "the token was used already"},
	{exitTokenExpired, "the token expired"},
	{exitTokenRevoked, "the token was revoked"},
	{exitUntrusted, "the server is not the control plane that the token names; nothing was sent"},
	{exitUnreachable, "the control plane cannot be reached, or does not take anything now"},
	{exitClock, "this machine's clock is wrong; the token was not sent"},
	{exitEnrolled, "this machine is enrolled already, there or elsewhere; nothing was sent"},
	{exitRefused, "the control plane does not let this machine in, and says why"},
}

func enrolHelp(f *flag.FlagSet) {
	fmt.Fprint(f.Output(), `usage: muster-host enrol [--token - | --token @FILE] [flags]

Lets this machine in by an enrolment token ("muster token issue"), which names
the control plane, the fingerprint by which it is known, and a secret that is
good once. The fingerprint is compared before a byte is sent. Without --token,
the token is asked for at the terminal; it is never an argument, since everybody
on a machine can read those.

A machine whose registration was disabled, or whose node the token names
("muster token issue --as NODE"), comes back as the same node, with --again;
one whose node is decommissioned comes as a new one. Hardware of a node that is
live and not named is refused.

flags:
`)
	printFlags(f)
	fmt.Fprint(f.Output(), "\nexit statuses, of which all but 0 leave the machine as it was:\n")
	for _, s := range enrolStatuses {
		fmt.Fprintf(f.Output(), "  %2d  %s\n", s.status, s.when)
	}
}

// enrolled says that a machine has a credential already, and what can be done.
func enrolled(state string, t tokens.Token) error {
	path := credentialFile(state)
	c, err := credential.Load(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("this machine was enrolled before, and its credential cannot be read (%w); nothing was sent. With --again it is replaced", err)
	case !sameFleet(c.CA, t.Fingerprint):
		return fmt.Errorf("this machine has a credential already (%s), of another control plane than the token's, %s; nothing was sent. Have it retired there (muster node retire), or leave that fleet with --again", path, c.URL)
	}
	node := "NODE"
	if id, err := credential.LoadIdentity(identityFile(state)); err == nil && id.NodeID() != "" {
		node = id.NodeID()
	}
	return fmt.Errorf("this machine has a credential already (%s), of the token's control plane; nothing was sent. If its registration was disabled, or the token names its node (muster token issue --as %s), it comes back with --again; to come as a new node, have it retired first (muster node retire %s)", path, node, node)
}

// sameFleet tells whether a CA is the one that a token names.
func sameFleet(ca string, fingerprint []byte) bool {
	block, _ := pem.Decode([]byte(ca))
	if block == nil {
		return false
	}
	sum := sha256.Sum256(block.Bytes)
	return subtle.ConstantTimeCompare(sum[:], fingerprint) == 1
}

// enrolRefused gives what kept a machine from being let in its status.
func enrolRefused(err error) error {
	var p *muster.Problem
	var away *client.Unreachable
	var cert *tls.CertificateVerificationError
	switch {
	case errors.Is(err, client.ErrUntrusted), errors.As(err, &cert):
		return exit{exitUntrusted, fmt.Errorf("nothing was sent: %w", err)}
	case errors.As(err, &away):
		return exit{exitUnreachable, fmt.Errorf("this machine was not let in: %w", err)}
	case !errors.As(err, &p):
		return err
	}
	status := exitRefused
	switch {
	case p.Code == muster.CodeUnauthenticated:
		status = exitTokenUnknown
	case p.Code == muster.CodeTooMany, p.Code == muster.CodeUnavailable, p.Code == muster.CodeInternal:
		status = exitUnreachable
	case p.Code == muster.CodeConflict && p.State == string(muster.TokenUsed):
		status = exitTokenUsed
	case p.Code == muster.CodeConflict && p.State == string(muster.TokenExpired):
		status = exitTokenExpired
	case p.Code == muster.CodeConflict && p.State == string(muster.TokenRevoked):
		status = exitTokenRevoked
	}
	return exit{status, fmt.Errorf("this machine was not let in: %w", err)}
}
