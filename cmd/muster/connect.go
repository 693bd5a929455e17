package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	muster "muster.internal"
	"muster.internal/control"
	"muster.internal/durable"
)

// session is what login keeps in session.json, readable by its owner alone.
// The token belongs to the URL beside it and is never sent elsewhere.
type session struct {
	URL       string      `json:"url"`
	CA        string      `json:"ca,omitempty"` // PEM
	Token     string      `json:"token"`
	Operator  string      `json:"operator"`
	Role      muster.Role `json:"role"`
	ExpiresAt time.Time   `json:"expires_at"`
}

func (a *app) sessionFile() string { return filepath.Join(a.configDir, "session.json") }

func (a *app) loadSession() (session, error) {
	var s session
	if a.configDir == "" {
		return s, nil
	}
	b, err := os.ReadFile(a.sessionFile())
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return session{}, fmt.Errorf("%s is damaged (%v): remove it and log in again", a.sessionFile(), err)
	}
	return s, nil
}

func (a *app) saveSession(s session) error {
	if a.configDir == "" {
		return errors.New("there is no home directory to keep the login in: use --print and MUSTER_KEY")
	}
	if err := os.MkdirAll(a.configDir, 0o700); err != nil {
		return err
	}
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return durable.Replace(a.sessionFile(), append(b, '\n'), 0o600)
}

// firstLogin is the one of the control plane on this machine, nil without.
func (a *app) firstLogin() (*control.FirstLogin, error) {
	if a.controlDir == "" {
		return nil, nil
	}
	l, err := control.ReadFirstLogin(a.controlDir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, nil
	}
	return &l, err
}

// connection puts together where to go and as whom: flags first, then the
// environment, then what login kept, then the control plane on this machine.
func (a *app) connection() (connection, error) {
	kept, err := a.loadSession()
	if err != nil {
		return connection{}, err
	}
	here, err := a.firstLogin()
	if err != nil {
		return connection{}, err
	}
	c := connection{
		url:   strings.TrimRight(first(a.urlFlag, a.getenv("MUSTER_URL"), kept.URL), "/"),
		token: a.getenv("MUSTER_KEY"),
	}
	if here != nil && (c.url == "" || c.url == here.URL) {
		c.url, c.ca, c.first = here.URL, []byte(here.CA), here
	}
	if c.url == "" {
		return c, usagef("no control plane is named: set MUSTER_URL, or pass --url https://HOST:PORT, or log in once with muster login")
	}
	if !strings.HasPrefix(c.url, "https://") {
		return c, usagef("%q is not an https:// address: muster never speaks without TLS", c.url)
	}
	if a.keyFile != "" {
		if c.token, err = a.readKey(); err != nil {
			return c, usagef("--key-file: %v", err)
		}
	}
	if c.token == "" && kept.URL == c.url {
		if c.token = kept.Token; c.token != "" && !kept.ExpiresAt.IsZero() && kept.ExpiresAt.Before(a.now()) {
			c.token = ""
			if c.first != nil {
				return c, nil
			}
			return c, &hinted{
				err:  muster.Problemf(muster.CodeUnauthenticated, "the login of %s at %s has expired", kept.Operator, kept.URL),
				hint: "log in again: muster login --name " + kept.Operator,
			}
		}
	}
	switch path := first(a.caFlag, a.getenv("MUSTER_CA")); {
	case path != "":
		if c.ca, err = os.ReadFile(a.abs(path)); err != nil {
			return c, usagef("the certificate authority's file cannot be read: %v", err)
		}
	case kept.URL == c.url && kept.CA != "":
		c.ca = []byte(kept.CA)
	}
	return c, nil
}

// readKey reads the credential that --key-file names. Errors never hold what
// was read.
func (a *app) readKey() (string, error) {
	if a.keyFile == "-" {
		return readLine(a.stdin)
	}
	f, err := os.Open(a.abs(a.keyFile))
	if err != nil {
		return "", err
	}
	defer f.Close()
	line, err := readLine(f)
	if err != nil {
		return "", fmt.Errorf("no key in %s: the first line must hold it", a.keyFile)
	}
	if line == "" {
		return "", fmt.Errorf("the first line of %s is empty: it must hold the key", a.keyFile)
	}
	return line, nil
}

// fleet dials the control plane as the operator or key that is configured; the
// one on this machine as its first operator, as long as that has its first
// password.
func (a *app) fleet(ctx context.Context) (fleet, error) {
	c, err := a.connection()
	if err == nil && c.token == "" && c.first != nil {
		c.token, err = a.logInHere(ctx, c)
	}
	if err != nil {
		return nil, err
	}
	if c.token == "" {
		return nil, &hinted{
			err:  muster.Problemf(muster.CodeUnauthenticated, "no credential for %s", c.url),
			hint: "set MUSTER_KEY, or log in: muster login",
		}
	}
	return a.dial(c)
}

// logInHere logs in with what only the owner of this machine can read, and
// keeps the token as muster login does, where it can.
func (a *app) logInHere(ctx context.Context, c connection) (string, error) {
	f, err := a.dial(c)
	if err != nil {
		return "", err
	}
	t, err := f.Login(ctx, muster.Login{Name: c.first.Operator, Password: c.first.Password})
	if muster.IsCode(err, muster.CodeUnauthenticated) {
		return "", &hinted{err: err, hint: fmt.Sprintf("what %s says is good no more; log in with a name and a password: muster login --name NAME", control.FirstLoginFile(a.controlDir))}
	}
	if err != nil {
		return "", err
	}
	fmt.Fprintf(a.stderr, "logged in as %s at %s, by %s\n", t.Operator, c.url, control.FirstLoginFile(a.controlDir))
	if a.configDir == "" {
		return t.Token, nil
	}
	return t.Token, a.saveSession(session{URL: c.url, CA: string(c.ca), Token: t.Token, Operator: t.Operator, Role: t.Role, ExpiresAt: t.ExpiresAt})
}

// with is a command that asks the control plane.
func (a *app) with(do func(c *cobra.Command, f fleet, args []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		f, err := a.fleet(c.Context())
		if err != nil {
			return err
		}
		return do(c, f, args)
	}
}

// on is a command about what its only argument names.
func on[T any](a *app, find func(context.Context, muster.Fleet, string) (T, error), do func(c *cobra.Command, f fleet, found T) error) func(*cobra.Command, []string) error {
	return a.with(func(c *cobra.Command, f fleet, args []string) error {
		found, err := find(c.Context(), f, args[0])
		if err != nil {
			return err
		}
		return do(c, f, found)
	})
}

func first(ss ...string) string {
	for _, s := range ss {
		if s != "" {
			return s
		}
	}
	return ""
}
