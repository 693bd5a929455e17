package control

import (
	"context"
	"errors"
	"time"

	"muster.internal"
	"muster.internal/api"
	"muster.internal/lifecycle"
)

func (s session) Node(ctx context.Context, nodeID string) (muster.NodeDetail, error) {
	d, err := s.store.Node(ctx, nodeID)
	s.presence.show(s.now(), &d.Node)
	return d, err
}

func (s session) RaiseNode(ctx context.Context, nodeID string, e muster.Event) (muster.Node, error) {
	return s.store.RaiseNode(ctx, s.now(), s.by, nodeID, e)
}

func (s session) ExpungeNode(ctx context.Context, nodeID string, x muster.Expunge) (muster.NodeDetail, error) {
	return s.store.ExpungeNode(ctx, s.now(), s.by, nodeID, x)
}

func (s session) AcknowledgeForeign(ctx context.Context, nodeID string) (muster.NodeDetail, error) {
	return s.store.AcknowledgeForeign(ctx, s.now(), s.by, nodeID)
}

func (s session) RaiseDisk(ctx context.Context, diskID string, e muster.Event) (muster.NodeDisk, error) {
	return s.store.RaiseDisk(ctx, s.now(), s.by, diskID, e, nil)
}

func (s session) ExpungeDisk(ctx context.Context, diskID string, x muster.Expunge) (muster.NodeDisk, error) {
	return s.store.RaiseDisk(ctx, s.now(), s.by, diskID, lifecycle.ExpungeDisk, &x)
}

func (s session) SetRootPassword(ctx context.Context, serverUUID string, p muster.RootPassword) (muster.RootPasswordSet, error) {
	uuid, err := machineUUID(serverUUID)
	if err != nil {
		return muster.RootPasswordSet{}, err
	}
	return s.store.SetRootPassword(ctx, s.now(), s.by, uuid, p)
}

func (s session) ClearRootPassword(ctx context.Context, serverUUID string) error {
	uuid, err := machineUUID(serverUUID)
	if err != nil {
		return err
	}
	return s.store.ClearRootPassword(ctx, s.now(), s.by, uuid)
}

func (s session) TakeRootPassword(ctx context.Context, mac string, q muster.BootSecretRequest) (muster.BootSecret, error) {
	if err := checkBooter(q.Booter); err != nil {
		return muster.BootSecret{}, err
	}
	return s.store.TakeRootPassword(ctx, s.now(), s.by, mac, q)
}

func (s session) RotateKey(ctx context.Context, id string, r muster.KeyRotation) (muster.CreatedKey, error) {
	return s.store.RotateKey(ctx, s.now(), s.by, id, r)
}

func (s session) ChangeOperator(ctx context.Context, name string, c muster.OperatorChange) (muster.Operator, error) {
	o, err := s.store.ChangeOperator(ctx, s.now(), s.by, name, c)
	if err == nil && c.Password != "" {
		s.endFirstLogin(name)
	}
	return o, err
}

func (s session) RemoveOperator(ctx context.Context, name string) error {
	err := s.store.RemoveOperator(ctx, s.now(), s.by, name)
	if err == nil {
		s.endFirstLogin(name)
	}
	return err
}

// ChangePassword counts wrong passwords as logging in does: whoever holds a
// token that lies about must not guess on at the password.
func (s session) ChangePassword(ctx context.Context, c muster.PasswordChange) error {
	now, who := s.now(), "operator "+s.by.Operator
	if err := s.names.check(now, who); err != nil {
		return err
	}
	select {
	case s.hashing <- struct{}{}:
		defer func() { <-s.hashing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	err := s.store.ChangePassword(ctx, now, s.by, c)
	if err == nil {
		s.endFirstLogin(s.by.Operator)
	}
	if muster.IsCode(err, muster.CodeForbidden) {
		s.names.failed(now, who)
	}
	return err
}

// Trusted implements api.Service. Whoever waits is looked at again when a secret
// may have ended anywhere, and when this one is to be believed no longer.
func (c *Control) Trusted(ctx context.Context, proof api.Proof, source string) error {
	leave, err := c.watch.attend(ctx)
	if err != nil {
		return err
	}
	defer leave()
	for {
		doubt := c.keys.doubt()
		now := c.now()
		_, until, err := c.whose(ctx, now, proof, source) // was right once: no guess
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		again := time.NewTimer(max(until.Sub(now), trustAgain))
		select {
		case <-doubt:
		case <-again.C:
		case <-ctx.Done():
		}
		again.Stop()
	}
}

// trustAgain is how soon a waiting caller's secret is looked at again of which
// nothing is known for longer.
const trustAgain = time.Second
