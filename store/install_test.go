package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/lifecycle"
	"muster.internal/setup"
)

func said1(l muster.InstallLog) string {
	var out []string
	for _, s := range l.Lines {
		out = append(out, fmt.Sprintf("%d %s", s.N, s.Step))
	}
	return strings.Join(out, ", ")
}

// TestInstallLog: a log begins with the approval, takes lines of that setup
// alone, ends with it, and is found by machine, epoch and operation, also when
// the machine was forgotten.
func TestInstallLog(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		b := boxNo(0)
		awaiting(t, s, b, start)
		_, err := s.InstallLog(ctx, muster.InstallQuery{ServerUUID: b.uuid})
		wantCode(t, err, muster.CodeNotFound)
		g := must[muster.SetupGrant](t)(s.ApproveSetup(ctx, start, ada, b.uuid, approval(t, s, b, start)))
		report := muster.SetupProgress{Epoch: g.Epoch, Session: "s1", Steps: []muster.SetupStep{
			{At: start.Add(time.Second), Step: "build", Percent: 60, Text: "building"}, {Percent: 10, Text: "api_key=x mus_abcdefghijkl_secretsecret " + strings.Repeat("ä", 600)},
			{Text: setup.Sentinel(1, setup.Proof([]byte("k"), "u", 1))}}, Dropped: 7}
		wantCode(t, s.SetupProgress(ctx, start, booterCaller, b.uuid, report), muster.CodeConflict) // nothing was taken yet
		var k kept
		must[muster.TakenBundle](t)(s.TakeBundle(ctx, start, booterCaller, b.uuid, muster.TakeRequest{Epoch: g.Epoch, Session: "s1"}, k.seal))
		head := must[int64](t)(s.Head(ctx))
		if err := s.SetupProgress(ctx, start, booterCaller, b.uuid, report); err != nil {
			t.Fatal(err)
		}
		for _, wrong := range []muster.SetupProgress{{Epoch: 2, Session: "s1"}, {Epoch: 1, Session: "s2"}, {Epoch: 1}} {
			wantCode(t, s.SetupProgress(ctx, start, booterCaller, b.uuid, wrong), muster.CodeConflict)
		}
		wantCode(t, s.SetupProgress(ctx, start, booterCaller, boxNo(9).uuid, report), muster.CodeNotFound)
		if now := must[int64](t)(s.Head(ctx)); now != head {
			t.Errorf("progress moved the feed from %d to %d", head, now)
		}
		l := must[muster.InstallLog](t)(s.InstallLog(ctx, muster.InstallQuery{OperationID: g.OperationID}))
		if l.Outcome != muster.InstallRunning || l.Step != "build" || l.StepText != "building" || l.Percent != 60 || said1(l) != "1 approved, 2 taken, 10 build, 11 , 12 " || l.Last != 12 {
			t.Errorf("%+v", l)
		}
		if all := fmt.Sprint(l.Lines); strings.Contains(all, "secret") || strings.Contains(all, "=x") || strings.Contains(all, "proof=") || len(l.Lines[3].Text) > muster.MaxProgressText {
			t.Errorf("the lines are %s", all)
		}
		secret := "MUSTER_X root_shadow=$6$abc\nmus_abcdefghijkl_secretsecret\n" + strings.Repeat("x", logOutput) + "\nthe end"
		if err := s.SetupFailed(ctx, start.Add(time.Minute), booterCaller, b.uuid, muster.SetupOutcome{Epoch: 1, Reason: "no luck", Stdout: "out", Stderr: secret}); err != nil {
			t.Fatal(err)
		}
		l = must[muster.InstallLog](t)(s.InstallLog(ctx, muster.InstallQuery{ServerUUID: b.uuid, After: 11}))
		if l.Outcome != muster.InstallFailed || l.Reason != "no luck" || l.EndedAt == nil || l.Percent != 60 || said1(l) != "12 , 13 failed" || l.Stdout != "out" ||
			!strings.HasSuffix(l.Stderr, "the end") || len(l.Stderr) > logOutput {
			t.Errorf("%+v", l)
		}
		wantCode(t, s.SetupProgress(ctx, start, booterCaller, b.uuid, report), muster.CodeConflict)

		// The next one works.
		k = install(t, s, b, start.Add(time.Hour))
		l = must[muster.InstallLog](t)(s.InstallLog(ctx, muster.InstallQuery{ServerUUID: b.uuid}))
		if l.Epoch != 2 || l.Outcome != muster.InstallComplete || l.Percent != 100 || said1(l) != "1 approved, 2 taken, 3 complete" {
			t.Errorf("%+v", l)
		}
		must[muster.Registration](t)(s.RaiseRegistration(ctx, start, ada, b.uuid, lifecycle.Disable))
		if err := s.DeleteRegistration(ctx, start, ada, b.uuid); err != nil {
			t.Fatal(err)
		}
		if l := must[muster.InstallLog](t)(s.InstallLog(ctx, muster.InstallQuery{ServerUUID: b.uuid, Epoch: 1})); l.OperationID != g.OperationID {
			t.Errorf("%+v", l)
		}
		healthy(t, s)
	})
}

// TestInstallLogsAreBounded: in lines, with the head kept, and in number.
func TestInstallLogsAreBounded(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		site(t, s)
		b := boxNo(0)
		awaiting(t, s, b, start)
		for epoch := int64(1); epoch <= logsKept+2; epoch++ {
			now := start.Add(time.Duration(epoch) * time.Hour)
			must[muster.SetupGrant](t)(s.ApproveSetup(ctx, now, ada, b.uuid, approval(t, s, b, now)))
			var k kept
			must[muster.TakenBundle](t)(s.TakeBundle(ctx, now, booterCaller, b.uuid, muster.TakeRequest{Epoch: epoch, Session: "s1"}, k.seal))
			if epoch == 1 {
				seen := map[string]int64{}
				for n := range 10 {
					steps := make([]muster.SetupStep, 100)
					for i := range steps {
						steps[i].Text = fmt.Sprint(n, " ", i)
					}
					if err := s.SetupProgress(ctx, now, booterCaller, b.uuid, muster.SetupProgress{Epoch: 1, Session: "s1", Steps: steps}); err != nil {
						t.Fatal(err)
					}
					logs, next, err := s.Progressed(ctx, seen)
					if err != nil || len(logs) != 1 || len(logs[0].Lines) < 100 || logs[0].Lines[len(logs[0].Lines)-1].N != logs[0].Last {
						t.Fatalf("followed: %v %v", logs, err)
					}
					seen = next
				}
				l := must[muster.InstallLog](t)(s.InstallLog(ctx, muster.InstallQuery{ServerUUID: b.uuid}))
				if len(l.Lines) != logHead+logTail || l.Lines[logHead-1].N != logHead || l.Lines[logHead].N != 1002-logTail+1 || l.Last != 1002 {
					t.Fatalf("%d lines, the last is %d", len(l.Lines), l.Last)
				}
			}
			if err := s.SetupFailed(ctx, now, booterCaller, b.uuid, muster.SetupOutcome{Epoch: epoch, Reason: "again"}); err != nil {
				t.Fatal(err)
			}
		}
		for epoch := int64(1); epoch <= logsKept+2; epoch++ {
			_, err := s.InstallLog(ctx, muster.InstallQuery{ServerUUID: b.uuid, Epoch: epoch})
			if gone := muster.IsCode(err, muster.CodeNotFound); gone != (epoch <= 2) {
				t.Errorf("log of setup %d: %v", epoch, err)
			}
		}
		healthy(t, s)
	})
}
