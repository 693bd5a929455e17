package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	muster "muster.internal"
	"muster.internal/audit"
)

func (a *app) auditCmd() *cobra.Command {
	return group("audit", "Who did what: the chained record of every change",
		`Every change writes an audit entry in the same transaction, and each entry holds
the hash of the one before: what was rewritten or cut out shows.`,
		a.auditLs(), a.auditVerify(), a.auditExport())
}

func (a *app) auditLs() *cobra.Command {
	var filter muster.AuditFilter
	var follow bool
	c := &cobra.Command{
		Use:   "ls",
		Short: "List audit entries, oldest first",
		Long: `List audit entries, oldest first. Without --after the last ones are shown, as
many as --limit says. --follow goes on as they come.`,
		Example: `  muster audit ls
  muster audit ls --subject registration/4c4c4544-0043-5810-8032-b8c04f503533
  muster audit ls --follow`,
		Args: names(),
		RunE: a.with(func(c *cobra.Command, f fleet, _ []string) error {
			es, err := lastEntries(c, f, filter)
			if err != nil {
				return err
			}
			if follow {
				return a.followAudit(c.Context(), f, filter, es)
			}
			return a.show(list(es), func(w io.Writer) {
				rows := make([][]string, len(es))
				for i, e := range es {
					rows[i] = []string{fmt.Sprint(e.Seq), e.At.UTC().Format(time.DateTime), said(e.Actor), said(e.Action), said(e.Subject), detail(e)}
				}
				grid(w, []string{"SEQ", "AT (UTC)", "ACTOR", "ACTION", "SUBJECT", "DETAIL"}, rows)
			})
		}),
	}
	f := c.Flags()
	numberVar(f, &filter.After, "after", 0, 0, maxSeq, "the first entries after this number, instead of the last ones")
	f.StringVar(&filter.Subject, "subject", "", "only about this: registration/UUID, node/ID, boot-record/MAC, …")
	numberVar(f, &filter.Limit, "limit", 100, 1, 1000, "at most this many; muster audit export writes all")
	f.BoolVarP(&follow, "follow", "f", false, "go on as entries come, until interrupted")
	return c
}

// lastEntries returns what was asked for: after a number, or the tail.
func lastEntries(c *cobra.Command, f muster.Fleet, filter muster.AuditFilter) ([]muster.AuditEntry, error) {
	if c.Flags().Changed("after") {
		return f.Audit(c.Context(), filter)
	}
	var tail []muster.AuditEntry
	err := walkAudit(c.Context(), f, muster.AuditFilter{Subject: filter.Subject}, func(e muster.AuditEntry) error {
		if tail = append(tail, e); len(tail) > filter.Limit {
			tail = tail[1:]
		}
		return nil
	})
	return tail, err
}

// walkAudit calls do for every entry, page by page.
func walkAudit(ctx context.Context, f muster.Fleet, filter muster.AuditFilter, do func(muster.AuditEntry) error) error {
	filter.Limit = page
	for {
		es, err := f.Audit(ctx, filter)
		if err != nil {
			return err
		}
		for _, e := range es {
			if err := do(e); err != nil {
				return err
			}
			filter.After = e.Seq
		}
		if len(es) < page {
			return nil
		}
	}
}

// detail fits what an entry says on the end of a line.
func detail(e muster.AuditEntry) string {
	s := said(string(e.Detail))
	if s == "{}" || s == "null" {
		return ""
	}
	if r := []rune(s); len(r) > 80 {
		return string(r[:79]) + "…"
	}
	return s
}

// followWait is how long one request waits for news.
const followWait = 25 * time.Second

// followAudit prints entries and those that come after them. A control plane
// that restarts is waited for: no entry is left out, and none is told twice.
func (a *app) followAudit(ctx context.Context, f muster.Fleet, filter muster.AuditFilter, es []muster.AuditEntry) error {
	filter.Limit, filter.Wait = page, followWait
	for failed := 0; ; {
		for _, e := range es {
			if err := a.auditLine(e); err != nil {
				return err
			}
			filter.After = e.Seq
		}
		var err error
		es, err = f.Audit(ctx, filter)
		switch {
		case ctx.Err() != nil:
			return nil // interrupted: that is how following ends
		case err == nil:
			failed = 0
			continue
		case !passing(err):
			return err
		}
		if failed++; failed == 1 {
			fmt.Fprintf(a.stderr, "no answer; going on after entry %d (%v)\n", filter.After, err)
		}
		if a.wait(ctx, pauseBefore(failed)) != nil {
			return nil
		}
	}
}

func (a *app) auditLine(e muster.AuditEntry) error {
	if a.output == "json" {
		return json.NewEncoder(a.stdout).Encode(e)
	}
	_, err := fmt.Fprintf(a.stdout, "%d  %s  %s  %s  %s  %s\n", e.Seq, e.At.UTC().Format(time.DateTime),
		said(e.Actor), a.paint(bold, said(e.Action)), said(e.Subject), detail(e))
	return err
}

