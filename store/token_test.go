package store

import (
	"encoding/base64"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/lifecycle"
)

func (b box) enrolment(tok muster.IssuedEnrolmentToken, secret []byte, nonce int) muster.EnrolRequest {
	return muster.EnrolRequest{TokenID: tok.ID, Secret: base64.RawURLEncoding.EncodeToString(secret), Nonce: fmt.Sprintf("%032x", nonce),
		ServerUUID: b.uuid, Hostname: "node-1", Sysinfo: b.sysinfo()}
}

func issue(t testing.TB, s *Store, n muster.NewEnrolmentToken) (muster.IssuedEnrolmentToken, []byte) {
	t.Helper()
	tok, secret, err := s.IssueEnrolmentToken(t.Context(), start, ada, n)
	if err != nil {
		t.Fatal(err)
	}
	return tok, secret
}

func tokenState(t testing.TB, s *Store, id string, at time.Duration) muster.TokenState {
	t.Helper()
	for _, e := range must[[]muster.EnrolmentToken](t)(s.EnrolmentTokens(t.Context(), start.Add(at))) {
		if e.ID == id {
			return e.State
		}
	}
	t.Fatalf("token %s is not listed", id)
	return ""
}

func TestTheTokenDoor(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx, b := t.Context(), boxNo(1)
		tok, secret := issue(t, s, muster.NewEnrolmentToken{Comment: "rack 7"})
		if tok.State != muster.TokenUnused || !tok.ExpiresAt.Equal(start.Add(time.Hour)) || tok.CreatedBy != "operator:ada" {
			t.Fatalf("%+v", tok)
		}
		q := b.enrolment(tok, secret, 1)
		wrong := q
		wrong.Secret = base64.RawURLEncoding.EncodeToString(make([]byte, 32))
		_, err := s.Enrol(ctx, start, nobody, wrong)
		wantCode(t, err, muster.CodeUnauthenticated)
		unknown := q
		unknown.TokenID = "aaaaaaaaaaaa"
		_, unknownErr := s.Enrol(ctx, start, nobody, unknown)
		if unknownErr == nil || unknownErr.Error() != err.Error() {
			t.Errorf("a wrong secret (%v) is told apart from an unknown token (%v)", err, unknownErr)
		}
		if st := tokenState(t, s, tok.ID, 0); st != muster.TokenUnused {
			t.Fatalf("a guess made it %s", st)
		}

		reply := must[muster.EnrolReply](t)(s.Enrol(ctx, start, nobody, q))
		if reply.State != muster.Approved || reply.NodeID == "" || reply.ComesAs.Outcome != "new_node" || reply.ComesAs.NodeID != reply.NodeID {
			t.Fatalf("%+v", reply)
		}
		c := must[muster.Caller](t)(s.Authenticate(ctx, start, reply.APIKey, ""))
		r := must[muster.Registration](t)(s.Registration(ctx, b.uuid))
		if c.ServerUUID != b.uuid || r.Door != muster.DoorToken || r.BoundKeyID != c.KeyID || r.Hostname != "node-1" || r.NodeID != reply.NodeID {
			t.Fatalf("%+v as %+v", r, c)
		}
		must[muster.Registration](t)(s.Refresh(ctx, start, c, muster.RefreshRequest{Sysinfo: b.sysinfo()}))
		if rs := must[[]muster.BootRecord](t)(s.BootRecords(ctx, muster.BootFilter{})); len(rs) != 0 {
			t.Errorf("this door made boot records: %+v", rs)
		}
		if ts := must[[]muster.EnrolmentToken](t)(s.EnrolmentTokens(ctx, start)); len(ts) != 1 || ts[0].State != muster.TokenUsed || ts[0].UsedBy != b.uuid || ts[0].Comment != "rack 7" {
			t.Errorf("%+v", ts)
		}
		// Used is used, for others and for itself.
		_, err = s.Enrol(ctx, start, nobody, boxNo(2).enrolment(tok, secret, 1))
		wantCode(t, err, muster.CodeConflict)
		_, err = s.Enrol(ctx, start, nobody, b.enrolment(tok, secret, 2))
		wantCode(t, err, muster.CodeConflict)
		if !strings.Contains(err.Error(), "--as "+reply.NodeID) {
			t.Errorf("it is not told how to come back: %v", err)
		}
		wantCode(t, s.RevokeEnrolmentToken(ctx, start, ada, tok.ID), muster.CodeConflict)
		healthy(t, s)
	})
}

