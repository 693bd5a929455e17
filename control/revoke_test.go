package control_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/client"
	"muster.internal/enrol"
)

// TestRevocationEndsWhatIsOpen: what waits ends with the key, or with the
// operator, that opened it, and says why; at another control plane, too.
func TestRevocationEndsWhatIsOpen(t *testing.T) {
	engines(t, func(p *place) {
		at := map[string]*place{"here": p}
		if p.store != "" {
			at["there"] = p.replica()
		}
		for where, q := range at {
			for what, hold := range map[string]func(ctx context.Context, c *client.Client, open func()) error{
				"a long poll": func(ctx context.Context, c *client.Client, open func()) error {
					ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { open() }})
					es, err := c.Audit(ctx, muster.AuditFilter{After: 1 << 40, Wait: time.Minute})
					if err == nil && len(es) == 0 {
						err = fmt.Errorf("it waited to its own end")
					}
					return err
				},
				"an event stream": func(ctx context.Context, c *client.Client, open func()) error {
					return c.Events(ctx, muster.EventQuery{After: muster.FromNow, Subject: "nobody/x"}, func(muster.FeedEvent) error {
						open()
						return nil
					})
				},
			} {
				who := fmt.Sprintf("eve-%s-%d", where, len(what))
				for door, end := range map[string]func() (*client.Client, func() error){
					"a key": func() (*client.Client, func() error) {
						k := must(p, func(ctx context.Context) (muster.CreatedKey, error) {
							return p.admin.CreateKey(ctx, muster.NewKey{Scope: muster.ScopeAuditOnly})
						})
						return q.anyone.WithToken(k.Secret), func() error { return p.admin.RevokeKey(p.Context(), k.ID) }
					},
					"an operator": func() (*client.Client, func() error) {
						must(p, func(ctx context.Context) (muster.Operator, error) {
							return p.admin.CreateOperator(ctx, muster.NewOperator{Name: who, Role: muster.Viewer, Password: "eve's password"})
						})
						tok := must(q, func(ctx context.Context) (muster.Token, error) {
							return q.anyone.Login(ctx, muster.Login{Name: who, Password: "eve's password"})
						})
						return q.anyone.WithToken(tok.Token), func() error { return p.admin.RemoveOperator(p.Context(), who) }
					},
				} {
					c, revoke := end()
					ctx, cancel := context.WithTimeout(p.Context(), 12*time.Second) // a mark of the stream comes after 15
					opened := make(chan struct{})
					ended := make(chan error, 1)
					go func() { ended <- hold(ctx, c, sync.OnceFunc(func() { close(opened) })) }()
					<-opened
					p.head() // a round trip, in which the other one arrives
					p.ok(revoke())
					began := time.Now()
					q.advance(time.Second) // its clock stands still otherwise
					err := <-ended
					cancel()
					p.Logf("%s of %s, revoked %s, ended after %v", what, door, where, time.Since(began).Round(time.Millisecond))
					if !muster.IsCode(err, muster.CodeUnauthenticated) {
						p.Errorf("%s of %s, revoked %s: %v", what, door, where, err)
					}
				}
			}
		}
	})
}

// bearer asks who may read, as somebody with this secret.
func (p *place) bearer(secret string) *http.Response {
	p.Helper()
	r, err := http.NewRequestWithContext(p.Context(), "GET", p.c.URL()+"/v1/images", nil)
	p.ok(err)
	r.Header.Set("Authorization", "Bearer "+secret)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(p.c.CA())
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}
	resp, err := tr.RoundTrip(r)
	p.ok(err)
	_, err = io.Copy(io.Discard, resp.Body)
	p.ok(err)
	resp.Body.Close()
	return resp
}

