package control_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/store"
)

// A run of the booter is what the control plane hears of it; one that was killed
// says nothing more, and the next one knows nothing of its connections.
type run struct {
	p    *place
	name string
	held []string
	// stopped: it has said its last word.
	stopped bool
}

func (p *place) run(n int) *run { return &run{p: p, name: fmt.Sprintf("run-%d", n)} }

// hears is a machine that comes to this run.
func (r *run) hears(m *bare) {
	r.p.Helper()
	a := m.announcement()
	a.Run = r.name
	_, err := r.p.enroll.Announce(r.p.Context(), a)
	r.p.ok(err)
	r.held = append(r.held, m.session)
	if r.p.registration(m.uuid).State == muster.AwaitingSetup {
		r.p.ok(m.survey())
	}
}

// reports says what it holds, having followed the feed to its end.
func (r *run) reports() {
	r.p.Helper()
	f, err := r.p.booter.Feed(r.p.Context(), "b1", 0, 0)
	r.p.ok(err)
	r.p.ok(r.p.booter.ReportBooter(r.p.Context(), muster.BooterStatus{Booter: "b1", Seq: f.Seq, Staged: []string{}, Run: r.name, Sessions: r.held, Stopped: r.stopped}))
}

func (m *bare) approve() (muster.SetupGrant, error) {
	ctx := m.p.Context()
	plan, err := m.p.admin.PlanSetup(ctx, m.uuid, muster.SetupRequest{})
	if err != nil {
		return muster.SetupGrant{}, err
	}
	return m.p.admin.ApproveSetup(ctx, m.uuid, muster.SetupApproval{Plan: plan.Digest, Confirm: m.serial})
}

// reconnects is the same boot of the machine over another connection.
func (m *bare) reconnects() { m.session = fmt.Sprintf("%032x", sessions.Add(1)) }

// TestBooterKilled at each point of a setup's way: an approval is refused as soon
// as it is known that it cannot be carried out, one that was given before is good
// for its own connection alone, and what is said is what happened.
func TestBooterKilled(t *testing.T) {
	engines(t, func(p *place) {
		p.content()
		n := 0
		there := func() (*bare, *run) {
			n++
			m, r := p.bare(n), p.run(2*n)
			m.sighted()
			r.hears(m)
			r.reports()
			if away := p.registration(m.uuid).Away; away != "" {
				p.Fatalf("it is there, and said to be away: %s", away)
			}
			return m, r
		}
		says := func(what, text string, words ...string) {
			p.Helper()
			for _, w := range words {
				if !strings.Contains(text, w) {
					p.Errorf("%s: %q does not say %q", what, text, w)
				}
			}
			if strings.Contains(text, "claimed this machine's name") {
				p.Errorf("%s reads like an intruder: %q", what, text)
			}
		}

		// Before the approval; it is back before the machine is.
		m, _ := there()
		next := p.run(2*n + 1)
		next.reports()
		says("away", p.registration(m.uuid).Away, "booter b1 was restarted")
		_, err := m.approve()
		says("approving", p.refused(err, muster.CodeConflict).Detail, "away", "booter b1 was restarted", "Nothing was approved", "restart it")
		m.reconnects()
		next.hears(m)
		next.reports()
		if _, err := m.approve(); err != nil || p.registration(m.uuid).Away != "" {
			p.Errorf("the machine is back: %v", err)
		}

		// Before the approval, which comes before anybody can know of it.
		for name, back := range map[string]struct {
			come  func(m *bare, r *run)
			words []string
		}{
			"the machine speaks first":  {func(m *bare, r *run) { m.reconnects(); r.hears(m) }, []string{"booter b1 was restarted", "nothing was run on it: approve again"}},
			"the booter speaks first":   {func(m *bare, r *run) { r.reports(); m.reconnects(); r.hears(m) }, []string{"booter b1 was restarted", "nothing was run on it: approve again"}},
			"the machine boots as well": {func(m *bare, r *run) { m.boot(); r.hears(m) }, []string{"booter b1 was restarted", "in another boot", "nothing was run on it"}},
		} {
			m, old := there()
			grant := must(p, func(context.Context) (muster.SetupGrant, error) { return m.approve() })
			bound := old.held[0]
			back.come(m, p.run(2*n+1))
			r := p.registration(m.uuid)
			if r.State != muster.AwaitingSetup {
				p.Errorf("%s: %s", name, r.State)
			}
			says(name, r.LastSetupError, back.words...)
			// S4: neither connection gets the bundle.
			for _, s := range []string{bound, m.session} {
				_, err := p.booter.TakeBundle(p.Context(), m.uuid, muster.TakeRequest{Epoch: grant.Epoch, Session: s})
				p.refused(err, muster.CodeConflict)
			}
			log := must(p, func(ctx context.Context) (muster.InstallLog, error) {
				return p.admin.InstallLog(ctx, muster.InstallQuery{ServerUUID: m.uuid})
			})
			if log.Outcome != muster.InstallFailed || log.Reason != r.LastSetupError {
				p.Errorf("%s: the log says %s, %q", name, log.Outcome, log.Reason)
			}
		}

		// Nobody waits for the machine to come back, or for the deadline: what was
		// approved is void as soon as it is known that it cannot be carried out.
		m, r := there()
		must(p, func(context.Context) (muster.SetupGrant, error) { return m.approve() })
		r.held, r.stopped = nil, true
		r.reports()
		if is := p.registration(m.uuid); is.State != muster.AwaitingSetup {
			p.Errorf("its booter stopped: %s", is.State)
		} else {
			says("a booter that stops", is.LastSetupError, "after the approval booter b1 was stopped", "nothing was run on it: approve again when it is back")
			says("away", is.Away, "booter b1 was stopped")
		}

		// After the bundle was taken: the machine that comes back in the same boot
		// goes on, and who watches sees it leave and come.
		m, _ = there()
		grant := must(p, func(context.Context) (muster.SetupGrant, error) { return m.approve() })
		b := m.opened(grant.Epoch)
		next = p.run(2*n + 1)
		next.reports()
		m.reconnects()
		next.hears(m)
		next.reports()
		log := must(p, func(ctx context.Context) (muster.InstallLog, error) {
			return p.admin.InstallLog(ctx, muster.InstallQuery{ServerUUID: m.uuid})
		})
		for _, want := range []string{"away from the boot bus: booter b1 was restarted", "back on the boot bus"} {
			if !slices.ContainsFunc(log.Lines, func(l muster.InstallLine) bool { return strings.Contains(l.Text, want) }) {
				p.Errorf("the log does not tell %q: %+v", want, log.Lines)
			}
		}
		p.ok(m.complete(b))

		// An intruder while the connection stands is called one.
		m, _ = there()
		must(p, func(context.Context) (muster.SetupGrant, error) { return m.approve() })
		r = p.run(2 * n)
		m.boot()
		r.hears(m)
		if why := p.registration(m.uuid).LastSetupError; !strings.Contains(why, "claimed this machine's name") {
			p.Errorf("a takeover under a living booter: %q", why)
		}
	})
}

