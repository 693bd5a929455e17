package store

import (
	"context"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"time"

	"muster.internal"
	"muster.internal/resource"
)

var (
	addProvider   = define("providers/add", `INSERT INTO providers (name, kind, address, sealed, added_at, added_by) VALUES ($1, $2, $3, $4, $5, $6)`)
	allProviders  = define("providers/all", `SELECT name, kind, address, sealed, added_at, added_by FROM providers ORDER BY name`)
	providerBy    = define("providers/by-name", `SELECT name, kind, address, sealed, added_at, added_by FROM providers WHERE name = $1`)
	dropProvider  = define("providers/drop", `DELETE FROM providers WHERE name = $1`)
	standingThere = define("grants/standing-there", `SELECT count(*) FROM grants WHERE provider = $1 AND state <> 'revoked'`)
	dropRevoked   = define("grants/drop-revoked", `DELETE FROM grants WHERE provider = $1 AND state = 'revoked'`)

	addGrant = define("grants/add", `
INSERT INTO grants (name, provider, node_id, member_of, state, sealed, made_at, made_by, changed_at, tries, again_at, error)
VALUES ($1, $2, $3, $4, 'wanted', $5, $6, $7, $6, 0, $6, '')`)
	setGrant = define("grants/set", `
UPDATE grants SET state = $2, changed_at = $3, tries = $4, again_at = $5, error = $6, sealed = $7 WHERE name = $1`)
	grantsOf = define("grants/of", grantColumns+` WHERE g.node_id = $1 ORDER BY g.made_at, g.name`)
	grantBy  = define("grants/by-name", grantColumns+` WHERE g.name = $1`)
	// A node that is none any more, or whose registration is not approved, may
	// use nothing.
	grantsOver = define("grants/over", grantColumns+` WHERE g.state IN ('wanted', 'live') AND NOT EXISTS (
 SELECT 1 FROM nodes n JOIN registrations r ON r.node_id = n.node_id
 WHERE n.node_id = g.node_id AND n.state <> 'decommissioned' AND n.policy <> 'expunged' AND r.state = 'approved')`)
	grantsDue = define("grants/due", grantColumns+` WHERE g.state IN ('wanted', 'revoking') AND g.again_at <= $1 ORDER BY g.again_at, g.name`)
	keyOfNode = define("grants/key", `SELECT key_id FROM registrations WHERE node_id = $1 AND state = 'approved'`)
)

const grantColumns = `
SELECT g.node_id, g.provider, p.kind, g.name, g.member_of, g.state, g.made_at, g.made_by, g.changed_at, g.tries, g.error, g.again_at, g.sealed, p.sealed
FROM grants g JOIN providers p ON p.name = g.provider`

// How the audit calls what happens to grants.
const (
	ActionGrant        = "grant"
	ActionGrantLive    = "grant_live"
	ActionGrantRevoke  = "revoke_grant"
	ActionGrantRevoked = "grant_revoked"
	ActionGrantFailed  = "grant_failed"
)

// A granted is a grant's row, and what its provider is told.
type granted struct {
	muster.Grant
	secret, provider []byte // sealed
}

func providerOwner(name string) string { return "provider " + name }
func grantOwner(name string) string    { return "grant " + name }