// Whoever lost the answer asks again with the same nonce, for a while: another
// key, and the lost one is dead.
func TestALostAnswer(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx, b := t.Context(), boxNo(1)
		tok, secret := issue(t, s, muster.NewEnrolmentToken{})
		q := b.enrolment(tok, secret, 1)
		lost := must[muster.EnrolReply](t)(s.Enrol(ctx, start, nobody, q))
		again := must[muster.EnrolReply](t)(s.Enrol(ctx, start.Add(muster.EnrolmentTokenRetry-time.Second), nobody, q))
		if again.NodeID != lost.NodeID || again.APIKey == lost.APIKey {
			t.Fatalf("%+v after %+v", again, lost)
		}
		_, err := s.Authenticate(ctx, start, lost.APIKey, "")
		wantCode(t, err, muster.CodeUnauthenticated)
		must[muster.Caller](t)(s.Authenticate(ctx, start, again.APIKey, ""))
		stolen := boxNo(2).enrolment(tok, secret, 1) // the same nonce, another machine
		_, err = s.Enrol(ctx, start, nobody, stolen)
		wantCode(t, err, muster.CodeConflict)
		_, err = s.Enrol(ctx, start.Add(muster.EnrolmentTokenRetry), nobody, q)
		wantCode(t, err, muster.CodeConflict)

		// Too late for that: a token for its node, or disabled and a plain one.
		named, namedSecret := issue(t, s, muster.NewEnrolmentToken{AsNode: lost.NodeID})
		if named.ComesAs == nil || named.ComesAs.Outcome != "same_node" {
			t.Errorf("issued: %+v", named)
		}
		third := must[muster.EnrolReply](t)(s.Enrol(ctx, start, nobody, b.enrolment(named, namedSecret, 3)))
		if third.NodeID != lost.NodeID || third.ComesAs.Outcome != "same_node" {
			t.Fatalf("%+v", third)
		}
		_, err = s.Authenticate(ctx, start, again.APIKey, "")
		wantCode(t, err, muster.CodeUnauthenticated)
		// The old token's retry must not take the key away again.
		_, err = s.Enrol(ctx, start.Add(time.Second), nobody, q)
		wantCode(t, err, muster.CodeConflict)
		must[muster.Registration](t)(s.RaiseRegistration(ctx, start, ada, b.uuid, lifecycle.Disable))
		_, err = s.Enrol(ctx, start.Add(time.Second), nobody, b.enrolment(named, namedSecret, 3))
		wantCode(t, err, muster.CodeConflict)
		plain, plainSecret := issue(t, s, muster.NewEnrolmentToken{})
		if last := must[muster.EnrolReply](t)(s.Enrol(ctx, start, nobody, b.enrolment(plain, plainSecret, 4))); last.NodeID != lost.NodeID {
			t.Errorf("hardware that was only disabled came back as %+v", last)
		}
		healthy(t, s)
	})
}

func TestTokensEnd(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx, b := t.Context(), boxNo(1)
		for _, n := range []int{-1, 1, 59, 30*24*3600 + 1} {
			_, _, err := s.IssueEnrolmentToken(ctx, start, ada, muster.NewEnrolmentToken{ExpiresIn: n})
			wantCode(t, err, muster.CodeInvalid)
		}
		_, _, err := s.IssueEnrolmentToken(ctx, start, ada, muster.NewEnrolmentToken{AsNode: "nowhere"})
		wantCode(t, err, muster.CodeInvalid)
		old, oldSecret := issue(t, s, muster.NewEnrolmentToken{ExpiresIn: 60})
		_, err = s.Enrol(ctx, start.Add(time.Minute), nobody, b.enrolment(old, oldSecret, 1))
		wantCode(t, err, muster.CodeConflict)
		if a, z := tokenState(t, s, old.ID, 59*time.Second), tokenState(t, s, old.ID, time.Minute); a != muster.TokenUnused || z != muster.TokenExpired {
			t.Errorf("%s, then %s", a, z)
		}
		back, backSecret := issue(t, s, muster.NewEnrolmentToken{})
		for range 2 {
			if err := s.RevokeEnrolmentToken(ctx, start, ada, back.ID); err != nil {
				t.Fatal(err)
			}
		}
		_, err = s.Enrol(ctx, start, nobody, b.enrolment(back, backSecret, 1))
		wantCode(t, err, muster.CodeConflict)
		if st := tokenState(t, s, back.ID, 0); st != muster.TokenRevoked {
			t.Errorf("%s", st)
		}
		wantCode(t, s.RevokeEnrolmentToken(ctx, start, ada, "aaaaaaaaaaaa"), muster.CodeNotFound)
		wantCode(t, s.RevokeEnrolmentToken(ctx, start, ada, "musen1_whole-token"), muster.CodeInvalid)
		if n := entries(t, s, enrolmentSubject(back.ID), "revoke_token"); n != 1 {
			t.Errorf("revoked %d times", n)
		}
		if rs := must[[]muster.Registration](t)(s.Registrations(ctx, muster.RegistrationFilter{})); len(rs) != 0 {
			t.Errorf("%+v", rs)
		}
		healthy(t, s)
	})
}

