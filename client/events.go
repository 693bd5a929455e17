package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"muster.internal"
)

func (c *Client) SetupProgress(ctx context.Context, serverUUID string, p muster.SetupProgress) error {
	return c.do(ctx, post(p, ofBooter, serverUUID, "progress"))
}

func (c *Client) InstallLog(ctx context.Context, q muster.InstallQuery) (muster.InstallLog, error) {
	if q.OperationID != "" {
		return fetch[muster.InstallLog](ctx, c, get("/v1/install-logs", q.OperationID).with(map[string]string{"after": number(q.After)}))
	}
	return fetch[muster.InstallLog](ctx, c, get("/v1/registrations", q.ServerUUID, "progress").with(map[string]string{
		"epoch": number(q.Epoch), "after": number(q.After)}).waiting(q.Wait))
}

const (
	// streamSilence is how long a stream may say nothing; the server marks its
	// place every 15 s.
	streamSilence = 50 * time.Second
	maxEventLine  = 8 << 20
)

// Events follows one stream until it ends: by ctx, by f, or by the server and
// the network, which is an *Unreachable or a problem of code unavailable. Who
// wants to go on then asks again after the last ID.
func (c *Client) Events(ctx context.Context, q muster.EventQuery, f func(muster.FeedEvent) error) error {
	streaming, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(streamSilence, cancel)
	defer silence.Stop()
	k := get("/v1/events").with(map[string]string{"subject": q.Subject, "kind": q.Kind})
	if q.After != muster.FromNow {
		k.query.Set("after", number(q.After))
	} else if q.Last > 0 {
		k.query.Set("last", number(q.Last))
	}
	resp, err := c.send(streaming, k, nil, 0)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	defer resp.Body.Close()
	if kind := resp.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/event-stream") {
		return fmt.Errorf("%s answers with %.40q where events are due (is it muster?)", c.url, kind)
	}
	err = readEvents(resp.Body, func() { silence.Reset(streamSilence) }, f)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case streaming.Err() != nil:
		return c.unreachable(fmt.Errorf("nothing was heard for %s", streamSilence))
	case errors.Is(err, errStream):
		return c.unreachable(err)
	}
	return err
}

var errStream = errors.New("the event stream broke off")

// readEvents reads server-sent events (WHATWG HTML, section 9.2). What comes
// after the last blank line is no event.
func readEvents(r io.Reader, alive func(), f func(muster.FeedEvent) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 16<<10), maxEventLine)
	var kind, id string
	var data []byte
	for lines.Scan() {
		alive()
		line := lines.Bytes()
		if len(line) == 0 {
			if err := dispatch(kind, id, data, f); err != nil {
				return err
			}
			kind, id, data = "", "", nil
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "event":
			kind = string(value)
		case "id":
			id = string(value)
		case "data":
			if data != nil {
				data = append(data, '\n')
			}
			data = append(data, value...)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%w: %w", errStream, err)
	}
	return errStream
}

func dispatch(kind, id string, data []byte, f func(muster.FeedEvent) error) error {
	switch {
	case kind == "end":
		p := new(muster.Problem)
		if json.Unmarshal(data, p) != nil || p.Code == "" {
			return errStream
		}
		return p
	case len(data) == 0 && id == "":
		return nil
	case len(data) == 0:
		n, err := strconv.ParseInt(id, 10, 64)
		if err != nil {
			return nil
		}
		return f(muster.FeedEvent{ID: n})
	}
	var e muster.FeedEvent
	if err := json.Unmarshal(data, &e); err != nil {
		return fmt.Errorf("an event cannot be decoded: %w", err)
	}
	return f(e)
}
