package api_test

import (
	"encoding/json"
	"slices"
	"testing"

	"muster.internal"
	"muster.internal/api"
)

// TestStatesInTheDocument: what a list may be filtered by is what the nouns list.
func TestStatesInTheDocument(t *testing.T) {
	var d struct {
		Paths map[string]struct {
			Get struct {
				Parameters []struct {
					Name   string
					Schema struct{ Enum []string }
				}
			}
		}
	}
	if err := json.Unmarshal(api.New(new(fake), api.Options{}).Document(), &d); err != nil {
		t.Fatal(err)
	}
	state := func(path string) []string {
		for _, p := range d.Paths[path].Get.Parameters {
			if p.Name == "state" {
				return slices.Sorted(slices.Values(p.Schema.Enum))
			}
		}
		return nil
	}
	if got, want := state("/v1/registrations"), sorted(muster.RegistrationStates); !slices.Equal(got, want) {
		t.Errorf("registrations can be listed by %q, the states are %q", got, want)
	}
	if got, want := state("/v1/boot-records"), sorted(muster.BootStates); !slices.Equal(got, want) {
		t.Errorf("boot records can be listed by %q, the states are %q", got, want)
	}
}

func sorted[S ~string](words []S) (out []string) {
	for _, w := range words {
		out = append(out, string(w))
	}
	slices.Sort(out)
	return out
}
