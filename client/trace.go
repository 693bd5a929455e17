package client

import (
	"context"

	"muster.internal"
)

func (c *Client) ReportTraces(ctx context.Context, booter string, ts []muster.BootTrace) error {
	in := struct {
		Booter string             `json:"booter"`
		Traces []muster.BootTrace `json:"traces"`
	}{booter, ts}
	return c.do(ctx, post(in, "/v1/booter/traces"))
}

func (c *Client) ExplainBoot(ctx context.Context, mac string) (muster.BootExplanation, error) {
	return fetch[muster.BootExplanation](ctx, c, get("/v1/boot-records", mac, "explain"))
}
