package store

import (
	"strings"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/lifecycle"
)

func TestRotateKey(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		k := must[muster.CreatedKey](t)(s.CreateKey(ctx, start, ada, muster.NewKey{Scope: muster.ScopeBooter, ExpiresIn: 7200}))
		good := func(secret string, at time.Duration) bool {
			_, until, err := s.AuthenticateUntil(ctx, start.Add(at), secret, "")
			if err == nil && (until == nil || until.After(start.Add(2*time.Hour))) {
				t.Errorf("good until %v, which is past the key's end", until)
			}
			return err == nil
		}
		second := must[muster.CreatedKey](t)(s.RotateKey(ctx, start, ada, k.ID, muster.KeyRotation{Overlap: 600}))
		if second.ID != k.ID || second.Secret == k.Secret || !second.OldUntil.Equal(start.Add(10*time.Minute)) {
			t.Errorf("rotated: %+v", second.APIKey)
		}
		if !good(k.Secret, 0) || !good(second.Secret, 0) || good(k.Secret, 10*time.Minute) || !good(second.Secret, 10*time.Minute) {
			t.Error("both are good for the overlap, and the new one after it")
		}
		third := must[muster.CreatedKey](t)(s.RotateKey(ctx, start, ada, k.ID, muster.KeyRotation{}))
		if good(k.Secret, 0) || good(second.Secret, 0) || !good(third.Secret, 0) || good(third.Secret, 2*time.Hour) {
			t.Error("without an overlap only the new one is good, until the key's end")
		}
		_, err := s.RotateKey(ctx, start, ada, k.ID, muster.KeyRotation{Overlap: 8 * 86400})
		wantCode(t, err, muster.CodeInvalid)
		_, err = s.RotateKey(ctx, start.Add(3*time.Hour), ada, k.ID, muster.KeyRotation{})
		wantCode(t, err, muster.CodeConflict)
		_, err = s.RotateKey(ctx, start, ada, "aaaaaaaaaaaa", muster.KeyRotation{})
		wantCode(t, err, muster.CodeNotFound)
		site(t, s)
		member(t, s, boxNo(1), start)
		_, m := lookAt(t, s, boxNo(1).uuid)
		_, err = s.RotateKey(ctx, start, ada, m.reg.BoundKeyID, muster.KeyRotation{})
		wantCode(t, err, muster.CodeConflict)
		if text := dump(t, behind(t, s)); strings.Contains(text, second.Secret[17:]) {
			t.Error("a secret is kept in the clear")
		}
		healthy(t, s)
	})
}

func TestOperatorsChange(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		const old, fresh = "correct horse battery", "another horse battery"
		must[bool](t)(s.FirstOperator(ctx, start, "ada", old))
		login := func(name, password string) (string, error) {
			tok, err := s.Login(ctx, start, "", muster.Login{Name: name, Password: password})
			return tok.Token, err
		}
		last := func(err error) {
			t.Helper()
			wantCode(t, err, muster.CodeConflict)
			if !strings.Contains(err.Error(), "nobody else is an admin") {
				t.Error(err)
			}
		}
		last(s.RemoveOperator(ctx, start, ada, "ada"))
		_, err := s.ChangeOperator(ctx, start, ada, "ada", muster.OperatorChange{Role: muster.Viewer})
		last(err)

		must[muster.Operator](t)(s.CreateOperator(ctx, start, ada, muster.NewOperator{Name: "vic", Role: muster.Viewer, Password: old}))
		tok := must[string](t)(login("vic", old))
		if o := must[muster.Operator](t)(s.ChangeOperator(ctx, start, ada, "vic", muster.OperatorChange{Role: muster.Admin})); o.Role != muster.Admin {
			t.Errorf("changed: %+v", o)
		}
		if c := must[muster.Caller](t)(s.Authenticate(ctx, start, tok, "")); c.Role != muster.Admin {
			t.Errorf("an old token speaks with the old role: %+v", c)
		}
		must[muster.Operator](t)(s.ChangeOperator(ctx, start, ada, "ada", muster.OperatorChange{Role: muster.Viewer})) // now there is another
		must[muster.Operator](t)(s.ChangeOperator(ctx, start, ada, "vic", muster.OperatorChange{Password: fresh}))
		_, err = s.Authenticate(ctx, start, tok, "")
		wantCode(t, err, muster.CodeUnauthenticated)
		_, err = login("vic", old)
		wantCode(t, err, muster.CodeUnauthenticated)

		vic := muster.Caller{Operator: "vic", Role: muster.Admin}
		tok = must[string](t)(login("vic", fresh))
		wantCode(t, s.ChangePassword(ctx, start, vic, muster.PasswordChange{Old: old, New: old}), muster.CodeForbidden)
		wantCode(t, s.ChangePassword(ctx, start, vic, muster.PasswordChange{Old: fresh, New: "short"}), muster.CodeInvalid)
		must[muster.Caller](t)(s.Authenticate(ctx, start, tok, ""))
		if err := s.ChangePassword(ctx, start, vic, muster.PasswordChange{Old: fresh, New: old}); err != nil {
			t.Fatal(err)
		}
		_, err = s.Authenticate(ctx, start, tok, "")
		wantCode(t, err, muster.CodeUnauthenticated)
		last(s.RemoveOperator(ctx, start, ada, "vic"))
		tok = must[string](t)(login("ada", old))
		if err := s.RemoveOperator(ctx, start, vic, "ada"); err != nil {
			t.Fatal(err)
		}
		wantCode(t, s.RemoveOperator(ctx, start, vic, "ada"), muster.CodeNotFound)
		_, err = s.Authenticate(ctx, start, tok, "")
		wantCode(t, err, muster.CodeUnauthenticated)
		_, err = s.ChangeOperator(ctx, start, vic, "ada", muster.OperatorChange{Role: muster.Admin})
		wantCode(t, err, muster.CodeNotFound)
		_, err = s.ChangeOperator(ctx, start, vic, "vic", muster.OperatorChange{})
		wantCode(t, err, muster.CodeInvalid)
		healthy(t, s)
	})
}

