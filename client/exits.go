package client

import (
	"context"
	"net/http"

	"muster.internal"
)

func put(in any, path ...string) call { return call{method: http.MethodPut, path: join(path), in: in} }
func patch(in any, path ...string) call {
	return call{method: http.MethodPatch, path: join(path), in: in}
}

func (c *Client) Node(ctx context.Context, nodeID string) (muster.NodeDetail, error) {
	return fetch[muster.NodeDetail](ctx, c, get("/v1/nodes", nodeID))
}

func (c *Client) RaiseNode(ctx context.Context, nodeID string, e muster.Event) (muster.Node, error) {
	return fetch[muster.Node](ctx, c, post(nil, "/v1/nodes", nodeID, dashed(e)))
}

func (c *Client) ExpungeNode(ctx context.Context, nodeID string, x muster.Expunge) (muster.NodeDetail, error) {
	return fetch[muster.NodeDetail](ctx, c, post(x, "/v1/nodes", nodeID, "expunge"))
}

func (c *Client) AcknowledgeForeign(ctx context.Context, nodeID string) (muster.NodeDetail, error) {
	return fetch[muster.NodeDetail](ctx, c, post(nil, "/v1/nodes", nodeID, "acknowledge-foreign"))
}

// RaiseDisk spells the disk's events as its routes do: graceful-remove and keep.
func (c *Client) RaiseDisk(ctx context.Context, diskID string, e muster.Event) (muster.NodeDisk, error) {
	verb := map[muster.Event]string{"remove_disk": "graceful-remove", "keep_disk": "keep"}[e]
	if verb == "" {
		verb = dashed(e)
	}
	return fetch[muster.NodeDisk](ctx, c, post(nil, "/v1/disks", diskID, verb))
}

func (c *Client) ExpungeDisk(ctx context.Context, diskID string, x muster.Expunge) (muster.NodeDisk, error) {
	return fetch[muster.NodeDisk](ctx, c, post(x, "/v1/disks", diskID, "expunge"))
}

func (c *Client) SetRootPassword(ctx context.Context, serverUUID string, p muster.RootPassword) (muster.RootPasswordSet, error) {
	return fetch[muster.RootPasswordSet](ctx, c, put(p, "/v1/registrations", serverUUID, "root-password"))
}

func (c *Client) ClearRootPassword(ctx context.Context, serverUUID string) error {
	return c.do(ctx, remove("/v1/registrations", serverUUID, "root-password"))
}

func (c *Client) TakeRootPassword(ctx context.Context, mac string, q muster.BootSecretRequest) (muster.BootSecret, error) {
	return fetch[muster.BootSecret](ctx, c, post(q, "/v1/booter/boot-records", mac, "root-password"))
}

func (c *Client) RotateKey(ctx context.Context, id string, r muster.KeyRotation) (muster.CreatedKey, error) {
	return fetch[muster.CreatedKey](ctx, c, post(r, "/v1/keys", id, "rotate"))
}

func (c *Client) ChangeOperator(ctx context.Context, name string, o muster.OperatorChange) (muster.Operator, error) {
	return fetch[muster.Operator](ctx, c, patch(o, "/v1/operators", name))
}

func (c *Client) RemoveOperator(ctx context.Context, name string) error {
	return c.do(ctx, remove("/v1/operators", name))
}

func (c *Client) ChangePassword(ctx context.Context, p muster.PasswordChange) error {
	return c.do(ctx, post(p, "/v1/password"))
}
