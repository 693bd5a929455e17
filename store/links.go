package store

import (
	"context"
	"slices"
	"time"

	"muster.internal"
)

var (
	heldGeneration = define("links/holds", `SELECT holds FROM node_links WHERE node_id = $1`)
	getLink        = define("links/get", `SELECT linked_at, told, holds, version, capability FROM node_links WHERE node_id = $1`)
	allLinks       = define("links/list", `SELECT node_id, linked_at, told, holds, version, capability FROM node_links`)
	putLink        = define("links/put", `
INSERT INTO node_links (node_id, linked_at, told, holds, version, capability, boot_id) VALUES ($1, $2, 0, $3, $4, $5, $6)
ON CONFLICT (node_id) DO UPDATE SET linked_at = excluded.linked_at, told = 0, holds = excluded.holds, version = excluded.version,
 capability = excluded.capability, boot_id = excluded.boot_id`)
	linksAway = define("links/away", `
SELECT l.node_id, l.linked_at FROM node_links l JOIN nodes n ON n.node_id = l.node_id
WHERE l.linked_at <= $1 AND l.told < $2 AND n.state <> 'decommissioned' AND n.policy <> 'expunged' ORDER BY l.linked_at`)
	tellLink = define("links/tell", `UPDATE node_links SET told = $2 WHERE node_id = $1 AND told < $2 AND linked_at = $3`)
)

// A NodeSeen is a node that was linked, and what its host said then.
type NodeSeen struct {
	NodeID string
	At     time.Time
	Said   muster.LinkPoll
}

// AwayAfter are the times after which a node that is not linked is told of.
var AwayAfter = []time.Duration{5 * time.Minute, time.Hour, 24 * time.Hour, 7 * 24 * time.Hour}

// KeepLinks writes when nodes were last linked. Of one that was told to be away
// it records that it is back.
func (s *Store) KeepLinks(ctx context.Context, now time.Time, seen []NodeSeen) error {
	return s.write(ctx, "keeping when nodes were last linked", now, muster.Clock, func(t *tx) error {
		for _, n := range seen {
			var at, told int64
			if _, err := t.get(getLink, []any{n.NodeID}, &at, &told, new(int64), new(string), new(int)); err != nil {
				return err
			}
			if at > micro(n.At) {
				continue // another control plane heard it later
			}
			if _, err := t.exec(putLink, n.NodeID, micro(n.At), n.Said.Holds, n.Said.Version, n.Said.Capability, n.Said.BootID); err != nil {
				return err
			}
			if told == 0 {
				continue
			}
			if _, err := t.record("back", nodeSubject(n.NodeID), detail{"away_since": fromMicro(at)}); err != nil {
				return err
			}
		}
		return nil
	})
}

// TellAway records of each node that is away for so long that it is worth
// telling, once for each of AwayAfter. It tells how many it told of.
func (s *Store) TellAway(ctx context.Context, now time.Time) (told int, err error) {
	for _, limit := range slices.Backward(AwayAfter) { // whoever is away for a week is not told to be away for an hour
		n, err := s.tellAway(ctx, now, limit)
		if told += n; err != nil {
			return told, err
		}
	}
	return told, nil
}

func (s *Store) tellAway(ctx context.Context, now time.Time, limit time.Duration) (told int, err error) {
	type away struct {
		node string
		at   int64
	}
	var due []away
	seconds := int64(limit / time.Second)
	if err := s.read(ctx, "looking for nodes that are away", func(r *reading) error {
		due = due[:0]
		return r.each(linksAway, []any{micro(now.Add(-limit)), seconds}, func(scan func(...any) error) error {
			var a away
			err := scan(&a.node, &a.at)
			due = append(due, a)
			return err
		})
	}); err != nil || len(due) == 0 {
		return 0, err
	}
	err = s.write(ctx, "telling that nodes are away", now, muster.Clock, func(t *tx) error {
		told = 0
		for _, a := range due {
			n, err := t.exec(tellLink, a.node, seconds, a.at)
			if err != nil {
				return err
			}
			if n == 0 {
				continue // it is back, or another control plane was faster
			}
			told++
			if _, err := t.record("away", nodeSubject(a.node), detail{"since": fromMicro(a.at), "seconds": seconds}); err != nil {
				return err
			}
		}
		return nil
	})
	return told, err
}

func scanLink(scan func(...any) error, dest ...any) (*muster.NodeLink, error) {
	var l muster.NodeLink
	var at int64
	err := scan(append(dest, &at, new(int64), &l.Holds, &l.Version, &l.Capability)...)
	l.LastLinked = fromMicro(at)
	return &l, err
}

// findLinks are the links of all nodes that were ever linked.
func findLinks(from source) (map[string]*muster.NodeLink, error) {
	all := map[string]*muster.NodeLink{}
	err := from.each(allLinks, nil, func(scan func(...any) error) error {
		var id string
		l, err := scanLink(scan, &id)
		all[id] = l
		return err
	})
	return all, err
}

// findLink is one node's; nil: it was never linked.
func findLink(from source, nodeID string) (l *muster.NodeLink, err error) {
	err = from.each(getLink, []any{nodeID}, func(scan func(...any) error) error {
		l, err = scanLink(scan)
		return err
	})
	return l, err
}

// RecordCertificate keeps in the audit that a node got a certificate.
func (s *Store) RecordCertificate(ctx context.Context, now time.Time, by muster.Caller, nodeID, serial, key string, notAfter time.Time) error {
	return s.write(ctx, "recording a certificate", now, by, func(t *tx) error {
		_, err := t.record("sign_certificate", nodeSubject(nodeID), detail{"serial": serial, "public_key_sha256": key, "not_after": notAfter, "api_key": by.KeyID})
		return err
	})
}