// Vectors from the paper that describes the function.
func TestSHA512Crypt(t *testing.T) {
	for _, c := range []struct {
		password, salt string
		rounds         int
		want           string
	}{
		{"Hello world!", "saltstring", 5000, "$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1"},
		{"Hello world!", "saltstringsaltst", 10000, "$6$rounds=10000$saltstringsaltst$OW1/O6BYHV6BcXZu8QVeXbDWra3Oeqh0sbHbbMCVNSnCM/UrjmM0Dp8vOuZeHBy/YTBmSK6H9qs/y3RnOaw5v."},
		{"a very much longer text to encrypt.  This one even stretches over morethan one line.", "anotherlongsalts", 1400, "$6$rounds=1400$anotherlongsalts$POfYwTEok97VWcjxIiSOjiykti.o/pQs.wPvMxQ6Fm7I6IoYN3CmLs66x9t0oSwbtEW7o7UmJEiDwGqd8p4ur1"},
	} {
		got := sha512crypt(c.password, c.salt, c.rounds)
		if got != c.want || cryptHash.MatchString(got) != (c.rounds == cryptRounds) {
			t.Errorf("%s\n%s, want\n%s", c.salt, got, c.want)
		}
	}
}

func TestRootPassword(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		b, other := boxNo(1), boxNo(2)
		_, err := s.SetRootPassword(ctx, start, ada, b.uuid, muster.RootPassword{Password: "a root password"})
		wantCode(t, err, muster.CodeNotFound)
		member(t, s, b, start)
		member(t, s, other, start)
		for _, p := range []muster.RootPassword{{}, {Password: "short"}, {Password: "two\nlines of it"}, {Hash: "$1$md5$abc"}, {Password: "a root password", Hash: "$6$x$y"},
			{Hash: "$6$salt$" + strings.Repeat("a", 85) + "|"}, {Hash: "$6$sa&t$" + strings.Repeat("a", 86)}, {Hash: "$6$salt$" + strings.Repeat("a", 86) + "\n"}, {Hash: "$6$salt,$" + strings.Repeat("a", 86)}} {
			_, err := s.SetRootPassword(ctx, start, ada, b.uuid, p)
			wantCode(t, err, muster.CodeInvalid)
		}
		feed := must[muster.BooterFeed](t)(s.BooterFeed(ctx, 0))
		hash := "$6$salt$" + strings.Repeat("Zz", 43)
		set := must[muster.RootPasswordSet](t)(s.SetRootPassword(ctx, start, ada, b.uuid, muster.RootPassword{Hash: hash}))
		if set.SetBy != "operator:ada" || !set.SetAt.Equal(start) {
			t.Errorf("set: %+v", set)
		}
		// Booters hear that there is one, and of which record.
		feed = must[muster.BooterFeed](t)(s.BooterFeed(ctx, feed.Seq))
		if len(feed.Records) != 1 || feed.Records[0].MAC != b.mac || !feed.Records[0].RootPassword {
			t.Errorf("feed: %+v", feed.Records)
		}
		nonce := strings.Repeat("ab", 16)
		take := func(mac, nonce string) (string, error) {
			v, err := s.TakeRootPassword(ctx, start, booterCaller, mac, muster.BootSecretRequest{Booter: "b1", Nonce: nonce})
			return v.RootPasswordHash, err
		}
		_, err = take(other.mac, nonce)
		wantCode(t, err, muster.CodeNotFound)
		_, err = take(b.mac, "short")
		wantCode(t, err, muster.CodeInvalid)
		if got := must[string](t)(take(b.mac, nonce)); got != hash {
			t.Errorf("taken %q", got)
		}
		_, err = take(b.mac, nonce)
		wantCode(t, err, muster.CodeConflict)
		must[string](t)(take(b.mac, strings.Repeat("cd", 16))) // the next boot
		if r := must[muster.Registration](t)(s.Registration(ctx, b.uuid)); r.RootPassword == nil || r.RootPassword.FetchedAt == nil {
			t.Errorf("shown: %+v", r.RootPassword)
		}
		if text := dump(t, behind(t, s)); strings.Contains(text, hash) || strings.Contains(text, strings.Repeat("Zz", 20)) {
			t.Error("the hash is kept in the clear")
		}
		// Only an enrolled boot gets it: no rescue, no machine that is out.
		mode := muster.RescueMode
		must[muster.BootRecord](t)(s.SetBootRecord(ctx, start, ada, b.mac, muster.BootChange{Mode: &mode}))
		_, err = take(b.mac, nonce)
		wantCode(t, err, muster.CodeConflict)
		mode = muster.NormalMode
		must[muster.BootRecord](t)(s.SetBootRecord(ctx, start, ada, b.mac, muster.BootChange{Mode: &mode}))
		must[muster.Registration](t)(s.RaiseRegistration(ctx, start, ada, b.uuid, lifecycle.Disable))
		_, err = take(b.mac, nonce)
		wantCode(t, err, muster.CodeNotFound)
		for range 2 {
			if err := s.ClearRootPassword(ctx, start, ada, b.uuid); err != nil {
				t.Fatal(err)
			}
		}
		if r := must[muster.Registration](t)(s.Registration(ctx, b.uuid)); r.RootPassword != nil {
			t.Error("it is still there")
		}
		healthy(t, s)
	})
}
