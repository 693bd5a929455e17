package main

import (
	"bytes"
	"maps"
	"strings"
	"testing"
)

// Every command says what it is for, and how it is called.
func TestHelpTeaches(t *testing.T) {
	all := maps.Clone(commands)
	maps.Copy(all, systemCommands)
	for _, name := range []string{"version", "setup", "declared"} { // for programs alone; the last is these tests'
		delete(all, name)
	}
	for name := range all {
		var out bytes.Buffer
		code := command(t.Context(), []string{name, "-h"}, nil, &out, &out)
		if text := out.String(); code != 0 || !strings.HasPrefix(text, "usage: muster-host "+name) || strings.Count(text, "\n") < 6 || !strings.Contains(text, "\n  --output string\n") || strings.Contains(text, "\n  -o") {
			t.Errorf("%s -h: status %d: %s", name, code, text)
		}
	}
}
