package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	muster "muster.internal"
	"muster.internal/explain"
)

type explainFlags struct {
	pcap    string
	offline bool
	follow  bool
}

func (a *app) bootExplain() *cobra.Command {
	var o explainFlags
	c := &cobra.Command{
		Use:   "explain [NIC]",
		Short: "Say why a machine boots, or does not, and what can be done",
		Long: `Say why a machine boots, or does not, and what can be done: what it asked last
and by which booter, which record, policy row and firmware quirk decided, what
was sent or why nothing was, since when. The card is named by its MAC, its
address, or its machine's host name, serial number or UUID.

--pcap explains a capture (pcap or pcapng) instead, packet by packet: what was
asked, what other servers answered, and what muster answers with the records
and the policy of this moment; --offline with none. Of a capture that is cut off or
damaged what can be read is explained, and the exit code is 1.`,
		Example: `  muster boot explain 52:54:00:77:00:01
  muster boot explain web1 --follow

  # what is on the wire, on the booter's host or on a mirror port
  tcpdump -eni any -w boot.pcap 'port 67 or port 68 or port 69 or port 80'
  muster boot explain --pcap boot.pcap
  muster boot explain --pcap boot.pcap --offline`,
		Args:              o.args,
		ValidArgsFunction: a.completeWith(nicWords),
		RunE: func(c *cobra.Command, args []string) error {
			if o.pcap != "" {
				return a.explainWire(c.Context(), o)
			}
			f, err := a.fleet(c.Context())
			if err != nil {
				return err
			}
			mac, err := nic(c.Context(), f, args[0])
			if err != nil {
				return err
			}
			if o.follow {
				return a.followBoot(c.Context(), f, mac)
			}
			x, err := f.ExplainBoot(c.Context(), mac)
			if err != nil {
				return err
			}
			return a.show(x, func(w io.Writer) { a.drawExplanation(w, x) })
		},
	}
	o.add(c)
	c.Flags().BoolVarP(&o.follow, "follow", "f", false, "go on as things happen, until ^C")
	return c
}

func (a *app) bootReplay() *cobra.Command {
	var o explainFlags
	c := &cobra.Command{
		Use:   "replay [NIC]",
		Short: "Put a machine's last packets, or a capture, through the present decision",
		Long: `Put what a machine asked last through the decision that booters make now, with
the record and the policy of this moment, and show what changed since. With
--pcap the packets of a capture, compared with what was answered there; the exit
code is 1 when it is cut off or damaged. Nothing is sent, and nothing changes.`,
		Example: `  muster boot replay 52:54:00:77:00:01
  muster boot replay --pcap boot.pcap
  muster boot replay --pcap boot.pcap --offline --output json`,
		Args:              o.args,
		ValidArgsFunction: a.completeWith(nicWords),
		RunE: func(c *cobra.Command, args []string) error {
			if o.pcap != "" {
				return a.replayWire(c.Context(), o)
			}
			changes, err := a.replay(c.Context(), args[0])
			if err != nil {
				return err
			}
			return a.show(list(changes), func(w io.Writer) { a.drawChanges(w, changes) })
		},
	}
	o.add(c)
	return c
}

func (o *explainFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&o.pcap, "pcap", "", "capture file, pcap or pcapng; - for standard input")
	c.Flags().BoolVar(&o.offline, "offline", false, "with --pcap: ask no control plane; every machine is unknown")
	must(c.MarkFlagFilename("pcap"))
}

// args: a card, or a capture.
func (o *explainFlags) args(c *cobra.Command, args []string) error {
	switch {
	case o.pcap != "" && o.follow:
		return usagef("--follow goes with a card, not with a capture")
	case o.offline && o.pcap == "":
		return usagef("--offline goes with --pcap")
	case o.pcap != "":
		return names()(c, args)
	}
	if len(args) == 0 {
		return usagef("%s: missing NIC, or --pcap FILE", c.CommandPath())
	}
	return names("NIC")(c, args)
}

// explainEvery is how often --follow looks.
const explainEvery = 2 * time.Second

// followBoot prints each new exchange, and the verdict whenever it changes.
func (a *app) followBoot(ctx context.Context, f muster.Fleet, mac string) error {
	said, told := "", map[string]int{}
	for first := true; ; first = false {
		x, err := f.ExplainBoot(ctx, mac)
		if ctx.Err() != nil {
			return nil // interrupted: the end that was asked for
		}
		if err != nil {
			return err
		}
		verdict := string(x.Verdict) + " " + x.Cause
		if a.output == "json" {
			if now := fmt.Sprint(verdict, x.LastAsk); now != said {
				said = now
				if err := writeJSON(a.stdout, x); err != nil {
					return err
				}
			}
		} else {
			if first {
				a.drawExplanation(a.stdout, x)
				said = verdict
			}
			for _, s := range x.Steps {
				key := fmt.Sprint(s.Booter, s.First.UnixNano(), s.Via, s.Asked)
				mark := s.Count
				if s.Outcome != "" {
					mark = -s.Count
				}
				if told[key] != mark && !first {
					fmt.Fprintln(a.stdout, strings.Join(a.stepCells(s), "  "))
				}
				told[key] = mark
			}
			if verdict != said {
				said = verdict
				fmt.Fprintln(a.stdout)
				a.drawExplanation(a.stdout, x)
			}
		}
		t := time.NewTimer(explainEvery)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil
		}
	}
}

// replay decides again what booters remember of a card.
func (a *app) replay(ctx context.Context, card string) ([]explain.Change, error) {
	f, err := a.fleet(ctx)
	if err != nil {
		return nil, err
	}
	mac, err := nic(ctx, f, card)
	if err != nil {
		return nil, err
	}
	x, err := f.ExplainBoot(ctx, mac)
	if err != nil {
		return nil, err
	}
	k, err := a.knownSite(ctx, f)
	if err != nil {
		return nil, err
	}
	site := k.site(x.Record)
	return explain.Replay(mac, x.Steps, func(s *muster.ExplainedStep) explain.Site { return k.asBooter(site, s.Booter) }), nil
}
