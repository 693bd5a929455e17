package store

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"muster.internal"
	"muster.internal/lifecycle"
)

// A migration that was released is never edited: its digest is written down
// beside it. New files add a line (go test -run Released -update).
func TestReleasedMigrationsNeverChange(t *testing.T) {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range files {
		b, err := migrations.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(b)
		lines = append(lines, hex.EncodeToString(sum[:])+"  "+path.Base(f))
	}
	have := strings.Join(lines, "\n") + "\n"
	const golden = "testdata/migrations.sha256"
	if *update {
		if err := os.WriteFile(golden, []byte(have), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != have {
		t.Errorf("a migration is not what was released:\n%s\nwant\n%s", have, want)
	}
}

// The CHECKs of the newest schema name the words of the rows.
func TestChecksNameTheStatesOfTheRows(t *testing.T) {
	b, err := migrations.ReadFile("migrations/00001_first_life.sql")
	if err != nil {
		t.Fatal(err)
	}
	more, err := migrations.ReadFile("migrations/00005_machines.sql")
	if err != nil {
		t.Fatal(err)
	}
	var schema = string(b) + string(more)
	for _, c := range []struct {
		table, column, lifecycle string
		empty                    bool
	}{
		{"registrations", "state", "registration", false},
		{"registrations", "credential", "credential", true},
		{"registrations", "bundle", "bundle", true},
		{"boot_records", "state", "boot record", false},
		{"boot_records", "mode", "mode", false},
		{"nodes", "policy", "node policy", false},
		{"nodes", "state", "node state", false},
		{"machines", "state", "machine", false},
		{"disks", "policy", "disk policy", false},
		{"disks", "state", "disk state", false},
	} {
		table := schema[strings.Index(schema, "CREATE TABLE "+c.table):]
		table = table[:strings.Index(table, "\n);")]
		m := regexp.MustCompile(`(?m)^\s+` + c.column + `\s.*CHECK \(` + c.column + ` IN \((.*)\)\)`).FindStringSubmatch(table)
		if m == nil {
			t.Errorf("%s.%s has no CHECK", c.table, c.column)
			continue
		}
		var have []string
		for _, w := range strings.Split(m[1], ", ") {
			have = append(have, strings.Trim(w, "'"))
		}
		want := lifecycle.Words(c.lifecycle)
		if c.empty {
			want = append(want, "")
		}
		slices.Sort(have)
		slices.Sort(want)
		if !slices.Equal(have, want) {
			t.Errorf("%s.%s: CHECK has %q, the rows have %q", c.table, c.column, have, want)
		}
	}
}

// A store that an earlier version filled is opened, found whole, and goes on.
// The fixture of each schema is kept for ever.
func TestEveryPastSchemaOpens(t *testing.T) {
	fixtures, err := fs.Glob(os.DirFS("testdata"), "schema-*.sql")
	if err != nil || len(fixtures) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	for _, f := range fixtures {
		var version int64
		if _, err := fmt.Sscanf(f, "schema-%d.sql", &version); err != nil {
			t.Fatal(err)
		}
		engines(t, func(t *testing.T, s *Store) {
			text, err := os.ReadFile(path.Join("testdata", f))
			if err != nil {
				t.Fatal(err)
			}
			if s.engine.shared() {
				url := emptyPostgres(t)
				load(t, &postgres{}, url, version, string(text))
				s = open(t, url)
			} else {
				url := emptySQLite(t)
				load(t, &sqlite{}, url, version, string(text))
				s = open(t, url)
			}
			ctx := t.Context()
			healthy(t, s)
			b := boxNo(1)
			if st := stateOf(t, s, b.uuid); st != muster.Approved {
				t.Fatalf("%s: %s", b.uuid, st)
			}
			if key := must[[]byte](t)(s.TicketKey(ctx, start, ada, b.uuid, "move")); len(key) != 32 {
				t.Errorf("its ticket key has %d bytes", len(key))
			}
			awaiting(t, s, boxNo(40), start)
			install(t, s, boxNo(40), start)
			must[muster.Registration](t)(s.RaiseRegistration(ctx, start, ada, b.uuid, lifecycle.Disable))
			healthy(t, s)
		})
	}
}
