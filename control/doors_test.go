package control_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/enrol"
)

func doorUUID(n int) string { return fmt.Sprintf("4c4c4544-0000-4000-8000-%012x", n+1) }

func doorSysinfo(n int) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"UUID":%q,"Serial Number":"D-%d"}`, doorUUID(n), n))
}

// TestWindowDoor: a hundred machines at ten slots, over the wire.
func TestWindowDoor(t *testing.T) {
	engines(t, func(p *place) {
		ctx, ten := p.Context(), 10
		p.withViewer()
		for _, c := range []*muster.NewWindow{{Duration: 60}} {
			_, err := p.full.OpenWindow(ctx, muster.AutoApproveWindow, *c)
			p.refused(err, muster.CodeForbidden) // it takes a person
			_, err = p.viewer.OpenWindow(ctx, muster.AutoApproveWindow, *c)
			p.refused(err, muster.CodeForbidden)
		}
		w, err := p.admin.OpenWindow(ctx, muster.AutoApproveWindow, muster.NewWindow{Duration: 48 * 3600, Count: &ten})
		p.ok(err)
		if !w.Clamped || w.Duration != 86400 || w.OpenedBy != "operator:admin" {
			p.Errorf("%+v", w)
		}
		var in, waits atomic.Int64
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				r, err := p.anyone.Register(ctx, muster.RegisterRequest{ServerUUID: doorUUID(i), Hostname: "box", Sysinfo: doorSysinfo(i)})
				switch {
				case err != nil:
					p.Errorf("machine %d: %v", i, err)
				case r.State == muster.Approved && r.ClaimCode == "":
					s, err := p.anyone.RegisterStatus(ctx, r.PollToken, 0)
					if err != nil || s.APIKey == "" {
						p.Errorf("machine %d: %+v, %v", i, s, err)
					}
					in.Add(1)
				case r.State == muster.Pending && r.ClaimCode != "":
					waits.Add(1)
				default:
					p.Errorf("machine %d: %+v", i, r)
				}
			})
		}
		wg.Wait()
		p.Logf("100 machines, 10 slots: %d approved, %d pending with a code", in.Load(), waits.Load())
		if in.Load() != 10 || waits.Load() != 90 {
			p.Errorf("%d in, %d wait", in.Load(), waits.Load())
		}
		w, err = p.viewer.Window(ctx, muster.AutoApproveWindow)
		p.ok(err)
		if w.Open || w.Ended != muster.WindowUsedUp || w.Taken != 10 {
			p.Errorf("%+v", w)
		}
		p.ok(p.admin.CloseWindow(ctx, muster.AutoApproveWindow))
	})
}

// TestTokenDoor: what the token carries leads to this control plane and in.
func TestTokenDoor(t *testing.T) {
	engines(t, func(p *place) {
		ctx := p.Context()
		_, err := p.full.IssueEnrolmentToken(ctx, muster.NewEnrolmentToken{})
		p.refused(err, muster.CodeForbidden)
		issued, err := p.admin.IssueEnrolmentToken(ctx, muster.NewEnrolmentToken{Comment: "rack 7"})
		p.ok(err)
		tok, err := enrol.Decode(issued.Token)
		p.ok(err)
		secret := base64.RawURLEncoding.EncodeToString(tok.Secret)
		p.keep(issued.Token, secret)
		ca, _ := pem.Decode(p.c.CA())
		if sum := sha256.Sum256(ca.Bytes); !bytes.Equal(sum[:], tok.Fingerprint) || tok.URL != p.c.URL() || tok.ID != issued.ID {
			p.Fatalf("the token is for %s, %x", tok.URL, tok.Fingerprint)
		}
		q := muster.EnrolRequest{TokenID: tok.ID, Secret: secret, Nonce: strings.Repeat("ab", 16), ServerUUID: doorUUID(1), Hostname: "box", Sysinfo: doorSysinfo(1)}
		reply, err := p.anyone.Enrol(ctx, q)
		p.ok(err)
		p.keep(reply.APIKey)
		host := p.anyone.WithToken(reply.APIKey)
		_, err = host.Heartbeat(ctx, muster.Heartbeat{})
		p.ok(err)
		// The answer was lost, say: asked again, the first key is dead at once.
		again, err := p.anyone.Enrol(ctx, q)
		p.ok(err)
		p.keep(again.APIKey)
		_, err = host.Heartbeat(ctx, muster.Heartbeat{})
		p.refused(err, muster.CodeUnauthenticated)
		_, err = p.anyone.WithToken(again.APIKey).Heartbeat(ctx, muster.Heartbeat{})
		p.ok(err)
		ts, err := p.admin.EnrolmentTokens(ctx)
		p.ok(err)
		if len(ts) != 1 || ts[0].State != muster.TokenUsed || ts[0].UsedBy != doorUUID(1) {
			p.Errorf("%+v", ts)
		}
		p.nothingShows()
	})
}

// TestTokenGuessing is limited by where it comes from; the wait that is told is
// long enough.
func TestTokenGuessing(t *testing.T) {
	engines(t, func(p *place) {
		ctx := p.Context()
		q := muster.EnrolRequest{TokenID: "aaaaaaaaaaaa", Secret: base64.RawURLEncoding.EncodeToString(make([]byte, 32)),
			Nonce: strings.Repeat("ab", 16), ServerUUID: doorUUID(1), Sysinfo: doorSysinfo(1)}
		for i := range 10 {
			_, err := p.anyone.Enrol(ctx, q)
			if !muster.IsCode(err, muster.CodeUnauthenticated) {
				p.Fatalf("guess %d: %v", i, err)
			}
		}
		_, err := p.anyone.Enrol(ctx, q)
		wait := p.refused(err, muster.CodeTooMany).RetryAfter
		if wait != 6 {
			p.Errorf("wait %d s", wait)
		}
		p.mu.Lock()
		p.now = p.now.Add(time.Duration(wait) * time.Second)
		p.mu.Unlock()
		_, err = p.anyone.Enrol(ctx, q)
		p.refused(err, muster.CodeUnauthenticated)
	})
}

// TestCodesAreNotLockedOut: guessers use up what all may do, each from an
// address of its own; the operator who approved before, from where he did, goes
// on.
func TestCodesAreNotLockedOut(t *testing.T) {
	engines(t, func(p *place) {
		ctx := p.Context()
		as := func(name, source string) func(code string) error {
			s := p.c.As(muster.Caller{Operator: name, Role: muster.Admin, Source: source})
			return func(code string) error { _, err := s.ApproveCode(ctx, code); return err }
		}
		code := func(n int) string {
			return must(p, func(ctx context.Context) (muster.RegisterReply, error) {
				return p.anyone.Register(ctx, muster.RegisterRequest{ServerUUID: doorUUID(n), Hostname: "box", Sysinfo: doorSysinfo(n)})
			}).ClaimCode
		}
		ada := as("ada", "192.0.2.1")
		p.ok(ada(code(1)))
		for i := range 50 {
			p.refused(as("eve", fmt.Sprintf("2001:db8:%x::1", i))("AAA-AAA"), muster.CodeNotFound)
		}
		fresh := as("bob", "192.0.2.2")
		last := code(2)
		if wait := p.refused(fresh(last), muster.CodeTooMany).RetryAfter; wait != 1 {
			p.Errorf("wait %d s", wait)
		}
		p.ok(ada(code(3)))
		p.mu.Lock()
		p.now = p.now.Add(time.Second)
		p.mu.Unlock()
		p.ok(fresh(last))
	})
}
