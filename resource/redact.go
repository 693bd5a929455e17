package resource

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
)

// Redacted is the declaration as it is shown: in place of what may be secret
// stands its hash, so that two can still be compared. That is the content or
// template of a secret file, the values that such a template uses, and what
// containers have in their environment. Of what this version cannot read only
// the name is shown.
func (d Declaration) Redacted() Declaration {
	secret := d.secretValues()
	d.Resources, d.Values = slices.Clone(d.Resources), maps.Clone(d.Values)
	for _, name := range secret {
		d.Values[name] = hidden(d.Values[name])
	}
	for i := range d.Resources {
		r := &d.Resources[i]
		if r.Unread != nil { // nobody knows what of it is secret
			u := *r.Unread
			u.Text, _ = json.Marshal(map[string]Ref{"unread": u.Ref})
			r.Unread = &u
		}
		if r.Hides() {
			f := *r.File
			f.Content, f.Template = hidden(f.Content), hidden(f.Template)
			r.File = &f
		}
		if r.Container != nil && len(r.Container.Environment) > 0 {
			c := *r.Container
			c.Environment = maps.Clone(c.Environment)
			for name, v := range c.Environment {
				c.Environment[name] = hidden(v)
			}
			r.Container = &c
		}
	}
	return d
}

// secretValues are the names of the values that secret templates use.
func (d *Declaration) secretValues() []string {
	names := map[string]bool{}
	for i := range d.Resources {
		r := &d.Resources[i]
		if !r.Hides() {
			continue
		}
		// A template was checked when it was parsed; one that cannot be read, such
		// as a hash, uses nothing.
		_ = eachTag(r.File.Template, func(string) {}, func(name string) error {
			if _, is := d.Values[name]; is {
				names[name] = true
			}
			return nil
		})
	}
	return slices.Sorted(maps.Keys(names))
}

var hashText = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// hidden is a text's hash. What is one already, or empty, stays.
func hidden(text string) string {
	if text == "" || hashText.MatchString(text) {
		return text
	}
	return Hash(text)
}

// CheckWhole refuses a declaration that was shown and is sent back: the hashes
// in it would become contents.
func (d *Declaration) CheckWhole() error {
	const say = "is a hash, as declarations are shown with; say what it is the hash of"
	for i := range d.Resources {
		r := &d.Resources[i]
		if r.Hides() && (hashText.MatchString(r.File.Content) || hashText.MatchString(r.File.Template)) {
			return fmt.Errorf("%s: file.content: it %s", d.place(i), say)
		}
		if r.Container == nil {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(r.Container.Environment)) {
			if hashText.MatchString(r.Container.Environment[name]) {
				return fmt.Errorf("%s: container.environment: %s %s", d.place(i), name, say)
			}
		}
	}
	for _, name := range d.secretValues() {
		if hashText.MatchString(d.Values[name]) {
			return fmt.Errorf("values: %s %s", name, say)
		}
	}
	return nil
}
