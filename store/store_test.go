package store

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"muster.internal"
)

var (
	start  = time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)
	master = bytes.Repeat([]byte{7}, 32)
	ada    = muster.Caller{Operator: "ada", Role: muster.Admin, Source: "192.0.2.9"}
)

// engines runs one test on both databases, and when there is time for it on
// SQLite in memory, too.
func engines(t *testing.T, f func(t *testing.T, s *Store)) {
	type engine struct {
		name string
		url  func(testing.TB) string
	}
	all := []engine{{"sqlite", sqliteURL}, {"postgres", postgresURL}}
	if os.Getenv("MUSTER_SOAK") != "" {
		all = append(all, engine{"memory", memoryURL})
	}
	for _, e := range all {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			f(t, open(t, e.url(t)))
		})
	}
}

// sqliteURL gives the test a migrated database without rows.
func sqliteURL(t testing.TB) string {
	t.Helper()
	file := emptySQLite(t)
	if err := os.WriteFile(file, migratedSQLite(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// memoryURL names a database in memory of the test's own.
func memoryURL(t testing.TB) string { return Memory + t.Name() }

// emptySQLite is the path of a database that is not there yet.
func emptySQLite(t testing.TB) string { return filepath.Join(t.TempDir(), "muster #1?.db") }

var migratedSQLite = sync.OnceValue(func() []byte {
	dir, err := os.MkdirTemp("", "muster-sqlite")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "muster.db")
	s, err := Open(context.Background(), Options{URL: file, MasterKey: master})
	if err == nil {
		err = s.Close() // which brings the log into the file
	}
	text, readErr := os.ReadFile(file)
	if err := errors.Join(err, readErr); err != nil {
		panic(err)
	}
	return text
})

func open(t testing.TB, url string) *Store {
	t.Helper()
	s, err := Open(context.Background(), Options{URL: url, MasterKey: master, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// behind opens the database behind the store's back.
func behind(t testing.TB, s *Store) *sql.DB {
	t.Helper()
	if p, ok := s.engine.(*postgres); ok {
		return startCluster().behind(p.pool.Config().ConnConfig.Database)
	}
	name := ""
	if in, is := strings.CutPrefix(s.engine.(*sqlite).path, Memory); is {
		name = memoryName(in) + "&"
	} else {
		name = sqliteName(sqliteFile(t, s)) + "?"
	}
	db, err := sql.Open("sqlite", name+"_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func meddle(t testing.TB, s *Store, text string) {
	t.Helper()
	if _, err := behind(t, s).Exec(text); err != nil {
		t.Fatal(err)
	}
}

func sqliteFile(t testing.TB, s *Store) (file string) {
	t.Helper()
	if err := s.reader.QueryRow("PRAGMA database_list").Scan(new(int), new(string), &file); err != nil {
		t.Fatal(err)
	}
	if file == "" {
		t.Skip("a database in memory has no file")
	}
	return file
}

func replaceUUID(sysinfo, from, to string) string { return strings.ReplaceAll(sysinfo, from, to) }

// must is for what a test takes for granted.
func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func wantCode(t testing.TB, err error, c muster.Code) {
	t.Helper()
	if !muster.IsCode(err, c) {
		t.Fatalf("got %v, want %s", err, c)
	}
}

func TestEveryStatementPreparesOnBothEngines(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		names := map[string]bool{}
		for _, q := range queries {
			if names[q.name] {
				t.Errorf("two statements are called %s", q.name)
			}
			names[q.name] = true
			st, err := s.reader.PrepareContext(t.Context(), s.engine.rewrite(q.text))
			if err != nil {
				t.Errorf("%s: %v", q.name, err)
				continue
			}
			st.Close()
		}
	})
}

func TestKeys(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		k := must[muster.CreatedKey](t)(s.CreateKey(ctx, start, ada, muster.NewKey{Scope: muster.ScopeBooter, Comment: "rack 1", ExpiresIn: 60}))
		c := must[muster.Caller](t)(s.Authenticate(ctx, start, k.Secret, "192.0.2.1"))
		if want := (muster.Caller{KeyID: k.ID, Scope: muster.ScopeBooter, Source: "192.0.2.1"}); c != want {
			t.Fatalf("authenticated as %+v, want %+v", c, want)
		}
		for name, secret := range map[string]string{
			"another secret": k.Secret[:len(k.Secret)-4] + "AAAA", "no prefix": k.Secret[4:], "nothing": "", "cut": k.Secret[:20],
			"unknown id": "mus_aaaaaaaaaaaa" + k.Secret[16:],
		} {
			if _, err := s.Authenticate(ctx, start, secret, ""); !muster.IsCode(err, muster.CodeUnauthenticated) {
				t.Errorf("%s: %v", name, err)
			}
		}
		_, err := s.Authenticate(ctx, start.Add(time.Minute), k.Secret, "")
		wantCode(t, err, muster.CodeUnauthenticated)

		if err := s.FlushSeen(ctx, start); err != nil {
			t.Fatal(err)
		}
		ks := must[[]muster.APIKey](t)(s.Keys(ctx))
		if len(ks) != 1 || ks[0].LastUsed == nil || !ks[0].LastUsed.Equal(start) {
			t.Fatalf("keys: %+v", ks)
		}
		for range 2 { // revoking again is no error
			if err := s.RevokeKey(ctx, start, ada, k.ID); err != nil {
				t.Fatal(err)
			}
		}
		_, err = s.Authenticate(ctx, start, k.Secret, "")
		wantCode(t, err, muster.CodeUnauthenticated)
		_, err = s.CreateKey(ctx, start, ada, muster.NewKey{Scope: muster.ScopeAgent})
		wantCode(t, err, muster.CodeInvalid)

		es := must[[]muster.AuditEntry](t)(s.Audit(ctx, muster.AuditFilter{}))
		if len(es) != 2 || es[0].Action != "create_key" || es[1].Action != "revoke_key" || es[1].Actor != "operator:ada" {
			t.Fatalf("audit: %+v", es)
		}
		healthy(t, s)
	})
}

func TestOperators(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		for i := range 2 {
			made := must[bool](t)(s.FirstOperator(ctx, start, "ada", "correct horse battery"))
			if made != (i == 0) {
				t.Fatalf("first operator, time %d: made %v", i+1, made)
			}
		}
		_, err := s.Login(ctx, start, "", muster.Login{Name: "ada", Password: "wrong horse battery"})
		wantCode(t, err, muster.CodeUnauthenticated)
		_, err = s.Login(ctx, start, "", muster.Login{Name: "eve", Password: "correct horse battery"})
		wantCode(t, err, muster.CodeUnauthenticated)
		tok := must[muster.Token](t)(s.Login(ctx, start, "192.0.2.9", muster.Login{Name: "ada", Password: "correct horse battery"}))
		if c := must[muster.Caller](t)(s.Authenticate(ctx, start, tok.Token, "192.0.2.9")); c != ada {
			t.Fatalf("token speaks for %+v", c)
		}
		_, err = s.Authenticate(ctx, tok.ExpiresAt, tok.Token, "")
		wantCode(t, err, muster.CodeUnauthenticated)

		must[muster.Operator](t)(s.CreateOperator(ctx, start, ada, muster.NewOperator{Name: "vic", Role: muster.Viewer, Password: "only looking here"}))
		_, err = s.CreateOperator(ctx, start, ada, muster.NewOperator{Name: "vic", Role: muster.Admin, Password: "only looking here"})
		wantCode(t, err, muster.CodeConflict)
		if os := must[[]muster.Operator](t)(s.Operators(ctx)); len(os) != 2 || os[1].Role != muster.Viewer || !os[0].LastLogin.Equal(start) {
			t.Fatalf("operators: %+v", os)
		}
		healthy(t, s)
	})
}

