package store

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"muster.internal"
	"muster.internal/lifecycle"
)

// A step of a life that a crash must not cut in half. It is run again after
// each crash, so it says what it needs each time.
type step struct {
	name string
	do   func(ctx context.Context, t testing.TB, s *Store) error
}

// again is a step that nothing disturbs: a machine whose answer was lost asks
// once more.
func (st step) again() step {
	st.name += ", again"
	return st
}

func (st step) undisturbed() bool { return strings.HasSuffix(st.name, ", again") }

// crashLife is a life in which every event happens.
func crashLife() []step {
	b, c, d := boxNo(1), boxNo(2), boxNo(3)
	now := start
	at := func() time.Time { now = now.Add(time.Second); return now }
	var k kept
	var reply muster.RegisterReply
	// A crash between the commit and the answer loses what the answer held: so
	// the step keeps the last answer that came.
	sight := func(b box) step {
		return step{"sight", func(ctx context.Context, _ testing.TB, s *Store) error {
			_, err := s.Sight(ctx, start, booterCaller, "b1", []muster.Sighting{{MAC: b.mac, Arch: 7}})
			return err
		}}
	}
	announce := func(b box, session string) step {
		return step{"announce", func(ctx context.Context, _ testing.TB, s *Store) error {
			_, err := s.Announce(ctx, at(), booterCaller, b.announcement(session))
			return err
		}}
	}
	survey := func(b box, session string) step {
		return step{"survey", func(ctx context.Context, _ testing.TB, s *Store) error {
			return s.Survey(ctx, at(), booterCaller, b.uuid, muster.Survey{Session: session, Disks: b.disks()})
		}}
	}
	approveSetup := func(b box) step {
		return step{"approve_setup", func(ctx context.Context, t testing.TB, s *Store) error {
			_, err := s.ApproveSetup(ctx, start, ada, b.uuid, approval(t, s, b, start))
			return err
		}}
	}
	take := func(b box, epoch int64, session string) step {
		return step{"take", func(ctx context.Context, _ testing.TB, s *Store) error {
			_, err := s.TakeBundle(ctx, start, booterCaller, b.uuid, muster.TakeRequest{Epoch: epoch, Session: session}, k.seal)
			return err
		}}
	}
	operator := func(b box, e muster.Event) step {
		return step{string(e), func(ctx context.Context, _ testing.TB, s *Store) error {
			_, err := s.RaiseRegistration(ctx, start, ada, b.uuid, e)
			return err
		}}
	}
	record := func(b box, e muster.Event) step {
		return step{string(e), func(ctx context.Context, _ testing.TB, s *Store) error {
			_, err := s.RaiseBootRecord(ctx, start, ada, b.mac, e)
			return err
		}}
	}
	clock := func(name string, after time.Duration) step {
		return step{name, func(ctx context.Context, _ testing.TB, s *Store) error {
			_, err := s.Expire(ctx, start.Add(after))
			return err
		}}
	}
	register := step{"register", func(ctx context.Context, _ testing.TB, s *Store) (err error) {
		r, err := s.Register(ctx, start, nobody, muster.RegisterRequest{ServerUUID: c.uuid, Sysinfo: c.sysinfo()})
		if err == nil {
			reply = r
		}
		return err
	}}
	approve := step{"approve", func(ctx context.Context, _ testing.TB, s *Store) error {
		_, err := s.ApproveCode(ctx, start, ada, reply.ClaimCode)
		return err
	}}
	deliver := step{"deliver", func(ctx context.Context, _ testing.TB, s *Store) error {
		_, err := s.RegisterStatus(ctx, start, nobody, reply.PollToken)
		return err
	}}
	rescue, normal, image := muster.RescueMode, muster.NormalMode, "enroll"
	set := func(name string, ch muster.BootChange) step {
		return step{name, func(ctx context.Context, _ testing.TB, s *Store) error {
			_, err := s.SetBootRecord(ctx, start, ada, d.mac, ch)
			return err
		}}
	}
	return []step{
		sight(b), announce(b, "s1"), survey(b, "s1"), approveSetup(b), take(b, 1, "s1"),
		{"setup_failed", func(ctx context.Context, _ testing.TB, s *Store) error {
			return s.SetupFailed(ctx, start, booterCaller, b.uuid, muster.SetupOutcome{Epoch: 1, Reason: "foreign pool"})
		}},
		approveSetup(b), announce(b, "s2"), // from another session: void
		survey(b, "s2"), approveSetup(b),
		{"session_changed", func(ctx context.Context, _ testing.TB, s *Store) error {
			return s.SessionChanged(ctx, start, booterCaller, b.uuid, muster.SessionChange{MAC: b.mac, Source: "10.77.0.66", Reason: "refused"})
		}},
		approveSetup(b), operator(b, lifecycle.CancelSetup),
		approveSetup(b), take(b, 5, "s2"), clock("expire", muster.SetupDeadline+time.Minute),
		approveSetup(b), take(b, 6, "s2"),
		{"setup_complete", func(ctx context.Context, _ testing.TB, s *Store) error {
			return s.SetupComplete(ctx, start, booterCaller, b.uuid, muster.SetupOutcome{Epoch: 6, Proof: k.proof(b, 6), MACs: []string{b.mac, "52:54:00:00:00:77"}})
		}},
		{"refresh", func(ctx context.Context, t testing.TB, s *Store) error {
			r := must[muster.Registration](t)(s.Registration(ctx, b.uuid))
			by := muster.Caller{KeyID: r.BoundKeyID, Scope: muster.ScopeAgent, ServerUUID: b.uuid}
			_, err := s.Refresh(ctx, start, by, muster.RefreshRequest{Epoch: 6, Sysinfo: b.sysinfo()})
			return err
		}},
		{"conflict", func(ctx context.Context, _ testing.TB, s *Store) error {
			a := b.announcement("s9")
			a.Sysinfo, a.MAC = boxNo(9).sysinfo(), boxNo(9).mac
			a.Sysinfo = []byte(replaceUUID(string(a.Sysinfo), boxNo(9).uuid, b.uuid))
			_, err := s.Announce(ctx, start, booterCaller, a)
			if muster.IsCode(err, muster.CodeConflict) {
				return nil
			}
			return err
		}},
		operator(b, lifecycle.Disable),
		{"delete", func(ctx context.Context, _ testing.TB, s *Store) error {
			return s.DeleteRegistration(ctx, start, ada, b.uuid)
		}},
		register, register.again(), approve, deliver, operator(c, lifecycle.Disable),
		register, clock("expire_code", 2*time.Hour), register.again(), approve, clock("expire_key", 2*time.Hour),
		set("rescue_on", muster.BootChange{Mode: &rescue}), clock("expire_rescue", 5*time.Hour),
		set("rescue_on", muster.BootChange{Mode: &rescue}), set("rescue_off", muster.BootChange{Mode: &normal}),
		set("pin", muster.BootChange{AssignedPI: &image}), set("set", muster.BootChange{KernelArgs: &[]string{"console=ttyS0"}}),
		record(d, lifecycle.Enroll), record(d, lifecycle.Decommission), record(d, lifecycle.Reactivate),
		{"set_policy", func(ctx context.Context, _ testing.TB, s *Store) error {
			_, err := s.SetBootPolicy(ctx, start, ada, testPolicy())
			return err
		}},
		{"add_image", func(ctx context.Context, _ testing.TB, s *Store) error {
			_, err := s.AddImage(ctx, start, ada, muster.Image{Name: "other", Digest: digestNo(2)})
			return err
		}},
		{"remove_image", func(ctx context.Context, _ testing.TB, s *Store) error {
			return s.RemoveImage(ctx, start, ada, "other")
		}},
		{"create_key", func(ctx context.Context, _ testing.TB, s *Store) error {
			_, err := s.CreateKey(ctx, start, ada, muster.NewKey{Scope: muster.ScopeFull})
			return err
		}},
		{"create_operator", func(ctx context.Context, _ testing.TB, s *Store) error {
			_, err := s.FirstOperator(ctx, start, "ada", "correct horse battery")
			return err
		}},
		{"login", func(ctx context.Context, _ testing.TB, s *Store) error {
			_, err := s.Login(ctx, start, "", muster.Login{Name: "ada", Password: "correct horse battery"})
			return err
		}},
	}
}

