package main

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// everyFlag calls do for each flag of each command, with a tree of its own.
func everyFlag(t *testing.T, do func(t *testing.T, c *cobra.Command, f *pflag.Flag)) {
	t.Helper()
	fresh := func() *cobra.Command {
		return (&app{env: env{getenv: func(string) string { return "" }}}).root()
	}
	var walk func(path []string, c *cobra.Command)
	walk = func(path []string, c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name == "help" {
				return
			}
			again, _, err := fresh().Find(path)
			if err != nil {
				t.Fatal(err)
			}
			again.LocalFlags() // a root's flags are all its own only now
			t.Run(strings.Join(append(path, f.Name), " "), func(t *testing.T) { do(t, again, again.Flag(f.Name)) })
		})
		for _, s := range c.Commands() {
			walk(append(path[:len(path):len(path)], s.Name()), s)
		}
	}
	walk(nil, fresh())
}

// given is what the program says to one flag with one value.
func given(c *cobra.Command, flag, value string) error {
	if err := c.ParseFlags([]string{"--" + flag + "=" + value}); err != nil {
		return wrongFlag(c, err)
	}
	return filled(c, nil)
}

// TestEmptyIsNotTheDefault: whatever is given and empty is refused, except
// where the help says what it clears.
func TestEmptyIsNotTheDefault(t *testing.T) {
	everyFlag(t, func(t *testing.T, c *cobra.Command, f *pflag.Flag) {
		for _, value := range []string{"", "  "} {
			err := given(c, f.Name, value)
			if strings.Contains(f.Usage, `"" clears`) {
				if err != nil {
					t.Errorf("%q: %v", value, err)
				}
				continue
			}
			if !errors.As(err, new(*usageError)) || !strings.HasPrefix(err.Error(), "--"+f.Name) {
				t.Errorf("%q: %v", value, err)
			}
		}
	})
	for _, args := range []string{"registration show", "registration readmit", "registration rm", "node expunge", "token revoke", "key revoke",
		"disk keep", "boot enroll", "machine accept", "operator rm", "image rm", "registration log", "boot explain", "window show"} {
		words := append(strings.Fields(args), "")
		if args == "node expunge" {
			words = append(words, "--reason", "x")
		}
		if code, said := try(t, io.Discard, words...); code != exitUsage || !strings.Contains(said, "is empty") {
			t.Errorf("%s with nothing: exit %d, %s", args, code, said)
		}
	}
}

// TestFarTooLong: a file's content in place of its name is not repeated, and goes
// nowhere.
func TestFarTooLong(t *testing.T) {
	for _, args := range [][]string{
		{"token", "revoke", strings.Repeat("x", longest+1)},
		{"registration", "plan-setup", "SIM00001", "--hostname", strings.Repeat("x", longest+1)},
		{"registration", "plan-setup", "SIM00001", "--exclude", "sda," + strings.Repeat("x", longest+1)},
	} {
		if code, said := try(t, io.Discard, args...); code != exitUsage || !strings.Contains(said, "is longer than 4096 bytes") || strings.Contains(said, "xxx") {
			t.Errorf("%.30q: exit %d, %.200s", args, code, said)
		}
	}
}

// TestNumbersAreBounded: no flag takes a number that does not fit, or tells
// people what a parser calls the mistake.
func TestNumbersAreBounded(t *testing.T) {
	everyFlag(t, func(t *testing.T, c *cobra.Command, f *pflag.Flag) {
		var want string
		switch f.Value.Type() {
		case "int", "int64", "uint", "uint16":
			want = "is not a whole number from "
		case "duration":
			want = "is not a length of time like "
		case "float64":
			want = "is not a number"
		case "bool":
			want = "is neither true nor false"
		default:
			return
		}
		for _, value := range []string{"x", "1e400", "-99999999999999999999", "99999999999999999999"} {
			if f.Value.Type() == "float64" && strings.HasSuffix(value, "9") {
				continue
			}
			err := given(c, f.Name, value)
			if !errors.As(err, new(*usageError)) || !strings.HasPrefix(err.Error(), "--"+f.Name+": ") || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v", value, err)
			}
		}
	})
	for _, c := range []struct {
		args string
		exit int
	}{
		{"window open auto-approve --for 2h --count 0", exitUsage},
		{"window open auto-approve --for 2h --count 1000001", exitUsage},
		{"window open auto-approve --for 2h --count 1000000", exitOK},
		{"audit ls --limit 0", exitUsage},
		{"audit ls --limit -1", exitUsage},
		{"audit ls --limit 1", exitOK},
		{"events --last 1001", exitUsage},
		{"events --after -1", exitUsage},
		{"key create --scope full --expires 0s", exitUsage},
	} {
		if code, said := try(t, io.Discard, strings.Fields(c.args)...); code != c.exit {
			t.Errorf("%s: exit %d, %s", c.args, code, said)
		}
	}
}

// TestDefaultsAreSaid: a help that shows a default has one.
func TestDefaultsAreSaid(t *testing.T) {
	everyFlag(t, func(t *testing.T, c *cobra.Command, f *pflag.Flag) {
		if text := c.LocalFlags().FlagUsages(); strings.Contains(text, "(default )") {
			t.Error(text)
		}
	})
}

// A lifetime that is misread must never become a longer one: 0 seconds mean for
// ever to the API, and a product that overflows may come out as anything.
func TestParseDays(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"1s": time.Second, "12h": 12 * time.Hour, "90d": 90 * 24 * time.Hour, "106751d": 106751 * 24 * time.Hour,
		// refused
		"": 0, "0": 0, "0d": 0, "-1h": 0, "-1d": 0, "d": 0, "1.5d": 0, "30": 0, "\u00fc": 0,
		"1ns": 0, "999ms": 0,
		"106752d": 0, "1000000d": 0, "99999999999d": 0, "-9223372036854775808d": 0, "99999999999999999999d": 0,
	} {
		got, err := parseDays(in)
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("parseDays(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
}
