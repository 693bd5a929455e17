package planner

import (
	"slices"

	"muster.internal"
	"muster.internal/lifecycle"
	"muster.internal/module"
)

// Assume puts a change into an input that nobody has made, so that the plan tells
// what would come of it.
func Assume(in *Input, w muster.WhatIf) error {
	switch {
	case w.AddModule != nil:
		return in.assumeModule(*w.AddModule)
	case w.RemoveModule != "":
		if module.Find(in.Modules, w.RemoveModule) == nil {
			return muster.Problemf(muster.CodeNotFound, "no version of module %.64q is wanted", w.RemoveModule)
		}
		in.Modules = slices.DeleteFunc(slices.Clone(in.Modules), func(m module.Module) bool { return m.Name == w.RemoveModule })
		return nil
	case w.Node != "":
		return in.assumeNode(w.Node, w.Event)
	case w.Disk != "":
		return in.assumeDisk(w.Disk, w.Event)
	case w.Event != "":
		return muster.Invalid("event", "say which node or disk it is about")
	}
	return nil
}

// assumeModule wants a module in the next version, or in the one that it names.
func (in *Input) assumeModule(m module.Module) error {
	newest := int64(0)
	if in.Parent != nil {
		for _, o := range in.Parent.Modules {
			if o.Name == m.Name {
				newest = max(newest, o.Version)
			}
		}
	}
	was := module.Find(in.Modules, m.Name)
	if was != nil {
		newest = max(newest, was.Version)
	}
	if m.Version == 0 {
		m.Version = newest + 1
		if was != nil {
			same := m
			same.Version = was.Version
			if was.Equal(&same) {
				m.Version = was.Version
			}
		}
	}
	if errs := m.Check(); len(errs) > 0 {
		return muster.Invalid("add_module", "%v", errs[0])
	}
	in.Modules = append(slices.DeleteFunc(slices.Clone(in.Modules), func(o module.Module) bool { return o.Name == m.Name }), m)
	return nil
}

var assumedPolicies = map[muster.Event]muster.NodePolicy{lifecycle.Expunge: muster.PolicyExpunged, lifecycle.GracefulRemove: muster.PolicyGracefulRemove,
	lifecycle.Quiesce: muster.PolicyQuiesce, lifecycle.NoProvision: muster.PolicyNoProvision, lifecycle.Resume: muster.PolicyInService}

func (in *Input) assumeNode(id string, e muster.Event) error {
	policy, known := assumedPolicies[e]
	if !known {
		return muster.Invalid("event", "%.64q of a node cannot be assumed: expunge, graceful_remove, quiesce, no_provision and resume can", e)
	}
	for i := range in.Nodes {
		n := &in.Nodes[i]
		if n.ID != id {
			continue
		}
		if n.State == muster.NodeDecommissioned || n.Policy == muster.PolicyExpunged {
			return muster.Problemf(muster.CodeConflict, "node %s is %s, and told to be %s: nothing becomes of it any more", id, n.State, n.Policy)
		}
		if n.Policy = policy; policy == muster.PolicyExpunged {
			n.Disks = slices.Clone(n.Disks)
			for k := range n.Disks {
				n.Disks[k].Policy = muster.DiskPolicyExpunged
			}
		}
		return nil
	}
	return muster.Problemf(muster.CodeNotFound, "there is no node %.64q in the fleet", id)
}

func (in *Input) assumeDisk(id string, e muster.Event) error {
	policies := map[muster.Event]muster.DiskPolicy{lifecycle.Expunge: muster.DiskPolicyExpunged, lifecycle.GracefulRemove: muster.DiskPolicyGracefulRemove}
	policy, known := policies[e]
	if !known {
		return muster.Invalid("event", "%.64q of a disk cannot be assumed: expunge and graceful_remove can", e)
	}
	for i := range in.Nodes {
		n := &in.Nodes[i]
		for k := range n.Disks {
			if n.Disks[k].ID == id {
				n.Disks = slices.Clone(n.Disks)
				n.Disks[k].Policy = policy
				return nil
			}
		}
	}
	return muster.Problemf(muster.CodeNotFound, "there is no disk %.64q in the fleet", id)
}
