package inventory

import (
	"bytes"
	"encoding/json"
	"io"
	"strconv"
	"strings"

	"muster.internal"
)

const (
	maxBytes = 5 << 20 // what a stock agent may send
	maxDepth = 32
	maxText  = 1024
)

// decode reads one JSON object, after a look at its size and depth that costs
// no memory. NUL is refused everywhere: no store and no shell can hold it.
func decode(b []byte) (map[string]any, error) {
	switch {
	case len(b) > maxBytes:
		return nil, muster.Invalid("sysinfo", "it is %d bytes, and may be %d", len(b), maxBytes)
	case depth(b) > maxDepth:
		return nil, muster.Invalid("sysinfo", "it is nested more than %d deep", maxDepth)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, muster.Invalid("sysinfo", "it is not JSON: %v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, muster.Invalid("sysinfo", "more follows the object")
	}
	root, ok := v.(map[string]any)
	if !ok {
		return nil, muster.Invalid("sysinfo", "it is not a JSON object")
	}
	if at := findNUL(root, "sysinfo"); at != "" {
		return nil, muster.Invalid(at, "it holds a NUL character")
	}
	return root, nil
}

// depth counts brackets outside strings.
func depth(b []byte) (deepest int) {
	d, quoted := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			d++
			deepest = max(deepest, d)
		case c == '}' || c == ']':
			d--
		}
	}
	return deepest
}

func findNUL(v any, path string) string {
	switch v := v.(type) {
	case string:
		if strings.ContainsRune(v, 0) {
			return path
		}
	case []any:
		for i, e := range v {
			if at := findNUL(e, path+"["+strconv.Itoa(i)+"]"); at != "" {
				return at
			}
		}
	case map[string]any:
		for k, e := range v {
			if strings.ContainsRune(k, 0) {
				return path
			}
			if at := findNUL(e, path+"."+k); at != "" {
				return at
			}
		}
	}
	return ""
}

// A reader draws typed values out of an object; the first that has the wrong
// shape is remembered, by name.
type reader struct {
	object map[string]any
	path   string
	parent *reader
	err    error
}

func (r *reader) wrong(key, format string, args ...any) {
	for p := r; p != nil; p = p.parent {
		if p.err == nil {
			p.err = muster.Invalid(r.path+"."+key, format, args...)
		}
	}
}

// text reads a string; a number stands for its digits, and what is absent is
// empty.
func (r *reader) text(key string) string {
	switch v := r.object[key].(type) {
	case nil:
		return ""
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	case string:
		if len(v) > maxText {
			r.wrong(key, "it is %d bytes, and may be %d", len(v), maxText)
			return ""
		}
		return v
	}
	r.wrong(key, "it is not a string")
	return ""
}

// number reads an integer, which stock agents write as a string.
func (r *reader) number(key string) int64 {
	s := r.text(key)
	if s == "" {
		return 0
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		r.wrong(key, "%.40q is not a whole number", s)
		return 0
	}
	return n
}

func (r *reader) texts(key string) []string {
	v := r.object[key]
	if v == nil {
		return nil
	}
	list, ok := v.([]any)
	if !ok || len(list) > maxNICs {
		r.wrong(key, "it is not a list of at most %d strings", maxNICs)
		return nil
	}
	var all []string
	for _, e := range list {
		s, ok := e.(string)
		if !ok || len(s) > maxText {
			r.wrong(key, "it is not a list of short strings")
			return nil
		}
		all = append(all, s)
	}
	return all
}

func (r *reader) child(key string) *reader {
	c := &reader{path: r.path + "." + key, parent: r}
	switch v := r.object[key].(type) {
	case nil:
	case map[string]any:
		c.object = v
	default:
		r.wrong(key, "it is not an object")
	}
	return c
}
