package store

import (
	"context"
	"strings"
	"time"

	"muster.internal"
	"muster.internal/inventory"
	"muster.internal/lifecycle"
	"muster.internal/setup"
)

// What is kept of one install: the first lines and the last ones, and the ends
// of what its script answered, in bytes.
const (
	logHead   = 50
	logTail   = 200
	logOutput = 8 << 10
	logsKept  = 16 // installs of one machine
)

const logColumns = `operation_id, server_uuid, setup_epoch, started_at, ended_at, outcome, reason, step, step_text, percent, lines, stdout, stderr`

var (
	addLog = define("install-logs/add", `
INSERT INTO install_logs (operation_id, server_uuid, setup_epoch, started_at, outcome, reason, step, step_text, percent, lines, stdout, stderr)
VALUES ($1, $2, $3, $4, 'running', '', '', '', 0, 0, '', '')`)
	runningLog = define("install-logs/running-of", `SELECT `+logColumns+` FROM install_logs WHERE server_uuid = $1 AND ended_at IS NULL`)
	logByOp    = define("install-logs/by-operation", `SELECT `+logColumns+` FROM install_logs WHERE operation_id = $1`)
	newestLog  = define("install-logs/newest", `
SELECT `+logColumns+` FROM install_logs WHERE server_uuid = $1 ORDER BY started_at DESC, setup_epoch DESC LIMIT 1`)
	logByEpoch = define("install-logs/by-epoch", `
SELECT `+logColumns+` FROM install_logs WHERE server_uuid = $1 AND setup_epoch = $2 ORDER BY started_at DESC LIMIT 1`)
	logsRunning = define("install-logs/running", `SELECT `+logColumns+` FROM install_logs WHERE ended_at IS NULL ORDER BY operation_id`)
	oldLogs     = define("install-logs/old", `
SELECT operation_id FROM install_logs WHERE server_uuid = $1 AND ended_at IS NOT NULL ORDER BY started_at DESC`)
	moveLog = define("install-logs/move", `
UPDATE install_logs SET step = $2, step_text = $3, percent = $4, lines = $5 WHERE operation_id = $1 AND lines = $6 AND ended_at IS NULL`)
	endLog = define("install-logs/end", `
UPDATE install_logs SET ended_at = $2, outcome = $3, reason = $4, percent = $5, stdout = $6, stderr = $7 WHERE operation_id = $1 AND ended_at IS NULL`)
	dropLog = define("install-logs/drop", `DELETE FROM install_logs WHERE operation_id = $1`)

	addLine    = define("install-lines/add", `INSERT INTO install_lines (operation_id, n, at, step, percent, line) VALUES ($1, $2, $3, $4, $5, $6)`)
	trimLines  = define("install-lines/trim", `DELETE FROM install_lines WHERE operation_id = $1 AND n > $2 AND n <= $3`)
	dropLines  = define("install-lines/drop", `DELETE FROM install_lines WHERE operation_id = $1`)
	linesAfter = define("install-lines/after", `SELECT n, at, step, percent, line FROM install_lines WHERE operation_id = $1 AND n > $2 ORDER BY n`)
)

func findLog(from source, q *query, args ...any) (*muster.InstallLog, error) {
	var found *muster.InstallLog
	err := from.each(q, args, func(scan func(...any) error) error {
		l, err := scanLog(scan)
		found = &l
		return err
	})
	return found, err
}

func scanLog(scan func(...any) error) (muster.InstallLog, error) {
	l := muster.InstallLog{Lines: []muster.InstallLine{}}
	var started int64
	var ended *int64
	err := scan(&l.OperationID, &l.ServerUUID, &l.Epoch, &started, &ended, &l.Outcome, &l.Reason, &l.Step, &l.StepText, &l.Percent, &l.Last, &l.Stdout, &l.Stderr)
	l.StartedAt, l.EndedAt = fromMicro(started), fromMicroPtr(ended)
	return l, err
}