// AddProvider keeps a provider and its credential.
func (s *Store) AddProvider(ctx context.Context, now time.Time, by muster.Caller, n muster.NewProvider) (p muster.Provider, err error) {
	if err := n.Check(); err != nil {
		return p, err
	}
	u, err := url.Parse(n.URL)
	if err != nil || u.Scheme != "postgres" || u.Host == "" || u.User == nil || strings.Trim(u.Path, "/") == "" {
		return p, muster.Invalid("url", "it must be postgres://USER:PASSWORD@HOST:PORT/DATABASE") // and is not repeated: it holds a password
	}
	err = s.write(ctx, "adding a provider", now, by, func(t *tx) error {
		found, err := t.provider(n.Name)
		if err != nil {
			return err
		}
		if found != nil {
			return muster.Problemf(muster.CodeConflict, "there is a provider %s already, at %s: remove it first, or take another name", n.Name, found.Address)
		}
		nonce, err := s.random(s.vault.seals.NonceSize())
		if err != nil {
			return err
		}
		p = muster.Provider{Name: n.Name, Kind: n.Kind, Address: u.Host + u.Path, AddedAt: t.now, AddedBy: by.String()}
		if _, err := t.exec(addProvider, p.Name, string(p.Kind), p.Address, s.vault.seal(nonce, []byte(n.URL), providerOwner(p.Name)), micro(t.now), p.AddedBy); err != nil {
			return err
		}
		_, err = t.record("add_provider", "provider/"+p.Name, detail{"kind": p.Kind, "address": p.Address})
		return err
	})
	return p, err
}

func scanProvider(scan func(...any) error) (p muster.Provider, sealed []byte, err error) {
	var at int64
	err = scan(&p.Name, &p.Kind, &p.Address, &sealed, &at, &p.AddedBy)
	p.AddedAt = fromMicro(at)
	return p, sealed, err
}

func (t *tx) provider(name string) (found *muster.Provider, err error) {
	err = t.each(providerBy, []any{name}, func(scan func(...any) error) error {
		p, _, err := scanProvider(scan)
		found = &p
		return err
	})
	return found, err
}

// Providers are all, without their credentials.
func (s *Store) Providers(ctx context.Context) (all []muster.Provider, err error) {
	err = s.read(ctx, "listing providers", func(r *reading) error {
		all = []muster.Provider{}
		return r.each(allProviders, nil, func(scan func(...any) error) error {
			p, _, err := scanProvider(scan)
			all = append(all, p)
			return err
		})
	})
	return all, err
}

// RemoveProvider forgets a provider and the grants that were revoked there.
func (s *Store) RemoveProvider(ctx context.Context, now time.Time, by muster.Caller, name string) error {
	return s.write(ctx, "removing a provider", now, by, func(t *tx) error {
		found, err := t.provider(name)
		if err != nil {
			return err
		}
		if found == nil {
			return muster.Problemf(muster.CodeNotFound, "there is no provider %.40q", name)
		}
		standing := 0
		if _, err := t.get(standingThere, []any{name}, &standing); err != nil {
			return err
		}
		if standing > 0 {
			return muster.Problemf(muster.CodeConflict, "%d grants stand at provider %s: revoke them first, and wait until they are over there", standing, name)
		}
		if _, err := t.exec(dropRevoked, name); err != nil {
			return err
		}
		if _, err := t.exec(dropProvider, name); err != nil {
			return err
		}
		_, err = t.record("remove_provider", "provider/"+name, nil)
		return err
	})
}

// GrantNode keeps that a node is to have a role of its own.
func (s *Store) GrantNode(ctx context.Context, now time.Time, by muster.Caller, nodeID string, n muster.NewGrant) (g muster.Grant, err error) {
	if n.MemberOf == "" || len(n.MemberOf) > 63 || strings.ContainsRune(n.MemberOf, 0) {
		return g, muster.Invalid("member_of", "name the role at the provider whose rights the node gets, of at most 63 bytes")
	}
	err = s.write(ctx, "granting", now, by, func(t *tx) error {
		m, err := t.onNode(nodeID)
		if err != nil {
			return err
		}
		if err := m.over(); err != nil {
			return err
		}
		if m.reg.State != muster.Approved {
			p := muster.Problemf(muster.CodeConflict, "the registration of node %s is %s: it may use nothing", nodeID, m.reg.State)
			p.State = string(m.reg.State)
			return p
		}
		at, err := t.provider(n.Provider)
		if err != nil {
			return err
		}
		if at == nil {
			return muster.Problemf(muster.CodeNotFound, "there is no provider %.40q", n.Provider)
		}
		standing, err := findStanding(t, nodeID, n.Provider)
		if err != nil {
			return err
		}
		if standing != nil {
			if g = standing.Grant; g.MemberOf == n.MemberOf && g.State != muster.GrantRevoking {
				return nil // it was said already
			}
			p := muster.Problemf(muster.CodeConflict, "node %s has a grant of %s at %s, which is %s: revoke it first, and wait until it is over there", nodeID, g.MemberOf, n.Provider, g.State)
			p.State = string(g.State)
			return p
		}
		g, err = t.makeGrant(m.node.ID, *at, n.MemberOf)
		return err
	})
	return g, err
}

