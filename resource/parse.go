package resource

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

const (
	// MaxBytes is how long a declaration may be.
	MaxBytes = 32 << 20
	// MaxResources is how many resources it may have.
	MaxResources = 20_000
	maxConfirm   = time.Hour
)

// Parse reads a declaration that a person wrote, JSON or YAML, and checks the
// whole of it; nothing in it may be unknown. Every error names the source, the
// resource and the field; all of them are said.
func Parse(source string, text []byte) (Declaration, error) {
	d, errs := decode(text)
	if len(errs) == 0 {
		errs = d.check()
	}
	for i, err := range errs {
		errs[i] = fmt.Errorf("%s: %w", source, err)
	}
	if len(errs) > 0 {
		return Declaration{}, errors.Join(errs...)
	}
	return d, nil
}

func decode(text []byte) (Declaration, []error) {
	if len(text) > MaxBytes {
		return Declaration{}, []error{fmt.Errorf("a declaration is at most %d MiB long", MaxBytes>>20)}
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return Declaration{}, []error{errors.New("it is empty; a declaration that names nothing is {\"resources\":[]}")}
	}
	text, err := JSON(text)
	if err != nil {
		return Declaration{}, []error{err}
	}
	return decodeJSON(text, false)
}

// JSON is an object that people wrote, JSON or YAML, as JSON.
func JSON(text []byte) ([]byte, error) {
	if t := bytes.TrimSpace(text); len(t) > 0 && t[0] == '{' {
		return text, nil
	}
	var doc any
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("neither JSON nor YAML: %w", err)
	}
	if _, is := doc.(map[string]any); !is {
		return nil, errors.New(`it must be an object with "resources"`)
	}
	text, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("this YAML says more than JSON can: %w", err)
	}
	return text, nil
}

// decodeJSON reads one resource after the other, so that an error can name its
// place and a long declaration is never in memory twice. With newer, what the
// program that wrote it may know and this one does not is no error.
func decodeJSON(text []byte, newer bool) (d Declaration, errs []error) {
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if _, err := in.Token(); err != nil { // the opening brace
		return d, []error{Wrong(err, text)}
	}
	seen := map[string]bool{}
	for in.More() {
		t, err := in.Token()
		if err != nil {
			return d, []error{Wrong(err, text)}
		}
		field, _ := t.(string)
		if seen[field] {
			return d, []error{fmt.Errorf("%q is there twice", field)}
		}
		seen[field] = true
		switch field {
		case "generation":
			err = in.Decode(&d.Generation)
		case "confirm":
			err = in.Decode(&d.Confirm)
		case "values":
			err = in.Decode(&d.Values)
		case "resources":
			errs, err = decodeResources(in, text, &d, newer)
		case "checks":
			err = in.Decode(&d.Checks)
		default:
			if newer {
				err = in.Decode(new(json.RawMessage))
				break
			}
			return d, []error{fmt.Errorf("it has an unknown field %q; there is generation, confirm, values, resources and checks", field)}
		}
		if err != nil {
			return d, []error{fmt.Errorf("%s: %w", field, Wrong(err, text))}
		}
	}
	if _, err := in.Token(); err != nil { // the closing one
		return d, []error{Wrong(err, text)}
	}
	if _, err := in.Token(); err != io.EOF {
		return d, []error{errors.New("something follows after its end")}
	}
	if !seen["resources"] {
		errs = append(errs, errors.New(`it has no "resources"; a declaration that names nothing says "resources":[]`))
	}
	return d, errs
}

// decodeResources collects what is wrong with each or, with newer, keeps it
// unread; the second error means that reading cannot go on.
func decodeResources(in *json.Decoder, text []byte, d *Declaration, newer bool) (errs []error, err error) {
	if t, err := in.Token(); err != nil {
		return nil, err
	} else if t != json.Delim('[') {
		return nil, errors.New("must be a list")
	}
	d.Resources = []Resource{} // an empty list is not an absent one
	for in.More() {
		if len(d.Resources) == MaxResources {
			return errs, fmt.Errorf("there are more than %d", MaxResources)
		}
		var r Resource
		from := in.InputOffset()
		err := in.Decode(&r)
		d.Resources = append(d.Resources, r)
		var syntax *json.SyntaxError
		switch {
		case err == nil:
		case errors.As(err, &syntax) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
			return errs, err
		case newer:
			d.Resources[len(d.Resources)-1] = notRead(bytes.TrimLeft(text[from:in.InputOffset()], ", \t\r\n"), len(d.Resources), err)
		default:
			errs = append(errs, fmt.Errorf("%s: %w", d.place(len(d.Resources)-1), forPeople(err)))
		}
	}
	_, err = in.Token() // the closing bracket
	return errs, err
}

// place says which resource it is, for an error.
func (d *Declaration) place(i int) string {
	if ref := d.Resources[i].Ref(); ref.Key() != "" {
		return fmt.Sprintf("resource %d (%s)", i+1, ref)
	}
	return fmt.Sprintf("resource %d", i+1)
}

// Wrong says an error of reading JSON for people, and where in the text it was.
func Wrong(err error, text []byte) error {
	at := int64(len(text))
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		at = min(syntax.Offset, at)
	} else if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return forPeople(err)
	}
	return fmt.Errorf("line %d: %w", 1+bytes.Count(text[:at], []byte("\n")), forPeople(err))
}

// forPeople takes the library's word off an error and names the field first.
func forPeople(err error) error {
	var t *json.UnmarshalTypeError
	switch {
	case errors.As(err, &t):
		what := map[string]string{"string": "a text, in quotes", "bool": "true or false", "int": "a whole number", "int64": "a whole number"}[t.Type.String()]
		if what == "" {
			what = map[bool]string{true: "a list", false: "an object"}[strings.HasPrefix(t.Type.String(), "[]")]
		}
		field := strings.TrimPrefix(t.Field, ".") + ": "
		return fmt.Errorf("%smust be %s, not a %s", strings.TrimPrefix(field, ": "), what, t.Value)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return errors.New("it ends too early")
	}
	return errors.New(strings.TrimPrefix(err.Error(), "json: "))
}
