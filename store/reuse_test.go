package store

import (
	"slices"
	"testing"
)

// TestAnEmptiedDatabaseIsAsNew: what one test leaves in a database of the
// cluster must not meet the next.
func TestAnEmptiedDatabaseIsAsNew(t *testing.T) {
	s := open(t, emptyPostgres(t))
	db := behind(t, s)
	want := dump(t, db)
	fill(t, s)
	if err := empty(db); err != nil {
		t.Fatal(err)
	}
	if have := dump(t, db); have != want {
		t.Errorf("left behind:\n%s\nwant\n%s", have, want)
	}
	rows, err := db.Query(`SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename NOT IN ('goose_db_version', 'master_key')`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var table string
		if err := rows.Scan(&table); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(tables, table) {
			t.Errorf("table %s is not among those that are emptied, dumped and compared", table)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}
