package store

import (
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster.internal"
	"muster.internal/lifecycle"
)

var update = flag.Bool("update", false, "rewrite golden files; a schema's fixture is only ever added")

// unmigrated runs one test on a new database of each engine, without a schema.
func unmigrated(t *testing.T, f func(t *testing.T, e engine, url string)) {
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); f(t, &sqlite{}, emptySQLite(t)) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); f(t, &postgres{}, emptyPostgres(t)) })
}

// emptyPostgres makes a database without a schema.
func emptyPostgres(t testing.TB) string {
	t.Helper()
	started.Store(true)
	c := startCluster()
	if c.skip != "" {
		t.Skip(c.skip)
	}
	name := fmt.Sprintf("t%d", databases.Add(1))
	c.sql(t, "CREATE DATABASE "+name+" STRATEGY file_copy")
	return c.url(name)
}

// load makes the schema of a past version, fills it, and returns what it holds
// then. A fixture is written
// in the SQL that both engines read, but for binary values: x'00' is SQLite's
// spelling.
func load(t testing.TB, e engine, url string, version int64, text string) (rows map[string][]row) {
	t.Helper()
	db, reader, err := e.open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	defer reader.Close()
	defer db.Close()
	p, err := migrator(db, e)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.UpTo(t.Context(), version); err != nil {
		t.Fatal(err)
	}
	if e.shared() {
		text = regexp.MustCompile(`x'([0-9a-f]*)'`).ReplaceAllString(text, `'\x$1'`)
	}
	for _, stmt := range strings.Split(text, ";\n") {
		if strings.TrimSpace(stmt) == "" {
			continue
		}
		if _, err := db.Exec(stmt); err != nil {
			t.Fatalf("%.200s: %v", stmt, err)
		}
	}
	rows = map[string][]row{}
	for _, m := range regexp.MustCompile(`(?m)^INSERT INTO (\w+) `).FindAllStringSubmatch(text, -1) {
		rows[m[1]] = rowsOf(t, db, m[1])
	}
	return rows
}

// newest is the version of the schema that this code makes.
func newest(t testing.TB) (version int64) {
	t.Helper()
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(files[len(files)-1], "migrations/%d_", &version); err != nil {
		t.Fatal(err)
	}
	return version
}

func fixtureOf(version int64) string { return fmt.Sprintf("testdata/schema-%05d.sql", version) }

