package store

import (
	"fmt"
	"strings"

	"muster.internal"
	"muster.internal/lifecycle"
)

var (
	placementsOf = define("placements/node", `
SELECT placement_id, module, kind, state FROM placements WHERE node_id = $1 AND state <> 'removed' ORDER BY placement_id`)
	setPlacement = define("placements/set", `UPDATE placements SET state = $2, changed_at = $3, seq = $4 WHERE placement_id = $1 AND state = $5`)
	movesOf      = define("moves/unfinished", `
SELECT move_id, placement_id, from_node, to_node, started_at FROM moves
WHERE outcome = '' AND (from_node = $1 OR to_node = $1) ORDER BY started_at, move_id`)
	failMoves = define("moves/fail", `UPDATE moves SET outcome = 'failed', ended_at = $2 WHERE outcome = '' AND to_node = $1`)
	foreignOf = define("foreign/machine", `
SELECT kind, name, first_seen, acknowledged_at, acknowledged_by FROM foreign_workloads WHERE server_uuid = $1 ORDER BY kind, name`)
	acknowledge = define("foreign/acknowledge", `
UPDATE foreign_workloads SET acknowledged_at = $2, acknowledged_by = $3 WHERE server_uuid = $1 AND acknowledged_at IS NULL`)
	dropForeign = define("foreign/drop", `DELETE FROM foreign_workloads WHERE server_uuid = $1`)
)

// Holdings are what stands in the way of a machine that is to leave.
type holdings struct {
	placements []muster.Placement
	moves      []muster.Move
	foreign    []muster.ForeignWorkload
	claims     []muster.Claim // that are not over
}

// findHoldings reads what a machine's live node holds. A node that is no more
// holds nothing.
func findHoldings(from source, m *machine) (h holdings, err error) {
	if m.node.ID != "" && m.node.State != muster.NodeDecommissioned {
		if err = h.ofNode(from, m.node.ID); err != nil {
			return h, err
		}
		all, err := findClaims(from, claimsOf, m.node.ID)
		if err != nil {
			return h, err
		}
		for _, c := range all {
			if c.Live() {
				h.claims = append(h.claims, c)
			}
		}
	}
	h.foreign = []muster.ForeignWorkload{}
	err = from.each(foreignOf, []any{m.uuid}, func(scan func(...any) error) error {
		var w muster.ForeignWorkload
		var first int64
		var at *int64
		err := scan(&w.Kind, &w.Name, &first, &at, &w.AcknowledgedBy)
		w.FirstSeen, w.AcknowledgedAt = fromMicro(first), fromMicroPtr(at)
		h.foreign = append(h.foreign, w)
		return err
	})
	return h, err
}

func (h *holdings) ofNode(from source, nodeID string) error {
	h.placements, h.moves = []muster.Placement{}, []muster.Move{}
	if err := from.each(placementsOf, []any{nodeID}, func(scan func(...any) error) error {
		var p muster.Placement
		err := scan(&p.ID, &p.Module, &p.Kind, &p.State)
		h.placements = append(h.placements, p)
		return err
	}); err != nil {
		return err
	}
	return from.each(movesOf, []any{nodeID}, func(scan func(...any) error) error {
		var v muster.Move
		var started int64
		err := scan(&v.ID, &v.Placement, &v.From, &v.To, &started)
		v.StartedAt = fromMicro(started)
		h.moves = append(h.moves, v)
		return err
	})
}

// services names the placements in one of the states that would be missed.
func (h *holdings) services(states ...muster.PlacementState) (names []string) {
	for _, p := range h.placements {
		for _, s := range states {
			if p.Kind == muster.PlacementService && p.State == s {
				names = append(names, p.Module+" ("+p.ID+")")
			}
		}
	}
	return names
}

func (h *holdings) unacknowledged() (names []string) {
	for _, w := range h.foreign {
		if w.AcknowledgedAt == nil {
			names = append(names, w.Kind+" "+w.Name)
		}
	}
	return names
}

// facts says what of it stands in the way of e. Reserved is placed, but where
// the rows ask for both.
func (h *holdings) facts(e muster.Event, f *lifecycle.Facts) {
	placed := h.services(muster.PlacementPlaced, muster.PlacementMoving)
	reserved := h.services(muster.PlacementReserved)
	f.NothingPlaced = len(placed) == 0 && (e == lifecycle.FactoryReset || len(reserved) == 0)
	f.NoReservation, f.NoMove, f.Acknowledged = len(reserved) == 0, len(h.moves) == 0, len(h.unacknowledged()) == 0
	f.NothingRuns, f.Unclaimed = len(placed) == 0, len(h.claims) == 0
}

// name adds to a refusal what it is that stands in the way.
func (h *holdings) name(err error) error {
	p, is := err.(*muster.Problem)
	if !is || p.Code != muster.CodeConflict {
		return err
	}
	say := func(what string, names []string) {
		if n := len(names); n > 5 {
			names = append(names[:5:5], fmt.Sprintf("and %d more", n-5))
		}
		if len(names) > 0 {
			p.Detail += "; " + what + ": " + strings.Join(names, ", ")
		}
	}
	say("placed", h.services(muster.PlacementPlaced, muster.PlacementMoving))
	say("reserved", h.services(muster.PlacementReserved))
	var moves []string
	for _, v := range h.moves {
		moves = append(moves, v.ID)
	}
	say("moves", moves)
	say("foreign", h.unacknowledged())
	var claims []string
	for _, c := range h.claims {
		claims = append(claims, c.Holder+" ("+c.ID+")")
	}
	say("claimed by", claims)
	return err
}

// leave ends every placement of a node: what came with the node is removed,
// what is lost is an event of its own. What was to come here does not.
func (t *tx) leave(m *machine, to muster.PlacementState) error {
	var h holdings
	if m.node.ID == "" {
		return nil
	}
	if err := h.ofNode(t, m.node.ID); err != nil {
		return err
	}
	for _, p := range h.placements {
		if p.State == to || p.State == muster.PlacementLost {
			continue
		}
		seq, err := t.record(ActionPlacement(to), "placement/"+p.ID, detail{"module": p.Module, "node_id": m.node.ID, "server_uuid": m.uuid, "from": p.State})
		if err != nil {
			return err
		}
		if err := t.change(setPlacement, p.ID, string(to), micro(t.now), seq, string(p.State)); err != nil {
			return err
		}
	}
	if len(h.moves) > 0 {
		_, err := t.exec(failMoves, m.node.ID, micro(t.now))
		return err
	}
	return nil
}
