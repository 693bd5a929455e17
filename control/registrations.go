package control

import (
	"context"
	"encoding/hex"
	"net/netip"
	"time"
	"unicode"
	"unicode/utf8"

	"muster.internal"
	"muster.internal/inventory"
	"muster.internal/setup"
)

// machineUUID is the canonical spelling of a UUID that came in a path.
func machineUUID(s string) (string, error) {
	uuid, err := muster.ParseUUID(s)
	if err != nil {
		return "", muster.Invalid("server_uuid", "%v", err)
	}
	return uuid, nil
}

func (s session) Registrations(ctx context.Context, f muster.RegistrationFilter) ([]muster.Registration, error) {
	return s.store.Registrations(ctx, f)
}

func (s session) Registration(ctx context.Context, serverUUID string) (muster.Registration, error) {
	uuid, err := machineUUID(serverUUID)
	if err != nil {
		return muster.Registration{}, err
	}
	return s.store.Registration(ctx, uuid)
}

func (s session) RaiseRegistration(ctx context.Context, serverUUID string, e muster.Event) (muster.Registration, error) {
	uuid, err := machineUUID(serverUUID)
	if err != nil {
		return muster.Registration{}, err
	}
	return s.store.RaiseRegistration(ctx, s.now(), s.by, uuid, e)
}

func (s session) DeleteRegistration(ctx context.Context, serverUUID string) error {
	uuid, err := machineUUID(serverUUID)
	if err != nil {
		return err
	}
	return s.store.DeleteRegistration(ctx, s.now(), s.by, uuid)
}

func (s session) Nodes(ctx context.Context) ([]muster.Node, error) {
	ns, err := s.store.Nodes(ctx)
	for i := range ns {
		s.presence.show(s.now(), &ns[i])
	}
	return ns, err
}

// ApproveCode counts wrong codes by where they come from, and in all: a code is
// 30 bits, and lives for an hour. Whoever approved one before, from there, is
// not locked out by others.
func (s session) ApproveCode(ctx context.Context, code string) (muster.Registration, error) {
	now := s.now()
	forgive, err := s.codes.enter(now, s.by.Source, s.approvers.is(s.by.String(), s.by.Source))
	if err != nil {
		return muster.Registration{}, err
	}
	r, err := s.store.ApproveCode(ctx, now, s.by, code)
	if !muster.IsCode(err, muster.CodeNotFound) {
		forgive()
	}
	if err == nil {
		s.approvers.add(s.by.String(), s.by.Source)
	}
	return r, err
}

func (s session) Register(ctx context.Context, r muster.RegisterRequest) (muster.RegisterReply, error) {
	now := s.now()
	if err := s.doors.check(now, s.by.Source); err != nil {
		return muster.RegisterReply{}, err
	}
	s.doors.failed(now, s.by.Source) // each one counts: it is a write that anybody can cause
	return s.store.Register(ctx, now, s.by, r)
}

// RegisterStatus waits for the approval. Each look is a reading; the key is
// made by the one that finds it due.
func (s session) RegisterStatus(ctx context.Context, pollToken string, wait time.Duration) (muster.RegisterStatus, error) {
	if b, err := hex.DecodeString(pollToken); err != nil || len(b) != 16 {
		return muster.RegisterStatus{}, muster.Invalid("poll_token", "must be the 32 hex digits that registering gave")
	}
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		changed := s.store.Changed()
		head, err := s.store.Head(ctx)
		if err != nil {
			return muster.RegisterStatus{}, err
		}
		status, err := s.store.RegisterStatus(ctx, s.now(), s.by, pollToken)
		if muster.IsCode(err, muster.CodeNotFound) {
			err = s.polls.fail(s.now(), s.by.Source, err) // 128 random bits: a right one always gets through
		}
		if err != nil || wait <= 0 || status.State != muster.Pending || waiting.Err() != nil {
			return status, err
		}
		select {
		case <-changed:
		default:
			if err := s.store.Wait(waiting, head); err != nil {
				return status, err
			}
		}
		if ctx.Err() != nil { // it went away, or we do
			return status, nil
		}
	}
}

// Announce repeats the checks that the booter made; what it checks beyond the
// sysinfo is here, the rest is the store's.
func (s session) Announce(ctx context.Context, a muster.Announcement) (muster.Announced, error) {
	if err := checkSession("session", a.Session); err != nil {
		return muster.Announced{}, err
	}
	if err := checkSource(a.Source); err != nil {
		return muster.Announced{}, err
	}
	if err := checkPublicKey(a.PublicKey); err != nil {
		return muster.Announced{}, err
	}
	return s.store.Announce(ctx, s.now(), s.by, a)
}

func checkSession(field, session string) error {
	if b, err := hex.DecodeString(session); err != nil || len(b) != 16 {
		return muster.Invalid(field, "must be the 32 hex digits that name a connection")
	}
	return nil
}

func checkSource(source string) error {
	if _, err := netip.ParseAddr(source); source != "" && err != nil {
		return muster.Invalid("source", "%.64q is not an address", source)
	}
	return nil
}

func checkPublicKey(key string) error {
	if key == "" {
		return nil
	}
	if _, err := setup.ParsePublicKey(key); err != nil {
		return muster.Invalid("public_key", "%v", err)
	}
	return nil
}

// maxText bounds a short text that a machine says of itself, in bytes: it is
// written down, shown and compared.
const maxText = 256

func (s session) Survey(ctx context.Context, serverUUID string, v muster.Survey) error {
	uuid, err := machineUUID(serverUUID)
	if err != nil {
		return err
	}
	if err := checkSession("session", v.Session); err != nil {
		return err
	}
	if err := checkDisks("disks", v.Disks); err != nil {
		return err
	}
	return s.store.Survey(ctx, s.now(), s.by, uuid, v)
}

func checkDisks(field string, disks []muster.Disk) error {
	if err := inventory.CheckDisks(disks); err != nil {
		return muster.Invalid(field, "%v", err)
	}
	return nil
}

func checkText(field, s string) error {
	if len(s) > maxText || !utf8.ValidString(s) {
		return muster.Invalid(field, "holds a text of more than %d bytes, or one that is not UTF-8", maxText)
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return muster.Invalid(field, "holds a text with a control character")
		}
	}
	return nil
}

func (s session) SessionChanged(ctx context.Context, serverUUID string, c muster.SessionChange) error {
	uuid, err := machineUUID(serverUUID)
	if err != nil {
		return err
	}
	for field, id := range map[string]string{"session": c.Session, "lost": c.Lost} {
		if id == "" {
			continue
		}
		if err := checkSession(field, id); err != nil {
			return err
		}
	}
	if err := checkSource(c.Source); err != nil {
		return err
	}
	if err := checkPublicKey(c.PublicKey); err != nil {
		return err
	}
	if c.MAC != "" {
		if c.MAC, err = muster.ParseMAC(c.MAC); err != nil {
			return muster.Invalid("mac", "%v", err)
		}
	}
	if err := checkText("reason", c.Reason); err != nil {
		return err
	}
	return s.store.SessionChanged(ctx, s.now(), s.by, uuid, c)
}