// logSetup keeps the log in step with the registration: it begins with the
// approval and ends with the setup, in the same transaction. Every way out of
// setting_up leads through here.
func (t *tx) logSetup(m *machine, was, is muster.RegistrationState) error {
	switch {
	case was != muster.SettingUp && is == muster.SettingUp:
		if err := t.beginLog(m); err != nil {
			return err
		}
		return t.appendLines(m.uuid, []muster.SetupStep{{At: t.now, Step: "approved", Text: "approved by " + t.by.String()}}, 0)
	case was == muster.SettingUp && is != muster.SettingUp:
		return t.finishLog(m, is)
	}
	return nil
}

func (t *tx) beginLog(m *machine) error {
	var old []string
	if err := t.each(oldLogs, []any{m.uuid}, func(scan func(...any) error) error {
		var id string
		err := scan(&id)
		old = append(old, id)
		return err
	}); err != nil {
		return err
	}
	for _, id := range old[min(len(old), logsKept-1):] {
		if _, err := t.exec(dropLines, id); err != nil {
			return err
		}
		if _, err := t.exec(dropLog, id); err != nil {
			return err
		}
	}
	_, err := t.exec(addLog, m.reg.OperationID, m.uuid, m.reg.SetupEpoch, micro(t.now))
	return err
}

func (t *tx) finishLog(m *machine, is muster.RegistrationState) error {
	l, err := findLog(t, runningLog, m.uuid)
	if err != nil || l == nil { // a setup that was approved before there were logs
		return err
	}
	outcome, reason, percent := muster.InstallFailed, m.reg.LastSetupError, l.Percent
	last := muster.SetupStep{At: t.now, Step: "failed", Percent: percent}
	switch {
	case is == muster.Approved:
		outcome, reason, percent = muster.InstallComplete, "", 100
		last = muster.SetupStep{At: t.now, Step: "complete", Percent: 100, Text: "the setup is proved"}
	case reason == "":
		reason = "the registration left the setup by an event of " + t.by.String()
	}
	if outcome == muster.InstallFailed {
		last.Text = reason
	}
	if err := t.appendLines(m.uuid, []muster.SetupStep{last}, 0); err != nil {
		return err
	}
	_, err = t.exec(endLog, l.OperationID, micro(t.now), string(outcome), reason, percent, tail(m.stdout, logOutput), tail(m.stderr, logOutput))
	return err
}

// appendLines writes lines at the end of the log of a machine's running setup.
func (t *tx) appendLines(uuid string, steps []muster.SetupStep, dropped int) error {
	l, err := findLog(t, runningLog, uuid)
	if err != nil || l == nil {
		return err
	}
	before := l.Last
	l.Last += int64(dropped)
	for _, s := range steps {
		l.Last++
		text := lineText(s.Text)
		if s.Step != "" {
			l.Step, l.StepText = lineText(s.Step), text
		}
		l.Percent = max(l.Percent, min(max(s.Percent, 0), 100))
		if s.At.IsZero() {
			s.At = t.now
		}
		if _, err := t.exec(addLine, l.OperationID, l.Last, micro(s.At), lineText(s.Step), l.Percent, text); err != nil {
			return err
		}
	}
	if l.Last-logTail > logHead {
		if _, err := t.exec(trimLines, l.OperationID, int64(logHead), l.Last-logTail); err != nil {
			return err
		}
	}
	return t.change(moveLog, l.OperationID, l.Step, l.StepText, l.Percent, l.Last, before)
}

// lineText is one line of what a machine said, fit to be kept and shown.
func lineText(s string) string {
	if _, _, secret := setup.ParseSentinel(s); secret {
		return "(the proof of success)"
	}
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(inventory.RedactLine(s), "\ufffd"))
	if len(s) > muster.MaxProgressText {
		s = strings.ToValidUTF8(s[:muster.MaxProgressText-len("…")], "") + "…"
	}
	return s
}

