package module

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Needs are what a node's profile must say: for each of NeedNames the words of
// which one must be there.
type Needs map[string]Words

// Words are alternatives. In JSON and YAML one alone needs no list.
type Words []string

// Any stands for every word but none at all.
const Any = "any"

// NeedNames are the fields of a profile, which is all that can be needed. What
// is true or false is "true" or "false".
var NeedNames = []string{"arch", "container_runtime", "firmware", "graphical_session", "kernel", "os", "os_version", "package_manager",
	"service_manager", "virtualised", "zfs"}

// UnmarshalJSON reads a word or a list of words, and true and false as words.
func (w *Words) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '[' {
		return json.Unmarshal(b, (*[]string)(w))
	}
	if s := string(b); s == "true" || s == "false" {
		*w = Words{s}
		return nil
	}
	var one string
	err := json.Unmarshal(b, &one)
	*w = Words{one}
	return err
}

// Lacks says what a profile has not, for people; empty when it has everything.
func (n Needs) Lacks(profile func(name string) string) string {
	for _, name := range slices.Sorted(maps.Keys(n)) {
		have := profile(name)
		if !slices.Contains(n[name], have) && (have == "" || !slices.Contains(n[name], Any)) {
			return name + " " + strings.Join(n[name], " or ")
		}
	}
	return ""
}
