package control_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/provider"
	"muster.internal/resource"
)

// TestGrantPostgreSQL: a node's role in a real database is made, delivered with
// its declaration alone, and ended in the database when the node is disabled,
// in connections that stood before, too.
func TestGrantPostgreSQL(t *testing.T) {
	t.Parallel()
	there, err := url.Parse(postgresURL(t))
	if err != nil {
		t.Fatal(err)
	}
	super, err := sql.Open("pgx", there.String())
	if err != nil {
		t.Fatal(err)
	}
	defer super.Close()
	do := func(statement string) {
		t.Helper()
		if _, err := super.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	wantPasswords(t, super)
	do("CREATE ROLE app_rw; CREATE TABLE things (n int); INSERT INTO things VALUES (7); GRANT SELECT ON things TO app_rw")
	do("CREATE ROLE granter LOGIN CREATEROLE PASSWORD 'planted-granter'; GRANT app_rw TO granter WITH ADMIN OPTION; GRANT pg_signal_backend TO granter")
	p := newPlace(t, "")
	p.keep("planted-granter")
	granter := *there
	granter.User = url.UserPassword("granter", "planted-granter")
	ctx := p.Context()
	_, err = p.full.AddProvider(ctx, muster.NewProvider{Name: "app", Kind: muster.ProviderPostgreSQL, URL: granter.String()})
	p.refused(err, muster.CodeForbidden) // it takes a person
	at := must(p, func(ctx context.Context) (muster.Provider, error) {
		return p.admin.AddProvider(ctx, muster.NewProvider{Name: "app", Kind: muster.ProviderPostgreSQL, URL: granter.String()})
	})
	if strings.Contains(fmt.Sprint(at), "planted") {
		t.Errorf("%+v", at)
	}
	h := p.host(1)
	d, err := resource.Parse("test", []byte(`{"resources":[{"file":{"path":"/etc/app.env","template":"{{ grant_app_user }} {{ grant_app_password }} {{ grant_app_host }} {{ grant_app_database }}","secret":true}}]}`))
	p.ok(err)
	must(p, func(ctx context.Context) (muster.NodeDeclaration, error) { return p.full.Declare(ctx, h.node, d) })
	must(p, func(ctx context.Context) (muster.Grant, error) {
		return p.full.GrantNode(ctx, h.node, muster.NewGrant{Provider: "app", MemberOf: "app_rw"})
	})
	g := p.granted(h.node, muster.GrantLive)
	a, err := h.next(p, 1)
	p.ok(err)
	if a.Declaration == nil || a.Generation != 2 {
		t.Fatalf("the host hears %+v", a)
	}
	text, err := a.Declaration.Resources[0].File.Text(a.Declaration.Values)
	p.ok(err)
	parts := strings.Fields(text)
	if len(parts) != 4 || parts[0] != g.Name || parts[2] != there.Hostname() || "/"+parts[3] != there.Path {
		t.Fatalf("its file says %q", text)
	}
	p.keep(parts[1])
	login := func(password string) (*sql.Conn, error) {
		u := *there
		u.User = url.UserPassword(g.Name, password)
		db, err := sql.Open("pgx", u.String())
		p.ok(err)
		t.Cleanup(func() { db.Close() })
		return db.Conn(ctx)
	}
	if _, err := login("wrong"); err == nil {
		t.Error("any password is good")
	}
	c, err := login(parts[1])
	p.ok(err)
	n := 0
	if err := c.QueryRowContext(ctx, "SELECT n FROM things").Scan(&n); err != nil || n != 7 {
		t.Fatalf("%d, %v", n, err)
	}

	must(p, func(ctx context.Context) (muster.Registration, error) {
		return p.admin.RaiseRegistration(ctx, h.uuid, "disable")
	})
	p.granted(h.node, muster.GrantRevoked)
	if err := c.QueryRowContext(ctx, "SELECT n FROM things").Scan(&n); err == nil {
		t.Error("a connection that stood before still answers")
	}
	if _, err := login(parts[1]); err == nil {
		t.Error("it can still log in")
	}
	if err := super.QueryRow("SELECT count(*) FROM pg_roles WHERE rolname = $1", g.Name).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d roles are left: %v", n, err)
	}
	all := must(p, func(ctx context.Context) ([]muster.Grant, error) { return p.admin.NodeGrants(ctx, h.node) })
	for _, g := range all {
		if g.State != muster.GrantRevoked {
			t.Errorf("after all it has %+v", g)
		}
	}
	p.searched("the grants", fmt.Sprintf("%+v", all))
	es := must(p, func(ctx context.Context) ([]muster.AuditEntry, error) {
		return p.admin.Audit(ctx, muster.AuditFilter{})
	})
	var happened []string
	for _, e := range es {
		p.searched("the audit", string(e.Detail))
		if strings.Contains(e.Action, "grant") {
			happened = append(happened, e.Action)
		}
	}
	if want := []string{"grant", "grant_live", "revoke_grant", "grant_revoked"}; !slices.Equal(happened, want) {
		t.Errorf("the audit tells of %v", happened)
	}
	p.searched("the log", p.log.String())
	p.ok(p.admin.RemoveProvider(ctx, "app"))
}

