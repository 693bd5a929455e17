package store

import (
	"testing"

	"muster.internal"
)

// TestALateMigrationIsCaughtUp: a store that has run a later file before an
// earlier one was there still opens, and is whole.
func TestALateMigrationIsCaughtUp(t *testing.T) {
	for _, order := range [][]int64{{6}, {7, 6}, {6, 7}} {
		unmigrated(t, func(t *testing.T, e engine, url string) {
			ctx := t.Context()
			db, reader, err := e.open(ctx, url)
			if err != nil {
				t.Fatal(err)
			}
			p, err := migrator(db, e)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.UpTo(ctx, 4); err != nil {
				t.Fatal(err)
			}
			for _, v := range order {
				if _, err := p.ApplyVersion(ctx, v, true); err != nil {
					t.Fatalf("version %d before 5: %v", v, err)
				}
			}
			reader.Close()
			db.Close()
			e.close()
			s := open(t, url)
			site(t, s)
			awaiting(t, s, boxNo(1), start)
			if ms := must[[]muster.Machine](t)(s.Machines(ctx, muster.MachineFilter{})); len(ms) != 1 {
				t.Errorf("%d machines", len(ms))
			}
			healthy(t, s)
		})
	}
}
