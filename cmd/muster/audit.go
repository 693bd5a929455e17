package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	muster "muster.internal"
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
	f.Int64Var(&filter.After, "after", 0, "entries after this number")
	f.StringVar(&filter.Subject, "subject", "", "entries about this subject, registration/UUID or boot-record/MAC")
	f.IntVar(&filter.Limit, "limit", 100, "at most this many")
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

func (a *app) followAudit(ctx context.Context, f muster.Fleet, filter muster.AuditFilter, es []muster.AuditEntry) error {
	filter.Limit, filter.Wait = page, followWait
	for {
		for _, e := range es {
			if err := a.auditLine(e); err != nil {
				return err
			}
			filter.After = e.Seq
		}
		var err error
		if es, err = f.Audit(ctx, filter); err != nil {
			if errors.Is(err, context.Canceled) {
				return nil // interrupted: that is how following ends
			}
			return err
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
	return &cobra.Command{
		Use:   "verify",
		Short: "Prove the chain, or name the first broken entry (exit code 1)",
		Long: `Walk along the chain from its first entry. Any entry that was changed, moved,
added or taken out is found, and an end that was cut off. What the chain cannot
prove by itself: that whoever can write the database has not written all of it
anew, or cut off its end together with the record of where it ends. Keep the
head that this prints, somewhere else: an entry of that hash must be in every
later export.`,
		Example: `  muster audit verify`,
		Args:    names(),
		RunE: a.with(func(c *cobra.Command, f fleet, _ []string) error {
			v, err := f.VerifyAudit(c.Context())
			if err != nil {
				return err
			}
			if err := a.show(v, func(w io.Writer) {
				if v.OK {
					fmt.Fprintf(w, "the chain is whole: %d entries, head %s\n", v.VerifiedTo, v.Head)
				}
			}); err != nil {
				return err
			}
			if !v.OK {
				return fmt.Errorf("the audit chain is broken at entry %d: %s", v.BrokenAt, v.Reason)
			}
			return nil
		}),
	}
}

func (a *app) auditExport() *cobra.Command {
	var filter muster.AuditFilter
	var out string
	c := &cobra.Command{
		Use:   "export",
		Short: "Write the entries as JSON lines, hashes included",
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
			n := 0
			enc := json.NewEncoder(w)
			enc.SetEscapeHTML(false)
			err = walkAudit(c.Context(), f, filter, func(e muster.AuditEntry) error { n++; return enc.Encode(e) })
			if err == nil {
				fmt.Fprintf(a.stderr, "%d entries\n", n)
			}
			return err
		}),
	}
	f := c.Flags()
	f.Int64Var(&filter.After, "after", 0, "entries after this number")
	f.StringVar(&filter.Subject, "subject", "", "entries about this subject")
	f.StringVar(&out, "file", "", "write there; the file must not exist")
	return c
}
