package control

import (
	"context"
	"time"

	"muster.internal"
)

func (s session) SetupProgress(ctx context.Context, serverUUID string, p muster.SetupProgress) error {
	uuid, err := machineUUID(serverUUID)
	if err != nil {
		return err
	}
	if err := checkSession("session", p.Session); err != nil {
		return err
	}
	if len(p.Steps) > muster.MaxProgressSteps {
		return muster.Invalid("steps", "holds %d lines, at most %d are taken at once", len(p.Steps), muster.MaxProgressSteps)
	}
	now := s.now()
	for i := range p.Steps { // a booter's clock may be wrong, and its log must not run backwards for long
		if at := p.Steps[i].At; at.After(now) || now.Sub(at) > muster.SetupDeadline {
			p.Steps[i].At = now
		}
	}
	return s.store.SetupProgress(ctx, now, s.by, uuid, p)
}

// InstallLog waits, if it is asked to, until there is something to tell.
func (s session) InstallLog(ctx context.Context, q muster.InstallQuery) (muster.InstallLog, error) {
	if q.OperationID == "" {
		uuid, err := machineUUID(q.ServerUUID)
		if err != nil {
			return muster.InstallLog{}, err
		}
		q.ServerUUID = uuid
	}
	waiting, cancel := context.WithTimeout(ctx, q.Wait)
	defer cancel()
	for {
		changed := s.store.Changed()
		l, err := s.store.InstallLog(ctx, q)
		if err != nil || q.Wait <= 0 || l.Last > q.After || l.Outcome != muster.InstallRunning {
			return l, err
		}
		select {
		case <-changed:
		case <-s.store.Elsewhere():
		case <-waiting.Done():
			return l, nil
		}
		if ctx.Err() != nil { // it went away, or we do
			return l, nil
		}
		pauseFor(waiting, lookPause)
	}
}

// lookPause lets commits that come together be looked at together.
const lookPause = 20 * time.Millisecond

func pauseFor(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
