package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"muster.internal"
	"muster.internal/module"
)

var (
	addHook = define("hooks/add", `
INSERT INTO hook_calls (call_id, placement_id, node_id, module, url, body, made_at, tries, again_at, error) VALUES ($1, $2, $3, $4, $5, $6, $7, 0, $7, '')
ON CONFLICT (call_id) DO NOTHING`)
	hooksDue = define("hooks/due", `SELECT call_id, node_id, url, body, tries, again_at FROM hook_calls WHERE done_at IS NULL AND again_at <= $1 ORDER BY again_at, call_id LIMIT 64`)
	takeHook = define("hooks/take", `UPDATE hook_calls SET tries = tries + 1, again_at = $2 WHERE call_id = $1 AND again_at = $3 AND done_at IS NULL`)
	setHook  = define("hooks/set", `UPDATE hook_calls SET done_at = $2, again_at = $3, error = $4 WHERE call_id = $1 AND done_at IS NULL`)
)

// How the audit calls what happens to the calls of webhooks.
const (
	ActionHook       = "hook"
	ActionHookDone   = "hook_done"
	ActionHookFailed = "hook_failed"
)

// Pauses between tries to call a webhook, and how many there are: some ten hours.
const (
	hookLease    = time.Minute // for whoever has taken a call; past it, another does
	hookAgain    = time.Second
	hookAgainMax = 30 * time.Minute
	hookBudget   = 30
)

// A HookCall is a webhook that is to be called, at least once.
type HookCall struct {
	ID     string // the receiver can tell a call by it that it has had already
	NodeID string
	URL    string
	Body   []byte
	Tries  int // this one included
	again  int64
}

// hooks has the hooks of a module done for a placement that is lost. Named events
// are done by it; calls wait for whoever delivers them.
func (f *follower) hooks(node string, p *muster.BlueprintPlacement) error {
	m := moduleOf(f.is, p)
	if m == nil {
		m = moduleOf(f.was, p)
	}
	if m == nil {
		return nil
	}
	said := detail{"placement_id": p.ID, "name": p.Name, "module": p.Module, "version": p.Version, "node_id": node, "blueprint_id": f.is.ID}
	if p.Disk != "" {
		said["disk_id"] = p.Disk
	}
	for i, h := range m.OnExpunge {
		if h.Event != "" {
			if _, err := f.record(h.Event, "placement/"+p.ID, said); err != nil {
				return err
			}
			continue
		}
		id := fmt.Sprintf("%s.%d", p.ID, i+1)
		body, err := json.Marshal(struct {
			ID    string    `json:"id"`
			Event string    `json:"event"`
			At    time.Time `json:"at"`
			Lost  detail    `json:"lost"`
		}{id, string(muster.PlacementLost) + "_placement", f.now, said})
		if err != nil {
			return err
		}
		n, err := f.exec(addHook, id, p.ID, node, p.Module, h.Webhook, string(body), micro(f.now))
		if err != nil || n == 0 {
			return err
		}
		if _, err := f.record(ActionHook, "placement/"+p.ID, detail{"call": id, "node_id": node}); err != nil {
			return err
		}
	}
	return nil
}

func moduleOf(b *muster.Blueprint, p *muster.BlueprintPlacement) *module.Module {
	for i := range b.Modules {
		if m := &b.Modules[i]; m.Name == p.Module && m.Version == p.Version {
			return m
		}
	}
	return nil
}

// HooksDue are the calls that are to be tried.
func (s *Store) HooksDue(ctx context.Context, now time.Time) (due []HookCall, err error) {
	err = s.read(ctx, "looking for webhooks to call", func(r *reading) error {
		due = due[:0]
		return r.each(hooksDue, []any{micro(now)}, func(scan func(...any) error) error {
			var c HookCall
			var body string
			err := scan(&c.ID, &c.NodeID, &c.URL, &body, &c.Tries, &c.again)
			c.Body = []byte(body)
			due = append(due, c)
			return err
		})
	})
	return due, err
}

// TakeHook makes a call the caller's for a while, unless another control plane
// was faster. Who dies with it loses it after that.
func (s *Store) TakeHook(ctx context.Context, now time.Time, c HookCall) (taken bool, err error) {
	err = s.write(ctx, "taking a webhook to call", now, muster.Clock, func(t *tx) error {
		n, err := t.exec(takeHook, c.ID, micro(t.now.Add(hookLease)), c.again)
		taken = n == 1
		return err
	})
	return taken, err
}

// HookDone notes how a call went that was taken.
func (s *Store) HookDone(ctx context.Context, now time.Time, c HookCall, failure error) error {
	return s.write(ctx, "noting how a webhook went", now, muster.Clock, func(t *tx) error {
		done, tries, text := micro(t.now), c.Tries+1, ""
		if failure == nil {
			if n, err := t.exec(setHook, c.ID, &done, nil, ""); err != nil || n == 0 {
				return err
			}
			_, err := t.record(ActionHookDone, nodeSubject(c.NodeID), detail{"call": c.ID, "tries": tries})
			return err
		}
		text = failure.Error()
		again := micro(t.now.Add(min(hookAgain<<min(tries-1, 20), hookAgainMax)))
		next := &again
		if tries >= hookBudget {
			next = nil
		}
		if n, err := t.exec(setHook, c.ID, nil, next, text); err != nil || n == 0 || tries != 1 && tries != hookBudget {
			return err
		}
		_, err := t.record(ActionHookFailed, nodeSubject(c.NodeID), detail{"call": c.ID, "tries": tries, "error": text, "given_up": next == nil})
		return err
	})
}
