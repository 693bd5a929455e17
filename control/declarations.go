package control

import (
	"context"
	"encoding/json"
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
	if actions := d.Actions(); len(actions) > 0 {
		return d, muster.Invalid("resources", "%s may not be declared from afar: an action comes to a machine with a bundle, or with a file and muster-host apply", actions[0])
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
	n, err := s.store.Declare(ctx, s.now(), s.by, nodeID, d)
	n.Declaration = n.Declaration.Redacted()
	return n, err
}

func (s session) Declaration(ctx context.Context, nodeID string) (muster.NodeDeclaration, error) {
	n, err := s.store.Declaration(ctx, nodeID)
	n.Declaration = n.Declaration.Redacted()
	return n, err
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
