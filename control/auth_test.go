package control

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/api"
	"muster.internal/lifecycle"
	"muster.internal/store"
)

// opened is a control plane without a server, whose clock the test moves.
func opened(t *testing.T) (*Control, *time.Time) {
	t.Helper()
	now := time.Now()
	c, err := Open(t.Context(), Config{Dir: t.TempDir(), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, &now
}

var root = muster.Caller{Operator: "ada", Role: muster.Admin}

func newKey(t *testing.T, c *Control, n muster.NewKey) muster.CreatedKey {
	t.Helper()
	k, err := c.As(root).CreateKey(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestRevokedAtOnce: the request after a revocation fails, cached or not, and
// also when another process revoked.
func TestRevokedAtOnce(t *testing.T) {
	c, now := opened(t)
	master, err := masterKey(filepath.Join(c.cfg.Dir, "master.key"))
	if err != nil {
		t.Fatal(err)
	}
	other, err := store.Open(t.Context(), store.Options{URL: c.cfg.storeURL(), MasterKey: master})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for name, revoke := range map[string]func(id string) error{
		"here": func(id string) error { return c.As(root).RevokeKey(t.Context(), id) },
		"there": func(id string) error {
			err := other.RevokeKey(t.Context(), *now, root, id)
			*now = now.Add(cacheLag) // the stated bound
			return err
		},
	} {
		k := newKey(t, c, muster.NewKey{Scope: muster.ScopeBooter})
		for range 3 {
			if _, err := c.Authenticate(t.Context(), api.Proof{Bearer: k.Secret}, "192.0.2.1"); err != nil {
				t.Fatal(err)
			}
		}
		if len(c.keys.known) == 0 {
			t.Fatal("nothing was cached: the test proves nothing")
		}
		if err := revoke(k.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Authenticate(t.Context(), api.Proof{Bearer: k.Secret}, "192.0.2.1"); !muster.IsCode(err, muster.CodeUnauthenticated) {
			t.Errorf("revoked %s: %v", name, err)
		}
	}
}

// TestNoForgottenRevocation asks the rows which events end a live key: none of
// them may be among those that the cache overlooks.
func TestNoForgottenRevocation(t *testing.T) {
	everything := lifecycle.Facts{}
	v := reflect.ValueOf(&everything).Elem()
	for i := range v.NumField() {
		v.Field(i).SetBool(true)
	}
	ends := 0
	for _, e := range lifecycle.Events() {
		for _, s := range muster.RegistrationStates {
			for _, b := range []lifecycle.Bundle{lifecycle.NoBundle, lifecycle.BundleReady, lifecycle.BundleTaken} {
				old := lifecycle.State{Registration: s, Credential: lifecycle.Live, Bundle: b, NodePolicy: muster.PolicyExpunged, NodeState: muster.NodeInService}
				next, err := lifecycle.Apply(old, e.Event, -1, everything)
				if err != nil || next.Credential == lifecycle.Live {
					continue
				}
				ends++
				if keepsKeys[string(e.Event)] {
					t.Errorf("%s ends a key (registration %s, bundle %q), but the cache would not notice", e.Event, s, b)
				}
			}
		}
	}
	if ends == 0 {
		t.Error("no event ends a key: the test proves nothing")
	}
}

// TestExpiredKey is believed no longer than the stated bound.
func TestExpiredKey(t *testing.T) {
	c, now := opened(t)
	k := newKey(t, c, muster.NewKey{Scope: muster.ScopeFull, ExpiresIn: 60})
	*now = now.Add(59 * time.Second)
	if _, err := c.Authenticate(t.Context(), api.Proof{Bearer: k.Secret}, ""); err != nil {
		t.Fatal(err)
	}
	*now = now.Add(time.Second + cacheAge)
	if _, err := c.Authenticate(t.Context(), api.Proof{Bearer: k.Secret}, ""); !muster.IsCode(err, muster.CodeUnauthenticated) {
		t.Errorf("%v", err)
	}
}

// TestCacheNeedsTheStore: when it is away nobody is believed.
func TestCacheNeedsTheStore(t *testing.T) {
	c, now := opened(t)
	k := newKey(t, c, muster.NewKey{Scope: muster.ScopeFull})
	for range 2 {
		if _, err := c.Authenticate(t.Context(), api.Proof{Bearer: k.Secret}, ""); err != nil {
			t.Fatal(err)
		}
	}
	c.store.Close()
	*now = now.Add(cacheLag)
	if caller, err := c.Authenticate(t.Context(), api.Proof{Bearer: k.Secret}, ""); err == nil {
		t.Errorf("believed %v without a store", caller)
	}
}

func TestGuessesAreLimited(t *testing.T) {
	c, now := opened(t)
	k := newKey(t, c, muster.NewKey{Scope: muster.ScopeFull})
	guess := k.Secret[:len(k.Secret)-4] + "AAAA"
	var err error
	for range 11 {
		_, err = c.Authenticate(t.Context(), api.Proof{Bearer: guess}, "192.0.2.66")
	}
	if !muster.IsCode(err, muster.CodeTooMany) {
		t.Fatalf("after 11 guesses: %v", err)
	}
	if _, err := c.Authenticate(t.Context(), api.Proof{Bearer: k.Secret}, "192.0.2.1"); err != nil {
		t.Errorf("elsewhere: %v", err)
	}
	if _, err := c.Authenticate(t.Context(), api.Proof{Bearer: k.Secret}, "192.0.2.66"); err != nil {
		t.Errorf("a secret known to be right is refused for its neighbours: %v", err)
	}
	*now = now.Add(time.Minute)
	if _, err = c.Authenticate(t.Context(), api.Proof{Bearer: guess}, "192.0.2.66"); !muster.IsCode(err, muster.CodeUnauthenticated) {
		t.Errorf("a minute later: %v", err)
	}
}

// TestPasswordGuesses: a guesser is stopped, and with him nobody else.
func TestPasswordGuesses(t *testing.T) {
	dir, now := t.TempDir(), time.Unix(1_800_000_000, 0)
	c, err := Open(t.Context(), Config{Dir: dir, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	first, err := ReadFirstLogin(dir)
	if err != nil {
		t.Fatal(err)
	}
	password := first.Password
	login := func(source, password string) error {
		_, err := c.As(muster.Caller{Source: source}).Login(t.Context(), muster.Login{Name: FirstOperator, Password: password})
		return err
	}
	for range 11 {
		err = login("192.0.2.66", "a wrong password")
	}
	if p := new(muster.Problem); !errors.As(err, &p) || p.Code != muster.CodeTooMany || p.RetryAfter < 1 {
		t.Errorf("after 11 guesses: %v", err)
	}
	if err := login("192.0.2.1", password); err != nil {
		t.Errorf("one guesser locks the operator out: %v", err)
	}
	// A crowd, each with an address of its own.
	for range 60 {
		c.names.failed(c.now(), "operator "+FirstOperator)
	}
	if err := login("192.0.2.67", "a wrong password"); !muster.IsCode(err, muster.CodeTooMany) {
		t.Errorf("a crowd of guessers at one operator: %v", err)
	}
	if err := login("192.0.2.1", password); err != nil {
		t.Errorf("the operator, from where he came in before: %v", err)
	}
}

func TestOffline(t *testing.T) {
	dir := t.TempDir()
	k, err := CreateKey(t.Context(), Config{Dir: dir}, muster.NewKey{Scope: muster.ScopeBooter})
	if err != nil || !strings.HasPrefix(k.Secret, "mus_") {
		t.Fatalf("%+v %v", k, err)
	}
	c, err := Open(t.Context(), Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if who, err := c.Authenticate(t.Context(), api.Proof{Bearer: k.Secret}, ""); err != nil || who.Scope != muster.ScopeBooter {
		t.Errorf("%v %v", who, err)
	}
	first, err := ReadFirstLogin(dir)
	if err != nil {
		t.Fatal(err)
	}
	second, err := ResetPassword(t.Context(), Config{Dir: dir}, FirstOperator)
	if err != nil || second == first.Password {
		t.Fatal(err)
	}
	if _, err := ReadFirstLogin(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a first login that is good no more is still there: %v", err)
	}
	login := func(password string) error {
		_, err := c.As(muster.Caller{}).Login(context.Background(), muster.Login{Name: FirstOperator, Password: password})
		return err
	}
	if err := login(first.Password); !muster.IsCode(err, muster.CodeUnauthenticated) {
		t.Errorf("the old password: %v", err)
	}
	if err := login(second); err != nil {
		t.Error(err)
	}
	es, err := c.As(root).Audit(t.Context(), muster.AuditFilter{Subject: "operator/" + FirstOperator})
	if err != nil || len(es) < 2 || es[1].Action != "reset_password" || es[1].Actor != "operator:local:owner" {
		t.Errorf("%+v %v", es, err)
	}
	pem, fingerprint, err := ReadCA(dir)
	if err != nil || string(pem) != string(c.CA()) || fingerprint != c.Fingerprint() {
		t.Errorf("%s %v", fingerprint, err)
	}
	if _, _, err := ReadCA(filepath.Join(dir, "nothing")); err == nil {
		t.Error("a CA where there is none")
	}
}

func TestHeartbeatsAreSpread(t *testing.T) {
	c, _ := opened(t)
	seen := map[int]bool{}
	for range 200 {
		n := c.nextBeat()
		if n < 24 || n > 36 {
			t.Fatalf("%d s", n)
		}
		seen[n] = true
	}
	if len(seen) < 6 {
		t.Errorf("only %d different intervals", len(seen))
	}
}

// TestAdvertised: how machines are told to reach it.
func TestAdvertised(t *testing.T) {
	for _, c := range []struct {
		listen, advertise string
		names             []string
		want              string
	}{
		{"127.0.0.1:8443", "", nil, "https://127.0.0.1:8443"},
		{"10.77.0.2:8443", "", []string{"127.0.0.1"}, "https://10.77.0.2:8443"},
		{"127.0.0.1:8443", "", []string{"muster.example"}, "https://muster.example:8443"},
		{":8443", "", []string{"2001:db8::1"}, "https://[2001:db8::1]:8443"},
		{"[::]:8443", "", nil, "https://127.0.0.1:8443"},
		{"control.example:8443", "", []string{"10.0.0.1"}, "https://control.example:8443"},
		{"127.0.0.1:8443", "https://front.example", nil, "https://front.example"},
	} {
		k := Control{cfg: Config{Listen: c.listen, Advertise: c.advertise, Names: c.names}}
		if _, err := k.reachable(); err != nil || k.url != c.want {
			t.Errorf("%+v: %s %v", c, k.url, err)
		}
	}
}
