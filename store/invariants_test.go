package store

import (
	"context"
	"database/sql"
	"fmt"
	"sort"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"
)

// tables are every table of ours, with the columns that may differ between two
// states that are the same for people.
var tables = []string{"api_keys", "audit", "audit_head", "boot_policy", "boot_records", "boot_traces", "collections", "disk_places", "firmware_minimums", "blueprint_target", "blueprints", "booters", "claims", "dead_keys", "disks", "enrolment_tokens", "evidence", "executions", "foreign_workloads", "grants", "hook_calls", "images", "install_lines", "install_logs",
	"machines", "machines_apart", "modules", "moves", "shared_identities", "declarations", "node_links", "node_mirrors", "node_orders", "node_reports",
	"nodes", "operators", "placements", "providers", "registrations", "root_passwords", "sysinfos", "ticket_keys", "tokens", "tombstones", "windows"}

// dump is everything in the database, as text.
func dump(t testing.TB, db *sql.DB) string {
	t.Helper()
	if _, pg := db.Driver().(*stdlib.Driver); pg {
		return dumpPostgres(t, db)
	}
	var b strings.Builder
	for _, table := range tables {
		rows, err := db.Query("SELECT * FROM " + table)
		if err != nil {
			t.Fatal(err)
		}
		cols, _ := rows.Columns()
		var lines []string
		for rows.Next() {
			vs := make([]any, len(cols))
			for i := range vs {
				vs[i] = new(any)
			}
			if err := rows.Scan(vs...); err != nil {
				t.Fatal(err)
			}
			line := table
			for i, v := range vs {
				if raw, ok := (*v.(*any)).([]byte); ok {
					line += fmt.Sprintf(" %s=%x", cols[i], raw)
				} else {
					line += fmt.Sprintf(" %s=%v", cols[i], *v.(*any))
				}
			}
			lines = append(lines, line)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		rows.Close()
		sort.Strings(lines)
		b.WriteString(strings.Join(lines, "\n") + "\n")
	}
	return b.String()
}

func dumpPostgres(t testing.TB, db *sql.DB) (all string) {
	t.Helper()
	var parts []string
	for _, table := range tables {
		parts = append(parts, fmt.Sprintf("coalesce((SELECT string_agg('%s ' || x::text, chr(10) ORDER BY x::text) FROM %s x), '')", table, table))
	}
	if err := db.QueryRow("SELECT " + strings.Join(parts, " || chr(10) || ")).Scan(&all); err != nil {
		t.Fatal(err)
	}
	return all
}

// promises are queries that find what must never be.
var promises = map[string]string{
	"an agent key without its registration, or of a dead credential": `
SELECT k.id FROM api_keys k LEFT JOIN registrations r ON r.server_uuid = k.server_uuid AND r.key_id = k.id AND r.credential = 'live'
WHERE k.scope = 'agent' AND r.server_uuid IS NULL`,
	"a live credential without its key": `
SELECT r.server_uuid FROM registrations r LEFT JOIN api_keys k ON k.id = r.key_id WHERE r.credential = 'live' AND k.id IS NULL`,
	"a key of a machine that is neither approved nor being set up": `
SELECT server_uuid FROM registrations WHERE credential <> '' AND state NOT IN ('approved', 'setting_up')`,
	"ticket keys of a machine without a live credential": `
SELECT k.server_uuid FROM ticket_keys k JOIN registrations r ON r.server_uuid = k.server_uuid WHERE r.credential <> 'live'`,
	"a setup without deadline, operation or epoch": `
SELECT server_uuid FROM registrations WHERE state = 'setting_up' AND (setup_deadline IS NULL OR operation_id = '' OR setup_epoch = 0)`,
	"setup leftovers": `
SELECT server_uuid FROM registrations WHERE state <> 'setting_up' AND setup_deadline IS NOT NULL`,
	"an approved machine without a live node": `
SELECT r.server_uuid FROM registrations r LEFT JOIN nodes n ON n.node_id = r.node_id AND n.state <> 'decommissioned'
WHERE r.state = 'approved' AND n.node_id IS NULL`,
	"a node with two live registrations, or of another machine than says so": `
SELECT r.node_id FROM registrations r JOIN nodes n ON n.node_id = r.node_id WHERE r.state = 'approved' AND n.server_uuid <> r.server_uuid UNION ALL
SELECT node_id FROM registrations WHERE state IN ('approved', 'setting_up') AND node_id <> '' GROUP BY node_id HAVING count(*) > 1`,
	"a claim on a node or a disk that is gone": `
SELECT c.claim_id FROM claims c JOIN nodes n ON n.node_id = c.node_id LEFT JOIN disks d ON d.disk_id = c.disk_id
WHERE c.state <> 'released' AND (n.state = 'decommissioned' OR n.policy = 'expunged' OR d.state = 'decommissioned' OR d.policy = 'expunged')`,
	"a claim that is held on what is to leave": `
SELECT c.claim_id FROM claims c JOIN nodes n ON n.node_id = c.node_id LEFT JOIN disks d ON d.disk_id = c.disk_id
WHERE c.state = 'held' AND (n.policy IN ('quiesce', 'graceful_remove') OR d.policy = 'graceful_remove')`,
	"a disk in service on a node that is gone": `
SELECT d.disk_id FROM disks d JOIN nodes n ON n.node_id = d.node_id WHERE d.state = 'in_service' AND n.state = 'decommissioned'`,
	"a servable record without an address": `
SELECT mac FROM boot_records WHERE state IN ('enrolling', 'enrolled') AND address = ''`,
	"a claim code outside pending": `
SELECT server_uuid FROM registrations WHERE claim_hash IS NOT NULL AND state <> 'pending'`,
	"a change ahead of the feed": `
SELECT mac FROM boot_records WHERE seq > (SELECT seq FROM audit_head) UNION ALL
SELECT server_uuid FROM registrations WHERE seq > (SELECT seq FROM audit_head) UNION ALL
SELECT node_id FROM nodes WHERE seq > (SELECT seq FROM audit_head)`,
	"a change without its audit entry": `
SELECT mac FROM boot_records WHERE seq NOT IN (SELECT seq FROM audit) UNION ALL
SELECT server_uuid FROM registrations WHERE seq NOT IN (SELECT seq FROM audit) UNION ALL
SELECT node_id FROM nodes WHERE seq NOT IN (SELECT seq FROM audit)`,
	"an audit entry whose change is missing": `
SELECT a.subject FROM audit a JOIN boot_records b ON a.subject = 'boot-record/' || b.mac WHERE a.seq > b.seq UNION ALL
SELECT a.subject FROM audit a JOIN registrations r ON a.subject = 'registration/' || r.server_uuid WHERE a.seq > r.seq`,
	"a disabled machine that is not remembered as such": `
SELECT server_uuid FROM registrations WHERE state = 'disabled' AND NOT was_disabled`,
	"a window with more taken than it had": `
SELECT kind FROM windows WHERE slots IS NOT NULL AND taken > slots OR slots = taken AND ended = ''`,
	"a tombstoned machine that is let in": `
SELECT t.server_uuid FROM tombstones t JOIN registrations r ON r.server_uuid = t.server_uuid WHERE r.state <> 'disabled'`,
	"a tombstoned machine's record that serves": `
SELECT b.mac FROM tombstones t JOIN boot_records b ON b.server_uuid = t.server_uuid WHERE b.state <> 'decommissioned'`,
	"an expunged node that is there without a tombstone": `
SELECT n.node_id FROM nodes n LEFT JOIN tombstones t ON t.server_uuid = n.server_uuid WHERE n.policy = 'expunged' AND n.state <> 'decommissioned' AND t.server_uuid IS NULL`,
	"a placement on a node that is gone": `
SELECT p.placement_id FROM placements p JOIN nodes n ON n.node_id = p.node_id WHERE n.state = 'decommissioned' AND p.state IN ('reserved', 'placed', 'moving')`,
	"a target that is not the newest blueprint": `
SELECT t.blueprint_id FROM blueprint_target t LEFT JOIN blueprints b ON b.number = t.number AND b.blueprint_id = t.blueprint_id
WHERE t.number <> 0 AND b.number IS NULL OR t.number < (SELECT max(number) FROM blueprints)`,
	"a placement of a blueprint on a node that people declare": `
SELECT p.placement_id FROM placements p JOIN nodes n ON n.node_id = p.node_id WHERE n.by_hand AND p.version > 0 AND p.state IN ('reserved', 'placed', 'moving')`,
	"a root password of no member": `
SELECT p.server_uuid FROM root_passwords p JOIN registrations r ON r.server_uuid = p.server_uuid WHERE r.state = 'awaiting_setup'`,
	"a dead key that lives": `
SELECT d.id FROM dead_keys d JOIN api_keys k ON k.id = d.id`,
	"a registration without its machine, or with two": `
SELECT r.server_uuid FROM registrations r LEFT JOIN machines m ON m.server_uuid = r.server_uuid WHERE m.machine_id IS NULL`,
	"a machine without its registration, or a newcomer to nobody": `
SELECT m.machine_id FROM machines m LEFT JOIN registrations r ON r.server_uuid = m.server_uuid OR r.server_uuid = m.incumbent WHERE r.server_uuid IS NULL`,
	"evidence of nobody": `
SELECT e.value FROM evidence e LEFT JOIN machines m ON m.machine_id = e.machine_id WHERE m.machine_id IS NULL`,
	"an address on two records": `
SELECT address FROM boot_records WHERE address <> '' GROUP BY address HAVING count(*) > 1`,
	"a gap in the chain": `
SELECT CAST(h.seq AS text) FROM audit_head h WHERE h.seq <> (SELECT count(*) FROM audit)`,
}

func keepsPromises(t testing.TB, db *sql.DB) {
	t.Helper()
	for what, q := range promises {
		var key string
		switch err := db.QueryRow(q).Scan(&key); err {
		case sql.ErrNoRows:
		case nil:
			t.Fatalf("%s: %s", what, key)
		default:
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// healthy checks what must be true of every store at every moment.
func healthy(t testing.TB, s *Store) {
	t.Helper()
	v, err := s.VerifyAudit(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if !v.OK {
		t.Fatalf("the audit chain is broken: %+v", v)
	}
	keepsPromises(t, s.reader)
}
