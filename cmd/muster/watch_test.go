package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	muster "muster.internal"
)

// sayings are what a setup of the small fleet says, one more at each look.
var sayings = []muster.SetupStep{
	{Step: "approved", Text: "approved by operator:admin"}, {Step: "taken", Text: "the booter takes the sealed bundle"},
	{Step: "clock", Text: "setting the clock"}, {Step: "build", Percent: 63, Text: "building the pool"},
	{Percent: 63, Text: "zpool: \x1b[31mone disk is slow"},
}

// InstallLog tells of the setup that ApproveSetup began: at each look one line
// more, and then its end, unless setups are slow.
func (m *memory) InstallLog(ctx context.Context, q muster.InstallQuery) (muster.InstallLog, error) {
	if err := m.up(); err != nil {
		return muster.InstallLog{}, err
	}
	r := m.regs[uuidBare]
	if r == nil || r.SetupEpoch == 0 || q.OperationID != "" && q.OperationID != "op-1" || q.OperationID == "" && q.ServerUUID != uuidBare {
		return muster.InstallLog{}, muster.Problemf(muster.CodeNotFound, "machine %s has no install log: no setup of it was ever approved", q.ServerUUID)
	}
	n := min(int(q.After)+2, len(sayings))
	l := muster.InstallLog{OperationID: "op-1", ServerUUID: uuidBare, Epoch: 1, StartedAt: noon.Add(-90 * time.Second), Outcome: muster.InstallRunning, Lines: []muster.InstallLine{}}
	steps := sayings[:n]
	if int(q.After) == len(sayings) && !m.slow {
		m.watched = false
	}
	if _, err := m.Registration(ctx, uuidBare); err != nil { // which ends what can end
		return l, err
	}
	if r.State != muster.SettingUp {
		last := muster.SetupStep{Step: "complete", Percent: 100, Text: "the setup is proved"}
		l.Outcome = muster.InstallComplete
		if r.State != muster.Approved {
			l.Outcome, l.Reason, l.Stderr = muster.InstallFailed, r.LastSetupError, "zpool: no luck\n"
			last = muster.SetupStep{Step: "failed", Percent: 63, Text: r.LastSetupError}
		}
		steps = append(sayings[:len(sayings):len(sayings)], last)
		at := noon
		l.EndedAt = &at
	}
	for i, s := range steps {
		l.Last, l.Percent = int64(i+1), s.Percent
		if s.Step != "" {
			l.Step, l.StepText = s.Step, s.Text
		}
		if s.At = noon; l.Last > q.After {
			l.Lines = append(l.Lines, muster.InstallLine{N: l.Last, SetupStep: s})
		}
	}
	if q.Wait > 0 && len(l.Lines) == 0 && l.Outcome == muster.InstallRunning {
		m.idle()
		<-ctx.Done()
		return l, ctx.Err()
	}
	return l, nil
}

// Events tells what happened, and one step of an install, and breaks off: who
// comes back for more is interrupted.
func (m *memory) Events(ctx context.Context, q muster.EventQuery, f func(muster.FeedEvent) error) error {
	if err := m.up(); err != nil {
		return err
	}
	head := int64(len(m.audit))
	if q.After == head { // who comes back has read all that there is
		m.idle()
		<-ctx.Done()
		return ctx.Err()
	}
	if q.After == muster.FromNow {
		q.After = max(0, head-int64(q.Last))
	}
	for _, e := range m.audit {
		on, _, _ := strings.Cut(e.Subject, "/")
		v := muster.FeedEvent{ID: e.Seq, Kind: on + "." + e.Action, Subject: e.Subject, At: e.At, Actor: e.Actor, Detail: e.Detail}
		if e.Seq > q.After && (q.Subject == "" || e.Subject == q.Subject) && strings.HasPrefix(v.Kind, q.Kind) {
			if err := f(v); err != nil {
				return err
			}
		}
	}
	if err := f(muster.FeedEvent{ID: head}); err != nil {
		return err
	}
	if strings.HasPrefix(muster.ProgressKind, q.Kind) && (q.Subject == "" || q.Subject == "registration/"+uuidBare) {
		d, _ := json.Marshal(muster.ProgressDetail{OperationID: "op-1", Epoch: 1, InstallLine: muster.InstallLine{N: 4, SetupStep: sayings[3]}})
		if err := f(muster.FeedEvent{Kind: muster.ProgressKind, Subject: "registration/" + uuidBare, At: noon, Detail: d}); err != nil {
			return err
		}
	}
	return muster.Problemf(muster.CodeUnavailable, "the control plane restarts")
}

// TestWatchOnATerminal: the bar is drawn below the lines, and taken back.
func TestWatchOnATerminal(t *testing.T) {
	m := usual()
	m.regs[uuidBare].State, m.regs[uuidBare].SetupEpoch = muster.SettingUp, 1
	m.watched = true
	var out, complaints bytes.Buffer
	code := run(t.Context(), env{stdout: &out, stderr: &complaints, terminal: true, now: func() time.Time { return noon }, dial: m.dial,
		getenv: func(k string) string {
			return map[string]string{"MUSTER_URL": storyURL, "MUSTER_KEY": goodKey}[k]
		}}, []string{"registration", "watch", "8DZ6J93"})
	bar := "[###############---------]  63%  build  1m"
	if code != 0 || strings.Count(out.String(), bar+"\r\x1b[K") != 2 || strings.Contains(out.String(), "\x1b[31m") || !strings.Contains(out.String(), "is approved") {
		t.Errorf("exit %d\n%q\n%s", code, out.String(), complaints.String())
	}
}
