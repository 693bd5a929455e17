package client

import (
	"context"
	"io"
	"time"

	"muster.internal"
)

const ofBooter = "/v1/booter/registrations"

func (c *Client) Feed(ctx context.Context, booter string, after int64, wait time.Duration) (muster.BooterFeed, error) {
	return fetch[muster.BooterFeed](ctx, c, get("/v1/booter/feed").with(map[string]string{
		"booter": booter, "after": number(after)}).waiting(wait))
}

func (c *Client) Sight(ctx context.Context, booter string, s []muster.Sighting) ([]muster.BootRecord, error) {
	in := struct {
		Booter    string            `json:"booter"`
		Sightings []muster.Sighting `json:"sightings"`
	}{booter, s}
	return items[muster.BootRecord](ctx, c, post(in, "/v1/booter/sightings"))
}

func (c *Client) ReportBooter(ctx context.Context, s muster.BooterStatus) error {
	return c.do(ctx, post(s, "/v1/booter/status"))
}

func (c *Client) ImageByDigest(ctx context.Context, digest string) (muster.Image, error) {
	return c.Image(ctx, digest)
}

// Blob opens a blob; the caller closes it and compares the digest. It is not
// bounded in time, only by ctx.
func (c *Client) Blob(ctx context.Context, digest string) (io.ReadCloser, error) {
	resp, err := c.send(ctx, get("/v1/blobs", digest), nil, 0)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

func (c *Client) Announce(ctx context.Context, a muster.Announcement) (muster.Announced, error) {
	return fetch[muster.Announced](ctx, c, post(a, "/v1/booter/announce"))
}

func (c *Client) Survey(ctx context.Context, serverUUID string, s muster.Survey) error {
	return c.do(ctx, post(s, ofBooter, serverUUID, "survey"))
}

func (c *Client) SessionChanged(ctx context.Context, serverUUID string, s muster.SessionChange) error {
	return c.do(ctx, post(s, ofBooter, serverUUID, "session-changed"))
}

func (c *Client) TakeBundle(ctx context.Context, serverUUID string, r muster.TakeRequest) (muster.TakenBundle, error) {
	return fetch[muster.TakenBundle](ctx, c, post(r, ofBooter, serverUUID, "take"))
}

func (c *Client) SetupComplete(ctx context.Context, serverUUID string, o muster.SetupOutcome) error {
	return c.do(ctx, post(o, ofBooter, serverUUID, "setup-complete"))
}

func (c *Client) SetupFailed(ctx context.Context, serverUUID string, o muster.SetupOutcome) error {
	return c.do(ctx, post(o, ofBooter, serverUUID, "setup-failed"))
}

func (c *Client) Register(ctx context.Context, r muster.RegisterRequest) (muster.RegisterReply, error) {
	return fetch[muster.RegisterReply](ctx, c, post(r, "/v1/agent/register"))
}

// RegisterStatus is not tried again once it was sent: the answer may have held
// the key, which is delivered once.
func (c *Client) RegisterStatus(ctx context.Context, pollToken string, wait time.Duration) (muster.RegisterStatus, error) {
	k := get("/v1/agent/register/status").with(map[string]string{"poll_token": pollToken}).waiting(wait)
	k.once = true
	return fetch[muster.RegisterStatus](ctx, c, k)
}

func (c *Client) Refresh(ctx context.Context, r muster.RefreshRequest) (muster.Registration, error) {
	return fetch[muster.Registration](ctx, c, post(r, "/v1/agent/refresh"))
}

func (c *Client) Heartbeat(ctx context.Context, h muster.Heartbeat) (muster.HeartbeatReply, error) {
	return fetch[muster.HeartbeatReply](ctx, c, post(h, "/v1/agent/heartbeat"))
}
