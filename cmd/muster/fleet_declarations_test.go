package main

import (
	"context"
	"encoding/json"
	"time"

	muster "muster.internal"
	"muster.internal/resource"
)

func (m *memory) Declare(_ context.Context, id string, d resource.Declaration) (muster.NodeDeclaration, error) {
	node, err := m.node(id)
	if err != nil {
		return muster.NodeDeclaration{}, err
	}
	if ps, _ := m.Placements(context.Background(), muster.PlacementFilter{Node: id}); len(ps) > 0 {
		return muster.NodeDeclaration{}, muster.Problemf(muster.CodeConflict, "node %s has %d placements: pin a module to it", id, len(ps))
	}
	node.ByHand = true
	if err := d.CheckRemote(); err != nil {
		return muster.NodeDeclaration{}, muster.Invalid("resources", "%v", err)
	}
	d = d.Redacted()
	was := m.told[id]
	d.Generation = was.Generation
	a, _ := json.Marshal(was.Declaration)
	b, _ := json.Marshal(d)
	if was.Generation > 0 && string(a) == string(b) {
		return was, nil
	}
	d.Generation++
	n := muster.NodeDeclaration{NodeID: id, Generation: d.Generation, DeclaredAt: noon, DeclaredBy: "operator:admin", Declaration: d}
	m.told[id] = n
	m.note("declare", "node/"+id)
	return n, nil
}

func (m *memory) Declaration(_ context.Context, id string) (muster.NodeDeclaration, error) {
	if _, err := m.node(id); err != nil {
		return muster.NodeDeclaration{}, err
	}
	d, told := m.told[id]
	if !told {
		return d, muster.Problemf(muster.CodeNotFound, "nothing was declared of node %s yet", id)
	}
	return d, nil
}

// OrderNode has a host that does everything at once.
func (m *memory) OrderNode(_ context.Context, id string, kind muster.OrderKind) (muster.NodeOrder, error) {
	if _, err := m.node(id); err != nil {
		return muster.NodeOrder{}, err
	}
	m.note("order", "node/"+id)
	return muster.NodeOrder{Kind: kind, AskedAt: noon, AskedBy: "operator:admin"}, nil
}

func (m *memory) NodeReport(_ context.Context, id string) (muster.NodeReport, error) {
	if _, err := m.node(id); err != nil {
		return muster.NodeReport{}, err
	}
	r := resource.Report{Generation: 1, Trigger: "declaration", Started: noon.Add(-time.Minute), Finished: noon.Add(-time.Minute), Version: "1.0", Outcome: resource.OutcomeKept, Lines: []resource.Line{
		{Ref: "package:chrony", Outcome: resource.OutcomeOK},
		{Ref: "file:/etc/motd", Outcome: resource.OutcomeChanged, Did: "updated", Fought: true},
		{Ref: "file:/etc/issue", Outcome: resource.OutcomeKept, Reason: "it is not ours"},
	}}
	return muster.NodeReport{NodeID: id, ReportedAt: noon.Add(-time.Minute), Report: r, Notable: &r}, nil
}

func (m *memory) NodeBriefing(ctx context.Context, id string) (resource.Briefing, error) {
	r, err := m.NodeReport(ctx, id)
	return r.Report.Briefing(), err
}

func (m *memory) ResolveConflict(ctx context.Context, id string, r muster.ConflictResolution) (muster.NodeDeclaration, error) {
	d, err := m.Declaration(ctx, id)
	if err != nil {
		return d, err
	}
	declared := d.Declaration.Find(r.Ref)
	if declared == nil {
		return d, muster.Problemf(muster.CodeConflict, "%s of node %s is in no conflict", r.Ref, id)
	}
	declared.Resolve = r.Resolve
	d.Generation++
	m.told[id] = d
	return d, nil
}

func (m *memory) AddProvider(_ context.Context, n muster.NewProvider) (muster.Provider, error) {
	if err := n.Check(); err != nil {
		return muster.Provider{}, err
	}
	p := muster.Provider{Name: n.Name, Kind: n.Kind, Address: "db1:5432/app", AddedAt: noon, AddedBy: "operator:admin"}
	m.providers = append(m.providers, p)
	return p, nil
}

func (m *memory) Providers(context.Context) ([]muster.Provider, error) { return m.providers, nil }

func (m *memory) RemoveProvider(_ context.Context, name string) error {
	if len(m.grants) > 0 {
		return muster.Problemf(muster.CodeConflict, "1 grants stand at provider %s", name)
	}
	m.providers = nil
	return nil
}

func (m *memory) GrantNode(_ context.Context, id string, n muster.NewGrant) (muster.Grant, error) {
	g := muster.Grant{NodeID: id, Provider: n.Provider, Kind: muster.ProviderPostgreSQL, Name: "muster_abc", MemberOf: n.MemberOf, State: muster.GrantLive, MadeAt: noon, ChangedAt: noon}
	m.grants = append(m.grants, g)
	return g, nil
}

func (m *memory) NodeGrants(_ context.Context, id string) ([]muster.Grant, error) {
	own := muster.Grant{NodeID: id, Provider: "api_key", Kind: muster.ProviderAPIKey, Name: "k1", State: muster.GrantLive, ChangedAt: noon.Add(-time.Hour)}
	return append([]muster.Grant{own}, m.grants...), nil
}

func (m *memory) RevokeGrant(_ context.Context, id, provider string) (muster.Grant, error) {
	if len(m.grants) == 0 {
		return muster.Grant{}, muster.Problemf(muster.CodeNotFound, "node %s has no grant at %q that is not over", id, provider)
	}
	g := &m.grants[0]
	g.State, g.Tries, g.Error = muster.GrantRevoking, 3, "no route to host"
	return *g, nil
}

func (m *memory) NodeOwned(_ context.Context, id string) (muster.NodeOwned, error) {
	if _, err := m.node(id); err != nil {
		return muster.NodeOwned{}, err
	}
	return muster.NodeOwned{NodeID: id, MirroredAt: noon, Owned: []resource.Owned{
		{Ref: "file:/etc/motd", Origin: resource.OriginAdopted, Since: noon.Add(-time.Hour), Generation: 1, Original: "originals/motd"},
		{Ref: "package:chrony", Origin: resource.OriginCreated, Since: noon.Add(-time.Hour), Generation: 1},
	}}, nil
}

func (m *memory) NodeHealth(_ context.Context, id string) (muster.NodeHealth, error) {
	if _, err := m.node(id); err != nil {
		return muster.NodeHealth{}, err
	}
	return muster.NodeHealth{NodeID: id, SaidAt: noon, Placements: []muster.PlacementHealth{
		{ID: "p1", Healthy: true, CaughtUp: true, Since: noon.Add(-time.Hour)},
		{ID: "p2", Since: noon, Reason: "nothing answers at port 5432"},
	}}, nil
}

func (m *memory) NodeProfile(_ context.Context, id string) (muster.NodeProfile, error) {
	if _, err := m.node(id); err != nil {
		return muster.NodeProfile{}, err
	}
	return muster.NodeProfile{NodeID: id, ProfiledAt: noon, Profile: muster.Profile{Profile: json.RawMessage(`{"package_manager":"apt"}`), Facts: map[string]string{"hostname": "web1", "os": "debian"}}}, nil
}
