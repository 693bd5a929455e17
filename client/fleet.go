package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"muster.internal"
)

// The methods are those of the root package's interfaces and are described there.
var (
	_ muster.Fleet     = (*Client)(nil)
	_ muster.ForBooter = (*Client)(nil)
	_ muster.ForHost   = (*Client)(nil)
	_ muster.ForLink   = (*Client)(nil)
	_ muster.Accounts  = (*Client)(nil)
)

// fetch makes a call whose answer is a T.
func fetch[T any](ctx context.Context, c *Client, k call) (T, error) {
	var out T
	k.out = &out
	err := c.do(ctx, k)
	if err != nil {
		var zero T
		return zero, err
	}
	return out, nil
}

// items makes a call whose answer is a list.
func items[T any](ctx context.Context, c *Client, k call) ([]T, error) {
	l, err := fetch[struct {
		Items []T `json:"items"`
	}](ctx, c, k)
	return l.Items, err
}

func get(path ...string) call { return call{method: http.MethodGet, path: join(path)} }
func post(in any, path ...string) call {
	return call{method: http.MethodPost, path: join(path), in: in}
}
func remove(path ...string) call { return call{method: http.MethodDelete, path: join(path)} }
func (k call) with(q map[string]string) call {
	k.query = url.Values{}
	for name, v := range q {
		if v != "" && v != "0" {
			k.query.Set(name, v)
		}
	}
	return k
}

// waiting makes k a long poll. The wire counts whole seconds.
func (k call) waiting(d time.Duration) call {
	k.wait = min(max(d, 0), time.Minute)
	if s := int((k.wait + time.Second - 1) / time.Second); s > 0 {
		k.query.Set("wait", strconv.Itoa(s))
	}
	return k
}

// join puts a path together: the first segment is ours, the others are what
// callers gave and are escaped.
func join(segments []string) string {
	b := new(strings.Builder)
	b.WriteString(segments[0])
	for _, s := range segments[1:] {
		if s == "" || s == "." || s == ".." {
			s = "-" // a segment that names nothing, instead of another route
		}
		b.WriteString("/" + url.PathEscape(s))
	}
	return b.String()
}

func number[N int | int64](n N) string { return strconv.FormatInt(int64(n), 10) }

// dashed is how paths spell an event.
func dashed(e muster.Event) string { return strings.ReplaceAll(string(e), "_", "-") }

func (c *Client) Registrations(ctx context.Context, f muster.RegistrationFilter) ([]muster.Registration, error) {
	return items[muster.Registration](ctx, c, get("/v1/registrations").with(map[string]string{
		"state": string(f.State), "after": f.After, "limit": number(f.Limit)}))
}

func (c *Client) Registration(ctx context.Context, serverUUID string) (muster.Registration, error) {
	return fetch[muster.Registration](ctx, c, get("/v1/registrations", serverUUID))
}

func (c *Client) ApproveCode(ctx context.Context, code string) (muster.Registration, error) {
	return fetch[muster.Registration](ctx, c, post(map[string]string{"code": code}, "/v1/claim-codes/approve"))
}

func (c *Client) PlanSetup(ctx context.Context, serverUUID string, r muster.SetupRequest) (muster.SetupPlan, error) {
	return fetch[muster.SetupPlan](ctx, c, post(r, "/v1/registrations", serverUUID, "plan-setup"))
}

func (c *Client) ApproveSetup(ctx context.Context, serverUUID string, a muster.SetupApproval) (muster.SetupGrant, error) {
	return fetch[muster.SetupGrant](ctx, c, post(a, "/v1/registrations", serverUUID, "approve-setup"))
}

func (c *Client) RaiseRegistration(ctx context.Context, serverUUID string, e muster.Event) (muster.Registration, error) {
	return fetch[muster.Registration](ctx, c, post(nil, "/v1/registrations", serverUUID, dashed(e)))
}

func (c *Client) DeleteRegistration(ctx context.Context, serverUUID string) error {
	return c.do(ctx, remove("/v1/registrations", serverUUID))
}

func (c *Client) BootRecords(ctx context.Context, f muster.BootFilter) ([]muster.BootRecord, error) {
	return items[muster.BootRecord](ctx, c, get("/v1/boot-records").with(map[string]string{
		"state": string(f.State), "after": f.After, "limit": number(f.Limit)}))
}

func (c *Client) BootRecord(ctx context.Context, mac string) (muster.BootRecord, error) {
	return fetch[muster.BootRecord](ctx, c, get("/v1/boot-records", mac))
}

