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
// The fixture of each schema is kept for ever; a new migration needs one.
func TestEveryPastSchemaOpens(t *testing.T) {
	for version := int64(1); version <= newest(t); version++ {
		text, err := os.ReadFile(fixtureOf(version))
		if err != nil {
			t.Errorf("schema %d has no fixture: go test ./store -run WriteFixture -update makes one (%v)", version, err)
			continue
		}
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			unmigrated(t, func(t *testing.T, e engine, url string) {
				before := load(t, e, url, version, string(text))
				s := open(t, url)
				healthy(t, s)
				survived(t, before, s)
				upgraded(t, s, version)
				ctx, b := t.Context(), boxNo(1)
				if st := stateOf(t, s, b.uuid); st != muster.Approved {
					t.Fatalf("%s: %s", b.uuid, st)
				}
				if key := must[OwnKey](t)(s.TicketKey(ctx, start, ada, b.uuid, "move")).Key; len(key) != 32 {
					t.Errorf("its ticket key has %d bytes", len(key))
				}
				awaiting(t, s, boxNo(40), start)
				install(t, s, boxNo(40), start)
				must[muster.Registration](t)(s.RaiseRegistration(ctx, start, ada, b.uuid, lifecycle.Disable))
				healthy(t, s)
			})
		})
	}
}

// survived looks for every row that was there, by the columns that it had.
func survived(t *testing.T, before map[string][]row, s *Store) {
	t.Helper()
	for table, rows := range before {
		after := rowsOf(t, behind(t, s), table)
		for _, was := range rows {
			if !slices.ContainsFunc(after, func(is row) bool {
				for c, v := range was.values {
					if have, there := is.values[c]; there && have != v {
						return false
					}
				}
				return true
			}) {
				t.Errorf("%s: lost or changed: %v", table, was.values)
			}
		}
	}
}

// upgraded compares what migrations made of rows with what it should be.
func upgraded(t *testing.T, s *Store, version int64) {
	t.Helper()
	for _, c := range []struct {
		from, before int64 // fixtures that it is about
		what, text   string
		want         int64
	}{
		{1, 3, "registrations by the door they came by, which was kept under another name", "SELECT count(*) FROM registrations WHERE door = 'netboot'", 2},
		{1, 2, "registrations that were never disabled", "SELECT count(*) FROM registrations WHERE NOT was_disabled", 3},
		{2, 3, "registrations that were disabled once", "SELECT count(*) FROM registrations WHERE was_disabled", 1},
		{1, 4, "keys that were rotated before that was possible", "SELECT count(*) FROM api_keys WHERE rotated_at IS NOT NULL OR old_hash IS NOT NULL", 0},
		{1, 4, "booters that followed the feed before that was counted", "SELECT count(*) FROM booters WHERE followed <> 0", 0},
		{1, 5, "machines, made of registrations", "SELECT count(*) FROM machines WHERE state = 'known'", 3},
		{4, 5, "boot records that an operator had a hand in", "SELECT count(*) FROM boot_records WHERE touched = 1", 1},
		{1, 10, "nodes that were linked before there was a link", "SELECT count(*) FROM node_links", 0},
		{1, 9, "tables that lost the master key's mark", "SELECT count(*) FROM master_key WHERE mark = '" + markOf(master) + "'", 1},
	} {
		if version < c.from || version >= c.before {
			continue
		}
		var have int64
		if err := s.reader.QueryRow(c.text).Scan(&have); err != nil {
			t.Fatal(err)
		}
		if have != c.want {
			t.Errorf("%s: %d, want %d", c.what, have, c.want)
		}
	}
}

// The database itself refuses a second live registration of a node, whatever
// the code does.
func TestANodeHasOneLiveRegistration(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		site(t, s)
		member(t, s, boxNo(1), start)
		member(t, s, boxNo(2), start)
		node := must[muster.Registration](t)(s.Registration(t.Context(), boxNo(1).uuid)).NodeID
		take := "UPDATE registrations SET node_id = '" + node + "' WHERE server_uuid = '" + boxNo(2).uuid + "'"
		_, err := behind(t, s).Exec(take)
		if err == nil || s.engine.classify(err) != lostRow {
			t.Fatalf("a second live registration of a node: %v", err)
		}
		must[muster.Registration](t)(s.RaiseRegistration(t.Context(), start, ada, boxNo(1).uuid, lifecycle.Disable))
		meddle(t, s, take)
	})
}
