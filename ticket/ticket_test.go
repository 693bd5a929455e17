package ticket_test

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/ticket"
)

const (
	uuid  = "00112233-4455-6677-8899-aabbccddeea1"
	other = "00112233-4455-6677-8899-aabbccddeea2"
)

var (
	key = bytes.Repeat([]byte{7}, 32)
	now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
)

func mint(t *testing.T, k []byte, kind muster.TicketKind, machine string) string {
	t.Helper()
	s, err := ticket.Mint(k, kind, machine, "operator:ann", now, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestVerify(t *testing.T) {
	good := mint(t, key, muster.TicketMetadata, uuid)
	parts := strings.Split(good, ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"JWT"}`))
	for _, c := range []struct {
		name, token string
		kind        muster.TicketKind
		at          time.Time
		want        string // part of the error; empty: good
	}{
		{"good", good, muster.TicketMetadata, now, ""},
		{"good until the end", good, muster.TicketMetadata, now.Add(time.Minute), ""},
		{"expired", good, muster.TicketMetadata, now.Add(2 * time.Minute), "expired at 2026-11-30T12:01:00Z"},
		{"from the future", good, muster.TicketMetadata, now.Add(-time.Hour), "still to come"},
		{"another kind", good, muster.TicketConsole, now, "not a console ticket"},
		{"another machine", mint(t, key, muster.TicketMetadata, other), muster.TicketMetadata, now, "not a metadata ticket for machine " + uuid},
		{"another key", mint(t, bytes.Repeat([]byte{8}, 32), muster.TicketMetadata, uuid), muster.TicketMetadata, now, "not made with this machine's"},
		{"no algorithm", none + "." + parts[1] + ".", muster.TicketMetadata, now, "not made with this machine's"},
		{"cut", parts[0] + "." + parts[1], muster.TicketMetadata, now, "not a ticket"},
		{"empty", "", muster.TicketMetadata, now, "not a ticket"},
	} {
		holder, until, err := ticket.Verify(key, c.kind, uuid, c.token, c.at)
		switch {
		case c.want == "" && (err != nil || holder != "operator:ann" || !until.Equal(now.Add(time.Minute))):
			t.Errorf("%s: %q %v %v", c.name, holder, until, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		case c.want != "" && c.token != "" && strings.Contains(err.Error(), c.token):
			t.Errorf("%s: the error quotes the ticket", c.name)
		}
	}
}

func TestShortKeysMakeNothing(t *testing.T) {
	if s, err := ticket.Mint(key[:31], muster.TicketMove, uuid, "x", now, time.Minute); err == nil {
		t.Errorf("a ticket from 31 bytes: %q", s)
	}
	if _, _, err := ticket.Verify(nil, muster.TicketMetadata, uuid, mint(t, key, muster.TicketMetadata, uuid), now); err == nil {
		t.Error("no key verifies")
	}
}
