package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A number is a flag that takes a whole number within bounds.
type number[T int | int64] struct {
	to       *T
	min, max T
}

// numberVar defines a flag whose value is a whole number from min to max.
func numberVar[T int | int64](f *pflag.FlagSet, to *T, name string, value, min, max T, usage string) {
	*to = value
	f.Var(number[T]{to, min, max}, name, usage)
}

func (n number[T]) Set(s string) error {
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil || v < int64(n.min) || v > int64(n.max) {
		return fmt.Errorf("%q is not a whole number from %d to %d", s, n.min, n.max)
	}
	*n.to = T(v)
	return nil
}

func (n number[T]) String() string { return fmt.Sprint(*n.to) }
func (n number[T]) Type() string   { return "int" }

// maxSeq bounds numbers of changes and epochs: JSON holds no larger one.
const maxSeq = 1<<53 - 1

// A lifetime is a flag that takes a length of time; it holds whole seconds, as
// the API counts.
type lifetime int

func (l *lifetime) Set(s string) error {
	d, err := parseDays(s)
	*l = lifetime(d / time.Second)
	return err
}

func (l *lifetime) String() string {
	if *l == 0 {
		return "" // not given
	}
	return (time.Duration(*l) * time.Second).String()
}

func (l *lifetime) Type() string { return "duration" }

// parseDays is time.ParseDuration with days. It refuses what the API, which
// counts whole seconds, would take for another lifetime: a fraction of a second
// would become 0, and that means for ever.
func parseDays(s string) (time.Duration, error) {
	const day = 24 * time.Hour
	d, err := time.ParseDuration(s)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		var n int64
		n, err = strconv.ParseInt(days, 10, 64)
		if err == nil && n > int64(math.MaxInt64/day) {
			return 0, fmt.Errorf("%q is longer than the %dd that can be counted", s, int64(math.MaxInt64/day))
		}
		d = time.Duration(n) * day
	}
	switch {
	case err != nil || d <= 0:
		return 0, fmt.Errorf("%q is not a length of time like 30m, 12h or 90d", s)
	case d < time.Second:
		return 0, fmt.Errorf("%q is shorter than a second", s)
	}
	return d, nil
}

// wrongFlag says which flag is wrong and what it takes, in place of what the
// parser of its value says.
func wrongFlag(c *cobra.Command, err error) error {
	if args := c.Flags().Args(); c.HasSubCommands() && len(args) > 0 { // the flag may well be that of the command which was meant
		return c.Args(c, args)
	}
	var e *pflag.InvalidValueError
	if !errors.As(err, &e) {
		return usagef("%v", err)
	}
	why := e.Unwrap()
	switch e.GetFlag().Value.Type() {
	case "bool":
		why = fmt.Errorf("%q is neither true nor false", e.GetValue())
	case "float64":
		why = fmt.Errorf("%q is not a number", e.GetValue())
	}
	return usagef("--%s: %v", e.GetFlag().Name, why)
}

// clears marks flags to which nothing is a value: it takes away what is set.
func clears(c *cobra.Command, flags ...string) {
	for _, name := range flags {
		must(c.Flags().SetAnnotation(name, emptyClears, nil))
	}
}

const emptyClears = "empty_clears"

// longest is the length of an argument or a flag that nothing needs more of: a
// path has no more bytes, and a name that long would not pass as part of a URL.
const longest = 4096

// filled refuses an argument or a flag that is given and empty: a script whose
// variable is not set must not be given the default instead. What is far too
// long (a file in place of its name) is refused too, without repeating it.
func filled(c *cobra.Command, args []string) error {
	if c.DisableFlagParsing { // completion: what it gets is another command's
		return nil
	}
	blank := func(s string) bool { return strings.TrimSpace(s) == "" }
	if slices.ContainsFunc(args, blank) {
		return usagef("%s: an argument is empty", c.CommandPath())
	}
	long := func(s string) bool { return len(s) > longest }
	if slices.ContainsFunc(args, long) {
		return usagef("%s: an argument is longer than %d bytes", c.CommandPath(), longest)
	}
	var err error
	c.Flags().Visit(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		if _, may := f.Annotations[emptyClears]; !may && (len(values) == 0 || slices.ContainsFunc(values, blank)) {
			err = usagef("--%s is empty: give it a value, or leave it out", f.Name)
		}
		if slices.ContainsFunc(values, long) {
			err = usagef("--%s is longer than %d bytes", f.Name, longest)
		}
	})
	return err
}
