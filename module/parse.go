package module

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"muster.internal/resource"
)

// MaxBytes is how long a module may be.
const MaxBytes = 4 << 20

// Parse reads a module, JSON or YAML, and checks the whole of it. Every error
// names the source, the module and the field; all of them are said.
func Parse(source string, text []byte) (Module, error) {
	m, err := decode(text)
	if err != nil {
		return Module{}, fmt.Errorf("%s: %w", source, err)
	}
	if err := m.checked(source); err != nil {
		return Module{}, err
	}
	return m, nil
}

// maxVersion leaves room for the changes of all times to come.
const maxVersion = 1_000_000_000_000

// ParseDraft is Parse of a module that need not say its version: whoever keeps
// versions gives it the next one.
func ParseDraft(source string, text []byte) (Module, error) {
	m, err := decode(text)
	if err != nil {
		return Module{}, fmt.Errorf("%s: %w", source, err)
	}
	draft := m.Version == 0
	if draft {
		m.Version = 1
	}
	if err := m.checked(source); err != nil {
		return Module{}, err
	}
	if draft {
		m.Version = 0
	}
	return m, nil
}

// checked is all that is wrong, as one error.
func (m *Module) checked(source string) error {
	errs := m.Check()
	for i, err := range errs {
		errs[i] = fmt.Errorf("%s: %w", source, err)
	}
	return errors.Join(errs...)
}

func decode(text []byte) (m Module, err error) {
	if len(text) > MaxBytes {
		return m, fmt.Errorf("a module is at most %d MiB long", MaxBytes>>20)
	}
	if text, err = resource.JSON(text); err != nil {
		return m, err
	}
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(&m); err != nil {
		return m, fmt.Errorf("%s%w", m.title(), resource.Wrong(err, text))
	}
	if _, err := in.Token(); err != io.EOF {
		return m, fmt.Errorf("%ssomething follows after its end", m.title())
	}
	return m, nil
}

func (m *Module) title() string {
	if m.Name == "" {
		return ""
	}
	return "module " + m.Name + ": "
}

// Check says everything that is wrong with a module.
func (m *Module) Check() (errs []error) {
	found := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s%s: %s", m.title(), field, fmt.Sprintf(format, args...)))
	}
	if !isName(m.Name) {
		found("module", "%q cannot be its name: at most 40 small letters, digits and hyphens, the first a letter", m.Name)
	} else if m.Name == Peers || m.Name == Fleet || m.Name == "placement" || m.Name == "node" {
		found("module", "%q means something else in templates", m.Name)
	}
	if m.Version < 1 {
		found("version", "must be 1 or more, and grow with every change")
	} else if m.Version > maxVersion {
		found("version", "must be at most %d, so that a next one is possible", int64(maxVersion))
	}
	m.checkPlace(found)
	m.checkMoves(found)
	for name, words := range m.Needs {
		if !slices.Contains(NeedNames, name) {
			found("needs", "a profile has no %q; it has %s", name, strings.Join(NeedNames, ", "))
		} else if len(words) == 0 || slices.Contains(words, "") {
			found("needs", "%s: say a word, several as a list, or %s", name, Any)
		}
	}
	for _, a := range []struct {
		field string
		value int64
	}{{"cpu_millis", m.Asks.CPUMillis}, {"memory_mib", m.Asks.MemoryMiB}, {"disk_mib", m.Asks.DiskMiB}, {"durable_mib", m.Asks.DurableMiB}, {"transient_mib", m.Asks.TransientMiB}} {
		if a.value < 0 || a.value > 1<<40 {
			found("asks."+a.field, "%d must be from 0 to 2^40", a.value)
		}
	}
	m.checkHealth(found)
	for i, name := range m.After {
		if !isName(name) || name == m.Name || slices.Index(m.After, name) < i {
			found("after", "%q cannot be a module that comes before it, once", name)
		}
	}
	m.checkResources(found)
	return errs
}

type finding func(field, format string, args ...any)

func isName(s string) bool {
	if s == "" || len(s) > 40 || s[0] < 'a' || s[0] > 'z' || s[len(s)-1] == '-' {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
	})
}

func (m *Module) checkPlace(found finding) {
	r := m.Place
	rules := 0
	for _, is := range []bool{r.EachNode, r.EachDisk, r.Replicas != 0, len(r.Pinned) > 0} {
		if is {
			rules++
		}
	}
	most := max(r.Replicas, len(r.Pinned))
	switch {
	case rules != 1:
		found("place", "must be one of each_node, each_disk, replicas and pinned, and is %d of them", rules)
	case r.Replicas < 0 || r.Replicas > 100_000:
		found("place.replicas", "%d must be from 1 to 100,000", r.Replicas)
	case m.Base && !r.EachNode:
		found("base", "a base module is on each_node")
	case r.Spread != "" && r.Replicas == 0:
		found("place.spread", "only replicas can be spread")
	case r.Minimum != nil && *r.Minimum < 0:
		found("place.minimum", "must not be negative")
	case r.Minimum != nil && most > 0 && *r.Minimum > most:
		found("place.minimum", "%d cannot stay available of %d", *r.Minimum, most)
	case r.Minimum != nil && most > 0 && *r.Minimum == most && !m.Surges():
		found("place.minimum", "when all of %d must stay available, none can ever be moved or get a new version: say less, or let it surge", most)
	}
	for i, id := range r.Pinned {
		if id == "" || slices.Index(r.Pinned, id) < i {
			found("place.pinned", "%q must be a node's id, once", id)
		}
	}
	if r.WhereDisk != nil && !r.EachDisk && m.Asks.DurableMiB == 0 && m.Asks.TransientMiB == 0 {
		found("place.where_disk", "it uses no disk")
	}
	if r.EachDisk && m.Asks.TransientMiB > 0 {
		found("asks.transient_mib", "a module on each disk has that disk, and no other")
	}
}