func (c *Client) SetBootRecord(ctx context.Context, mac string, b muster.BootChange) (muster.BootRecord, error) {
	return fetch[muster.BootRecord](ctx, c, patch(b, "/v1/boot-records", mac))
}

func (c *Client) RaiseBootRecord(ctx context.Context, mac string, e muster.Event) (muster.BootRecord, error) {
	return fetch[muster.BootRecord](ctx, c, post(nil, "/v1/boot-records", mac, dashed(e)))
}

func (c *Client) BootPolicy(ctx context.Context) (muster.BootPolicy, error) {
	return fetch[muster.BootPolicy](ctx, c, get("/v1/boot-policy"))
}

func (c *Client) SetBootPolicy(ctx context.Context, p muster.BootPolicy) (muster.BootPolicy, error) {
	return fetch[muster.BootPolicy](ctx, c, call{method: http.MethodPut, path: "/v1/boot-policy", in: p})
}

func (c *Client) Nodes(ctx context.Context) ([]muster.Node, error) {
	return items[muster.Node](ctx, c, get("/v1/nodes"))
}

func (c *Client) IssueTicket(ctx context.Context, serverUUID string, r muster.TicketRequest) (muster.Ticket, error) {
	return fetch[muster.Ticket](ctx, c, post(r, "/v1/registrations", serverUUID, "ticket"))
}

func (c *Client) Images(ctx context.Context) ([]muster.Image, error) {
	return items[muster.Image](ctx, c, get("/v1/images"))
}

func (c *Client) Image(ctx context.Context, ref string) (muster.Image, error) {
	return fetch[muster.Image](ctx, c, get("/v1/images", ref))
}

func (c *Client) HasBlob(ctx context.Context, digest string) (bool, error) {
	err := c.do(ctx, call{method: http.MethodHead, path: join([]string{"/v1/blobs", digest})})
	if muster.IsCode(err, muster.CodeNotFound) {
		return false, nil
	}
	return err == nil, err
}

// PutBlob sends size bytes of r. It is not bounded in time, only by ctx.
func (c *Client) PutBlob(ctx context.Context, digest string, size int64, r io.Reader) error {
	resp, err := c.send(ctx, call{method: http.MethodPut, path: join([]string{"/v1/blobs", digest}), stream: r}, io.LimitReader(r, size), size)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func (c *Client) AddImage(ctx context.Context, i muster.Image) (muster.Image, error) {
	return fetch[muster.Image](ctx, c, post(i, "/v1/images"))
}

func (c *Client) RemoveImage(ctx context.Context, name string) error {
	return c.do(ctx, remove("/v1/images", name))
}

func (c *Client) Keys(ctx context.Context) ([]muster.APIKey, error) {
	return items[muster.APIKey](ctx, c, get("/v1/keys"))
}

func (c *Client) CreateKey(ctx context.Context, n muster.NewKey) (muster.CreatedKey, error) {
	return fetch[muster.CreatedKey](ctx, c, post(n, "/v1/keys"))
}

func (c *Client) RevokeKey(ctx context.Context, id string) error {
	return c.do(ctx, remove("/v1/keys", id))
}

func (c *Client) Audit(ctx context.Context, f muster.AuditFilter) ([]muster.AuditEntry, error) {
	return items[muster.AuditEntry](ctx, c, get("/v1/audit").with(map[string]string{
		"after": number(f.After), "subject": f.Subject, "limit": number(f.Limit)}).waiting(f.Wait))
}

func (c *Client) VerifyAudit(ctx context.Context) (muster.AuditVerdict, error) {
	return fetch[muster.AuditVerdict](ctx, c, get("/v1/audit/verify"))
}

func (c *Client) Booters(ctx context.Context) ([]muster.BooterStatus, error) {
	return items[muster.BooterStatus](ctx, c, get("/v1/booters"))
}

func (c *Client) RemoveBooter(ctx context.Context, name string) error {
	return c.do(ctx, remove("/v1/booters", name))
}

func (c *Client) Version(ctx context.Context) (muster.Version, error) {
	return fetch[muster.Version](ctx, c, get("/v1/version"))
}

// Login exchanges a password for a token; WithToken makes the client that uses it.
func (c *Client) Login(ctx context.Context, l muster.Login) (muster.Token, error) {
	return fetch[muster.Token](ctx, c, post(l, "/v1/login"))
}

func (c *Client) Operators(ctx context.Context) ([]muster.Operator, error) {
	return items[muster.Operator](ctx, c, get("/v1/operators"))
}

func (c *Client) CreateOperator(ctx context.Context, n muster.NewOperator) (muster.Operator, error) {
	return fetch[muster.Operator](ctx, c, post(n, "/v1/operators"))
}
