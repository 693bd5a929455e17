package main

import (
	"context"
	"time"

	muster "muster.internal"
)

func (m *memory) Window(_ context.Context, k muster.WindowKind) (muster.Window, error) {
	if w, ok := m.windows[k]; ok {
		return w, m.up()
	}
	return muster.Window{Kind: k}, m.up()
}

func (m *memory) OpenWindow(_ context.Context, k muster.WindowKind, n muster.NewWindow) (muster.Window, error) {
	at, seconds := noon, min(n.Duration, 86400)
	closes := at.Add(time.Duration(seconds) * time.Second)
	w := muster.Window{Kind: k, Open: true, OpenedBy: "operator:admin", OpenedAt: &at, ClosesAt: &closes, Duration: seconds, Count: n.Count, Remaining: n.Count}
	if m.windows == nil {
		m.windows = map[muster.WindowKind]muster.Window{}
	}
	m.windows[k] = w
	w.Clamped = seconds < n.Duration
	return w, m.up()
}

func (m *memory) CloseWindow(_ context.Context, k muster.WindowKind) error {
	if w, ok := m.windows[k]; ok {
		at := noon
		w.Open, w.Ended, w.EndedAt = false, muster.WindowClosed, &at
		m.windows[k] = w
	}
	return m.up()
}

func (m *memory) EnrolmentTokens(context.Context) ([]muster.EnrolmentToken, error) {
	return m.tokens, m.up()
}

func (m *memory) IssueEnrolmentToken(_ context.Context, n muster.NewEnrolmentToken) (muster.IssuedEnrolmentToken, error) {
	t := muster.IssuedEnrolmentToken{Token: "musen1_planted", EnrolmentToken: muster.EnrolmentToken{ID: "q2qywnguwzb4", State: muster.TokenUnused,
		Comment: n.Comment, AsNode: n.AsNode, CreatedAt: noon, CreatedBy: "operator:admin", ExpiresAt: noon.Add(time.Hour)}}
	if n.AsNode != "" {
		t.ComesAs = &muster.ComesAs{Outcome: "same_node", NodeID: n.AsNode, Why: "it would be node " + n.AsNode + " again"}
	}
	m.tokens = append(m.tokens, t.EnrolmentToken)
	return t, m.up()
}

func (m *memory) RevokeEnrolmentToken(_ context.Context, id string) error {
	for i, t := range m.tokens {
		if t.ID == id {
			m.tokens[i].State = muster.TokenRevoked
			return m.up()
		}
	}
	return muster.Problemf(muster.CodeNotFound, "there is no enrolment token %s", id)
}
