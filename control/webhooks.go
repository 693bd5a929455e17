package control

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"muster.internal/store"
)

// hookWithin bounds one call of a webhook.
const hookWithin = 15 * time.Second

// hookIDHeader carries what a receiver tells calls apart by.
const hookIDHeader = "Muster-Hook-Id"

// webhooks are called by a client of their own: it follows nobody elsewhere.
var webhooks = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// WorkHooks calls the webhooks that are due, each on its own. Several control
// planes may do it at once: a call is one's for a while.
func (c *Control) WorkHooks(ctx context.Context) error {
	due, err := c.store.HooksDue(ctx, c.now())
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	for _, call := range due {
		all.Go(func() {
			if err := c.workHook(ctx, call); err != nil && ctx.Err() == nil {
				c.log.Warn("how a webhook went could not be kept; it is called again", "call", call.ID, "error", err)
			}
		})
	}
	all.Wait()
	return nil
}

func (c *Control) workHook(ctx context.Context, call store.HookCall) error {
	taken, err := c.store.TakeHook(ctx, c.now(), call)
	if err != nil || !taken {
		return err
	}
	failure := callHook(ctx, call)
	if ctx.Err() != nil {
		return nil // whoever takes over calls it again
	}
	return c.store.HookDone(ctx, c.now(), call, failure)
}

// callHook posts the event. Its error names no more of the URL than its host:
// the rest may hold a token.
func callHook(ctx context.Context, call store.HookCall) error {
	ctx, cancel := context.WithTimeout(ctx, hookWithin)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, call.URL, bytes.NewReader(call.Body))
	if err != nil {
		return fmt.Errorf("the URL of the webhook cannot be read")
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set(hookIDHeader, call.ID)
	r, err := webhooks.Do(q)
	if err != nil {
		return fmt.Errorf("%s does not answer", q.URL.Host)
	}
	defer r.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, 64<<10))
	if r.StatusCode/100 != 2 {
		return fmt.Errorf("%s answers %s", q.URL.Host, r.Status)
	}
	return nil
}

// hookClock calls webhooks, away from the other clocks: receivers may be slow.
func (c *Control) hookClock(ctx context.Context) {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := c.WorkHooks(ctx); err != nil && ctx.Err() == nil {
				c.log.Warn("webhooks that are to be called could not be looked up; it is tried again", "error", err)
			}
		}
	}
}
