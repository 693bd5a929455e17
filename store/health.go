package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"muster.internal"
)

var allMirrors = define("mirrors/all", `SELECT node_id, said_at, document FROM node_mirrors WHERE kind = $1 ORDER BY node_id`)

// KeepHealth keeps what the host of the caller's node sees of the placements that
// it checks, whole, and tells which are up now and which are no longer. One that
// was never up is only coming.
func (s *Store) KeepHealth(ctx context.Context, now time.Time, by muster.Caller, all []muster.PlacementHealth) error {
	return s.keepMirror(ctx, now, by, healthMirror, all, func(t *tx, document string) error {
		var was []muster.PlacementHealth
		if err := json.Unmarshal([]byte(document), &was); err != nil {
			return fmt.Errorf("health of node %s: %w", by.NodeID, err)
		}
		up := map[string]bool{}
		for _, p := range was {
			up[p.ID] = p.Healthy
		}
		var came, went []muster.PlacementHealth
		for _, p := range all {
			switch {
			case p.Healthy && !up[p.ID]:
				came = append(came, p)
			case !p.Healthy && up[p.ID]:
				went = append(went, p)
			}
		}
		if err := t.tellHealth("placement_healthy", came); err != nil {
			return err
		}
		return t.tellHealth("placement_unhealthy", went)
	})
}

func (t *tx) tellHealth(action string, all []muster.PlacementHealth) error {
	if len(all) == 0 {
		return nil
	}
	var ids, reasons []string
	for _, p := range all[:min(len(all), maxTold)] {
		ids = append(ids, p.ID)
		if p.Reason != "" {
			reasons = append(reasons, p.Reason)
		}
	}
	d := detail{"count": len(all), "placements": ids}
	if reasons != nil {
		d["reasons"] = reasons
	}
	_, err := t.record(action, nodeSubject(t.by.NodeID), d)
	return err
}

// NodeHealth is what a node's host said last of the placements that it checks.
func (s *Store) NodeHealth(ctx context.Context, nodeID string) (muster.NodeHealth, error) {
	out := muster.NodeHealth{NodeID: nodeID, Placements: []muster.PlacementHealth{}}
	at, _, err := s.mirror(ctx, nodeID, healthMirror, &out.Placements)
	out.SaidAt = at
	return out, err
}

// Health is that of every node whose host has said anything of it, by node.
func (s *Store) Health(ctx context.Context) (all []muster.NodeHealth, err error) {
	err = s.read(ctx, "reading the health of placements", func(r *reading) error {
		all = nil
		return r.each(allMirrors, []any{healthMirror}, func(scan func(...any) error) error {
			var said int64
			var document string
			h := muster.NodeHealth{}
			if err := scan(&h.NodeID, &said, &document); err != nil {
				return err
			}
			h.SaidAt = fromMicro(said)
			all = append(all, h)
			return json.Unmarshal([]byte(document), &all[len(all)-1].Placements)
		})
	})
	return all, err
}
