package kubernetes

import (
	"fmt"
	"slices"
	"strings"

	"muster.internal"
)

// match finds the muster node that a cluster's node is: by its label, if it has
// it, else by the UUID of its machine, else by its host name. What could be
// several is none, and unsure: to drain the wrong machine is worse than to drain
// none.
func match(n node, label string, all []muster.Node) (found muster.Node, unsure bool, why string) {
	one := func(is func(m muster.Node) bool) (muster.Node, int) {
		var last muster.Node
		count := 0
		for _, m := range all {
			if m.State != muster.NodeDecommissioned && is(m) {
				last = m
				count++
			}
		}
		return last, count
	}
	said := strings.ToLower(n.Meta.Labels[label])
	if said != "" {
		m, count := one(func(m muster.Node) bool {
			return m.ID == said || m.ServerUUID == said || strings.ToLower(m.Hostname) == said
		})
		if count == 1 {
			return m, false, ""
		}
		return muster.Node{}, count > 1, fmt.Sprintf("its label %s=%s is the id, machine or host name of %d nodes", label, said, count)
	}
	if uuid, err := muster.ParseUUID(n.Status.Info.SystemUUID); err == nil {
		if m, count := one(func(m muster.Node) bool { return m.ServerUUID == uuid || m.ServerUUID == muster.SwapUUID(uuid) }); count == 1 {
			return m, false, ""
		}
	}
	names := []string{strings.ToLower(n.Meta.Name)}
	for _, a := range n.Status.Addresses {
		if a.Type == "Hostname" {
			names = append(names, strings.ToLower(a.Address))
		}
	}
	m, count := one(func(m muster.Node) bool {
		return m.Hostname != "" && slices.Contains(names, strings.ToLower(m.Hostname))
	})
	if count == 1 {
		return m, false, ""
	}
	return muster.Node{}, count > 1, fmt.Sprintf("its machine and host name are those of %d nodes, and it has no label %s", count, label)
}

// mirror is the annotation of what a kubelet runs by itself and only shows.
const mirror = "kubernetes.io/config.mirror"

// leaves tells whether a pod is to leave a node that is drained: not what comes
// with every node, not what cannot be told to go, not what has ended.
func leaves(p pod) bool {
	if _, is := p.Meta.Annotations[mirror]; is || p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed" {
		return false
	}
	return !slices.ContainsFunc(p.Meta.Owners, func(o owner) bool { return o.Controller && o.Kind == "DaemonSet" })
}

// left says what of a node is still to go, for whoever waits for it. Held is the
// pod that could not be evicted, and why.
func left(pods int, held string) string {
	what := fmt.Sprintf("%d pods left", pods)
	if pods == 1 {
		what = "1 pod left"
	}
	if held != "" {
		what += "; " + held
	}
	if len(what) > 512 {
		what = strings.ToValidUTF8(what[:509], "") + "…"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\ufffd' {
			return ' '
		}
		return r
	}, what)
}