func (a *app) auditVerify() *cobra.Command {
	var file string
	var known audit.Known
	c := &cobra.Command{
		Use:   "verify",
		Short: "Prove the chain, or name the first broken entry (exit code 1)",
		Long: `Walk along the chain from its first entry. Any entry that was changed, moved,
added or taken out is found, and an end that was cut off. What the chain cannot
prove by itself: that whoever can write the database has not written all of it
anew, or cut off its end together with the record of where it ends. Keep the
head that this prints, somewhere else: an entry of that hash must be in every
later export.

--file proves an export by itself, without a control plane and without a
credential. Entries that were taken off its end leave no trace in it, unless the
cut went through a line: only a head that was kept shows that, and that all was
written anew from some entry on. --head names one. An export of a later part is
verified with the --after that it was made with; an export by --subject has gaps
and is no chain.`,
		Example: `  muster audit verify
  muster audit verify --file audit.jsonl
  muster audit verify --file audit.jsonl --head "$(cat head.2026-11)"
  cat audit.jsonl new.jsonl | muster audit verify --file -`,
		Args: names(),
		RunE: func(c *cobra.Command, _ []string) error {
			if file != "" {
				return a.verifyFile(file, known)
			}
			if known != (audit.Known{}) {
				return usagef("--head and --after go with --file")
			}
			f, err := a.fleet(c.Context())
			if err != nil {
				return err
			}
			v, err := f.VerifyAudit(c.Context())
			if err != nil {
				return err
			}
			return a.showVerdict(v, v, fmt.Sprintf("the chain is whole: %d entries, head %s", v.VerifiedTo, v.Head))
		},
	}
	f := c.Flags()
	f.StringVar(&file, "file", "", "an export, - for standard input")
	f.StringVar(&known.Head, "head", "", "with --file: the hash of an entry that must be in it, as printed by an earlier verify")
	numberVar(f, &known.After, "after", 0, 0, maxSeq, "with --file: the export begins after this entry")
	return c
}

func (a *app) verifyFile(file string, known audit.Known) error {
	if known.After < 0 {
		return usagef("--after is the number of an entry, not %d", known.After)
	}
	if known.Head != "" && !isHash(known.Head) {
		return usagef("--head is a hash of 64 hexadecimal digits, as muster audit verify prints it")
	}
	in := a.stdin
	if file != "-" {
		f, err := os.Open(a.abs(file))
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	v, err := audit.VerifyFile(in, known)
	if err != nil {
		return fmt.Errorf("reading the export: %w", err)
	}
	return a.showVerdict(v, v.AuditVerdict, fmt.Sprintf("the chain is whole: entries %d to %d, head %s", v.VerifiedFrom, v.VerifiedTo, v.Head))
}

func isHash(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sha256.Size && s == strings.ToLower(s)
}

// showVerdict says what was proved; a broken chain is a failure.
func (a *app) showVerdict(whole any, v muster.AuditVerdict, good string) error {
	if err := a.show(whole, func(w io.Writer) {
		if v.OK {
			fmt.Fprintln(w, good)
		}
	}); err != nil {
		return err
	}
	switch {
	case v.OK:
		return nil
	case v.BrokenAt == 0:
		return fmt.Errorf("the audit chain is not the one that was kept: %s", v.Reason)
	}
	return fmt.Errorf("the audit chain is broken at entry %d: %s", v.BrokenAt, v.Reason)
}

func (a *app) auditExport() *cobra.Command {
	var filter muster.AuditFilter
	var out string
	c := &cobra.Command{
		Use:   "export",
		Short: "Write the entries as JSON lines, hashes included",
		Long: `Write the entries as JSON lines, with their hashes: "muster audit verify --file"
proves them without the control plane. Exports that follow one another, by
--after, may be put into one file.`,
		Example: `  muster audit export > audit.jsonl
  muster audit export --after 1200 --file new.jsonl`,
		Args: names(),
		RunE: a.with(func(c *cobra.Command, f fleet, _ []string) (err error) {
			w := a.stdout
			if out != "" && out != "-" {
				file, err := os.OpenFile(a.abs(out), os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
				if err != nil {
					return err
				}
				defer func() {
					if cerr := file.Close(); err == nil {
						err = cerr
					}
				}()
				w = file
			}
			n, head := 0, ""
			err = walkAudit(c.Context(), f, filter, func(e muster.AuditEntry) error {
				line, err := audit.Line(e)
				if err != nil {
					return err
				}
				n, head = n+1, e.Hash
				_, err = w.Write(line)
				return err
			})
			switch {
			case err != nil:
			case n == 0 || filter.Subject != "":
				fmt.Fprintf(a.stderr, "%d entries\n", n)
			default:
				fmt.Fprintf(a.stderr, "%d entries, head %s: keep it apart from the file\n", n, head)
			}
			return err
		}),
	}
	f := c.Flags()
	numberVar(f, &filter.After, "after", 0, 0, maxSeq, "only entries after this number")
	f.StringVar(&filter.Subject, "subject", "", "only about this: registration/UUID, node/ID, boot-record/MAC, …")
	f.StringVar(&out, "file", "", "write there; the file must not exist")
	return c
}
