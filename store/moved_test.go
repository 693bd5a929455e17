package store

import (
	"os"
	"path/filepath"
	"testing"

	"muster.internal"
)

// TestTheFileIsTakenAway: what is written to a file that has no name any more
// is lost with the process, so nothing of it is acknowledged; put back, the
// store goes on.
func TestTheFileIsTakenAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.db")
	s := open(t, path)
	site(t, s)
	refused := func(when string) {
		t.Helper()
		if _, err := s.Register(t.Context(), start, nobody, boxNo(1).request()); !muster.IsCode(err, muster.CodeUnavailable) {
			t.Errorf("%s, a write: %v", when, err)
		}
		if _, err := s.Keys(t.Context()); !muster.IsCode(err, muster.CodeUnavailable) {
			t.Errorf("%s, a reading: %v", when, err)
		}
		if _, err := s.VerifyAudit(t.Context()); !muster.IsCode(err, muster.CodeUnavailable) {
			t.Errorf("%s, a snapshot: %v", when, err)
		}
		if err := s.Ping(t.Context()); !muster.IsCode(err, muster.CodeUnavailable) {
			t.Errorf("%s, a ping: %v", when, err)
		}
	}
	away := path + ".away"
	if err := os.Rename(path, away); err != nil {
		t.Fatal(err)
	}
	refused("removed")
	other := open(t, path+".other")
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".other", path); err != nil {
		t.Fatal(err)
	}
	refused("replaced")
	if err := os.Rename(away, path); err != nil {
		t.Fatal(err)
	}
	must[muster.RegisterReply](t)(s.Register(t.Context(), start, nobody, boxNo(1).request()))
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	healthy(t, s)
}

// TestPingRemembersAFailedWrite: reading alone does not make a store ready.
func TestPingRemembersAFailedWrite(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "m.db"))
	site(t, s)
	broken := true
	s.fault = func(_ *session, point string) error {
		if broken && point == "COMMIT" {
			return errCrash
		}
		return nil
	}
	if _, err := s.Register(t.Context(), start, nobody, boxNo(1).request()); err == nil {
		t.Fatal("the write did not fail")
	}
	if err := s.Ping(t.Context()); err == nil {
		t.Error("ready, although nothing can be written")
	}
	broken = false
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	healthy(t, s)
}

// TestRevokeWantsAnID: a whole key in its place is not called gone.
func TestRevokeWantsAnID(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "m.db"))
	k := must[muster.CreatedKey](t)(s.CreateKey(t.Context(), start, ada, muster.NewKey{Scope: muster.ScopeFull}))
	for _, id := range []string{k.Secret, "", "mus_" + k.ID, k.ID + " "} {
		wantCode(t, s.RevokeKey(t.Context(), start, ada, id), muster.CodeInvalid)
	}
	if err := s.RevokeKey(t.Context(), start, ada, k.ID); err != nil {
		t.Error(err)
	}
}
