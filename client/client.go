// Package client is the API seen from afar: one struct that is a muster.Fleet,
// a muster.ForBooter, a muster.ForHost and muster.Accounts, over HTTPS.
//
// The root process of every machine carries it, so it must never import the
// server's side, SQL or HTML, and must never write a token into an error.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"muster.internal"
)

// Limits of a call.
const (
	callTimeout = 30 * time.Second // beyond what a long poll waits by itself
	answerLimit = 64 << 20         // bytes of one JSON answer
	tries       = 3                // of a call that may be repeated
)

// A Client talks to one control plane. Make it with New; copies made by
// WithToken share its connections.
type Client struct {
	url   string
	token string
	pair  bool // it has a certificate of its own
	http  *http.Client
	// Pause waits between tries; tests replace it. It returns early when ctx ends.
	Pause func(ctx context.Context, d time.Duration)
}

// New makes a client of the control plane at url (https://host:port) that
// trusts t and presents token. An empty token is for the anonymous calls.
func New(rawURL, token string, t Trust) (*Client, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("the control plane's address must be https://HOST:PORT, not %q", rawURL)
	}
	conf, err := t.config()
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig:       conf,
		TLSHandshakeTimeout:   10 * time.Second,
		IdleConnTimeout:       90 * time.Second,
		ExpectContinueTimeout: 5 * time.Second,
		MaxIdleConnsPerHost:   4,
		// A host asks one thing at a time, and a fleet of them waits: a connection
		// of HTTP/1.1 costs the control plane half the memory.
		ForceAttemptHTTP2: t.Pair == nil,
	}
	return &Client{
		url: strings.TrimSuffix(rawURL, "/"), token: token, pair: t.Pair != nil, Pause: pause,
		http: &http.Client{
			Transport: transport,
			// A token goes nowhere but where it was meant to go.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// WithToken is the same client speaking for somebody else.
func (c *Client) WithToken(token string) *Client {
	d := *c
	d.token = token
	return &d
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// A call is one request to be made.
type call struct {
	method, path string
	query        url.Values
	in, out      any           // JSON
	wait         time.Duration // what the server may take on purpose
	stream       io.Reader     // instead of in
	once         bool          // never repeat, although it reads like a safe one
	paired       bool          // the certificate says who asks, where there is one
}

// do makes a call and decodes the answer. What is safe is tried again; what is
// not is tried again only when no connection was made.
func (c *Client) do(ctx context.Context, k call) error {
	var body []byte
	if k.in != nil {
		var err error
		if body, err = json.Marshal(k.in); err != nil {
			return fmt.Errorf("cannot encode the request: %w", err)
		}
	}
	limit := callTimeout + k.wait
	for try := 1; ; try++ {
		err := c.once(ctx, k, body, limit)
		if err == nil || try == tries || ctx.Err() != nil || !again(k, err) {
			return err
		}
		wait := time.Duration(try*try) * 200 * time.Millisecond
		var p *muster.Problem
		if errors.As(err, &p) && p.RetryAfter > 0 {
			wait = min(time.Duration(p.RetryAfter)*time.Second, 5*time.Second)
		}
		c.Pause(ctx, wait)
	}
}

func (c *Client) once(ctx context.Context, k call, body []byte, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var r io.Reader
	if body != nil {
		r = bytes.NewReader(body)
	}
	resp, err := c.send(ctx, k, r, int64(len(body)))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if k.out == nil {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, answerLimit+1))
	if err != nil {
		return c.unreachable(err)
	}
	if len(data) > answerLimit {
		return fmt.Errorf("the answer of %s %s is larger than %d bytes", k.method, k.path, answerLimit)
	}
	if err := json.Unmarshal(data, k.out); err != nil {
		return fmt.Errorf("the answer of %s %s cannot be decoded (is %s muster?): %w", k.method, k.path, c.url, err)
	}
	return nil
}

// send makes one request; an error status becomes its problem.
func (c *Client) send(ctx context.Context, k call, body io.Reader, size int64) (*http.Response, error) {
	target := c.url + k.path
	if len(k.query) > 0 {
		target += "?" + k.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, k.method, target, body)
	if err != nil {
		return nil, fmt.Errorf("%s is no part of an address", k.path)
	}
	req.ContentLength = size
	switch {
	case k.stream != nil:
		req.Header.Set("Content-Type", "application/octet-stream")
		req.Header.Set("Expect", "100-continue") // do not send a gigabyte to hear no
	case body != nil:
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" && !(k.paired && c.pair) {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		defer resp.Body.Close()
		return nil, problem(resp, k)
	}
	return resp, nil
}

// Unreachable is the error of a call that got no answer.
type Unreachable struct {
	URL string // of the control plane
	Err error
}

func (e *Unreachable) Error() string {
	return fmt.Sprintf("cannot reach the control plane at %s: %v", e.URL, e.Err)
}

func (e *Unreachable) Unwrap() error { return e.Err }

// unreachable drops net/http's wrapper, whose text repeats the query.
func (c *Client) unreachable(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return &Unreachable{c.url, err}
}

// problem reads the problem of an error answer, or makes one for an answer
// that is not muster's (a proxy's, say).
func problem(resp *http.Response, k call) error {
	p := new(muster.Problem)
	data, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if json.Unmarshal(data, p) != nil || p.Code == "" {
		p = muster.Problemf(muster.CodeForStatus(resp.StatusCode), "%s %s was answered with %s", k.method, k.path, resp.Status)
	}
	p.Status = resp.StatusCode
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && p.RetryAfter == 0 {
		p.RetryAfter = s
	}
	return p
}

// again tells whether a failed call may be repeated without harm.
func again(k call, err error) bool {
	if k.stream != nil {
		return false // the reader is spent
	}
	var p *muster.Problem
	safe := !k.once && (k.method == http.MethodGet || k.method == http.MethodHead)
	if errors.As(err, &p) {
		return safe && (p.Status == http.StatusServiceUnavailable || p.Status == http.StatusBadGateway)
	}
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return true
	}
	return safe && !errors.Is(err, ErrUntrusted)
}
