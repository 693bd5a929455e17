//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"muster.internal/bench/measure"
)

// connections are how many there are, each from an address of its own: what
// strangers may ask of musterd is counted by address.
const connections = 16

// A work is what a server has done.
type work struct {
	done int
	took time.Duration
	cpu  time.Duration
}

// A load is the same kind of request many times.
type load struct {
	url, token string
	roots      *x509.CertPool // nil: no TLS
	body       func(i int) []byte
	count      int
}

// put lays the load on a server, and counts what its process uses meanwhile.
// Connections are made, and requests written down, before the clock starts.
func (l load) put(ctx context.Context, pid int) (work, error) {
	bodies := make([][]byte, l.count)
	for i := range bodies {
		bodies[i] = l.body(i)
	}
	clients := make([]*http.Client, connections)
	for i := range clients {
		from := &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(i+1))}
		clients[i] = &http.Client{Transport: &http.Transport{
			DialContext:     (&net.Dialer{LocalAddr: from}).DialContext,
			TLSClientConfig: &tls.Config{RootCAs: l.roots, MinVersion: tls.VersionTLS13},
		}}
		defer clients[i].CloseIdleConnections()
		if err := l.warm(ctx, clients[i]); err != nil {
			return work{}, err
		}
	}
	var next atomic.Int64
	var all sync.WaitGroup
	errs := make(chan error, connections)
	before, began := measure.CPU(pid), time.Now()
	for _, c := range clients {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(l.count); i = next.Add(1) - 1 {
				if err := l.one(ctx, c, bodies[i]); err != nil {
					errs <- fmt.Errorf("request %d: %w", i, err)
					return
				}
			}
		})
	}
	all.Wait()
	w := work{done: l.count, took: time.Since(began), cpu: measure.CPU(pid) - before}
	select {
	case err := <-errs:
		return w, err
	default:
		return w, nil
	}
}

// warm opens the connection: whatever the answer is.
func (l load) warm(ctx context.Context, c *http.Client) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, l.url+"/nothing-is-here", nil)
	if err != nil {
		return err
	}
	answer, err := c.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}

func (l load) one(ctx context.Context, c *http.Client, body []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if l.token != "" {
		r.Header.Set("Authorization", "Bearer "+l.token)
	}
	answer, err := c.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %.200s", answer.Status, text)
	}
	return err
}
