package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	muster "muster.internal"
	"muster.internal/lifecycle"
)

// repeated is how a destructive command asks for what it destroys to be named
// a second time.
type repeated struct {
	yes    bool
	serial string
}

func (o *repeated) bind(c *cobra.Command) {
	c.Flags().BoolVar(&o.yes, "yes", false, "do not ask; needs --serial")
	c.Flags().StringVar(&o.serial, "serial", "", "the serial number, with --yes (the UUID, or a disk's id, when there is none)")
}

// ask returns what names the thing a second time, or refuses.
func (o *repeated) ask(ctx context.Context, a *app, serial, id, what, warning string) (string, error) {
	if o.yes != (o.serial != "") {
		return "", usagef("--yes and --serial go together: what is named twice is not hit by a slip")
	}
	want, name := serial, "serial number"
	if want == "" {
		want, name = id, "id"
	}
	typed := o.serial
	if !o.yes {
		fmt.Fprintf(a.stderr, "%s\ntype the %s of %s to go on, anything else to stop: ", a.paint(red, warning), name, what)
		var err error
		typed, err = asked(ctx, func() (string, error) { return readLine(a.stdin) })
		if err == errInterrupted {
			fmt.Fprintln(a.stderr)
		}
		if err != nil {
			return "", fmt.Errorf("nothing was changed: the %s was not confirmed (%w)", name, err)
		}
	}
	if typed = strings.TrimSpace(typed); typed != want && typed != id {
		return "", fmt.Errorf("nothing was changed: %q is not the %s of %s", said(typed), name, what)
	}
	return typed, nil
}

func (a *app) registrationFactoryReset() *cobra.Command {
	var o repeated
	c := &cobra.Command{
		Use:   "factory-reset MACHINE",
		Short: "Send a machine back to its first boot, to come again as a new node",
		Long: `Send an approved or disabled machine back to its first boot: its keys stop
working, its node and disks are decommissioned, its root password is forgotten,
and its next boot enrolls it anew. No data is destroyed before you approve its
setup again. One that awaits its setup is there already (exit code 6); whatever
else a machine is, the message says what is possible.

It is refused, with the way out, while anything but base modules is placed there
or about to be, a move is under way, workloads that are not muster's run there
and nobody has acknowledged them, or the boot policy has no enrollment image.`,
		Example: `  muster registration factory-reset 8CX2P53
  muster registration factory-reset 8CX2P53 --yes --serial 8CX2P53`,
		Args:              names("MACHINE"),
		ValidArgsFunction: a.completeWith(machineWords),
		RunE: on(a, machine, func(c *cobra.Command, f fleet, r muster.Registration) error {
			if _, err := o.ask(c.Context(), a, r.Serial, r.ServerUUID, "machine "+r.ServerUUID, "its keys stop working, and it leaves the fleet"); err != nil {
				return err
			}
			r, err := f.RaiseRegistration(c.Context(), r.ServerUUID, lifecycle.FactoryReset)
			if err != nil {
				return err
			}
			return a.show(r, func(w io.Writer) {
				a.said1(w, r, "awaits its setup again")
				fmt.Fprintln(a.stderr, "restart it: its next boot announces it, and nothing is lost before you approve it again")
			})
		}),
	}
	o.bind(c)
	return c
}

func (a *app) registrationReadmit() *cobra.Command {
	return &cobra.Command{
		Use:   "readmit UUID",
		Short: "Lift the tombstone of an expunged machine",
		Long: `Lift the tombstone of an expunged machine, once its node is decommissioned: it
may register again, as a new node. Its old key stays dead. Its boot records stay
decommissioned until you reactivate them (muster boot reactivate). A machine that
is not expunged has none to lift: exit code 6.`,
		Example:           `  muster registration readmit 4c4c4544-0043-5810-8032-b8c04f503533`,
		Args:              names("UUID"),
		ValidArgsFunction: a.completeWith(machineWords),
		RunE: on(a, uuidOf, func(c *cobra.Command, f fleet, uuid string) error {
			r, err := f.RaiseRegistration(c.Context(), uuid, lifecycle.Readmit)
			if err != nil {
				return err
			}
			return a.show(r, func(w io.Writer) {
				fmt.Fprintf(w, "%s may register again, as a new node; its network cards boot again after `muster boot reactivate MAC`\n", uuid)
			})
		}),
	}
}