func TestVerifyNamesTheFirstBrokenEntry(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		for range 5 {
			must[muster.CreatedKey](t)(s.CreateKey(ctx, start, ada, muster.NewKey{Scope: muster.ScopeFull}))
		}
		healthy(t, s)
		for _, damage := range []struct {
			text, undo string
			broken     int64
		}{
			{"UPDATE audit SET actor = 'operator:eve' WHERE seq = 3", "UPDATE audit SET actor = 'operator:ada' WHERE seq = 3", 3},
			{"UPDATE audit SET detail = detail || ' ' WHERE seq = 2", "UPDATE audit SET detail = rtrim(detail) WHERE seq = 2", 2},
			{"UPDATE audit SET at = at + 1 WHERE seq = 5", "UPDATE audit SET at = at - 1 WHERE seq = 5", 5},
			{"UPDATE audit SET seq = 9 WHERE seq = 4", "UPDATE audit SET seq = 4 WHERE seq = 9", 4},
			{"DELETE FROM audit WHERE seq = 5", "", 5},
			{"DELETE FROM audit WHERE seq = 1", "", 1},
		} {
			meddle(t, s, damage.text)
			v := must[muster.AuditVerdict](t)(s.VerifyAudit(ctx))
			if v.OK || v.BrokenAt != damage.broken || v.VerifiedTo != damage.broken-1 {
				t.Errorf("%s: %+v", damage.text, v)
			}
			if damage.undo != "" {
				meddle(t, s, damage.undo)
				healthy(t, s)
			}
		}
	})
}