func (t *tx) makeGrant(nodeID string, at muster.Provider, memberOf string) (g muster.Grant, err error) {
	dice, err := t.s.random(t.s.vault.seals.NonceSize() + 32)
	if err != nil {
		return g, err
	}
	nonce, dice := dice[:t.s.vault.seals.NonceSize()], dice[t.s.vault.seals.NonceSize():]
	words := base32.StdEncoding.WithPadding(base32.NoPadding)
	g = muster.Grant{NodeID: nodeID, Provider: at.Name, Kind: at.Kind, Name: "muster_" + strings.ToLower(words.EncodeToString(dice[:8])), MemberOf: memberOf,
		State: muster.GrantWanted, MadeAt: t.now, MadeBy: t.by.String(), ChangedAt: t.now, AgainAt: &t.now}
	password := words.EncodeToString(dice[8:])
	if _, err := t.exec(addGrant, g.Name, g.Provider, nodeID, memberOf, t.s.vault.seal(nonce, []byte(password), grantOwner(g.Name)), micro(t.now), g.MadeBy); err != nil {
		return g, err
	}
	_, err = t.record(ActionGrant, nodeSubject(nodeID), detail{"provider": g.Provider, "role": g.Name, "member_of": memberOf})
	return g, err
}

func findGrants(from source, q *query, args ...any) (all []granted, err error) {
	err = from.each(q, args, func(scan func(...any) error) error {
		var g granted
		var made, changed, again int64
		err := scan(&g.NodeID, &g.Provider, &g.Kind, &g.Name, &g.MemberOf, &g.State, &made, &g.MadeBy, &changed, &g.Tries, &g.Error, &again, &g.secret, &g.provider)
		g.MadeAt, g.ChangedAt = fromMicro(made), fromMicro(changed)
		if g.State == muster.GrantWanted || g.State == muster.GrantRevoking {
			g.AgainAt = fromMicroPtr(&again)
		}
		all = append(all, g)
		return err
	})
	return all, err
}

// findStanding is the grant of a node at a provider that is not over, or nil.
func findStanding(from source, nodeID, provider string) (*granted, error) {
	all, err := findGrants(from, grantsOf, nodeID)
	for i := range all {
		if all[i].Provider == provider && all[i].State != muster.GrantRevoked {
			return &all[i], err
		}
	}
	return nil, err
}

// NodeGrants are a node's key and link, and what it was granted.
func (s *Store) NodeGrants(ctx context.Context, nodeID string) (all []muster.Grant, err error) {
	err = s.snapshot(ctx, "listing grants", func(r *reading) error {
		n, err := nodeOf(r, nodeID)
		if err != nil {
			return err
		}
		key := ""
		if _, err := r.get(keyOfNode, []any{nodeID}, &key); err != nil {
			return err
		}
		own := muster.Grant{NodeID: nodeID, Name: key, State: muster.GrantLive, MadeAt: n.CreatedAt, ChangedAt: n.CreatedAt}
		if key == "" || n.State == muster.NodeDecommissioned || n.Policy == muster.PolicyExpunged {
			own.State = muster.GrantRevoked
		}
		all = nil
		for _, kind := range []muster.ProviderKind{muster.ProviderAPIKey, muster.ProviderLink} {
			own.Kind, own.Provider = kind, string(kind)
			all = append(all, own)
		}
		made, err := findGrants(r, grantsOf, nodeID)
		for _, g := range made {
			all = append(all, g.Grant)
		}
		return err
	})
	return all, err
}

