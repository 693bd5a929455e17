package lifecycle

import (
	"bytes"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"muster.internal"
)

var update = flag.Bool("update", false, "rewrite docs/lifecycles.md")

const page = "../docs/lifecycles.md"

// TestDocs fails when the page is not what the rows say.
func TestDocs(t *testing.T) {
	want := []byte(Document())
	if *update {
		if err := os.WriteFile(page, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, want) {
		t.Errorf("%s is stale: go test ./lifecycle -run Docs -update", page)
	}
}

// TestWords: the rows know the words that the nouns list, and no others.
func TestWords(t *testing.T) {
	same := func(name string, want ...string) {
		t.Helper()
		have := Words(name)
		slices.Sort(have)
		slices.Sort(want)
		if !slices.Equal(have, want) {
			t.Errorf("%s: rows have %q, nouns have %q", name, have, want)
		}
	}
	same("registration", words(muster.RegistrationStates)...)
	same("boot record", words(muster.BootStates)...)
	same("mode", "normal", "rescue")
	same("node policy", "in_service", "no_provision", "quiesce", "graceful_remove", "expunged")
	same("node state", "initializing", "in_service", "quiesced", "decommissioned")
	same("disk policy", "in_service", "graceful_remove", "expunged")
	same("disk state", "in_service", "decommissioned")
	same("nothing of the kind")
}

func words[S ~string](list []S) (ws []string) {
	for _, s := range list {
		ws = append(ws, string(s))
	}
	return ws
}

// TestSentences: whatever people read is a sentence, and no two facts have one
// name.
func TestSentences(t *testing.T) {
	names := map[string]*Fact{}
	for _, i := range Events() {
		if i.Doc == "" || strings.HasSuffix(i.Doc, ".") {
			t.Errorf("%s: %q", i.Event, i.Doc)
		}
	}
	for _, l := range table.lifecycles {
		for _, p := range l.places {
			if p.Doc == "" {
				t.Errorf("%s %q says nothing of itself", l.name, p.State)
			}
		}
		for _, r := range l.rows {
			for _, f := range slices.Concat(r.When, r.Needs) {
				if f.Is == "" || f.Else == "" || f.Is == f.Else {
					t.Errorf("fact %q: %q, %q", f.Name, f.Is, f.Else)
				}
				if n := names[f.Name]; n != nil && n.Is != f.Is {
					t.Errorf("two facts are called %q", f.Name)
				}
				names[f.Name] = f
			}
		}
	}
}
