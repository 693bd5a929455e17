package control_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"muster.internal"
)

const claimUUID = "4c4c4544-0042-4a10-8054-00000000c1a1"

func (p *place) register() (muster.RegisterReply, error) {
	return p.anyone.Register(p.Context(), muster.RegisterRequest{ServerUUID: claimUUID, Hostname: "box",
		Sysinfo: json.RawMessage(`{"UUID":"` + claimUUID + `","Serial Number":"CL-1"}`)})
}

func (p *place) registered() muster.RegisterReply {
	p.Helper()
	r, err := p.register()
	p.ok(err)
	if r.State != muster.Pending || len(r.ClaimCode) != 7 || len(r.PollToken) != 32 || r.ClaimCodeExpires == nil {
		p.Fatalf("registered: %+v", r)
	}
	p.keep(r.PollToken, r.ClaimCode)
	return r
}

func (p *place) poll(token string) muster.RegisterStatus {
	p.Helper()
	return must(p, func(ctx context.Context) (muster.RegisterStatus, error) {
		return p.anyone.RegisterStatus(ctx, token, 0)
	})
}

// TestClaimDoor is the whole of it: from a machine that runs already to a node,
// out again, and in again.
func TestClaimDoor(t *testing.T) {
	engines(t, func(p *place) {
		ctx := p.Context()
		p.withViewer()
		reply := p.registered()
		if s := p.poll(reply.PollToken); s.State != muster.Pending || s.APIKey != "" {
			p.Fatalf("polled: %+v", s)
		}
		if r := p.registration(claimUUID); r.Serial != "CL-1" || r.Door != muster.DoorClaim || r.ClaimCodeExpires == nil {
			p.Errorf("registration: %+v", r)
		}

		// Codes are guessed in vain, and approved by people or full keys.
		_, err := p.admin.ApproveCode(ctx, "ZZZ-ZZZ")
		p.refused(err, muster.CodeNotFound)
		_, err = p.viewer.ApproveCode(ctx, reply.ClaimCode)
		p.refused(err, muster.CodeForbidden)
		for _, bad := range []string{"", "short", "ILO-UUU", "ABCDEFG", "'; --"} {
			_, err := p.admin.ApproveCode(ctx, bad)
			p.refused(err, muster.CodeInvalid)
		}
		r := must(p, func(ctx context.Context) (muster.Registration, error) {
			return p.admin.ApproveCode(ctx, strings.ToLower(strings.Replace(reply.ClaimCode, "-", " ", 1)))
		})
		if r.State != muster.Approved || r.NodeID == "" {
			p.Fatalf("approved: %+v", r)
		}
		_, err = p.admin.ApproveCode(ctx, reply.ClaimCode) // single use
		p.refused(err, muster.CodeConflict)

		// The key is delivered once.
		s := p.poll(reply.PollToken)
		if s.State != muster.Approved || !strings.HasPrefix(s.APIKey, "mus_") {
			p.Fatalf("delivery: %+v", s)
		}
		p.keep(s.APIKey)
		if again := p.poll(reply.PollToken); again.APIKey != "" || !again.Delivered {
			p.Errorf("delivered twice: %+v", again)
		}
		host := p.anyone.WithToken(s.APIKey)
		_, err = host.Refresh(ctx, muster.RefreshRequest{Hostname: "box-2"})
		p.ok(err)
		if r := p.registration(claimUUID); r.Hostname != "box-2" {
			p.Errorf("hostname %q", r.Hostname)
		}

		// Nobody on the network can take a live machine's place.
		_, err = p.register()
		p.refused(err, muster.CodeConflict)

		// The reply was lost, say: disabled, it registers again, and the old
		// credential is dead.
		node := r.NodeID
		must(p, func(ctx context.Context) (muster.Registration, error) {
			return p.admin.RaiseRegistration(ctx, claimUUID, "disable")
		})
		_, err = host.Heartbeat(ctx, muster.Heartbeat{})
		p.refused(err, muster.CodeUnauthenticated)
		second := p.registered()
		if _, err := p.anyone.RegisterStatus(ctx, reply.PollToken, 0); err == nil {
			p.Error("the old poll token still works")
		}
		must(p, func(ctx context.Context) (muster.Registration, error) {
			return p.admin.ApproveCode(ctx, second.ClaimCode)
		})
		s = p.poll(second.PollToken)
		p.keep(s.APIKey)
		_, err = p.anyone.WithToken(s.APIKey).Heartbeat(ctx, muster.Heartbeat{})
		p.ok(err)
		if r := p.registration(claimUUID); r.NodeID != node {
			p.Errorf("hardware that was only disabled came back as node %s, not %s", r.NodeID, node)
		}
		if rs := must(p, func(ctx context.Context) ([]muster.BootRecord, error) {
			return p.admin.BootRecords(ctx, muster.BootFilter{})
		}); len(rs) != 0 {
			p.Errorf("the claim door made boot records: %+v", rs)
		}
		p.nothingShows()
	})
}

