package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"muster.internal"
	"muster.internal/credential"
	"muster.internal/setup"
	"muster.internal/ticket"
)

// maxTicket is longer than any ticket that a control plane makes, in bytes.
const maxTicket = 4 << 10

// checkTicket tells a workload on this machine whether the control plane sent
// whoever presents a ticket. The ticket comes on standard input, so that no
// process list shows it.
func checkTicket(_ context.Context, e *env) error {
	var kind, path string
	err := e.flags("ticket", func(f *flag.FlagSet) {
		f.StringVar(&kind, "kind", string(muster.TicketMetadata), "console, metadata or move")
		f.StringVar(&path, "credential", "", "file with this machine's credential (default: on its pool, else in "+stateDir+")")
	})
	if err != nil {
		return err
	}
	if !slices.Contains(muster.TicketKinds, muster.TicketKind(kind)) {
		fmt.Fprintf(e.err, "muster-host ticket: --kind %q is none of %v\n", kind, muster.TicketKinds)
		return status(exitUsage)
	}
	c, err := ownCredential(path)
	if err != nil {
		return err
	}
	token, err := bufio.NewReader(io.LimitReader(e.in, maxTicket)).ReadString('\n')
	if err != nil && err != io.EOF {
		return err
	}
	key := map[muster.TicketKind][]byte{muster.TicketConsole: c.Tickets.Console, muster.TicketMetadata: c.Tickets.Metadata, muster.TicketMove: c.Tickets.Move}[muster.TicketKind(kind)]
	holder, until, err := ticket.Verify(key, muster.TicketKind(kind), c.ServerUUID, strings.TrimSpace(token), time.Now())
	if err != nil {
		return err
	}
	good := struct {
		Holder    string    `json:"holder"`
		ExpiresAt time.Time `json:"expires_at"`
	}{holder, until}
	return e.print(good, func(w io.Writer) { fmt.Fprintf(w, "good until %s, held by %s\n", until.Format(time.RFC3339), holder) })
}

// ownCredential finds this machine's credential.
func ownCredential(path string) (c setup.Credential, err error) {
	paths := []string{path}
	if path == "" {
		paths = []string{filepath.Join("/", muster.PoolName, setup.CredentialPath), filepath.Join(stateDir, "credential")}
	}
	for _, p := range paths {
		if c, err = credential.Load(p); !errors.Is(err, fs.ErrNotExist) {
			return c, err
		}
	}
	return c, fmt.Errorf("this machine has no credential (looked for %s): it is not a node, or its pool is not open", strings.Join(paths, ", "))
}
