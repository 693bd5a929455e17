package store

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// mayScan are the statements that read a whole table, or the whole of an index,
// because they answer with all of it, or because the table stays small.
// Everything else, and so all that a heartbeat, an announcement, a sighting or
// a poll runs, must find its rows by an index.
var mayScan = strings.Fields(`
booters/followed booters/list disks/list collections/now firmware/list enrolment-tokens/list images/kept keys/list links/list nodes/list
operators/count operators/list operators/other-admins root-passwords/machines shared/list tombstones/list
claims/all images/users registrations/other-by-mac machines/unknown providers/all modules/list
fleet/nodes fleet/addresses fleet/registrations fleet/reports fleet/mirrors fleet/generations executions/all
clock/tokens clock/windows clock/windows-old traces/most
`)

// TestNoStatementScansATable asks both engines how they would run each
// statement. PostgreSQL is told to scan only where there is no other way, so
// that the answer does not depend on how full the tables are.
func TestNoStatementScansATable(t *testing.T) {
	var found sync.Map
	t.Cleanup(func() {
		for _, name := range mayScan {
			if _, ok := found.Load(name); !ok {
				t.Errorf("%s is listed in mayScan, and scans nothing", name)
			}
		}
	})
	engines(t, func(t *testing.T, s *Store) {
		explain := scansSQLite
		if s.engine.shared() {
			explain = scansPostgres
		}
		for _, q := range queries {
			scanned := explain(t, s, q)
			if len(scanned) > 0 {
				found.Store(q.name, true)
			}
			if len(scanned) > 0 && !slices.Contains(mayScan, q.name) {
				t.Errorf("%s reads the whole of %s: give it an index, or list it in mayScan if it is rare:\n%s", q.name, strings.Join(scanned, ", "), q.text)
			}
		}
	})
}

// scansSQLite names the tables that a statement reads from end to end. A
// partial index read so is fine: it holds what is asked for alone.
func scansSQLite(t *testing.T, s *Store, q *query) (scanned []string) {
	rows, err := s.reader.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+s.engine.rewrite(q.text), make([]any, arguments(q))...)
	if err != nil {
		t.Fatalf("%s: %v", q.name, err)
	}
	defer rows.Close()
	for rows.Next() {
		var detail string
		if err := rows.Scan(new(int), new(int), new(int), &detail); err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`^SCAN (\w+)(?: USING (?:COVERING )?INDEX (\w+))?`).FindStringSubmatch(detail)
		if m != nil && m[1] != "CONSTANT" && !partial(t, s, m[2]) {
			scanned = append(scanned, m[1])
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return scanned
}

// arguments counts what a statement takes.
func arguments(q *query) (n int) {
	for _, m := range regexp.MustCompile(`\$(\d+)`).FindAllStringSubmatch(q.text, -1) {
		i, _ := strconv.Atoi(m[1])
		n = max(n, i)
	}
	return n
}

// partial tells whether an index holds some of the rows alone.
func partial(t *testing.T, s *Store, index string) bool {
	text := "SELECT count(*) FROM sqlite_schema WHERE type = 'index' AND name = ? AND sql LIKE '% WHERE %'"
	if s.engine.shared() {
		text = "SELECT count(*) FROM pg_indexes WHERE indexname = $1 AND indexdef LIKE '% WHERE %'"
	}
	var n int
	if err := s.reader.QueryRowContext(t.Context(), text, index).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n > 0
}

// planned is what PostgreSQL says of one step of a plan.
type planned struct {
	Node  string    `json:"Node Type"`
	Table string    `json:"Relation Name"`
	Index string    `json:"Index Name"`
	Cond  string    `json:"Index Cond"`
	Under []planned `json:"Plans"`
}

func scansPostgres(t *testing.T, s *Store, q *query) (scanned []string) {
	c, err := s.reader.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	nulls := ""
	if n := arguments(q); n > 0 {
		nulls = "(NULL" + strings.Repeat(", NULL", n-1) + ")"
	}
	var text string
	for _, stmt := range []string{"SET enable_seqscan = off", "SET plan_cache_mode = force_generic_plan", "PREPARE asked AS " + q.text} {
		if _, err := c.ExecContext(t.Context(), stmt); err != nil {
			t.Fatalf("%s: %v", q.name, err)
		}
	}
	if err := c.QueryRowContext(t.Context(), "EXPLAIN (FORMAT JSON) EXECUTE asked"+nulls).Scan(&text); err != nil {
		t.Fatalf("%s: %v", q.name, err)
	}
	if _, err := c.ExecContext(t.Context(), "DEALLOCATE asked"); err != nil {
		t.Fatal(err)
	}
	var plans []struct{ Plan planned }
	if err := json.Unmarshal([]byte(text), &plans); err != nil {
		t.Fatal(err)
	}
	var walk func(p planned)
	walk = func(p planned) {
		index := strings.Contains(p.Node, "Index") && p.Cond == "" && !partial(t, s, p.Index)
		if p.Node == "Seq Scan" || index {
			scanned = append(scanned, p.Table)
		}
		for _, u := range p.Under {
			walk(u)
		}
	}
	walk(plans[0].Plan)
	return scanned
}
