package module

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"muster.internal/resource"
)

// Placement names, which a template can use besides those of other modules.
var placementNames = []string{"disk.id", "disk.identity", "node.address", "node.hostname", "node.id", "placement.id", "placement.module", "placement.name",
	"placement.number", "placement.version", "transient.id", "transient.identity"}

// What is said of many placements: names and addresses with commas between them,
// hosts as the lines of a hosts file.
var listNames = []string{"addresses", "hosts", "names"}

// The lists that are not of a module by its name.
const (
	Peers = "peers" // the other placements of the same module
	Fleet = "fleet" // every placement of every module
)

// A Value is what stands for a name; false: there is none of that name.
type Value func(name string) (string, bool)

// Fill puts values into resources and leaves them as they were.
func Fill(all []resource.Resource, value Value) ([]resource.Resource, error) {
	out := make([]resource.Resource, len(all))
	for i := range all {
		out[i] = clone(all[i])
		err := eachText(&out[i], func(_ string, text *string, template bool) error {
			filled, err := fill(*text, value, template)
			*text = filled
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", all[i].Ref(), err)
		}
	}
	return out, nil
}

// FillRef is what a resource is called once it is filled in.
func FillRef(r *resource.Resource, value Value) (resource.Ref, error) {
	ref, err := fill(string(r.Ref()), value, false)
	return resource.Ref(ref), err
}

// fill replaces names with a dot. Other tags are the host's, in a template.
func fill(text string, value Value, template bool) (string, error) {
	if !strings.Contains(text, "{{") {
		return text, nil
	}
	out := new(strings.Builder)
	for {
		before, after, found := strings.Cut(text, "{{")
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		inside, rest, closed := strings.Cut(after, "}}")
		name := strings.TrimSpace(inside)
		switch {
		case !closed:
			return "", fmt.Errorf("{{%.20s: it is not closed", inside)
		case strings.HasPrefix(name, `"`) || !strings.Contains(name, "."):
			if !template {
				return "", fmt.Errorf("{{ %s }}: only a file's template is filled in by the host", name)
			}
			out.WriteString("{{" + inside + "}}")
		default:
			v, ok := value(name)
			if !ok {
				return "", fmt.Errorf("nothing is called %q", name)
			}
			out.WriteString(v)
		}
		text = rest
	}
}

// eachText goes through the texts that may hold names.
func eachText(r *resource.Resource, do func(field string, text *string, template bool) error) error {
	var err error
	say := func(field string, text *string) {
		if err == nil {
			err = do(field, text, field == "template")
		}
	}
	switch {
	case r.File != nil:
		say("path", &r.File.Path)
		say("template", &r.File.Template)
	case r.Directory != nil:
		say("path", &r.Directory.Path)
	case r.Service != nil:
		say("name", &r.Service.Name)
		eachRef(r.Service.RestartOn, say)
	case r.Container != nil:
		eachOfContainer(r.Container, say)
	case r.Disk != nil:
		say("id", &r.Disk.ID)
		say("identity", &r.Disk.Identity)
		say("path", &r.Disk.Path)
	}
	eachRef(r.After, say)
	return err
}

func eachOfContainer(c *resource.Container, say func(string, *string)) {
	say("name", &c.Name)
	for i := range c.Command {
		say("command", &c.Command[i])
	}
	for _, k := range slices.Sorted(maps.Keys(c.Environment)) {
		v := c.Environment[k]
		say("environment", &v)
		c.Environment[k] = v
	}
	for i := range c.Mounts {
		say("mounts", &c.Mounts[i].Source)
		say("mounts", &c.Mounts[i].Target)
	}
	eachRef(c.RestartOn, say)
}

func eachRef(refs []resource.Ref, say func(string, *string)) {
	for i := range refs {
		text := string(refs[i])
		say("after", &text)
		refs[i] = resource.Ref(text)
	}
}

// clone copies what eachText may write to.
func clone(r resource.Resource) resource.Resource {
	r.After = slices.Clone(r.After)
	switch {
	case r.File != nil:
		c := *r.File
		r.File = &c
	case r.Directory != nil:
		c := *r.Directory
		r.Directory = &c
	case r.Service != nil:
		c := *r.Service
		c.RestartOn = slices.Clone(c.RestartOn)
		r.Service = &c
	case r.Container != nil:
		c := *r.Container
		c.Command, c.Mounts, c.RestartOn = slices.Clone(c.Command), slices.Clone(c.Mounts), slices.Clone(c.RestartOn)
		c.Environment = maps.Clone(c.Environment)
		r.Container = &c
	case r.Disk != nil:
		c := *r.Disk
		r.Disk = &c
	}
	return r
}

// Lists are all that it declares: itself, and both ends of a hand-over.
func (m *Module) Lists() [][]resource.Resource {
	if m.HandOver == nil {
		return [][]resource.Resource{m.Resources}
	}
	return [][]resource.Resource{m.Resources, m.HandOver.Leaving, m.HandOver.Arriving}
}

// Names are the names with a dot that its templates use, in order.
func (m *Module) Names() []string {
	names := map[string]bool{}
	for _, list := range m.Lists() {
		Fill(list, func(name string) (string, bool) { // its errors are Parse's to say
			names[name] = true
			return "x", true
		})
	}
	return slices.Sorted(maps.Keys(names))
}

// ListOf splits a name that says something of many placements: of whom, and
// what.
func ListOf(name string) (of, what string, is bool) {
	name = strings.TrimPrefix(name, "module.")
	i := strings.LastIndexByte(name, '.')
	if i < 0 || !slices.Contains(listNames, name[i+1:]) {
		return "", "", false
	}
	return name[:i], name[i+1:], true
}
