package control

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"muster.internal"
	"muster.internal/resource"
)

// checkDeclaration refuses what may not come over the link, and what a host
// would refuse. It gives names in their full form.
func checkDeclaration(d resource.Declaration) (resource.Declaration, error) {
	text, err := json.Marshal(d)
	if err != nil {
		return d, err
	}
	if d, err = resource.Parse("declaration", text); err != nil {
		p := muster.Problemf(muster.CodeInvalid, "the declaration is not valid")
		for _, line := range strings.Split(err.Error(), "\n") {
			p.Errors = append(p.Errors, muster.FieldError{Field: "resources", Message: strings.TrimPrefix(line, "declaration: ")})
		}
		return d, p
	}
	if err := d.CheckRemote(); err != nil {
		return d, muster.Invalid("resources", "%v", err)
	}
	if err := d.CheckWhole(); err != nil {
		return d, muster.Invalid("resources", "%v", err)
	}
	return d, nil
}

func (s session) Declare(ctx context.Context, nodeID string, d resource.Declaration) (muster.NodeDeclaration, error) {
	d, err := checkDeclaration(d)
	if err != nil {
		return muster.NodeDeclaration{}, err
	}
	node, err := s.Node(ctx, nodeID)
	if err != nil {
		return muster.NodeDeclaration{}, err
	}
	if err := tooOld(node.Node, d); err != nil {
		return muster.NodeDeclaration{}, err
	}
	n, err := s.store.Declare(ctx, s.now(), s.by, nodeID, d)
	n.Declaration = n.Declaration.Redacted()
	return n, err
}

// tooOld refuses what the host of a node would not know. Of a node that was
// never linked nobody knows which host it will have.
func tooOld(n muster.Node, d resource.Declaration) error {
	if n.Link == nil {
		return nil
	}
	beyond := d.Beyond(n.Link.Capability)
	if len(beyond) == 0 {
		return nil
	}
	p := muster.Problemf(muster.CodeConflict, "the host of node %s, muster-host %s (capability %d), is too old for this declaration: it does not know %s. Update muster-host on it first, by declaring its package, for one", n.ID, n.Link.Version, n.Link.Capability, beyond[0])
	p.State = fmt.Sprintf("capability %d", n.Link.Capability)
	return p
}

func (s session) Declaration(ctx context.Context, nodeID string) (muster.NodeDeclaration, error) {
	n, err := s.store.Declaration(ctx, nodeID)
	n.Declaration = n.Declaration.Redacted()
	return n, err
}

// ResolveConflict is the standing declaration with a word in it.
func (s session) ResolveConflict(ctx context.Context, nodeID string, r muster.ConflictResolution) (muster.NodeDeclaration, error) {
	if r.Resolve != resource.ResolveTake && r.Resolve != resource.ResolveKeep {
		return muster.NodeDeclaration{}, muster.Invalid("resolve", "%q is neither take nor keep", r.Resolve)
	}
	was, err := s.store.Declaration(ctx, nodeID)
	if err != nil {
		return was, err
	}
	mirror, err := s.store.NodeOwned(ctx, nodeID)
	if err != nil && !muster.IsCode(err, muster.CodeNotFound) {
		return was, err
	}
	d := was.Declaration
	d.Resources = slices.Clone(d.Resources)
	declared := d.Find(r.Ref)
	if declared == nil || !open(mirror.Owned, r.Ref) {
		return was, notOpen(nodeID, r.Ref, mirror.Owned)
	}
	declared.Resolve = r.Resolve
	return s.Declare(ctx, nodeID, d) // of the generation that was read
}

// open tells whether a word on a resource changes anything: it is in conflict,
// or was kept by such a word.
func open(owned []resource.Owned, ref resource.Ref) bool {
	return slices.ContainsFunc(owned, func(o resource.Owned) bool { return o.Ref == ref && (o.Conflict || o.Resolved != "") })
}

func notOpen(nodeID string, ref resource.Ref, owned []resource.Owned) error {
	p := muster.Problemf(muster.CodeConflict, "%s of node %s is in no conflict, by what its host said last; muster node owned %s lists what is", ref, nodeID, nodeID)
	p.State = "no conflict"
	for _, o := range owned {
		if open(owned, o.Ref) {
			p.Allowed = append(p.Allowed, "resolve "+string(o.Ref))
		}
	}
	return p
}

func (s session) NodeBriefing(ctx context.Context, nodeID string) (resource.Briefing, error) {
	r, err := s.store.NodeReport(ctx, nodeID)
	return r.Report.Briefing(), err
}

func (s session) OrderNode(ctx context.Context, nodeID string, kind muster.OrderKind) (muster.NodeOrder, error) {
	return s.store.OrderNode(ctx, s.now(), s.by, nodeID, kind)
}

func (s session) NodeReport(ctx context.Context, nodeID string) (muster.NodeReport, error) {
	return s.store.NodeReport(ctx, nodeID)
}

func (s session) NodeOwned(ctx context.Context, nodeID string) (muster.NodeOwned, error) {
	return s.store.NodeOwned(ctx, nodeID)
}

func (s session) NodeProfile(ctx context.Context, nodeID string) (muster.NodeProfile, error) {
	return s.store.NodeProfile(ctx, nodeID)
}

func (s session) NodeHealth(ctx context.Context, nodeID string) (muster.NodeHealth, error) {
	h, err := s.store.NodeHealth(ctx, nodeID)
	if err != nil {
		return h, err
	}
	node, err := s.Node(ctx, nodeID)
	h.Unable = node.Link.Unable()
	return h, err
}
