package store

import (
	"strings"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/lifecycle"
)

func (b box) request() muster.RegisterRequest {
	return muster.RegisterRequest{ServerUUID: b.uuid, Hostname: "node-1", Sysinfo: b.sysinfo()}
}

func TestTheClaimDoor(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		b := boxNo(1)
		first := must[muster.RegisterReply](t)(s.Register(ctx, start, nobody, b.request()))
		if first.State != muster.Pending || len(first.ClaimCode) != 7 || len(first.PollToken) != 32 || !first.ClaimCodeExpires.Equal(start.Add(time.Hour)) {
			t.Fatalf("%+v", first)
		}
		if rs := must[[]muster.BootRecord](t)(s.BootRecords(ctx, muster.BootFilter{})); len(rs) != 0 {
			t.Fatalf("this door makes no boot record, but there are %+v", rs)
		}
		// Asking again: the older code and token are dead.
		reply := must[muster.RegisterReply](t)(s.Register(ctx, start, nobody, b.request()))
		_, err := s.ApproveCode(ctx, start, ada, first.ClaimCode)
		wantCode(t, err, muster.CodeNotFound)
		_, err = s.RegisterStatus(ctx, start, nobody, first.PollToken)
		wantCode(t, err, muster.CodeNotFound)
		if st := must[muster.RegisterStatus](t)(s.RegisterStatus(ctx, start, nobody, reply.PollToken)); st.State != muster.Pending || st.APIKey != "" {
			t.Fatalf("%+v", st)
		}
		_, err = s.ApproveCode(ctx, start.Add(time.Hour), ada, reply.ClaimCode)
		wantCode(t, err, muster.CodeNotFound) // expired, though no clock has run

		r := must[muster.Registration](t)(s.ApproveCode(ctx, start, ada, strings.ToLower(strings.ReplaceAll(reply.ClaimCode, "-", ""))))
		if r.State != muster.Approved || r.BoundKeyID == "" || r.NodeID == "" || r.Hostname != "node-1" {
			t.Fatalf("%+v", r)
		}
		_, err = s.ApproveCode(ctx, start, ada, reply.ClaimCode)
		wantCode(t, err, muster.CodeConflict) // used

		st := must[muster.RegisterStatus](t)(s.RegisterStatus(ctx, start, nobody, reply.PollToken))
		c := must[muster.Caller](t)(s.Authenticate(ctx, start, st.APIKey, ""))
		if c.ServerUUID != b.uuid || c.KeyID != r.BoundKeyID {
			t.Fatalf("the key speaks for %+v", c)
		}
		if st := must[muster.RegisterStatus](t)(s.RegisterStatus(ctx, start, nobody, reply.PollToken)); st.APIKey != "" || !st.Delivered {
			t.Fatalf("second delivery: %+v", st)
		}
		// Whoever lost the reply: an operator disables, and the machine
		// registers again, as the same node.
		_, err = s.Register(ctx, start, nobody, b.request())
		wantCode(t, err, muster.CodeConflict)
		must[muster.Registration](t)(s.RaiseRegistration(ctx, start, ada, b.uuid, lifecycle.Disable))
		_, err = s.Authenticate(ctx, start, st.APIKey, "")
		wantCode(t, err, muster.CodeUnauthenticated)
		_, err = s.Refresh(ctx, start, c, muster.RefreshRequest{})
		wantCode(t, err, muster.CodeUnauthenticated)
		reply = must[muster.RegisterReply](t)(s.Register(ctx, start, nobody, b.request()))
		again := must[muster.Registration](t)(s.ApproveCode(ctx, start, ada, reply.ClaimCode))
		if again.NodeID != r.NodeID || again.BoundKeyID == r.BoundKeyID {
			t.Fatalf("came back as %+v", again)
		}
		if n := entries(t, s, subject(b.uuid), lifecycle.Disable); n != 1 {
			t.Errorf("%d disable events in the audit", n)
		}
		healthy(t, s)
	})
}

func TestBadRegistrationsNameTheField(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		head := must[int64](t)(s.Head(t.Context()))
		pin := strings.Repeat("ab", 32)
		for name, c := range map[string]struct {
			change func(*muster.RegisterRequest)
			field  string
		}{
			"nil UUID":         {func(q *muster.RegisterRequest) { q.ServerUUID = "00000000-0000-0000-0000-000000000000" }, "server_uuid"},
			"other UUID":       {func(q *muster.RegisterRequest) { q.ServerUUID = boxNo(2).uuid }, "sysinfo.UUID"},
			"no sysinfo":       {func(q *muster.RegisterRequest) { q.Sysinfo = nil }, "sysinfo"},
			"list for sysinfo": {func(q *muster.RegisterRequest) { q.Sysinfo = []byte(`[]`) }, "sysinfo"},
			"hostname":         {func(q *muster.RegisterRequest) { q.Hostname = "a'; reboot" }, "hostname"},
			"hostname NUL":     {func(q *muster.RegisterRequest) { q.Hostname = "a\x00" }, "hostname"},
			"port without pin": {func(q *muster.RegisterRequest) { q.ConsolePort = 443 }, "console_listen_port"},
			"pin without port": {func(q *muster.RegisterRequest) { q.ConsolePin = pin }, "console_listen_port"},
			"short pin":        {func(q *muster.RegisterRequest) { q.ConsolePort, q.ConsolePin = 443, "abcd" }, "console_tls_spki_sha256_hex"},
			"wild port":        {func(q *muster.RegisterRequest) { q.ConsolePort, q.ConsolePin = 70000, pin }, "console_listen_port"},
		} {
			q := boxNo(1).request()
			c.change(&q)
			_, err := s.Register(t.Context(), start, nobody, q)
			wantCode(t, err, muster.CodeInvalid)
			if !strings.Contains(err.Error(), c.field+":") {
				t.Errorf("%s: %v does not name %s", name, err, c.field)
			}
		}
		_, err := s.Registrations(t.Context(), muster.RegistrationFilter{After: "\x00"})
		wantCode(t, err, muster.CodeInvalid)
		_, err = s.Registrations(t.Context(), muster.RegistrationFilter{After: "\xff'\""})
		wantCode(t, err, muster.CodeInvalid)
		if now := must[int64](t)(s.Head(t.Context())); now != head {
			t.Error("a bad request changed something")
		}
	})
}

