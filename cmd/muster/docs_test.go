package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"muster.internal/lifecycle"
)

// cliDocs is the whole help as one page.
func cliDocs(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("# The muster command line\n\nGenerated from the program's own help: `make generate`.\n\n")
	fmt.Fprintf(&b, "```text\n%s\n```\n", root.Long)
	fmt.Fprintf(&b, "\nFlags that every command takes:\n\n```text\n%s```\n", root.PersistentFlags().FlagUsages())
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, s := range c.Commands() {
			if s.Name() == "help" || s.Hidden {
				continue
			}
			if s.HasSubCommands() {
				fmt.Fprintf(&b, "\n## muster %s\n\n%s.\n", s.Name(), s.Short)
				if s.Long != "" {
					fmt.Fprintf(&b, "\n%s\n", s.Long)
				}
				walk(s)
				continue
			}
			level := "##"
			if s.Parent() != root {
				level = "###"
			}
			fmt.Fprintf(&b, "\n%s %s\n\n", level, s.UseLine())
			if s.Long != "" {
				fmt.Fprintf(&b, "%s\n", s.Long)
			} else {
				fmt.Fprintf(&b, "%s.\n", s.Short)
			}
			if f := s.LocalFlags().FlagUsages(); f != "" {
				fmt.Fprintf(&b, "\n```text\n%s```\n", f)
			}
			if s.Example != "" {
				fmt.Fprintf(&b, "\n```sh\n%s\n```\n", undent(s.Example))
			}
		}
	}
	walk(root)
	return b.String()
}

func undent(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimPrefix(l, "  ")
	}
	return strings.Join(lines, "\n")
}

func TestDocsAreNotStale(t *testing.T) {
	const path = "../../docs/cli.md"
	a := &app{env: env{getenv: func(string) string { return "" }}}
	got := cliDocs(a.root())
	if *update {
		if err := os.MkdirAll("../../docs", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is stale: make generate", path)
	}
}

// TestEveryCommandTeaches demands an example and a sentence of every command,
// and a story of every leaf.
func TestEveryCommandTeaches(t *testing.T) {
	a := &app{env: env{getenv: func(string) string { return "" }}}
	stories, err := os.ReadDir("testdata/stories")
	if err != nil {
		t.Fatal(err)
	}
	var told strings.Builder
	for _, s := range stories {
		b, err := os.ReadFile("testdata/stories/" + s.Name())
		if err != nil {
			t.Fatal(err)
		}
		told.Write(b)
	}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, s := range c.Commands() {
			if s.Short == "" || strings.HasSuffix(s.Short, ".") {
				t.Errorf("%s: a short sentence without a full stop is wanted, not %q", s.CommandPath(), s.Short)
			}
			if s.HasSubCommands() {
				walk(s)
				continue
			}
			if !strings.Contains(s.Example, s.CommandPath()) {
				t.Errorf("%s: no example", s.CommandPath())
			}
			if !strings.Contains(told.String(), s.CommandPath()) {
				t.Errorf("%s: no story", s.CommandPath())
			}
		}
	}
	walk(a.root())
}

// TestEveryVerbIsACommand: what the rows let an operator say can be said here,
// in the same words but for rm.
func TestEveryVerbIsACommand(t *testing.T) {
	a := &app{env: env{getenv: func(string) string { return "" }}}
	for group, on := range map[string]lifecycle.Subject{"registration": lifecycle.Registrations, "boot": lifecycle.BootRecords, "machine": lifecycle.Machines} {
		for _, i := range lifecycle.Help(on) {
			verb := i.Verb
			if verb == "delete" {
				verb = "rm"
			}
			c, _, err := a.root().Find([]string{group, verb})
			if err != nil || c.Name() != verb {
				t.Errorf("an operator may %s, and there is no muster %s %s", i.Verb, group, verb)
			}
		}
	}
}

// TestHelpIsForPeople: no command panics on --help, and help goes to standard
// output with exit code 0.
func TestHelpIsForPeople(t *testing.T) {
	a := &app{env: env{getenv: func(string) string { return "" }}}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		var out, errs bytes.Buffer
		args := append(strings.Fields(c.CommandPath())[1:], "--help")
		code := run(context.Background(), env{stdout: &out, stderr: &errs, getenv: func(string) string { return "" }}, args)
		if code != 0 || errs.Len() > 0 || !strings.Contains(out.String(), "Usage:") {
			t.Errorf("%v: exit %d, %s", args, code, errs.String())
		}
		for _, s := range c.Commands() {
			walk(s)
		}
	}
	walk(a.root())
}