// held is a provider whose Make waits, once it has begun, until it is let go.
type held struct {
	provider.Provider
	begun, goOn chan struct{}
	made        chan error
}

func (h held) Make(ctx context.Context, r provider.Role, still func(context.Context) error) error {
	h.begun <- struct{}{}
	<-h.goOn
	err := h.Provider.Make(ctx, r, still)
	h.made <- err
	return err
}

// Of two control planes one is about to make a role; the other ends it meanwhile.
// No role is left that nobody knows of.
func TestGrantEndedWhileItIsMade(t *testing.T) {
	t.Parallel()
	there := postgresURL(t)
	super, err := sql.Open("pgx", there)
	if err != nil {
		t.Fatal(err)
	}
	defer super.Close()
	if _, err := super.Exec("CREATE ROLE race_rw"); err != nil {
		t.Fatal(err)
	}
	h := held{begun: make(chan struct{}), goOn: make(chan struct{}), made: make(chan error)}
	p := &place{TB: t, dir: t.TempDir(), store: there, log: new(lockedBuffer), now: time.Now().UTC().Truncate(time.Second)}
	p.provider = func(kind muster.ProviderKind, url string) (provider.Provider, error) {
		at, err := provider.At(kind, url)
		return held{at, h.begun, h.goOn, h.made}, err
	}
	p.first()
	at, _ := url.Parse(there)
	at.User = url.UserPassword("muster", "any")
	must(p, func(ctx context.Context) (muster.Provider, error) {
		return p.admin.AddProvider(ctx, muster.NewProvider{Name: "app", Kind: muster.ProviderPostgreSQL, URL: at.String()})
	})
	n := p.host(1)
	g := must(p, func(ctx context.Context) (muster.Grant, error) {
		return p.full.GrantNode(ctx, n.node, muster.NewGrant{Provider: "app", MemberOf: "race_rw"})
	})
	<-h.begun
	q := p.replica()
	must(p, func(ctx context.Context) (muster.Grant, error) { return q.admin.RevokeGrant(ctx, n.node, "app") })
	q.granted(n.node, muster.GrantRevoked)
	close(h.goOn)
	if err := <-h.made; err == nil {
		t.Error("a role was made that nobody wants any more")
	}
	left := 0
	if err := super.QueryRow("SELECT count(*) FROM pg_roles WHERE rolname = $1", g.Name).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d roles are left that nobody knows of: %v", left, err)
	}
}

// granted waits until the newest grant of a node is in a state.
func (p *place) granted(node string, state muster.GrantState) (g muster.Grant) {
	p.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		all := must(p, func(ctx context.Context) ([]muster.Grant, error) { return p.admin.NodeGrants(ctx, node) })
		if g = all[len(all)-1]; g.State == state {
			return g
		}
		if time.Now().After(end) {
			p.Fatalf("it is not %s: %+v", state, g)
		}
		p.advance(time.Second) // the next try is due by its clock
	}
}

// wantPasswords makes the cluster ask everybody but its owner for a password.
func wantPasswords(t *testing.T, super *sql.DB) {
	t.Helper()
	file := ""
	if err := super.QueryRow("SHOW hba_file").Scan(&file); err != nil {
		t.Fatal(err)
	}
	rules := "local all muster trust\nhost all muster all trust\nhost all all all scram-sha-256\n"
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := super.Exec("SELECT pg_reload_conf()"); err != nil {
		t.Fatal(err)
	}
}
