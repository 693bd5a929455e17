package api

import (
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

// unmarshalStrict decodes JSON and refuses what Go's decoder lets through: NUL
// in a string (no database takes it) and bytes that are not UTF-8. It is
// called twice a request, first into an any, where the strings are looked at.
func unmarshalStrict(data []byte, v any) error {
	if !utf8.Valid(data) {
		return errors.New("must be UTF-8")
	}
	if err := json.Unmarshal(data, v); err != nil {
		return explain(err)
	}
	if tree, ok := v.(*any); ok {
		if field, found := findNUL("", *tree); found {
			return marked(field, "may not contain NUL")
		}
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

// findNUL returns the path of the first string, or name, that contains NUL.
func findNUL(path string, v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return path, strings.ContainsRune(v, 0)
	case []any:
		for i, e := range v {
			if p, found := findNUL(fmt.Sprintf("%s[%d]", path, i), e); found {
				return p, true
			}
		}
	case map[string]any:
		for name, e := range v {
			p := name
			if path != "" {
				p = path + "." + name
			}
			if strings.ContainsRune(name, 0) {
				return strings.ReplaceAll(p, "\x00", `\0`), true
			}
			if p, found := findNUL(p, e); found {
				return p, true
			}
		}
	}
	return "", false
}