func (a *app) registrationRootPassword() *cobra.Command {
	var fromStdin, clear bool
	c := &cobra.Command{
		Use:   "root-password MACHINE",
		Short: "Set the root password that a machine boots with",
		Long: `Set the root password of a member of the fleet. It is asked for, or read from a
file by redirection; only its SHA-512 crypt(3) hash is kept, encrypted, and never
shown again. The machine gets it at its next boot, and no other machine ever
does. A factory reset, delete or expunge forgets it.

With --hash-from-stdin the hash itself is read ($6$…), as "mkpasswd -m sha-512"
and "openssl passwd -6" print it.`,
		Example: `  muster registration root-password 8CX2P53
  mkpasswd -m sha-512 | muster registration root-password 8CX2P53 --hash-from-stdin
  muster registration root-password 8CX2P53 --clear`,
		Args:              names("MACHINE"),
		ValidArgsFunction: a.completeWith(machineWords),
		PreRunE: func(*cobra.Command, []string) error {
			if clear && fromStdin {
				return usagef("--clear takes no hash")
			}
			return nil
		},
		RunE: on(a, machine, func(c *cobra.Command, f fleet, r muster.Registration) error {
			if clear {
				if err := f.ClearRootPassword(c.Context(), r.ServerUUID); err != nil {
					return err
				}
				return a.show(map[string]string{"server_uuid": r.ServerUUID, "root_password": "none"}, func(w io.Writer) {
					a.said1(w, r, "has no root password; a running machine keeps the one it booted with")
				})
			}
			var p muster.RootPassword
			var err error
			if fromStdin {
				line, err := asked(c.Context(), func() (string, error) { return readLine(a.stdin) })
				if err != nil {
					return fmt.Errorf("no hash: %w", err)
				}
				p.Hash = strings.TrimSpace(line)
			} else if p.Password, err = a.secret(c.Context(), "root password of "+callable(r)+": "); err != nil {
				return fmt.Errorf("no password: %w", err)
			}
			set, err := f.SetRootPassword(c.Context(), r.ServerUUID, p)
			if err != nil {
				return err
			}
			return a.show(set, func(w io.Writer) { a.said1(w, r, "boots with this root password from now on") })
		}),
	}
	c.Flags().BoolVar(&fromStdin, "hash-from-stdin", false, "read a crypt(3) hash instead of asking for the password")
	c.Flags().BoolVar(&clear, "clear", false, "forget it")
	return c
}

// drawTombstone says what keeps a machine out, and who knows of it.
func (a *app) drawTombstone(w io.Writer, x *muster.Expunged) {
	if x == nil {
		return
	}
	line := fmt.Sprintf("expunged %s by %s", a.ago(&x.At), said(x.By))
	if x.Reason != "" {
		line += ": " + said(x.Reason)
	}
	fmt.Fprintln(w, a.paint(red, line))
	if len(x.Booters) > 0 {
		fmt.Fprintln(w, a.confirmations(x.Booters))
	}
}

func (a *app) confirmations(bs []muster.BooterConfirmation) string {
	n := 0
	var late []string
	for _, b := range bs {
		if b.Confirmed {
			n++
			continue
		}
		late = append(late, fmt.Sprintf("%s has not, seen %s", said(b.Booter), a.ago(b.LastSeen)))
	}
	line := fmt.Sprintf("%d of %d booters have confirmed", n, len(bs))
	if len(late) > 0 {
		line += "; " + strings.Join(late, "; ")
	}
	return line
}
