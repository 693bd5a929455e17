package store

import (
	"strings"
	"testing"

	"muster.internal"
	"muster.internal/lifecycle"
)

// A UUID in either byte order is one machine, at every door, at its refresh, and
// wherever somebody looks it up.
func TestBothByteOrdersAreOneMachine(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		b, asks := boxNo(1), boxNo(2)
		k := member(t, s, b, start)
		must[muster.RegisterReply](t)(s.Register(ctx, start, nobody, asks.request()))
		turned := func(b box) box { b.uuid = muster.SwapUUID(b.uuid); return b }
		// Register and announce.
		if r := must[muster.RegisterReply](t)(s.Register(ctx, start, nobody, turned(asks).request())); r.ServerUUID != asks.uuid || r.State != muster.Pending {
			t.Errorf("registered again as %+v", r)
		}
		if a := must[muster.Announced](t)(s.Announce(ctx, start, booterCaller, turned(b).announcement("s2"))); a.State != muster.Approved {
			t.Errorf("announced as %+v", a)
		}
		// Refresh.
		c := must[muster.Caller](t)(s.Authenticate(ctx, start, k.APIKey, ""))
		if r := must[muster.Registration](t)(s.Refresh(ctx, start, c, muster.RefreshRequest{Sysinfo: turned(b).sysinfo()})); r.ServerUUID != b.uuid {
			t.Errorf("refreshed as %s", r.ServerUUID)
		}
		// Look-ups, tickets, logs, root passwords.
		must[muster.RootPasswordSet](t)(s.SetRootPassword(ctx, start, ada, turned(b).uuid, muster.RootPassword{Password: "a root password"}))
		if r := must[muster.Registration](t)(s.Registration(ctx, turned(b).uuid)); r.ServerUUID != b.uuid || r.RootPassword == nil || len(r.Sysinfo) == 0 {
			t.Errorf("looked up: %+v", r)
		}
		own := must[OwnKey](t)(s.TicketKey(ctx, start, ada, turned(b).uuid, muster.TicketConsole))
		if own.ServerUUID != b.uuid || string(own.Key) != string(must[OwnKey](t)(s.TicketKey(ctx, start, ada, b.uuid, muster.TicketConsole)).Key) {
			t.Errorf("a ticket of %s", own.ServerUUID)
		}
		if l := must[muster.InstallLog](t)(s.InstallLog(ctx, muster.InstallQuery{ServerUUID: turned(b).uuid})); l.ServerUUID != b.uuid {
			t.Errorf("the install log of %s", l.ServerUUID)
		}
		// What an operator does.
		if r := must[muster.Registration](t)(s.RaiseRegistration(ctx, start, ada, turned(b).uuid, lifecycle.Disable)); r.ServerUUID != b.uuid || r.State != muster.Disabled {
			t.Errorf("disabled: %+v", r)
		}
		if err := s.DeleteRegistration(ctx, start, ada, turned(asks).uuid); err != nil {
			t.Error(err)
		}
		rs := must[[]muster.Registration](t)(s.Registrations(ctx, muster.RegistrationFilter{}))
		if len(rs) != 1 || rs[0].ServerUUID != b.uuid {
			t.Errorf("%+v", rs)
		}
		for _, e := range must[[]muster.AuditEntry](t)(s.Audit(ctx, muster.AuditFilter{})) {
			if strings.HasSuffix(e.Subject, turned(b).uuid) || strings.HasSuffix(e.Subject, turned(asks).uuid) {
				t.Errorf("entry %d is about %s", e.Seq, e.Subject)
			}
		}
		healthy(t, s)
	})
}
