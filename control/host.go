package control

import (
	"context"
	"math/rand/v2"
	"time"

	"muster.internal"
)

// Refresh hears a machine that authenticated itself.
func (s session) Refresh(ctx context.Context, r muster.RefreshRequest) (muster.Registration, error) {
	if err := checkDisks("disks", r.Disks); err != nil {
		return muster.Registration{}, err
	}
	if err := checkText("version", r.Version); err != nil {
		return muster.Registration{}, err
	}
	return s.store.Refresh(ctx, s.now(), s.by, r)
}

// Heartbeat is answered from memory: the key was checked against the cache and
// what was heard is written in batches.
func (s session) Heartbeat(_ context.Context, _ muster.Heartbeat) (muster.HeartbeatReply, error) {
	s.store.Heartbeat(s.now(), s.by.ServerUUID)
	return muster.HeartbeatReply{NextSeconds: s.nextBeat()}, nil
}

// nextBeat spreads machines that all started at once over the interval.
func (c *Control) nextBeat() int {
	beat := int64(c.cfg.Beat / time.Second)
	return int(beat - beat/5 + rand.Int64N(max(1, 2*beat/5)))
}
