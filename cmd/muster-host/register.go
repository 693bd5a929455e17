package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"muster.internal"
	"muster.internal/client"
	"muster.internal/credential"
	"muster.internal/host"
	"muster.internal/inventory"
	"muster.internal/setup"
)

// register asks to be let in by the claim-code door.
func register(ctx context.Context, e *env) error {
	var url, fingerprint, caFile, uuid string
	state := stateDir
	err := e.flags("register", func(f *flag.FlagSet) {
		f.StringVar(&url, "url", "", "the control plane, https://HOST:PORT")
		f.StringVar(&fingerprint, "ca-fingerprint", "", "SHA-256 of its CA certificate, 64 hex digits")
		f.StringVar(&caFile, "ca", "", "its CA certificate, instead of the fingerprint")
		f.StringVar(&state, "state", stateDir, "directory to keep the credential in")
		f.StringVar(&uuid, "uuid", "", "the machine's UUID, where its firmware has none of its own")
	})
	if err != nil {
		return err
	}
	if url == "" || (fingerprint == "") == (caFile == "") {
		fmt.Fprintln(e.err, "muster-host register: --url is needed, and one of --ca-fingerprint and --ca")
		return status(exitUsage)
	}
	path := credentialFile(state)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("this machine has a credential already (%s); remove it only if an operator disabled the registration", path)
	}
	if uuid != "" {
		if uuid, err = muster.ParseUUID(uuid); err != nil {
			return err
		}
		e.machine.Identify(uuid)
	}
	ca, err := authority(ctx, url, fingerprint, caFile)
	if err != nil {
		return err
	}
	api, err := client.New(url, "", client.Trust{CA: ca})
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
	d := &door{ctx: ctx, e: e, api: api, facts: f, start: time.Now(), state: state,
		credential: setup.Credential{URL: url, CA: string(ca), ServerUUID: f.UUID}}
	if err := host.Claim(d); err != nil {
		return err
	}
	e.say("approved; the credential is in %s", path)
	return nil
}

// clockOff is how wrong a machine's clock may be: less than what certificates
// are dated back.
const clockOff = 30 * time.Minute

// authority finds the control plane's CA: from a file, or from itself, where it
// must have the fingerprint that was named. A clock that is wrong is told there,
// since no certificate can be believed by it.
func authority(ctx context.Context, url, fingerprint, file string) ([]byte, error) {
	if file != "" {
		return os.ReadFile(file)
	}
	api, err := client.New(url, "", client.Trust{Fingerprint: fingerprint, AnyTime: true})
	if err != nil {
		return nil, err
	}
	defer api.Close()
	v, err := api.Version(ctx)
	if err != nil {
		return nil, err
	}
	if v.Time != nil {
		if here := time.Now(); here.Sub(*v.Time).Abs() > clockOff {
			return nil, exit{exitClock, fmt.Errorf("the clock of this machine is wrong: it says %s, and that of the control plane %s; certificates are not believed by it, so set it (timedatectl set-ntp true) and try again. Nothing was sent but the question for the time",
				here.UTC().Format(time.RFC3339), v.Time.UTC().Format(time.RFC3339))}
		}
	}
	want := strings.ToLower(strings.ReplaceAll(fingerprint, ":", ""))
	for rest := []byte(v.CA); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return nil, fmt.Errorf("the control plane at %s does not hand out a CA with the fingerprint %s", url, fingerprint)
		}
		if sum := sha256.Sum256(block.Bytes); hex.EncodeToString(sum[:]) == want {
			return pem.EncodeToMemory(block), nil
		}
	}
}

// A door is the claim-code door, for package host.
type door struct {
	ctx        context.Context
	e          *env
	api        muster.ForHost
	facts      inventory.Facts
	start      time.Time
	state      string
	credential setup.Credential
}

func (d *door) Register() (muster.RegisterReply, error) {
	info, err := d.e.machine.Describe(d.facts)
	if err != nil {
		return muster.RegisterReply{}, err
	}
	return d.api.Register(d.ctx, muster.RegisterRequest{ServerUUID: d.facts.UUID, Hostname: d.facts.Hostname, AdminIP: d.facts.AdminIP, Sysinfo: info})
}

func (d *door) Status(token string, wait time.Duration) (muster.RegisterStatus, error) {
	return d.api.RegisterStatus(d.ctx, token, wait)
}

// Ready stores and removes something of a credential's size.
func (d *door) Ready() error {
	probe := filepath.Join(d.state, "credential.try")
	err := credential.Store(probe, d.credential)
	os.Remove(probe)
	return err
}

// Store waits for as long as another muster-host is at work here: the key is
// delivered once.
func (d *door) Store(key string) error {
	d.credential.APIKey = key
	return anew(d.state, d.Say, func() error { return credential.Store(credentialFile(d.state), d.credential) })
}

func (d *door) codeFile() string { return filepath.Join(d.state, "claim-code") }

// ShowCode prints the code, and mirrors it as well as it can.
func (d *door) ShowCode(code string) {
	fmt.Fprintf(d.e.out, "\n    Claim code:  %s\n\nApprove it within an hour:  muster registration approve %s\n\n", code, code)
	if err := os.WriteFile(d.codeFile(), []byte(code+"\n"), 0o600); err != nil {
		d.e.say("the code is only shown here: %v", err)
	}
}

func (d *door) HideCode()                   { os.Remove(d.codeFile()) }
func (d *door) Say(text string)             { d.e.say("%s", text) }
func (d *door) Elapsed() time.Duration      { return time.Since(d.start) }
func (d *door) Pause(t time.Duration) error { return pause(d.ctx, t) }