func redeemRace(t *testing.T, stores ...*Store) {
	tok, secret := issue(t, stores[0], muster.NewEnrolmentToken{})
	var won atomic.Int64
	for _, err := range together(50, func(i int) error {
		_, err := stores[i%len(stores)].Enrol(t.Context(), start, nobody, boxNo(i).enrolment(tok, secret, i))
		if err == nil {
			won.Add(1)
		} else if muster.IsCode(err, muster.CodeConflict) {
			err = nil
		}
		return err
	}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	rs := must[[]muster.Registration](t)(stores[0].Registrations(t.Context(), muster.RegistrationFilter{}))
	t.Logf("50 machines redeem one token: %d in, %d registrations", won.Load(), len(rs))
	if won.Load() != 1 || len(rs) != 1 {
		t.Errorf("%d in", won.Load())
	}
	healthy(t, stores[0])
}

func TestFiftyRedeemOneToken(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) { redeemRace(t, s) })
	t.Run("two processes", func(t *testing.T) {
		url := postgresURL(t)
		redeemRace(t, open(t, url), open(t, url))
	})
}

// TestReturning is the one rule of re-enrolling, at every door.
func TestReturning(t *testing.T) {
	clock := start
	now := func() time.Time { clock = clock.Add(time.Second); return clock } // which of two nodes is newer
	doors := map[string]func(t *testing.T, s *Store, b box) (muster.ComesAs, error){
		"claim": func(t *testing.T, s *Store, b box) (muster.ComesAs, error) {
			r, err := s.Register(t.Context(), now(), nobody, b.request())
			if err != nil {
				return muster.ComesAs{}, err
			}
			reg := must[muster.Registration](t)(s.ApproveCode(t.Context(), now(), ada, r.ClaimCode))
			return *reg.ComesAs, nil
		},
		"token": func(t *testing.T, s *Store, b box) (muster.ComesAs, error) {
			tok, secret := issue(t, s, muster.NewEnrolmentToken{})
			r, err := s.Enrol(t.Context(), now(), nobody, b.enrolment(tok, secret, 9))
			return r.ComesAs, err
		},
	}
	engines(t, func(t *testing.T, s *Store) {
		n := 0
		for name, door := range doors {
			n++
			b, ctx := boxNo(n), t.Context()
			first, err := door(t, s, b)
			if err != nil || first.Outcome != "new_node" {
				t.Fatalf("%s: %+v, %v", name, first, err)
			}
			_, err = door(t, s, b)
			if !muster.IsCode(err, muster.CodeConflict) || !strings.Contains(err.Error(), "disable its registration") || !strings.Contains(err.Error(), "--as "+first.NodeID) {
				t.Errorf("%s: a live one: %v", name, err)
			}
			must[muster.Registration](t)(s.RaiseRegistration(ctx, start, ada, b.uuid, lifecycle.Disable))
			told := must[muster.Registration](t)(s.Registration(ctx, b.uuid)).ComesAs
			second, err := door(t, s, b)
			if err != nil || told == nil || told.Outcome != "same_node" || second.Outcome != "same_node" || second.NodeID != first.NodeID {
				t.Errorf("%s: disabled only: told %+v, came as %+v, %v", name, told, second, err)
			}
			must[muster.Registration](t)(s.RaiseRegistration(ctx, start, ada, b.uuid, lifecycle.Disable))
			if err := s.DeleteRegistration(ctx, start, ada, b.uuid); err != nil { // which decommissions its node
				t.Fatal(err)
			}
			third, err := door(t, s, b)
			if err != nil || third.Outcome != "new_node" || third.NodeID == first.NodeID || !strings.Contains(third.Why, first.NodeID) {
				t.Errorf("%s: decommissioned: %+v, %v", name, third, err)
			}
		}
		// A token names one node, at the issue and when it is redeemed.
		a, z := boxNo(1), boxNo(2)
		node := must[muster.Registration](t)(s.Registration(t.Context(), a.uuid)).NodeID
		tok, secret := issue(t, s, muster.NewEnrolmentToken{AsNode: node})
		_, err := s.Enrol(t.Context(), now(), nobody, z.enrolment(tok, secret, 1))
		wantCode(t, err, muster.CodeConflict)
		if !strings.Contains(err.Error(), "live node") {
			t.Errorf("a live machine that comes as another's node: %v", err)
		}
		must[muster.Registration](t)(s.RaiseRegistration(t.Context(), start, ada, a.uuid, lifecycle.Disable))
		if err := s.DeleteRegistration(t.Context(), start, ada, a.uuid); err != nil {
			t.Fatal(err)
		}
		_, err = s.Enrol(t.Context(), now(), nobody, a.enrolment(tok, secret, 1))
		wantCode(t, err, muster.CodeConflict)
		_, _, err = s.IssueEnrolmentToken(t.Context(), start, ada, muster.NewEnrolmentToken{AsNode: node})
		wantCode(t, err, muster.CodeConflict)
		// A machine that waits for its setup, or for its install, is not for tokens.
		site(t, s)
		w := boxNo(41)
		awaiting(t, s, w, start)
		if c := must[muster.Registration](t)(s.Registration(t.Context(), w.uuid)).ComesAs; c == nil || c.Outcome != "new_node" {
			t.Errorf("awaiting setup: %+v", c)
		}
		plain, plainSecret := issue(t, s, muster.NewEnrolmentToken{})
		_, err = s.Enrol(t.Context(), now(), nobody, w.enrolment(plain, plainSecret, 1))
		wantCode(t, err, muster.CodeConflict)
		healthy(t, s)
	})
}