// TestGuessersLockNobodyOut: over HTTP, from one address, what fails is told to
// wait, and what is right is answered, seen before or not.
func TestGuessersLockNobodyOut(t *testing.T) {
	engines(t, func(p *place) {
		seen := must(p, func(ctx context.Context) (muster.CreatedKey, error) {
			return p.admin.CreateKey(ctx, muster.NewKey{Scope: muster.ScopeReadOnly})
		})
		fresh := must(p, func(ctx context.Context) (muster.CreatedKey, error) {
			return p.admin.CreateKey(ctx, muster.NewKey{Scope: muster.ScopeReadOnly})
		})
		p.bearer(seen.Secret)
		codes := map[int]int{}
		for i := range 40 {
			guess := []string{"nonsense", seen.Secret[:len(seen.Secret)-3] + "AAA", "mus_" + strings.Repeat("a", 12) + "_" + strings.Repeat("A", 43)}[i%3]
			resp := p.bearer(guess)
			codes[resp.StatusCode]++
			if wait, err := strconv.Atoi(resp.Header.Get("Retry-After")); resp.StatusCode == 429 && (err != nil || wait < 1 || wait > 6) {
				p.Errorf("told to wait %q", resp.Header.Get("Retry-After"))
			}
		}
		if codes[401] != 10 || codes[429] != 30 {
			p.Errorf("guesses were answered %v", codes)
		}
		for name, secret := range map[string]string{"a key that was seen before": seen.Secret, "a key that was not": fresh.Secret} {
			if resp := p.bearer(secret); resp.StatusCode != 200 {
				p.Errorf("%s, among guessers: %s", name, resp.Status)
			}
		}
		// Passwords are another matter than keys: the guesses at those cost no login.
		p.login()
		p.advance(6 * time.Second)
		if resp := p.bearer("nonsense"); resp.StatusCode != 401 {
			p.Errorf("after the wait: %s", resp.Status)
		}
	})
}

// TestNeighboursOfGuessers: a machine with a good enrolment token, or one that
// asks for its key, gets in from where others guess; claim codes, which are
// short, stay shut there.
func TestNeighboursOfGuessers(t *testing.T) {
	engines(t, func(p *place) {
		ctx := p.Context()
		redeem := func(id string, secret []byte) error {
			_, err := p.anyone.Enrol(ctx, muster.EnrolRequest{TokenID: id, Secret: base64.RawURLEncoding.EncodeToString(secret),
				Nonce: strings.Repeat("ab", 16), ServerUUID: doorUUID(1), Hostname: "box", Sysinfo: doorSysinfo(1)})
			return err
		}
		issued := must(p, func(ctx context.Context) (muster.IssuedEnrolmentToken, error) {
			return p.admin.IssueEnrolmentToken(ctx, muster.NewEnrolmentToken{})
		})
		tok, err := enrol.Decode(issued.Token)
		p.ok(err)
		for range 20 {
			if redeem(tok.ID, make([]byte, 32)) == nil {
				p.Fatal("a guess was right")
			}
			if _, err := p.anyone.RegisterStatus(ctx, strings.Repeat("0", 32), 0); err == nil {
				p.Fatal("a guess was right")
			}
		}
		_, err = p.anyone.RegisterStatus(ctx, strings.Repeat("0", 32), 0)
		p.refused(err, muster.CodeTooMany)
		p.refused(redeem(tok.ID, make([]byte, 32)), muster.CodeTooMany)

		if err := redeem(tok.ID, tok.Secret); err != nil {
			p.Errorf("a good token: %v", err)
		}
		reply := must(p, func(ctx context.Context) (muster.RegisterReply, error) {
			return p.anyone.Register(ctx, muster.RegisterRequest{ServerUUID: doorUUID(2), Hostname: "box", Sysinfo: doorSysinfo(2)})
		})
		if s, err := p.anyone.RegisterStatus(ctx, reply.PollToken, 0); err != nil || s.State != muster.Pending {
			p.Errorf("a good poll token: %+v, %v", s, err)
		}
		for range 10 {
			_, err := p.admin.ApproveCode(ctx, "AAA-AAA")
			p.refused(err, muster.CodeNotFound)
		}
		_, err = p.admin.ApproveCode(ctx, reply.ClaimCode)
		if wait := p.refused(err, muster.CodeTooMany).RetryAfter; wait != 30 {
			p.Errorf("a right code after ten wrong ones: wait %d s", wait)
		}
	})
}

// TestColleaguesOfGuessers: behind one address, whoever logged in there before
// does again while somebody guesses at another's password.
func TestColleaguesOfGuessers(t *testing.T) {
	engines(t, func(p *place) {
		ctx := p.Context()
		guess := func(name string) error {
			_, err := p.anyone.Login(ctx, muster.Login{Name: name, Password: "wrong password"})
			return err
		}
		for range 10 {
			p.refused(guess("nobody"), muster.CodeUnauthenticated)
		}
		p.refused(guess("nobody"), muster.CodeTooMany)
		p.login()
		for range 10 {
			p.refused(guess("admin"), muster.CodeUnauthenticated)
		}
		p.refused(guess("admin"), muster.CodeTooMany)
	})
}