// Nobody on the network replaces what is known of a machine that is approved,
// being set up or awaiting setup.
func TestAnonymousRegistrationIsRefused(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		b := boxNo(1)
		awaiting(t, s, b, start)
		try := func(want muster.RegistrationState) {
			t.Helper()
			before := dump(t, behind(t, s))
			q := b.request()
			q.Hostname = "mine-now"
			_, err := s.Register(ctx, start, nobody, q)
			wantCode(t, err, muster.CodeConflict)
			if st := stateOf(t, s, b.uuid); st != want {
				t.Fatalf("state %s", st)
			}
			if dump(t, behind(t, s)) != before {
				t.Error("the refusal changed something")
			}
		}
		try(muster.AwaitingSetup)
		must[muster.SetupGrant](t)(s.ApproveSetup(ctx, start, ada, b.uuid, approval(t, s, b, start)))
		try(muster.SettingUp)
		must[muster.Registration](t)(s.RaiseRegistration(ctx, start, ada, b.uuid, lifecycle.CancelSetup))
		install(t, s, b, start)
		try(muster.Approved)
	})
}

func TestTheClock(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		b, c, d := boxNo(1), boxNo(2), boxNo(3)
		awaiting(t, s, b, start)
		must[muster.SetupGrant](t)(s.ApproveSetup(ctx, start, ada, b.uuid, approval(t, s, b, start)))
		var k kept
		must[muster.TakenBundle](t)(s.TakeBundle(ctx, start, booterCaller, b.uuid, muster.TakeRequest{Epoch: 1, Session: "s1"}, k.seal))
		reply := must[muster.RegisterReply](t)(s.Register(ctx, start, nobody, c.request()))
		rescue, hour := muster.RescueMode, 3600
		must[muster.BootRecord](t)(s.SetBootRecord(ctx, start, ada, d.mac, muster.BootChange{Mode: &rescue, RescueFor: &hour}))

		if done := must[Expired](t)(s.Expire(ctx, start.Add(muster.SetupDeadline-time.Second))); done != (Expired{}) {
			t.Fatalf("too early: %+v", done)
		}
		if done := must[Expired](t)(s.Expire(ctx, start.Add(muster.SetupDeadline))); done != (Expired{Setups: 1}) {
			t.Fatalf("%+v", done)
		}
		r := must[muster.Registration](t)(s.Registration(ctx, b.uuid))
		if r.State != muster.AwaitingSetup || r.LastSetupError != overdueReason || r.BoundKeyID != "" || r.AssignedPI != nil || r.DiskLayout != nil {
			t.Fatalf("%+v", r)
		}
		_, err := s.Authenticate(ctx, start, k.APIKey, "")
		wantCode(t, err, muster.CodeUnauthenticated)
		// A report of the old attempt comes too late.
		err = s.SetupComplete(ctx, start, booterCaller, b.uuid, muster.SetupOutcome{Epoch: 1, Proof: k.proof(b, 1)})
		wantCode(t, err, muster.CodeConflict)

		if done := must[Expired](t)(s.Expire(ctx, start.Add(time.Hour))); done != (Expired{Codes: 1, Rescues: 1}) {
			t.Fatalf("%+v", done)
		}
		if rec := must[muster.BootRecord](t)(s.BootRecord(ctx, d.mac)); rec.Mode != muster.NormalMode || rec.RescueUntil != nil {
			t.Fatalf("%+v", rec)
		}
		_, err = s.ApproveCode(ctx, start, ada, reply.ClaimCode)
		wantCode(t, err, muster.CodeNotFound)

		reply = must[muster.RegisterReply](t)(s.Register(ctx, start, nobody, c.request()))
		must[muster.Registration](t)(s.ApproveCode(ctx, start, ada, reply.ClaimCode))
		if done := must[Expired](t)(s.Expire(ctx, start.Add(time.Hour))); done != (Expired{Keys: 1}) {
			t.Fatalf("%+v", done)
		}
		if st := must[muster.RegisterStatus](t)(s.RegisterStatus(ctx, start, nobody, reply.PollToken)); st.State != muster.Disabled || st.APIKey != "" {
			t.Fatalf("%+v", st)
		}

		// A setup without a deadline is reverted at once.
		must[muster.SetupGrant](t)(s.ApproveSetup(ctx, start, ada, b.uuid, approval(t, s, b, start)))
		meddle(t, s, "UPDATE registrations SET setup_deadline = NULL WHERE state = 'setting_up'")
		if done := must[Expired](t)(s.Expire(ctx, start)); done != (Expired{Setups: 1}) {
			t.Fatalf("%+v", done)
		}
		healthy(t, s)
	})
}
