package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	muster "muster.internal"
)

func (a *app) loginCmd() *cobra.Command {
	var name, fingerprint string
	var print bool
	c := &cobra.Command{
		Use:   "login",
		Short: "Log in with name and password, and keep the token",
		Long: `Log in as an operator. The password is asked for, or read from standard input
when that is no terminal; it is never an argument. The token is kept in
~/.config/muster/session.json, readable by you alone, together with the address
and the authority it belongs to; or it is only printed, with --print.

The authority is a file (--ca, MUSTER_CA), or known by the fingerprint that
"musterd ca" prints: then its certificate is fetched and kept.

Whoever owns the machine on which musterd runs needs none of this until the
first password is changed (muster operator password): the password is in the
file first-login of musterd's directory, and other commands log in with that.`,
		Example: `  MUSTER_CA=ca.pem muster login --url https://10.77.0.2:8443 --name admin
  muster login --url https://10.77.0.2:8443 --fingerprint 3f1c…
  export MUSTER_KEY=$(muster login --name admin --print < password-file)`,
		Args: names(),
		RunE: func(c *cobra.Command, _ []string) error {
			conn, err := a.connection()
			var p *muster.Problem
			if err != nil && !(errors.As(err, &p) && p.Code == muster.CodeUnauthenticated) {
				return err // an expired login is what this command is for
			}
			conn.token = ""
			if fingerprint != "" {
				conn.ca, conn.fingerprint = nil, fingerprint
			}
			f, err := a.dial(conn)
			if err != nil {
				return err
			}
			// Nobody types a password before it is sure who would get it.
			v, err := f.Version(c.Context())
			if err != nil {
				return err
			}
			password, err := a.secret(c.Context(), fmt.Sprintf("password of %s at %s: ", name, conn.url))
			if err != nil {
				return fmt.Errorf("no password: %w", err)
			}
			t, err := f.Login(c.Context(), muster.Login{Name: name, Password: password})
			if muster.IsCode(err, muster.CodeUnauthenticated) {
				return &hinted{err: err, hint: fmt.Sprintf("a lost password is replaced on the control plane's host: musterd reset-password %s", name)}
			}
			if err != nil {
				return err
			}
			if print {
				return a.show(t, func(w io.Writer) { fmt.Fprintln(w, t.Token) })
			}
			if fingerprint != "" { // the pinned connection vouches for what it fetches
				conn.ca = []byte(v.CA)
			}
			s := session{URL: conn.url, CA: string(conn.ca), Token: t.Token, Operator: t.Operator, Role: t.Role, ExpiresAt: t.ExpiresAt}
			if err := a.saveSession(s); err != nil {
				return err
			}
			return a.show(map[string]any{"operator": t.Operator, "role": t.Role, "expires_at": t.ExpiresAt}, func(w io.Writer) {
				fmt.Fprintf(w, "logged in as %s (%s) at %s until %s\n", t.Operator, t.Role, conn.url, t.ExpiresAt.UTC().Format(time.RFC3339))
			})
		},
	}
	c.Flags().StringVar(&name, "name", "admin", "operator")
	c.Flags().StringVar(&fingerprint, "fingerprint", "", "SHA-256 of the control plane's authority, 64 hex digits")
	c.Flags().BoolVar(&print, "print", false, "print the token and keep nothing")
	return c
}

func (a *app) logoutCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "logout",
		Short: "Forget the token that login kept",
		Long: `Forget the token that login kept on this host. The token itself is good until it
expires; another password (muster operator password) ends it everywhere at once.`,
		Example: `  muster logout`,
		Args:    names(),
		RunE: func(*cobra.Command, []string) error {
			if err := os.Remove(a.sessionFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			fmt.Fprintln(a.stderr, "logged out")
			return nil
		},
	}
}