// TestClaimCodeExpires after an hour; the machine registers again.
func TestClaimCodeExpires(t *testing.T) {
	engines(t, func(p *place) {
		reply := p.registered()
		p.advance(time.Hour + time.Second)
		p.login()
		_, err := p.admin.ApproveCode(p.Context(), reply.ClaimCode)
		if err == nil {
			p.Fatal("an expired code was approved")
		}
		p.ok(p.c.Tick(p.Context()))
		again := p.registered()
		must(p, func(ctx context.Context) (muster.Registration, error) {
			return p.admin.ApproveCode(ctx, again.ClaimCode)
		})
	})
}

// TestKeyThatNobodyFetches dies with its hour, and the machine is not lost.
func TestKeyThatNobodyFetches(t *testing.T) {
	engines(t, func(p *place) {
		reply := p.registered()
		must(p, func(ctx context.Context) (muster.Registration, error) {
			return p.admin.ApproveCode(ctx, reply.ClaimCode)
		})
		p.advance(time.Hour + time.Second)
		p.ok(p.c.Tick(p.Context()))
		if s, err := p.anyone.RegisterStatus(p.Context(), reply.PollToken, 0); err == nil && s.APIKey != "" {
			p.Errorf("delivered after its hour: %+v", s.State)
		}
		p.registered()
	})
}

// TestPollWaits: the approval wakes the machine that waits for it.
func TestPollWaits(t *testing.T) {
	engines(t, func(p *place) {
		reply := p.registered()
		var s muster.RegisterStatus
		var err error
		var wg sync.WaitGroup
		wg.Go(func() { s, err = p.anyone.RegisterStatus(p.Context(), reply.PollToken, time.Minute) })
		must(p, func(ctx context.Context) (muster.Registration, error) {
			return p.admin.ApproveCode(ctx, reply.ClaimCode)
		})
		wg.Wait()
		p.ok(err)
		if s.APIKey == "" {
			p.Errorf("woken with %+v", s)
		}
	})
}

// TestGuessing: wrong codes are limited per address.
func TestGuessing(t *testing.T) {
	engines(t, func(p *place) {
		reply := p.registered()
		var err error
		for range 11 {
			if _, err = p.full.ApproveCode(p.Context(), "AAA-AAA"); muster.IsCode(err, muster.CodeTooMany) {
				break
			}
		}
		if problem := p.refused(err, muster.CodeTooMany); problem.RetryAfter <= 0 {
			p.Errorf("%+v", problem)
		}
		_, err = p.full.ApproveCode(p.Context(), reply.ClaimCode)
		p.refused(err, muster.CodeTooMany) // the right one too: it would tell
	})
}

// TestFiftyApproveOneCode: exactly one wins, nobody gets a 500.
func TestFiftyApproveOneCode(t *testing.T) {
	engines(t, func(p *place) {
		reply := p.registered()
		errs := make([]error, 50)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() {
				_, errs[i] = p.c.As(muster.Caller{Operator: "ada", Role: muster.Admin, Source: "192.0.2.1"}).ApproveCode(p.Context(), reply.ClaimCode)
			})
		}
		wg.Wait()
		won := 0
		for _, err := range errs {
			switch {
			case err == nil:
				won++
			case muster.IsCode(err, muster.CodeNotFound), muster.IsCode(err, muster.CodeConflict), muster.IsCode(err, muster.CodeTooMany):
			default:
				p.Errorf("%v", err)
			}
		}
		if won != 1 {
			p.Errorf("%d won", won)
		}
	})
}

// TestConsolePinComesWithPort, or neither does.
func TestConsolePinComesWithPort(t *testing.T) {
	engines(t, func(p *place) {
		before := p.head()
		for _, r := range []muster.RegisterRequest{{ConsolePort: 443}, {ConsolePin: strings.Repeat("a", 64)}, {ConsolePort: 70000, ConsolePin: strings.Repeat("a", 64)}, {ConsolePort: 443, ConsolePin: "a"}} {
			r.ServerUUID, r.Hostname, r.Sysinfo = claimUUID, "box", json.RawMessage(`{"UUID":"`+claimUUID+`"}`)
			_, err := p.anyone.Register(p.Context(), r)
			p.refused(err, muster.CodeInvalid)
		}
		if p.head() != before {
			p.Error("a refused registration changed something")
		}
	})
}

// login renews the admin's token after the clock was moved.
func (p *place) login() {
	p.Helper()
	tok := must(p, func(ctx context.Context) (muster.Token, error) {
		return p.anyone.Login(ctx, muster.Login{Name: "admin", Password: p.secrets[0]})
	})
	p.keep(tok.Token)
	p.admin = p.anyone.WithToken(tok.Token)
}
