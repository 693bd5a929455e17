package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// huma takes only an error's text and calls its place "body"; a mark in the
// text carries the field's name past it.
const mark = "\x1f"

func marked(field, format string, args ...any) error {
	return errors.New(mark + field + mark + fmt.Sprintf(format, args...))
}

func splitMark(s string) (field, msg string, ok bool) {
	parts := strings.SplitN(s, mark, 3)
	if len(parts) != 3 || parts[0] != "" {
		return "", "", false
	}
	return parts[1], parts[2], true
}

// Bounds of a body beside its length: a few bytes of JSON can become a hundred
// times as much memory.
const (
	maxValues = 50_000
	maxDepth  = 64
)

// unmarshalStrict decodes JSON and refuses what Go's decoder lets through: NUL
// in a string (no database takes it), a name that comes twice (of which
// somebody else may read the other one), and bytes that are not UTF-8. It is
// called twice a request, first into an any, before which the text is looked at.
func unmarshalStrict(data []byte, v any) error {
	if !utf8.Valid(data) {
		return errors.New("must be UTF-8")
	}
	if _, first := v.(*any); first {
		if err := inspect(data); err != nil {
			return err
		}
	}
	if err := json.Unmarshal(data, v); err != nil {
		return explain(err)
	}
	return nil
}

func explain(err error) error {
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &wrongType) && wrongType.Field != "" {
		return marked(wrongType.Field, "cannot be a %s", strings.SplitN(wrongType.Value, " ", 2)[0])
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("is not JSON: %w (at byte %d)", err, syntax.Offset)
	}
	return errors.New("cannot be decoded") // the decoder's text may repeat a value
}

// A level is an object or array that inspect is in.
type level struct {
	name  string          // of the member, or empty in an array
	index int             // of the element
	names map[string]bool // of an object; nil in an array
	key   bool            // the next token is a name
}

// inspect walks along the text without building anything from it. Text that is
// not JSON is for the decoder to complain about.
func inspect(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var in []level
	for values := 0; ; {
		token, err := d.Token()
		if err != nil {
			return nil
		}
		if n := len(in); n > 0 && in[n-1].key {
			if name, ok := token.(string); ok {
				top := &in[n-1]
				top.name, top.key = name, false
				if strings.ContainsRune(name, 0) {
					return marked(strings.ReplaceAll(place(in), "\x00", `\0`), "may not contain NUL")
				}
				// What a machine says of itself is its own affair.
				if top.names[name] && (len(in) == 1 || in[0].name != "sysinfo") {
					return marked(place(in), "is there more than once")
				}
				top.names[name] = true
				continue
			}
		}
		if token == json.Delim('}') || token == json.Delim(']') {
			in = in[:len(in)-1]
			step(in)
			continue
		}
		if values++; values > maxValues {
			return marked(place(in[:min(len(in), 1)]), "holds more than %d values", maxValues)
		}
		switch token := token.(type) {
		case json.Delim:
			if len(in) >= maxDepth {
				return marked(place(in[:1]), "is nested more than %d levels deep", maxDepth)
			}
			l := level{}
			if token == '{' {
				l = level{names: map[string]bool{}, key: true}
			}
			in = append(in, l)
			continue
		case string:
			if strings.ContainsRune(token, 0) {
				return marked(place(in), "may not contain NUL")
			}
		}
		step(in)
	}
}

// step goes to the next member or element after a value.
func step(in []level) {
	if n := len(in); n > 0 {
		in[n-1].index++
		in[n-1].key = in[n-1].names != nil
	}
}

// place is the path of the value that inspect looks at.
func place(in []level) string {
	var b strings.Builder
	for _, l := range in {
		switch {
		case l.names == nil:
			fmt.Fprintf(&b, "[%d]", l.index)
		case b.Len() > 0:
			b.WriteString("." + l.name)
		default:
			b.WriteString(l.name)
		}
	}
	if b.Len() == 0 {
		return "body"
	}
	return b.String()
}