// RevokeGrant ends a grant of a node; saying it again changes nothing.
func (s *Store) RevokeGrant(ctx context.Context, now time.Time, by muster.Caller, nodeID, provider string) (g muster.Grant, err error) {
	err = s.write(ctx, "revoking a grant", now, by, func(t *tx) error {
		if _, err := nodeOf(t, nodeID); err != nil {
			return err
		}
		standing, err := findStanding(t, nodeID, provider)
		if err != nil {
			return err
		}
		if standing == nil {
			return muster.Problemf(muster.CodeNotFound, "node %s has no grant at %.40q that is not over", nodeID, provider)
		}
		g, err = t.revoke(standing)
		return err
	})
	return g, err
}

func (t *tx) revoke(g *granted) (muster.Grant, error) {
	if g.State == muster.GrantRevoking {
		return g.Grant, nil
	}
	g.State, g.ChangedAt, g.Tries, g.Error, g.AgainAt = muster.GrantRevoking, t.now, 0, "", &t.now
	if err := t.setGrant(g); err != nil {
		return g.Grant, err
	}
	_, err := t.record(ActionGrantRevoke, nodeSubject(g.NodeID), detail{"provider": g.Provider, "role": g.Name})
	return g.Grant, err
}

func (t *tx) setGrant(g *granted) error {
	again := t.now
	if g.AgainAt != nil {
		again = *g.AgainAt
	}
	_, err := t.exec(setGrant, g.Name, string(g.State), micro(g.ChangedAt), g.Tries, micro(again), g.Error, g.secret)
	return err
}

// A GrantWork is what a provider is to be told.
type GrantWork struct {
	muster.Grant
	URL, Password string
}

// GrantsDue revokes what nodes have that may use nothing any more, and returns
// what providers are due to be told.
func (s *Store) GrantsDue(ctx context.Context, now time.Time) (due []GrantWork, err error) {
	if err := s.revokeOver(ctx, now); err != nil {
		return nil, err
	}
	var all []granted
	if err := s.read(ctx, "looking for grants", func(r *reading) (err error) {
		all, err = findGrants(r, grantsDue, micro(now))
		return err
	}); err != nil {
		return nil, err
	}
	for _, g := range all {
		password := []byte{}
		if g.State == muster.GrantWanted { // what is to be ended needs none
			if password, err = s.vault.open(g.secret, grantOwner(g.Name)); err != nil {
				return nil, fmt.Errorf("grant %s: %w (was the master key changed?)", g.Name, err)
			}
		}
		address, err := s.vault.open(g.provider, providerOwner(g.Provider))
		if err != nil {
			return nil, fmt.Errorf("provider %s: %w (was the master key changed?)", g.Provider, err)
		}
		due = append(due, GrantWork{Grant: g.Grant, URL: string(address), Password: string(password)})
	}
	return due, nil
}

// StillWanted fails when a grant that was to be made is not to be any more.
func (s *Store) StillWanted(ctx context.Context, w GrantWork) error {
	return s.read(ctx, "looking for a grant", func(r *reading) error {
		all, err := findGrants(r, grantBy, w.Name)
		if err == nil && (len(all) == 0 || all[0].State != muster.GrantWanted) {
			err = muster.Problemf(muster.CodeConflict, "role %s is not to be made any more", w.Name)
		}
		return err
	})
}

func (s *Store) revokeOver(ctx context.Context, now time.Time) error {
	any := false
	if err := s.read(ctx, "looking for grants that are over", func(r *reading) error {
		over, err := findGrants(r, grantsOver)
		any = len(over) > 0
		return err
	}); err != nil || !any {
		return err
	}
	return s.write(ctx, "revoking grants", now, muster.Clock, func(t *tx) error {
		over, err := findGrants(t, grantsOver)
		for i := range over {
			if err == nil {
				_, err = t.revoke(&over[i])
			}
		}
		return err
	})
}

