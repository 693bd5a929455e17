package store

import (
	"errors"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/lifecycle"
)

var appProvider = muster.NewProvider{Name: "app", Kind: muster.ProviderPostgreSQL, URL: "postgres://granter:planted@db1:6432/app"}

// A grant is made once, tried again ever later, delivered when it is live, and
// revoked when its node may use nothing any more.
func TestGrants(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		member(t, s, boxNo(1), start)
		node := must[muster.Registration](t)(s.Registration(ctx, boxNo(1).uuid)).NodeID
		for _, bad := range []muster.NewProvider{
			{Name: "App", Kind: muster.ProviderPostgreSQL, URL: appProvider.URL}, {Name: "app", Kind: "mysql", URL: appProvider.URL},
			{Name: "app", Kind: muster.ProviderPostgreSQL, URL: "postgres://db1/app"}, {Name: "app", Kind: muster.ProviderPostgreSQL, URL: "http://a:b@c/d"},
		} {
			_, err := s.AddProvider(ctx, start, ada, bad)
			wantCode(t, err, muster.CodeInvalid)
		}
		_, err := s.GrantNode(ctx, start, ada, node, muster.NewGrant{Provider: "app", MemberOf: "rw"})
		wantCode(t, err, muster.CodeNotFound)
		if p := must[muster.Provider](t)(s.AddProvider(ctx, start, ada, appProvider)); p.Address != "db1:6432/app" {
			t.Errorf("%+v", p)
		}
		_, err = s.AddProvider(ctx, start, ada, appProvider)
		wantCode(t, err, muster.CodeConflict)

		g := must[muster.Grant](t)(s.GrantNode(ctx, start, ada, node, muster.NewGrant{Provider: "app", MemberOf: "rw"}))
		again := must[muster.Grant](t)(s.GrantNode(ctx, start, ada, node, muster.NewGrant{Provider: "app", MemberOf: "rw"}))
		if again.Name != g.Name || g.State != muster.GrantWanted {
			t.Errorf("%+v, then %+v", g, again)
		}
		_, err = s.GrantNode(ctx, start, ada, node, muster.NewGrant{Provider: "app", MemberOf: "ro"})
		wantCode(t, err, muster.CodeConflict)
		wantCode(t, s.RemoveProvider(ctx, start, ada, "app"), muster.CodeConflict)

		now := start
		for i, pause := range []time.Duration{0, 2 * time.Second, 4 * time.Second, 8 * time.Second} {
			if pause > 0 {
				if due := must[[]GrantWork](t)(s.GrantsDue(ctx, now.Add(pause-time.Microsecond))); len(due) != 0 {
					t.Fatalf("try %d is due too early", i)
				}
			}
			now = now.Add(pause)
			due := must[[]GrantWork](t)(s.GrantsDue(ctx, now))
			if len(due) != 1 || due[0].URL != appProvider.URL || len(due[0].Password) != 39 || due[0].Tries != i {
				t.Fatalf("try %d: %+v", i, due)
			}
			if err := s.GrantDone(ctx, now, due[0], errors.New("no route to host")); err != nil {
				t.Fatal(err)
			}
		}
		all := must[[]muster.Grant](t)(s.NodeGrants(ctx, node))
		if len(all) != 3 || all[0].Kind != muster.ProviderAPIKey || all[0].State != muster.GrantLive || all[1].Kind != muster.ProviderLink || all[2].Tries != 4 || all[2].Error != "no route to host" {
			t.Errorf("%+v", all)
		}
		now = now.Add(time.Hour)
		due := must[[]GrantWork](t)(s.GrantsDue(ctx, now))
		for range 2 { // another control plane says the same
			if err := s.GrantDone(ctx, now, due[0], nil); err != nil {
				t.Fatal(err)
			}
		}
		if due := must[[]GrantWork](t)(s.GrantsDue(ctx, now)); len(due) != 0 {
			t.Errorf("still due: %+v", due)
		}

		// Whatever ends the node's key ends the grant.
		if _, err := s.RaiseRegistration(ctx, now, ada, boxNo(1).uuid, lifecycle.Disable); err != nil {
			t.Fatal(err)
		}
		due = must[[]GrantWork](t)(s.GrantsDue(ctx, now))
		if len(due) != 1 || due[0].State != muster.GrantRevoking || due[0].Name != g.Name {
			t.Fatalf("%+v", due)
		}
		if err := s.GrantDone(ctx, now, due[0], nil); err != nil {
			t.Fatal(err)
		}
		all = must[[]muster.Grant](t)(s.NodeGrants(ctx, node))
		for _, g := range all {
			if g.State != muster.GrantRevoked {
				t.Errorf("%+v", g)
			}
		}
		_, err = s.GrantNode(ctx, now, ada, node, muster.NewGrant{Provider: "app", MemberOf: "rw"})
		wantCode(t, err, muster.CodeConflict) // a disabled one gets nothing
		_, err = s.RevokeGrant(ctx, now, ada, node, "app")
		wantCode(t, err, muster.CodeNotFound)
		if err := s.RemoveProvider(ctx, now, ada, "app"); err != nil {
			t.Error(err)
		}
		healthy(t, s)
	})
}
