package planner_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"muster.internal"
	"muster.internal/blueprint"
)

var update = flag.Bool("update", false, "rewrite golden files")

// TestScenarios runs the stories in testdata: a line is a command, and what it
// makes the planner say stands under it, indented. They are the readable
// specification of the planner; -update rewrites what it says.
//
// The words: "want FILE" and "unwant MODULE" say what is wanted; "add NODE DISKS
// LABELS" brings a node; "node NODE POLICY", "disk DISK POLICY", "disable NODE",
// "enable NODE", "hand NODE" and "hand-over NODE" are an operator's; "pull DISK" and "plug DISK", "dead NODE",
// "sick MODULE NODE", "behind MODULE NODE", "well MODULE NODE" and "stuck MODULE
// NODE" are troubles; "plan" plans, and "keep" keeps the inventory for a later
// "plan old", of a planner that is behind; "tell NODE" hands over a declaration,
// "deploy NODE…" also carries it out, "converge" does all until nothing changes;
// "where MODULE" shows where it is.
func TestScenarios(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.txt")
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			out := new(strings.Builder)
			s := &scenario{t: t, f: newFleet(t)}
			for _, line := range strings.Split(strings.TrimRight(string(text), "\n"), "\n") {
				if strings.HasPrefix(line, "    ") {
					continue // what it said the last time
				}
				fmt.Fprintln(out, line)
				if words := strings.Fields(line); len(words) > 0 && words[0] != "#" {
					for _, said := range s.run(words) {
						fmt.Fprintln(out, "    "+said)
					}
				}
			}
			if *update {
				if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if out.String() != string(text) {
				t.Errorf("it says otherwise now (-update rewrites it):\n%s", out)
			}
		})
	}
}

type scenario struct {
	t  *testing.T
	f  *fleet
	in func() // puts a kept inventory in place
}

func (s *scenario) run(words []string) []string {
	arg := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	f := s.f
	switch words[0] {
	case "want":
		text, err := os.ReadFile(filepath.Join("testdata/modules", arg(1)))
		if err != nil {
			s.t.Fatal(err)
		}
		f.want(string(text))
	case "unwant":
		f.unwant(arg(1))
	case "add":
		disks, _ := strconv.Atoi(arg(2))
		f.add(arg(1), disks, arg(3))
	case "node":
		f.node(arg(1)).Policy = muster.NodePolicy(arg(2))
		for i := range f.node(arg(1)).Disks {
			if arg(2) == string(muster.PolicyExpunged) {
				f.node(arg(1)).Disks[i].Policy = muster.DiskPolicyExpunged
			}
		}
	case "disk":
		f.disk(arg(1)).Policy = muster.DiskPolicy(arg(2))
	case "disable":
		f.node(arg(1)).Registration = muster.Disabled
	case "enable":
		f.node(arg(1)).Registration = muster.Approved
	case "hand", "hand-over":
		f.node(arg(1)).ByHand = words[0] == "hand"
	case "claim":
		f.node(arg(1)).Claims = words[2:]
	case "claim-disk":
		f.disk(arg(1)).Claims = words[2:]
	case "plan":
		return s.plan(arg(1) == "old")
	case "keep":
		kept := slices.Clone(f.nodes)
		s.in = func() {
			for i := range kept {
				f.node(kept[i].ID).Seen = kept[i].Seen
			}
		}
	case "tell":
		f.tell(arg(1))
		f.look(arg(1))
	case "deploy":
		f.deploy(words[1:]...)
	case "converge":
		f.converge()
		return split(f.said())
	case "where":
		return s.where(arg(1))
	default:
		s.trouble(words[0], arg(1), arg(2))
	}
	return nil
}

func (s *scenario) trouble(what, whom, where string) {
	f := s.f
	switch what {
	case "pull", "plug":
		id, _, _ := strings.Cut(whom, "d")
		f.hosts[id].pulled[whom] = what == "pull"
		f.look(id)
	case "dead":
		f.hosts[whom].dead = true
		f.node(whom).Away = true
	case "sick":
		f.hosts[where].sick[f.on(whom, where).ID] = "it crashed"
		f.look(where)
	case "behind":
		f.hosts[where].behind[f.on(whom, where).ID] = true
		f.look(where)
	case "stuck":
		f.hosts[where].stuck[f.on(whom, where).ID] = true
	case "well":
		h := f.hosts[where]
		clear(h.sick)
		clear(h.behind)
		clear(h.stuck)
		f.look(where)
	default:
		s.t.Fatalf("there is no command %q", what)
	}
}

// plan says what was done and differs, or that nothing is to change.
func (s *scenario) plan(old bool) []string {
	f := s.f
	was := &muster.Blueprint{}
	if f.target != nil {
		was = f.target
	}
	now := slices.Clone(f.nodes)
	if old {
		s.in()
	}
	changed := f.plan()
	f.nodes = now
	said := split(f.said())
	if !changed {
		return append(said, "nothing changes")
	}
	return append(said, split(blueprint.Text(blueprint.Diff(was, f.target)))...)
}

func (s *scenario) where(name string) (all []string) {
	for _, n := range s.f.target.Nodes {
		for _, p := range n.Placements {
			if p.Module == name && !p.Gone() {
				all = append(all, fmt.Sprintf("%s: %s %s, generation %d", n.ID, p.Name, p.State, n.Generation))
			}
		}
	}
	return all
}

// split makes lines, with ids left out: they are the same each time, and say
// nothing to people.
func split(text string) []string {
	var lines []string
	for _, l := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		if l == "" {
			continue
		}
		if at := strings.Index(l, ", replaces "); at >= 0 {
			l = l[:at] + ", replaces another"
		}
		lines = append(lines, strings.TrimRight(l, " "))
	}
	return lines
}