// TestBooterGoneForGood: nobody comes back to say so; its silence does.
func TestBooterGoneForGood(t *testing.T) {
	engines(t, func(p *place) {
		p.content()
		m, r := p.bare(1), p.run(1)
		m.sighted()
		r.hears(m)
		r.reports()
		p.advance(store.BooterSilence - time.Second)
		p.ok(p.c.Tick(p.Context()))
		if away := p.registration(m.uuid).Away; away != "" {
			p.Errorf("too early: %s", away)
		}
		p.advance(2 * time.Second)
		p.ok(p.c.Tick(p.Context()))
		if away := p.registration(m.uuid).Away; !strings.Contains(away, "has not been heard for 45s") {
			p.Errorf("away: %q", away)
		}
		_, err := m.approve()
		if d := p.refused(err, muster.CodeConflict).Detail; !strings.Contains(d, "has not been heard") {
			p.Errorf("%s", d)
		}
		// A report that is older than the machine's announcement says nothing of it.
		m.reconnects()
		r.hears(m)
		p.ok(p.booter.ReportBooter(p.Context(), muster.BooterStatus{Booter: "b1", Seq: 1, Staged: []string{}, Run: "run-0"}))
		if away := p.registration(m.uuid).Away; away != "" {
			p.Errorf("an old report: %s", away)
		}
		bs := must(p, p.admin.Booters)
		if len(bs) != 1 || bs[0].Sessions != nil {
			p.Errorf("sessions are shown: %+v", bs)
		}
		// A booter that is silent is removed; nobody is in the first 45 seconds.
		p.refused(p.admin.RemoveBooter(p.Context(), "b1"), muster.CodeConflict)
		p.advance(store.BooterSilence)
		p.ok(p.admin.RemoveBooter(p.Context(), "b1"))
		if away := p.registration(m.uuid).Away; !strings.Contains(away, "booter b1, which held its connection, was removed") {
			p.Errorf("its booter was removed: %q", away)
		}
		r.reports()
		m.reconnects()
		r.hears(m)
		if bs := must(p, p.admin.Booters); len(bs) != 1 || p.registration(m.uuid).Away != "" {
			p.Errorf("it is a booter again: %+v", bs)
		}
		// After a restart of the control plane nobody is away, and no booter is
		// removed, before booters had the time to speak.
		p.ok(p.c.Close())
		p.advance(time.Hour)
		p.start()
		p.login()
		p.ok(p.c.Tick(p.Context()))
		if away := p.registration(m.uuid).Away; away != "" {
			p.Errorf("after a restart of the control plane: %s", away)
		}
		if d := p.refused(p.admin.RemoveBooter(p.Context(), "b1"), muster.CodeConflict).Detail; !strings.Contains(d, "is known 45s after its start") {
			p.Errorf("removing after a restart: %s", d)
		}
	})
}