// SetupProgress takes in lines of a setup on its way. They are a report, not a
// change: they stay out of audit and feed.
func (s *Store) SetupProgress(ctx context.Context, now time.Time, by muster.Caller, serverUUID string, p muster.SetupProgress) error {
	return s.write(ctx, "keeping an install's progress", now, by, func(t *tx) error {
		r, err := registered(t, serverUUID)
		if err != nil {
			return err
		}
		if r == nil {
			return unknownMachine(serverUUID)
		}
		if r.State != muster.SettingUp || r.SetupEpoch != p.Epoch || r.bundle != lifecycle.BundleTaken || p.Session == "" || r.setupSession != p.Session {
			return muster.Problemf(muster.CodeConflict, "machine %s runs no setup %d over that session; its log takes nothing more", serverUUID, p.Epoch)
		}
		return t.appendLines(r.ServerUUID, p.Steps, min(max(p.Dropped, 0), 1<<20))
	})
}

// InstallLog reads a log, with its lines above q.After.
func (s *Store) InstallLog(ctx context.Context, q muster.InstallQuery) (muster.InstallLog, error) {
	var l muster.InstallLog
	err := s.snapshot(ctx, "reading an install log", func(r *reading) error {
		which, args := newestLog, []any{q.ServerUUID}
		switch {
		case q.OperationID != "":
			which, args = logByOp, []any{q.OperationID}
		case q.Epoch > 0:
			which, args = logByEpoch, []any{q.ServerUUID, q.Epoch}
		}
		found, err := findLog(r, which, args...)
		if err == nil && found == nil && q.OperationID == "" {
			args[0] = muster.SwapUUID(q.ServerUUID) // logs outlive registrations
			found, err = findLog(r, which, args...)
		}
		if err != nil {
			return err
		}
		if found == nil {
			return noLog(q)
		}
		l = *found
		l.Lines, err = linesOf(r, l.OperationID, q.After)
		return err
	})
	return l, err
}

func noLog(q muster.InstallQuery) error {
	switch {
	case q.OperationID != "":
		return muster.Problemf(muster.CodeNotFound, "no install log has operation %s", q.OperationID)
	case q.Epoch > 0:
		return muster.Problemf(muster.CodeNotFound, "machine %s has no log of a setup %d; of each machine the last %d are kept", q.ServerUUID, q.Epoch, logsKept)
	}
	return muster.Problemf(muster.CodeNotFound, "machine %s has no install log: no setup of it was ever approved", q.ServerUUID)
}

func linesOf(from source, operation string, after int64) ([]muster.InstallLine, error) {
	lines := []muster.InstallLine{}
	err := from.each(linesAfter, []any{operation, after}, func(scan func(...any) error) error {
		var l muster.InstallLine
		var at int64
		err := scan(&l.N, &at, &l.Step, &l.Percent, &l.Text)
		l.At = fromMicro(at)
		lines = append(lines, l)
		return err
	})
	return lines, err
}

// Progressed returns the lines that came to running installs since seen, which
// holds the number of the last line by operation. What ended meanwhile is told
// to its end; next is what seen becomes.
func (s *Store) Progressed(ctx context.Context, seen map[string]int64) (logs []muster.InstallLog, next map[string]int64, err error) {
	err = s.snapshot(ctx, "following installs", func(r *reading) error {
		logs, next = nil, map[string]int64{}
		var moved []muster.InstallLog
		if err := r.each(logsRunning, nil, func(scan func(...any) error) error {
			l, err := scanLog(scan)
			next[l.OperationID] = l.Last
			if l.Last > seen[l.OperationID] {
				moved = append(moved, l)
			}
			return err
		}); err != nil {
			return err
		}
		for id := range seen {
			if _, runs := next[id]; runs {
				continue
			}
			l, err := findLog(r, logByOp, id)
			if err != nil {
				return err
			}
			if l != nil && l.Last > seen[id] {
				moved = append(moved, *l)
			}
		}
		for _, l := range moved {
			var err error
			if l.Lines, err = linesOf(r, l.OperationID, seen[l.OperationID]); err != nil {
				return err
			}
			logs = append(logs, l)
		}
		return nil
	})
	return logs, next, err
}
