package blueprint

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"muster.internal"
	"muster.internal/module"
)

// What became of something.
const (
	Added   = "added"
	Removed = "removed"
	Changed = "changed"
)

// Diff is what differs between two blueprints. It holds no content of any
// resource.
func Diff(from, to *muster.Blueprint) muster.BlueprintDiff {
	d := muster.BlueprintDiff{From: from.ID, To: to.ID}
	d.Modules = merge(from.Modules, to.Modules,
		func(a, b *module.Module) int {
			return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
		},
		func(m *module.Module) (string, string) {
			return m.Name, fmt.Sprintf("%s version %d", m.Name, m.Version)
		},
		func(*module.Module) []field { return nil })
	both(from.Nodes, to.Nodes, func(a, b *muster.BlueprintNode) int { return strings.Compare(a.ID, b.ID) }, func(a, b *muster.BlueprintNode) {
		n := muster.BlueprintNodeDiff{BlueprintDifference: difference(a, b, nodeNames, nodeFields)}
		if a == nil {
			a = &muster.BlueprintNode{}
		} else if b == nil {
			b = &muster.BlueprintNode{}
		}
		n.Placements = merge(byID(a.Placements), byID(b.Placements), comparePlacements, placementNames, placementFields)
		n.Disks = merge(a.Disks, b.Disks, func(a, b *muster.BlueprintDisk) int { return strings.Compare(a.ID, b.ID) },
			func(d *muster.BlueprintDisk) (string, string) { return d.ID, d.ID }, diskFields)
		if n.Change != "" || len(n.Placements)+len(n.Disks) > 0 {
			n.Change = cmp.Or(n.Change, Changed)
			d.Nodes = append(d.Nodes, n)
		}
	})
	return d
}

func byID(all []muster.BlueprintPlacement) []muster.BlueprintPlacement {
	return slices.SortedFunc(slices.Values(all), func(a, b muster.BlueprintPlacement) int { return comparePlacements(&a, &b) })
}

func comparePlacements(a, b *muster.BlueprintPlacement) int { return strings.Compare(a.ID, b.ID) }

// A field is one of those that are compared, as text.
type field struct{ name, value string }

func nodeNames(n *muster.BlueprintNode) (string, string) {
	return n.ID, cmp.Or(n.Hostname, n.ID)
}

func nodeFields(n *muster.BlueprintNode) []field {
	return []field{{"hostname", n.Hostname}, {"address", n.Address}, {"state", string(n.State)}, {"generation", number(n.Generation)}}
}

func placementNames(p *muster.BlueprintPlacement) (string, string) { return p.ID, p.Name }

func placementFields(p *muster.BlueprintPlacement) []field {
	return []field{{"module", p.Module}, {"version", number(p.Version)}, {"state", string(p.State)}, {"disk", p.Disk}, {"transient disk", p.Transient},
		{"since", number(p.Since)}, {"held", yes(p.Held)}, {"gone as of", number(p.AsOf)}, {"ready for clean-up", yes(p.Ready)}, {"replaces", p.Replaces}}
}

func diskFields(d *muster.BlueprintDisk) []field {
	return []field{{"unused", yes(d.Unused)}, {"as of", number(d.AsOf)}, {"ready to be decommissioned", yes(d.Ready)}}
}

func number(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

// merge compares two lists in order.
func merge[T any](from, to []T, order func(a, b *T) int, names func(*T) (string, string), fields func(*T) []field) (all []muster.BlueprintDifference) {
	both(from, to, order, func(a, b *T) {
		if d := difference(a, b, names, fields); d.Change != "" {
			all = append(all, d)
		}
	})
	return all
}

// both walks two lists in order, and hands over what is the same thing together.
func both[T any](from, to []T, order func(a, b *T) int, do func(a, b *T)) {
	i, k := 0, 0
	for i < len(from) || k < len(to) {
		switch {
		case k == len(to) || i < len(from) && order(&from[i], &to[k]) < 0:
			do(&from[i], nil)
			i++
		case i == len(from) || order(&from[i], &to[k]) > 0:
			do(nil, &to[k])
			k++
		default:
			do(&from[i], &to[k])
			i, k = i+1, k+1
		}
	}
}

func difference[T any](a, b *T, names func(*T) (string, string), fields func(*T) []field) (d muster.BlueprintDifference) {
	say := func(f, from, to string) {
		if from != to {
			d.Fields = append(d.Fields, muster.FieldChange{Field: f, From: from, To: to})
		}
	}
	switch {
	case a == nil:
		d.Change = Added
		d.ID, d.Name = names(b)
		for _, f := range fields(b) {
			say(f.name, "", f.value)
		}
	case b == nil:
		d.Change = Removed
		d.ID, d.Name = names(a)
	default:
		d.ID, d.Name = names(b)
		was, is := fields(a), fields(b)
		for i := range was {
			say(was[i].name, was[i].value, is[i].value)
		}
		if len(d.Fields) > 0 {
			d.Change = Changed
		}
	}
	return d
}

var marks = map[string]string{Added: "+", Removed: "-", Changed: "~"}

// Text is a difference as people read it. A line begins with +, - or ~, by which
// it can be coloured.
func Text(d muster.BlueprintDiff) string {
	t := new(strings.Builder)
	for _, m := range d.Modules {
		line(t, "", "module ", m)
	}
	for _, n := range d.Nodes {
		line(t, "", "node ", n.BlueprintDifference)
		for _, p := range n.Placements {
			line(t, "  ", "", p)
		}
		for _, k := range n.Disks {
			line(t, "  ", "disk ", k)
		}
	}
	if t.Len() == 0 {
		return "nothing differs\n"
	}
	return t.String()
}

func line(t *strings.Builder, indent, what string, d muster.BlueprintDifference) {
	fmt.Fprintf(t, "%s%s %s%s", marks[d.Change], indent, what, d.Name)
	for i, f := range d.Fields {
		t.WriteString([]string{": ", ", "}[min(i, 1)])
		switch {
		case f.From == "":
			fmt.Fprintf(t, "%s %s", f.Field, f.To)
		case f.To == "":
			fmt.Fprintf(t, "%s %s → none", f.Field, f.From)
		default:
			fmt.Fprintf(t, "%s %s → %s", f.Field, f.From, f.To)
		}
	}
	t.WriteString("\n")
}
