package resource

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// An Unread is a resource that a newer control plane declared and that this
// version cannot read. It is never applied, and stays as it was written, for the
// next version of this program to read what was held.
type Unread struct {
	Text json.RawMessage
	Ref  Ref
	// Why says what this version does not know.
	Why string
	// Unclear: which resource of the machine it stands for cannot be told.
	Unclear bool
}

// notRead keeps a resource, the place-th, that could not be decoded. What can be
// told of it all the same is what it is, and what it comes after.
func notRead(text []byte, place int, err error) Resource {
	u := &Unread{Text: text, Unclear: true, Why: fmt.Sprintf("what this means: %v", forPeople(err))}
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(text, &fields) // of what is no object nothing can be told
	r := Resource{Unread: u}
	_ = json.Unmarshal(fields["after"], &r.After)
	kind, known := kindAmong(fields)
	key := keyAmong(kind, known, fields[string(kind)])
	if word, is := strings.CutPrefix(err.Error(), "json: unknown field "); is {
		u.Why = "the field " + word
	}
	switch {
	case kind == "":
		kind = "resource"
	case !known:
		u.Why = fmt.Sprintf("the kind %q", kind)
	default:
		u.Unclear = key == ""
	}
	if key == "" {
		key = fmt.Sprint(place)
	}
	u.Ref = NewRef(kind, key)
	return r
}

// kindAmong is the kind that an object's fields name: a known one or, without
// any, the only one that has fields of its own.
func kindAmong(fields map[string]json.RawMessage) (kind Kind, known bool) {
	var all, others []Kind
	for name, value := range fields {
		switch {
		case slices.Contains(Kinds, Kind(name)):
			all = append(all, Kind(name))
		case bytes.HasPrefix(value, []byte("{")):
			others = append(others, Kind(name))
		}
	}
	switch {
	case len(all) == 1:
		return all[0], true
	case len(all) == 0 && len(others) == 1:
		return others[0], false
	}
	return "", false
}

// keyAmong is the path or name that a resource has among its fields.
func keyAmong(kind Kind, known bool, text json.RawMessage) (key string) {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(text, &fields)
	words := []string{"path", "name"}
	if known {
		_, word, _ := strings.Cut(keyField(kind), ".")
		words = []string{word}
	}
	for _, word := range words {
		if json.Unmarshal(fields[word], &key) == nil && key != "" {
			break
		}
	}
	if kind == KindService {
		return unitOf(key)
	}
	return key
}

// Unclear names a resource of which this version cannot tell what on the machine
// it stands for; empty: there is none.
func (d *Declaration) Unclear() Ref {
	for i := range d.Resources {
		if u := d.Resources[i].Unread; u != nil && u.Unclear {
			return u.Ref
		}
	}
	return ""
}

// MarshalJSON writes what was not read as it came.
func (r Resource) MarshalJSON() ([]byte, error) {
	if r.Unread != nil {
		return r.Unread.Text, nil
	}
	type plain Resource // without this method
	return marshal(plain(r))
}

// marshal leaves it to who asked whether HTML is escaped.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	out := json.NewEncoder(&b)
	out.SetEscapeHTML(false)
	err := out.Encode(v)
	return b.Bytes(), err
}

// UnmarshalJSON reads what another program of the fleet wrote, which may be
// newer than this one: a resource that cannot be read stays in its place,
// Unread, and beside the resources an unknown field is passed over. What people
// write is for Parse. Only Check tells whether the whole makes sense.
func (d *Declaration) UnmarshalJSON(text []byte) error {
	read, errs := decodeJSON(text, true)
	*d = read
	return errors.Join(errs...)
}
