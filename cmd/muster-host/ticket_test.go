package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/credential"
	"muster.internal/setup"
	"muster.internal/ticket"
)

func TestTicket(t *testing.T) {
	const uuid = "00112233-4455-6677-8899-aabbccddeea1"
	keys := setup.TicketKeys{Console: bytes.Repeat([]byte{1}, 32), Metadata: bytes.Repeat([]byte{2}, 32), Move: bytes.Repeat([]byte{3}, 32)}
	file := filepath.Join(t.TempDir(), "credential")
	if err := credential.Store(file, setup.Credential{URL: "https://x", APIKey: "k", ServerUUID: uuid, Tickets: keys}); err != nil {
		t.Fatal(err)
	}
	good, err := ticket.Mint(keys.Metadata, muster.TicketMetadata, uuid, "operator:ann", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		in   string
		code int
		want string
	}{
		{[]string{"--credential", file}, good + "\n", 0, "held by operator:ann"},
		{[]string{"--credential", file, "--output", "json"}, good, 0, `"holder": "operator:ann"`},
		{[]string{"--credential", file, "--kind", "move"}, good, exitFailed, "not made with this machine's move key"},
		{[]string{"--credential", file, "--kind", "key"}, good, exitUsage, "is none of"},
		{[]string{"--credential", file}, "", exitFailed, "this is not a ticket"},
		{[]string{"--credential", file + ".absent"}, good, exitFailed, "this machine has no credential"},
	} {
		var out bytes.Buffer
		code := command(context.Background(), append([]string{"ticket"}, c.args...), strings.NewReader(c.in), &out, &out)
		if code != c.code || !strings.Contains(out.String(), c.want) {
			t.Errorf("%q: status %d, want %d with %q; it said\n%s", c.args, code, c.code, c.want, out.String())
		}
	}
}
