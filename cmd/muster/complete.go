package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// completionPatience bounds what a press of the tab key may cost.
const completionPatience = 2 * time.Second

type completer = func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective)

// completeWith offers what list returns for the first argument. Whatever goes
// wrong is silence: the shell is not the place for an error.
func (a *app) completeWith(list func(context.Context, fleet) ([]string, error)) completer {
	return func(c *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		none := cobra.ShellCompDirectiveNoFileComp
		if len(args) > 0 {
			return nil, none
		}
		parent := c.Context()
		if parent == nil {
			parent = context.Background()
		}
		ctx, cancel := context.WithTimeout(parent, completionPatience)
		defer cancel()
		f, err := a.fleet(ctx)
		if err != nil {
			return nil, none
		}
		words, err := list(ctx, f)
		if err != nil {
			return nil, none
		}
		var out []cobra.Completion
		for _, w := range words {
			if strings.HasPrefix(strings.ToLower(w), strings.ToLower(prefix)) {
				out = append(out, w)
			}
		}
		return out, none
	}
}

// machineWords are UUIDs with what people recognise, then host names and
// serial numbers.
func machineWords(ctx context.Context, f fleet) ([]string, error) {
	rs, err := allRegistrations(ctx, f, "")
	var words []string
	for _, r := range rs {
		words = append(words, r.ServerUUID+"\t"+said(strings.TrimSpace(r.Hostname+" "+r.Serial)+" "+string(r.State)))
		for _, w := range []string{r.Hostname, r.Serial} {
			if w != "" && !strings.ContainsAny(w, " \t\n") {
				words = append(words, said(w)+"\t"+short(r.ServerUUID))
			}
		}
	}
	return words, err
}

func nicWords(ctx context.Context, f fleet) ([]string, error) {
	rs, err := allBootRecords(ctx, f, "")
	var words []string
	for _, r := range rs {
		words = append(words, r.MAC+"\t"+strings.TrimSpace(r.Address+" "+string(r.State)))
	}
	return words, err
}

func imageWords(ctx context.Context, f fleet) ([]string, error) {
	is, err := f.Images(ctx)
	var words []string
	for _, i := range is {
		words = append(words, i.Name+"\t"+i.Comment)
	}
	return words, err
}

func booterWords(ctx context.Context, f fleet) ([]string, error) {
	bs, err := f.Booters(ctx)
	var words []string
	for _, b := range bs {
		words = append(words, b.Booter+"\t"+b.Address)
	}
	return words, err
}

func keyWords(ctx context.Context, f fleet) ([]string, error) {
	ks, err := f.Keys(ctx)
	var words []string
	for _, k := range ks {
		words = append(words, k.ID+"\t"+strings.TrimSpace(string(k.Scope)+" "+k.Comment))
	}
	return words, err
}

// states spells a list of wire names for completion.
func states[S ~string](ss []S) []string {
	out := make([]string, len(ss))
	for i, s := range ss {
		out[i] = string(s)
	}
	return out
}