// TestACrashBetweenAnyTwoStatementsChangesNothing runs every event again and
// again, crashing one point later each time, until it comes through. What the
// crash leaves behind must be what was there before.
func TestACrashBetweenAnyTwoStatementsChangesNothing(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		site(t, s)
		db := behind(t, s)
		points := 0
		for i, st := range crashLife() {
			if st.undisturbed() {
				if err := st.do(t.Context(), t, s); err != nil {
					t.Fatalf("%s: %v", st.name, err)
				}
				continue
			}
			n := crashEverywhere(t, s, db, st, 1+i%stride(s), stride(s))
			points += n
			healthy(t, s)
			if n == 0 {
				t.Errorf("%s: no statement to crash at", st.name)
			}
		}
		t.Logf("%d crash points", points)
	})
}

// stride is how many points lie between two crashes: none in the long form of
// the test, a few in the short one, which starts at another in each event.
func stride(s *Store) int {
	switch {
	case os.Getenv("MUSTER_SOAK") != "":
		return 1
	case s.engine.shared():
		return 24 // about one in each event: the statements are the same, and a new connection is slow
	}
	return 5
}

// crashEverywhere returns how many crashes there were.
func crashEverywhere(t *testing.T, s *Store, db *sql.DB, st step, first, stride int) (crashes int) {
	before := dump(t, db)
	for at := first; ; at += stride {
		seen, crashed := 0, ""
		var left string
		s.fault = func(c *session, point string) error {
			// The loss of the answer to the commit is the last crash of each
			// event, whatever the stride.
			if seen++; crashed != "" || seen != at && point != "committed" {
				return nil
			}
			crashed, left = point, kill(t, s, c)
			return errCrash
		}
		err := st.do(t.Context(), t, s)
		s.fault = nil
		if crashed == "" {
			if err != nil {
				t.Fatalf("%s: %v", st.name, err)
			}
			return crashes
		}
		crashes++
		if !errors.Is(err, errCrash) {
			t.Fatalf("%s: crashed at %s, but got %v", st.name, crashed, err)
		}
		if left == "" {
			left = dump(t, db)
		}
		if crashed == "committed" {
			// Nobody heard that it happened; it did.
			if left == before {
				t.Fatalf("%s: the commit was lost", st.name)
			}
			return crashes
		}
		if left != before {
			t.Fatalf("%s: a crash at %s left a change behind\nbefore:\n%s\nafter:\n%s", st.name, crashed, before, left)
		}
	}
}

// kill ends the process as far as the database can tell. On PostgreSQL the
// connection breaks; for SQLite it takes a picture of the files as a killed
// process leaves them, and reads it as the next process would.
func kill(t *testing.T, s *Store, c *session) (left string) {
	if s.engine.shared() {
		c.conn.Raw(func(dc any) error { return dc.(*stdlib.Conn).Conn().PgConn().Conn().Close() })
		return ""
	}
	return picture(t, s)
}

func picture(t *testing.T, s *Store) string {
	dir := t.TempDir()
	file := sqliteFile(t, s)
	for _, suffix := range []string{"", "-wal"} {
		copyFile(t, file+suffix, filepath.Join(dir, "picture"+suffix))
	}
	db, err := sql.Open("sqlite", sqliteName(filepath.Join(dir, "picture")))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	keepsPromises(t, db)
	return dump(t, db)
}

func copyFile(t *testing.T, from, to string) {
	in, err := os.Open(from)
	if os.IsNotExist(err) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}
