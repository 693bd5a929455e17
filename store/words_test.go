package store

import (
	"io/fs"
	"regexp"
	"slices"
	"testing"

	"muster.internal"
	"muster.internal/lifecycle"
)

// TestChecksSayWhatTheRowsSay: a column that may hold certain words may hold
// those of its lifecycle, or of the nouns, and no others.
func TestChecksSayWhatTheRowsSay(t *testing.T) {
	orNone := func(words []string) []string { return append(words, "") }
	want := map[string][]string{
		"registrations.state":      lifecycle.Words("registration"),
		"registrations.credential": orNone(lifecycle.Words("credential")),
		"registrations.bundle":     orNone(lifecycle.Words("bundle")),
		"registrations.door":       {string(muster.DoorNetboot), string(muster.DoorClaim)},
		"boot_records.state":       lifecycle.Words("boot record"),
		"boot_records.mode":        lifecycle.Words("mode"),
		"nodes.policy":             lifecycle.Words("node policy"),
		"nodes.state":              lifecycle.Words("node state"),
		"disks.policy":             lifecycle.Words("disk policy"),
		"disks.state":              lifecycle.Words("disk state"),
		"operators.role":           {string(muster.Admin), string(muster.Viewer)},
	}
	for _, s := range muster.Scopes {
		want["api_keys.scope"] = append(want["api_keys.scope"], string(s))
	}
	text, err := fs.ReadFile(migrations, "migrations/00001_first_life.sql")
	if err != nil {
		t.Fatal(err)
	}
	have := map[string][]string{}
	for _, table := range regexp.MustCompile(`(?s)CREATE TABLE (\w+) \((.*?)\n\);`).FindAllStringSubmatch(string(text), -1) {
		for _, check := range regexp.MustCompile(`CHECK \((\w+) IN \(([^)]*)\)\)`).FindAllStringSubmatch(table[2], -1) {
			column := table[1] + "." + check[1]
			for _, word := range regexp.MustCompile(`'(\w*)'`).FindAllStringSubmatch(check[2], -1) {
				have[column] = append(have[column], word[1])
			}
		}
	}
	for column := range have {
		if want[column] == nil {
			t.Errorf("%s is checked, and this test does not know against what", column)
		}
	}
	for column, words := range want {
		slices.Sort(words)
		if slices.Sort(have[column]); !slices.Equal(words, have[column]) {
			t.Errorf("%s may be %q in SQL, and %q by the rows", column, have[column], words)
		}
	}
}
