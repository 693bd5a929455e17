package client

import (
	"context"

	"muster.internal"
)

func windowPath(k muster.WindowKind) string { return string(k) + "-window" }

func (c *Client) Window(ctx context.Context, k muster.WindowKind) (muster.Window, error) {
	return fetch[muster.Window](ctx, c, get("/v1", windowPath(k)))
}

func (c *Client) OpenWindow(ctx context.Context, k muster.WindowKind, n muster.NewWindow) (muster.Window, error) {
	return fetch[muster.Window](ctx, c, post(n, "/v1", windowPath(k)))
}

func (c *Client) CloseWindow(ctx context.Context, k muster.WindowKind) error {
	return c.do(ctx, remove("/v1", windowPath(k)))
}

func (c *Client) EnrolmentTokens(ctx context.Context) ([]muster.EnrolmentToken, error) {
	return items[muster.EnrolmentToken](ctx, c, get("/v1/enrolment-tokens"))
}

func (c *Client) IssueEnrolmentToken(ctx context.Context, n muster.NewEnrolmentToken) (muster.IssuedEnrolmentToken, error) {
	return fetch[muster.IssuedEnrolmentToken](ctx, c, post(n, "/v1/enrolment-tokens"))
}

func (c *Client) RevokeEnrolmentToken(ctx context.Context, id string) error {
	return c.do(ctx, remove("/v1/enrolment-tokens", id))
}

// Enrol is not tried again by itself: whoever calls it repeats it with the same
// nonce when the answer is lost.
func (c *Client) Enrol(ctx context.Context, r muster.EnrolRequest) (muster.EnrolReply, error) {
	return fetch[muster.EnrolReply](ctx, c, post(r, "/v1/agent/enrol"))
}