// TestWriteFixture writes what this code leaves in a database of the newest
// schema (go test ./store -run WriteFixture -update), so that later code can be
// tested on it. A fixture that is there is left alone.
func TestWriteFixture(t *testing.T) {
	file := fixtureOf(newest(t))
	if _, err := os.Stat(file); err == nil || !*update {
		t.Skip("the fixture is there; delete it to write it anew, as long as its schema is not released")
	}
	s, err := Open(t.Context(), Options{URL: sqliteURL(t), MasterKey: master, Dice: rand.NewChaCha8([32]byte{1})})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	fill(t, s)
	var out strings.Builder
	out.WriteString("DELETE FROM audit_head;\nDELETE FROM blueprint_target;\n")
	db := behind(t, s)
	// Parents come before what refers to them.
	written := map[string]bool{}
	for _, table := range append([]string{"master_key", "operators", "registrations", "nodes", "install_logs", "providers"}, tables...) {
		if written[table] {
			continue
		}
		written[table] = true
		rows := rowsOf(t, db, table)
		if len(rows) == 0 {
			t.Errorf("%s is empty: fill writes nothing to it", table)
		}
		for _, r := range rows {
			var values []string
			for _, c := range r.columns {
				values = append(values, r.values[c])
			}
			fmt.Fprintf(&out, "INSERT INTO %s (%s) VALUES (%s);\n", table, strings.Join(r.columns, ", "), strings.Join(values, ", "))
		}
	}
	if !t.Failed() {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// A row is what a table holds, each value as SQLite would read it.
type row struct {
	columns []string
	values  map[string]string
}

func rowsOf(t testing.TB, db *sql.DB, table string) (all []row) {
	t.Helper()
	rows, err := db.Query("SELECT * FROM " + table)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	types, err := rows.ColumnTypes()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		r, vs := row{values: map[string]string{}}, make([]any, len(types))
		for i := range vs {
			vs[i] = new(any)
		}
		if err := rows.Scan(vs...); err != nil {
			t.Fatal(err)
		}
		for i, c := range types {
			value := *vs[i].(*any)
			if n, ok := value.(int64); ok && strings.EqualFold(c.DatabaseTypeName(), "boolean") {
				value = n != 0
			}
			r.columns = append(r.columns, c.Name())
			r.values[c.Name()] = literal(value)
		}
		all = append(all, r)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func literal(v any) string {
	switch v := v.(type) {
	case nil:
		return "NULL"
	case []byte:
		return fmt.Sprintf("x'%x'", v)
	case bool:
		return fmt.Sprint(v)
	case int64:
		return fmt.Sprint(v)
	case string:
		return "'" + strings.ReplaceAll(v, "'", "''") + "'"
	}
	return "'" + fmt.Sprint(v) + "'"
}

// fill lives enough that every table has a row.
func fill(t testing.TB, s *Store) {
	t.Helper()
	ctx := t.Context()
	site(t, s)
	must[bool](t)(s.FirstOperator(ctx, start, "ada", "correct horse battery"))
	must[muster.Token](t)(s.Login(ctx, start, "", muster.Login{Name: "ada", Password: "correct horse battery"}))
	must[muster.CreatedKey](t)(s.CreateKey(ctx, start, ada, muster.NewKey{Scope: muster.ScopeBooter}))
	awaiting(t, s, boxNo(1), start)
	install(t, s, boxNo(1), start)
	awaiting(t, s, boxNo(2), start)
	must[muster.SetupGrant](t)(s.ApproveSetup(ctx, start, ada, boxNo(2).uuid, approval(t, s, boxNo(2), start)))
	must[muster.RegisterReply](t)(s.Register(ctx, start, nobody, boxNo(3).request()))
	if err := s.ReportBooter(ctx, start, booterCaller, muster.BooterStatus{Booter: "b1"}); err != nil {
		t.Fatal(err)
	}
	fillMore(t, s)
}

// fillMore fills what came after the first schema.
func fillMore(t testing.TB, s *Store) {
	t.Helper()
	ctx := t.Context()
	must[muster.Window](t)(s.OpenWindow(ctx, start, ada, muster.EnrollmentWindow, muster.NewWindow{Duration: 600}))
	issue(t, s, muster.NewEnrolmentToken{Comment: "rack 7"})
	must[muster.RootPasswordSet](t)(s.SetRootPassword(ctx, start, ada, boxNo(1).uuid, muster.RootPassword{Password: "a root password"}))
	must[muster.SharedIdentity](t)(s.AddSharedIdentity(ctx, start, ada, muster.SharedIdentity{Kind: muster.SharedSerial, Value: "0123456789"}))
	if err := s.KeepTraces(ctx, start, booterCaller, "b1", []muster.BootTrace{{MAC: boxNo(1).mac, At: start, Steps: []muster.BootStep{{Asked: "discover", Packet: []byte{1, 2}}}}}); err != nil {
		t.Fatal(err)
	}
	member(t, s, boxNo(4), start)
	gone := must[muster.Registration](t)(s.Registration(ctx, boxNo(4).uuid))
	must[muster.NodeDetail](t)(s.ExpungeNode(ctx, start, ada, gone.NodeID, muster.Expunge{Confirm: gone.ServerUUID, Reason: "its board is broken"}))
	node := must[muster.Registration](t)(s.Registration(ctx, boxNo(1).uuid)).NodeID
	linkUp(t, s, node)
	if err := s.KeepHardware(ctx, start, muster.Caller{NodeID: node}, plug(boxNo(1), own(boxNo(1))...)); err != nil {
		t.Fatal(err)
	}
	must[muster.FirmwareMinimum](t)(s.SetFirmwareMinimum(ctx, start, ada, muster.FirmwareMinimum{Part: "Disk 9", Version: "1.1"}))
	must[muster.Node](t)(s.LabelNode(ctx, start, ada, node, muster.LabelChange{Set: map[string]string{"rack": "r1"}}))
	must[muster.Node](t)(s.HandOver(ctx, start, ada, node))
	place(t, s, node, "p1", "service", "placed")
	must[muster.Provider](t)(s.AddProvider(ctx, start, ada, appProvider))
	must[muster.Grant](t)(s.GrantNode(ctx, start, ada, node, muster.NewGrant{Provider: "app", MemberOf: "rw"}))
	must[muster.Claim](t)(s.AddClaim(ctx, start, ada, muster.NewClaim{NodeID: node, Holder: "kubernetes/prod"}))
	must[muster.NodeOrder](t)(s.OrderNode(ctx, start, ada, node, muster.OrderRekey))
	must[muster.ModuleVersion](t)(s.AddModule(ctx, start, ada, motd("hello"), true))
	s.mustSet(t, child(nil, "b1", []string{node}, []string{"p2 placed"}))
	must[Execution](t)(s.RealiseFailed(ctx, start, muster.Clock, node, 9, errors.New("its host is too old")))
	meddle(t, s, "INSERT INTO hook_calls VALUES ('p9.1', 'p9', '"+node+"', 'db', 'https://example.net/gone', '{}', 1, 1, 2, 'example.net does not answer', NULL)")
	meddle(t, s, "INSERT INTO moves VALUES ('m1', 'p1', 'n-gone', '"+node+"', 'done', 1, 2)")
	meddle(t, s, "INSERT INTO foreign_workloads VALUES ('"+boxNo(1).uuid+"', 'vm', 'theirs', 1, NULL, '')")
	meddle(t, s, "INSERT INTO machines_apart VALUES ('"+boxNo(1).uuid+"', '"+boxNo(8).uuid+"')")
}

// lookAt is the machine as the rows see it, and its boot records.
func lookAt(t testing.TB, s *Store, uuid string) (st lifecycle.State, m *machine) {
	t.Helper()
	if err := s.snapshot(t.Context(), "looking", func(r *reading) (err error) {
		m, err = findMachine(r, uuid)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return m.look(), m
}

// rowsSay compares the stored machine with what the rows make of before.
func rowsSay(t testing.TB, s *Store, before lifecycle.State, uuid string, f lifecycle.Facts, events ...muster.Event) {
	t.Helper()
	want := before
	for _, e := range events {
		var err error
		if want, err = lifecycle.Apply(want, e, -1, f); err != nil {
			t.Fatalf("%s: %v", e, err)
		}
	}
	have, _ := lookAt(t, s, uuid)
	// Which disks a plan names is not the rows' to say.
	for _, st := range []*lifecycle.State{&want, &have} {
		for i := range st.Disks {
			st.Disks[i].Planned = false
		}
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("after %v (-rows +stored):\n%s", events, diff)
	}
	healthy(t, s)
}

var nothing = lifecycle.Facts{NothingPlaced: true, NoReservation: true, NoMove: true, Acknowledged: true, EnrollmentPI: true, Inventory: true, NothingRuns: true, Unclaimed: true}

// member brings a machine to approved, refreshed, with its node in service.
func member(t testing.TB, s *Store, b box, now time.Time) kept {
	t.Helper()
	awaiting(t, s, b, now)
	k := install(t, s, b, now)
	c := must[muster.Caller](t)(s.Authenticate(t.Context(), now, k.APIKey, ""))
	must[muster.Registration](t)(s.Refresh(t.Context(), now, c, muster.RefreshRequest{Epoch: 1, Sysinfo: b.sysinfo(), Version: "1"}))
	if _, m := lookAt(t, s, b.uuid); m.node.State != muster.NodeInService {
		t.Fatalf("node: %+v", m.node)
	}
	return k
}

func (s *Store) mustTick(t testing.TB, now time.Time) {
	t.Helper()
	if _, err := s.Expire(t.Context(), now); err != nil {
		t.Fatal(err)
	}
}

// place writes a placement as the planner will.
func place(t testing.TB, s *Store, node, id, kind, state string) {
	t.Helper()
	meddle(t, s, fmt.Sprintf("INSERT INTO placements (placement_id, node_id, disk_id, module, kind, state, created_at, seq) VALUES ('%s', '%s', '', 'web', '%s', '%s', 1, 1)", id, node, kind, state))
}
