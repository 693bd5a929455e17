package store

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"

	"muster.internal"
)

var update = flag.Bool("update", false, "rewrite golden files; a schema's fixture is only ever added")

// emptyPostgres makes a database without a schema.
func emptyPostgres(t testing.TB) string {
	t.Helper()
	postgresURL(t) // or skip
	c := startCluster()
	name := fmt.Sprintf("t%d", databases.Add(1))
	c.sql(t, "CREATE DATABASE "+name)
	return c.url(name)
}

// load makes the schema of a past version and fills it. A fixture is written
// in the SQL that both engines read, but for binary values: x'00' is SQLite's
// spelling.
func load(t testing.TB, e engine, url string, version int64, text string) {
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
}

// TestWriteFixture writes the fixture of a new schema with -update; it leaves
// those that are there alone.
func TestWriteFixture(t *testing.T) {
	const version = 1
	file := fmt.Sprintf("testdata/schema-%05d.sql", version)
	if _, err := os.Stat(file); err == nil || !*update {
		t.Skip("the fixture is there; delete it to write it anew, as long as its schema is not released")
	}
	s, err := Open(t.Context(), Options{URL: sqliteURL(t), MasterKey: master, Dice: rand.NewChaCha8([32]byte{1})})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	fill(t, s)
	var out bytes.Buffer
	db := behind(t, s)
	out.WriteString("DELETE FROM audit_head;\n")
	// Parents come before what refers to them.
	for _, table := range append([]string{"operators", "registrations", "nodes"}, tables...) {
		if strings.Contains(out.String(), "INSERT INTO "+table+" ") {
			continue
		}
		rows, err := db.Query("SELECT * FROM " + table)
		if err != nil {
			t.Fatal(err)
		}
		cols, _ := rows.Columns()
		types, _ := rows.ColumnTypes()
		for rows.Next() {
			vs := make([]any, len(cols))
			for i := range vs {
				vs[i] = new(any)
			}
			if err := rows.Scan(vs...); err != nil {
				t.Fatal(err)
			}
			var texts []string
			for i, v := range vs {
				value := *v.(*any)
				if n, ok := value.(int64); ok && strings.EqualFold(types[i].DatabaseTypeName(), "boolean") {
					value = n != 0
				}
				texts = append(texts, literal(value))
			}
			fmt.Fprintf(&out, "INSERT INTO %s (%s) VALUES (%s);\n", table, strings.Join(cols, ", "), strings.Join(texts, ", "))
		}
		rows.Close()
	}
	if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
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
}