// Pauses between tries at a provider.
const (
	grantAgain    = time.Second
	grantAgainMax = time.Minute
)

// GrantDone notes how a try at a provider went. What has become live, or is over,
// comes to the node's host with a new generation of its declaration.
func (s *Store) GrantDone(ctx context.Context, now time.Time, w GrantWork, failure error) error {
	return s.write(ctx, "keeping how a grant went", now, muster.Clock, func(t *tx) error {
		all, err := findGrants(t, grantBy, w.Name)
		if err != nil || len(all) == 0 || all[0].State != w.State {
			return err // somebody else was faster
		}
		g := &all[0]
		action := ActionGrantLive
		d := detail{"provider": g.Provider, "role": g.Name}
		switch {
		case failure != nil:
			g.Tries, g.Error = g.Tries+1, failure.Error()
			again := t.now.Add(min(grantAgain<<min(g.Tries, 10), grantAgainMax))
			g.AgainAt = &again
			if err := t.setGrant(g); err != nil || g.Tries > 1 {
				return err
			}
			d["state"], d["error"] = g.State, g.Error
			_, err := t.record(ActionGrantFailed, nodeSubject(g.NodeID), d)
			return err
		case g.State == muster.GrantWanted:
			g.State = muster.GrantLive
		default:
			action, g.State, g.secret = ActionGrantRevoked, muster.GrantRevoked, []byte{}
		}
		g.ChangedAt, g.Tries, g.Error, g.AgainAt = t.now, 0, "", nil
		if err := t.setGrant(g); err != nil {
			return err
		}
		if _, err := t.record(action, nodeSubject(g.NodeID), d); err != nil {
			return err
		}
		return t.declareAgain(g.NodeID)
	})
}

// declareAgain gives what a node is told to be a new generation: what its
// templates use has changed.
func (t *tx) declareAgain(nodeID string) error {
	m, err := t.onNode(nodeID)
	if muster.IsCode(err, muster.CodeConflict) || err == nil && m.over() != nil {
		return nil // nobody is told anything there
	}
	if err != nil {
		return err
	}
	d, err := t.s.findDeclaration(t, nodeID)
	if err != nil || d.Generation == 0 {
		return err
	}
	last := d.Generation
	d.Declaration.Generation = 0
	text, err := json.Marshal(d.Declaration)
	if err != nil {
		return err
	}
	_, err = t.putDeclaration(nodeID, last, d.Declaration, text)
	return err
}

// addGrants puts what a node is granted beside the values of its declaration.
func (s *Store) addGrants(from source, nodeID string, d *resource.Declaration) error {
	all, err := findGrants(from, grantsOf, nodeID)
	if err != nil {
		return err
	}
	for _, g := range all {
		if g.State != muster.GrantLive {
			continue
		}
		password, err := s.vault.open(g.secret, grantOwner(g.Name))
		if err != nil {
			return fmt.Errorf("grant %s: %w (was the master key changed?)", g.Name, err)
		}
		address, err := s.vault.open(g.provider, providerOwner(g.Provider))
		if err != nil {
			return fmt.Errorf("provider %s: %w (was the master key changed?)", g.Provider, err)
		}
		u, err := url.Parse(string(address))
		if err != nil {
			return fmt.Errorf("provider %s: its URL cannot be read", g.Provider)
		}
		port := u.Port()
		if port == "" {
			port = "5432"
		}
		d.Values = maps.Clone(d.Values)
		if d.Values == nil {
			d.Values = map[string]string{}
		}
		for part, value := range map[string]string{"user": g.Name, "password": string(password), "host": u.Hostname(), "port": port, "database": strings.Trim(u.Path, "/")} {
			d.Values[muster.GrantValue(g.Provider, part)] = value
		}
	}
	return nil
}
