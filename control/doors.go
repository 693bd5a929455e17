package control

import (
	"context"
	"encoding/hex"

	"muster.internal"
	"muster.internal/enrol"
)

func (s session) Window(ctx context.Context, k muster.WindowKind) (muster.Window, error) {
	return s.store.Window(ctx, s.now(), k)
}

func (s session) OpenWindow(ctx context.Context, k muster.WindowKind, n muster.NewWindow) (muster.Window, error) {
	return s.store.OpenWindow(ctx, s.now(), s.by, k, n)
}

func (s session) CloseWindow(ctx context.Context, k muster.WindowKind) error {
	return s.store.CloseWindow(ctx, s.now(), s.by, k)
}

func (s session) EnrolmentTokens(ctx context.Context) ([]muster.EnrolmentToken, error) {
	return s.store.EnrolmentTokens(ctx, s.now())
}

// IssueEnrolmentToken puts the word together: the store has only a hash of it.
func (s session) IssueEnrolmentToken(ctx context.Context, n muster.NewEnrolmentToken) (muster.IssuedEnrolmentToken, error) {
	issued, secret, err := s.store.IssueEnrolmentToken(ctx, s.now(), s.by, n)
	if err != nil {
		return issued, err
	}
	print, err := hex.DecodeString(s.Fingerprint())
	if err != nil {
		return muster.IssuedEnrolmentToken{}, err
	}
	issued.Token, err = enrol.Token{URL: s.url, Fingerprint: print, ID: issued.ID, Secret: secret}.Encode()
	return issued, err
}

func (s session) RevokeEnrolmentToken(ctx context.Context, id string) error {
	return s.store.RevokeEnrolmentToken(ctx, s.now(), s.by, id)
}

// Enrol counts wrong tokens by where they come from. One that is right lets its
// machine in however many wrong ones came from there: its secret is 256 random
// bits.
func (s session) Enrol(ctx context.Context, r muster.EnrolRequest) (muster.EnrolReply, error) {
	now := s.now()
	reply, err := s.store.Enrol(ctx, now, s.by, r)
	if muster.IsCode(err, muster.CodeUnauthenticated) {
		err = s.tokens.fail(now, s.by.Source, err)
	}
	return reply, err
}
