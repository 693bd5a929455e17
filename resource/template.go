package resource

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// factNames are the node's facts that a template can use. A declaration's own
// values come beside them.
var factNames = []string{"address", "arch", "firmware", "hostname", "kernel", "node_id", "os", "os_version", "server_uuid"}

// Text is the file's content, with names put in. A template knows names and
// nothing else, no conditions and no loops: what differs between machines in
// more than a value is decided where declarations are made.
func (f *File) Text(names map[string]string) (string, error) {
	if f.Source != "" {
		return "", fmt.Errorf("its source %s was not read", f.Source)
	}
	if f.Template == "" {
		return f.Content, nil
	}
	out := new(strings.Builder)
	err := eachTag(f.Template, func(text string) { out.WriteString(text) }, func(name string) error {
		v, ok := names[name]
		if !ok {
			return unknownName(name, slices.Sorted(maps.Keys(names)))
		}
		out.WriteString(v)
		return nil
	})
	return out.String(), err
}

// checkTemplate tells whether every name in it is a fact or one of the values.
func checkTemplate(template string, values map[string]string) error {
	known := append(slices.Sorted(maps.Keys(values)), factNames...)
	return eachTag(template, func(string) {}, func(name string) error {
		if !slices.Contains(known, name) && !grantValue.MatchString(name) {
			return unknownName(name, known)
		}
		return nil
	})
}

// grantValue is a name that the control plane gives a value when it delivers the
// declaration: a part of what the node was granted at a provider.
var grantValue = regexp.MustCompile(`^grant_[a-z][a-z0-9_]*_(user|password|host|port|database)$`)

func usesGrant(template string) (uses bool) {
	_ = eachTag(template, func(string) {}, func(name string) error { // mistakes are told elsewhere
		uses = uses || grantValue.MatchString(name)
		return nil
	})
	return uses
}

func unknownName(name string, known []string) error {
	return fmt.Errorf("nothing is called %q; there is %s", name, strings.Join(known, ", "))
}

// eachTag goes through a template. {{ name }} is a name, {{ "text" }} the text
// itself, so that two braces can be written, too.
func eachTag(template string, text func(string), name func(string) error) error {
	for rest, line := template, 1; ; {
		before, after, found := strings.Cut(rest, "{{")
		text(before)
		if !found {
			return nil
		}
		line += strings.Count(before, "\n")
		inside, next, closed := strings.Cut(after, "}}")
		oneLine := !strings.Contains(inside, "\n")
		inside = strings.TrimSpace(inside)
		literal, quoted := strings.CutPrefix(inside, `"`)
		switch {
		case !closed || !oneLine:
			return fmt.Errorf("line %d: {{ is not closed", line)
		case quoted && strings.HasSuffix(literal, `"`):
			text(strings.TrimSuffix(literal, `"`))
		default:
			if err := name(inside); err != nil {
				return fmt.Errorf("line %d: %w", line, err)
			}
		}
		rest = next
	}
}
