package store

import (
	"testing"

	"muster.internal"
)

func TestResetPassword(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		must[muster.Operator](t)(s.CreateOperator(ctx, start, ada, muster.NewOperator{Name: "vic", Role: muster.Viewer, Password: "the first password"}))
		old := must[muster.Token](t)(s.Login(ctx, start, "192.0.2.1", muster.Login{Name: "vic", Password: "the first password"}))
		if err := s.ResetPassword(ctx, start, ada, "vic", "the second password"); err != nil {
			t.Fatal(err)
		}
		_, err := s.Authenticate(ctx, start, old.Token, "")
		wantCode(t, err, muster.CodeUnauthenticated)
		_, err = s.Login(ctx, start, "", muster.Login{Name: "vic", Password: "the first password"})
		wantCode(t, err, muster.CodeUnauthenticated)
		tok := must[muster.Token](t)(s.Login(ctx, start, "", muster.Login{Name: "vic", Password: "the second password"}))
		if tok.Role != muster.Viewer {
			t.Errorf("role %s", tok.Role)
		}
		wantCode(t, s.ResetPassword(ctx, start, ada, "nobody", "the second password"), muster.CodeNotFound)
		wantCode(t, s.ResetPassword(ctx, start, ada, "vic", "short"), muster.CodeInvalid)
		healthy(t, s)
	})
}
