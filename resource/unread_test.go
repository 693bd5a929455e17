package resource

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// What a newer program wrote is read as far as this one knows it, and is written
// again as it came; a person's file with the same in it is refused.
func TestUnread(t *testing.T) {
	for _, c := range []struct{ text, ref, why, unclear string }{
		{`{"file":{"path":"/a","content":"<x>"}}`, "file:/a", "", ""},
		{`{"file":{"path":"/a","acl":"x"}}`, "file:/a", `the field "acl"`, ""},
		{`{"file":{"path":"/a"},"when":"x"}`, "file:/a", `the field "when"`, ""},
		{`{"file":{"path":"/a","mode":420}}`, "file:/a", "what this means: file.mode: must be a text, in quotes, not a number", ""},
		{`{"service":{"name":"a","masked":true}}`, "service:a.service", `the field "masked"`, ""},
		{`{"file":{"at":"/a"}}`, "file:2", `the field "at"`, "file:2"},
		{`{"user":{"name":"<a>","shell":"/bin/sh"},"adopt":true}`, "user:<a>", `the kind "user"`, "user:<a>"},
		{`{"link":{"path":"/a"},"after":["file:/first"]}`, "link:/a", `the kind "link"`, "link:/a"},
		{`{"user":{"id":7}}`, "user:2", `the kind "user"`, "user:2"},
		{`{"reboot":true}`, "resource:2", `the field "reboot"`, "resource:2"},
		{`{"file":{"path":"/a"},"package":{"name":"b"},"x":1}`, "resource:2", `the field "x"`, "resource:2"},
		{`"a text"`, "resource:2", "what this means: must be an object, not a string", "resource:2"},
	} {
		text := `{"generation":3,"later":[1],"resources":[{"file":{"path":"/first"}},` + c.text + `,{"file":{"path":"/last"},"after":["` + c.ref + `"]}]}`
		var d Declaration
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if err := d.Check(); err != nil {
			t.Errorf("%s: %v", c.text, err)
		}
		r, why := &d.Resources[1], ""
		if r.Unread != nil {
			why = r.Unread.Why
		}
		if len(d.Resources) != 3 || d.Generation != 3 || r.Ref() != Ref(c.ref) || why != c.why || d.Unclear() != Ref(c.unclear) {
			t.Errorf("%s is %s, it does not know %s, unclear: %q", c.text, r.Ref(), why, d.Unclear())
		}
		if again := string(mustJSON(t, d)); !strings.Contains(strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(again), c.text+",") {
			t.Errorf("%s is written as %s", c.text, again)
		}
		if _, err := Parse("d", []byte(text)); err == nil {
			t.Errorf("a person's file may say %s", c.text)
		}
	}
}

// What makes no sense as a whole is an error all the same, and what comes with a
// file alone is found in what was not read, too.
func TestUnreadMistakes(t *testing.T) {
	for text, want := range map[string]string{
		`{"resources":{}}`: "must be a list",
		`{"resources":[`:   "unexpected end",
		`{"generation":1}`: "no \"resources\"",
		`{"resources":[{"file":{"path":"/a"}},{"file":{"path":"/a","acl":1}}]}`:             "resource 1 is file:/a, too",
		`{"resources":[{"file":{"path":"/a","acl":1}},{"file":{"path":"/a/b"}}]}`:           "inside of /a",
		`{"resources":[{"package":{"name":"a"},"after":["user:b"]},{"user":{"name":"b"}}]}`: "comes later",
		`{"resources":[{"package":{"name":"a"},"after":["user:b"]}]}`:                       "names no resource",
		`{"resources":[{}]}`: "must be one of",
	} {
		var d Declaration
		err := json.Unmarshal([]byte(text), &d)
		if err == nil {
			err = d.Check()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	var d Declaration
	if err := json.Unmarshal([]byte(`{"resources":[{"action":{"name":"a","as":"nobody"}},{"user":{"name":"b","password":"planted"}}]}`), &d); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(d.LocalOnly()); got != "[action:a]" {
		t.Errorf("for a file alone: %s", got)
	}
	if shown := string(mustJSON(t, d.Redacted())); strings.Contains(shown, "planted") || !strings.Contains(shown, "user:b") {
		t.Errorf("it is shown as %s", shown)
	}
}

// Every kind has the capability that it came with.
func TestBeyond(t *testing.T) {
	d, err := Parse("d", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[Kind]bool{}
	for _, ref := range d.Beyond(0) {
		seen[ref.Kind()] = true
	}
	if len(seen) != len(Kinds) || len(since) != len(Kinds) {
		t.Errorf("a host of no capability does not know %v of %v", seen, Kinds)
	}
	if got := fmt.Sprint(d.Beyond(1), d.Beyond(3)); got != "[disk:/srv/disk] []" {
		t.Errorf("the first hosts, and those that know disks, do not know %s", got)
	}
}