func (m *Module) checkMoves(found finding) {
	switch {
	case m.Moves != "" && !slices.Contains(Movements, m.Moves):
		found("moves", "%q is none of restart, surge and live", m.Moves)
	case m.Surges() && m.Place.Replicas == 0:
		found("moves", "only replicas can %s: what is on each node, on each disk or pinned is where it is", m.Moves)
	case m.Moves == Live && m.HandOver == nil:
		found("hand_over", "a live move needs what both ends are told meanwhile")
	case m.Moves != Live && m.HandOver != nil:
		found("hand_over", "only a live move has one")
	}
}

func (m *Module) checkHealth(found finding) {
	if h := m.Health; h != nil {
		resource.CheckProbe(h.Port, h.Path, h.CaughtUp, func(field, format string, args ...any) { found("health."+field, format, args...) })
	}
	for i, h := range m.OnExpunge {
		switch {
		case (h.Webhook == "") == (h.Event == ""):
			found("on_expunge", "hook %d must be one of webhook and event", i+1)
		case h.Webhook != "" && !strings.HasPrefix(h.Webhook, "https://") && !strings.HasPrefix(h.Webhook, "http://"):
			found("on_expunge", "hook %d: %q is no http or https URL", i+1, h.Webhook)
		case h.Event != "" && !isName(strings.ReplaceAll(h.Event, "_", "-")):
			found("on_expunge", "hook %d: %q cannot be the name of an event", i+1, h.Event)
		}
	}
}

// checkResources declares an imaginary placement, and has the declaration
// checked.
func (m *Module) checkResources(found finding) {
	for i, list := range m.Lists() {
		field := []string{"resources", "hand_over.leaving", "hand_over.arriving"}[i]
		if len(list) == 0 {
			found(field, "must be a list of resources")
			continue
		}
		for k := range list {
			if list[k].Action != nil {
				found(field, "resource %d (%s): a module may not carry an action: no host takes one over the link", k+1, list[k].Ref())
				return
			}
		}
		filled, err := Fill(list, m.sample("sample-1", "1"))
		if err != nil {
			found(field, "%v; there is %s", err, strings.Join(append(slices.Clone(placementNames), "and the addresses, hosts and names of peers, of fleet, and of module.NAME that it comes after"), ", "))
			continue
		}
		text, err := json.Marshal(resource.Declaration{Resources: filled})
		if err != nil {
			found(field, "%v", err)
			continue
		}
		d, err := resource.Parse(field, text)
		if err == nil {
			err = d.CheckRemote()
		}
		if err != nil {
			for _, line := range strings.Split(err.Error(), "\n") {
				found(field, "%s", strings.TrimPrefix(line, field+": "))
			}
		}
	}
}

// sample is an imaginary placement.
func (m *Module) sample(own, number string) Value {
	return func(name string) (string, bool) {
		of, what, isList := ListOf(name)
		named := strings.HasPrefix(name, "module.")
		switch {
		case isList && named && of != m.Name && !slices.Contains(m.After, of), isList && !named && of != Peers && of != Fleet:
			return "", false
		case isList && what == "addresses":
			return "192.0.2.1", true
		case isList:
			return "name", true
		case strings.HasPrefix(name, "node."), name == "placement.module", name == "placement.version":
			return "1", slices.Contains(placementNames, name) // the same for two on one node
		}
		its := own
		switch name {
		case "placement.number":
			its = number
		case "disk.id", "transient.id":
			its = "00000000-0000-4000-8000-00000000000" + number
		case "disk.identity", "transient.identity":
			its = "wwn " + number
		}
		return its, slices.Contains(placementNames, name)
	}
}

// A Hold is something of a node that one alone can have: a resource by its name,
// or a port. Two who want the same of a resource share it.
type Hold struct {
	Name string // file:/etc/motd, port 80/tcp
	Want string // what it is to be; empty: nobody shares it
}

// Holds are what an imaginary placement of it takes of its node.
func (m *Module) Holds() []Hold { return m.holds(m.Name+"-1", "1") }

func (m *Module) holds(name, number string) (all []Hold) {
	for _, list := range m.Lists() {
		filled, _ := Fill(list, m.sample(name, number)) // Parse has seen that it can be
		for i := range filled {
			text, _ := json.Marshal(filled[i])
			all = append(all, Hold{string(filled[i].Ref()), string(text)})
			if c := filled[i].Container; c != nil {
				for _, p := range c.Ports {
					all = append(all, Hold{fmt.Sprintf("port %d/%s", p.Host, cmp.Or(p.Protocol, "tcp")), ""})
				}
			}
		}
	}
	return all
}

// Twice tells whether two placements of it can be on one node: what they take
// is different, or the same and shared, and not all of it shared.
func (m *Module) Twice() bool {
	first, all := map[string]string{}, true
	for _, h := range m.Holds() {
		first[h.Name] = h.Want
	}
	for _, h := range m.holds(m.Name+"-2", "2") {
		want, taken := first[h.Name]
		if taken && (want == "" || want != h.Want) {
			return false
		}
		all = all && taken
	}
	return !all
}

// Same tells whether two resources declare the same.
func Same(a, b *resource.Resource) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// Equal tells whether two modules are the same, word by word.
func (m *Module) Equal(o *Module) bool {
	if m == o || m.Name == o.Name && m.Version == o.Version && len(m.Resources) > 0 && len(m.Resources) == len(o.Resources) && &m.Resources[0] == &o.Resources[0] {
		return true // one was copied from the other
	}
	x, errX := json.Marshal(m)
	y, errY := json.Marshal(o)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
