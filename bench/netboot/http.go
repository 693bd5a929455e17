//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"muster.internal/bench/measure"
)

const (
	httpSize = 300 << 20
	httpTime = 4 * time.Second
)

// http compares the fetching of an image of 300 MiB over and over.
func (b *bench) http(ctx context.Context) ([]comparison, error) {
	content := bytesOf(httpSize)
	us, file, err := b.booterWith("muster", 10, []byte("a loader"), content)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(b.dir, "nginx")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "image"), content, 0o644); err != nil {
		return nil, err
	}
	conf := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(conf, []byte(`daemon off; worker_processes 2; pid `+dir+`/pid; error_log stderr warn;
events { worker_connections 1024; }
http { access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000;
  client_body_temp_path `+dir+`/t; proxy_temp_path `+dir+`/t; fastcgi_temp_path `+dir+`/t; uwsgi_temp_path `+dir+`/t; scgi_temp_path `+dir+`/t;
  server { listen `+serverIP+`:80; root `+dir+`; } }
`), 0o644); err != nil {
		return nil, err
	}
	servers := append([]server{us}, installed([]server{{name: "nginx", args: []string{"nginx", "-c", conf}}})...)
	path := func(s server) string {
		if s.name == "muster" {
			return file
		}
		return "/image"
	}
	checked := map[string]bool{}
	ready := func(s server) bool {
		c := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return b.dialHTTP(0) }, DisableKeepAlives: true}}
		r, err := c.Get("http://" + serverIP + path(s))
		if err != nil {
			return false
		}
		defer r.Body.Close()
		if r.StatusCode != 200 || r.ContentLength != httpSize {
			return false
		}
		if !checked[s.name] { // that it is the image is looked at once
			got, err := hashOf(r.Body)
			want, _ := hashOf(strings.NewReader(string(content)))
			checked[s.name] = err == nil && got == want
		}
		return checked[s.name]
	}
	var all []comparison
	for _, connections := range []int{16, 256} {
		cmp := newComparison(fmt.Sprintf("HTTP: 300 MiB, again and again, %d connections", connections), "CPU s per GiB")
		err := b.compare(ctx, cmp, servers, ready, func(t *turn, r *result) (int, int, time.Duration, error) {
			each, failed, took, err := b.fetchAll(path(t.s), connections)
			if err != nil {
				return 0, failed, took, err
			}
			sum := int64(0)
			var rates []float64
			for _, n := range each {
				sum += n
				rates = append(rates, float64(n))
			}
			if middle := measure.Median(rates); middle > 0 {
				r.Slow = append(r.Slow, slices.Min(rates)/middle)
			}
			return int(sum >> 10), failed, took, nil // in KiB
		}, 1<<20)
		if err != nil {
			return all, err
		}
		for _, r := range cmp.Results {
			for i := range r.Rates {
				r.Rates[i] /= 1 << 20 // GiB
			}
		}
		ours := cmp.of("muster")
		switch connections {
		case 16:
			cmp.atMost(1.0, "muster", "nginx")
		case 256:
			cmp.atMost(1.6, "muster", "nginx")
		}
		cmp.Goals = append(cmp.Goals, goal{"muster's slowest connection / its median", measure.Median(ours.Slow), 0.25, true})
		all = append(all, *cmp)
	}
	return all, nil
}

// dialHTTP connects as the n-th machine: each has an address of its own, as in
// a rack; muster-booter bounds what one address may have open.
func (b *bench) dialHTTP(n int) (conn net.Conn, err error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(10, 0, 1, byte(n%machines))}}
	err = b.atLoad(func() (err error) {
		conn, err = d.Dial("tcp4", serverIP+":80")
		return err
	})
	return conn, err
}

// fetchAll keeps every connection fetching for a while and says how many bytes
// each got.
func (b *bench) fetchAll(path string, connections int) (each []int64, failed int, took time.Duration, err error) {
	conns := make([]net.Conn, connections)
	for i := range conns {
		if conns[i], err = b.dialHTTP(i); err != nil {
			return nil, connections, 0, err
		}
		defer conns[i].Close()
	}
	each = make([]int64, connections)
	var bad atomic.Int64
	began := time.Now()
	end := began.Add(httpTime)
	var wg sync.WaitGroup
	for i, c := range conns {
		wg.Go(func() {
			c.SetDeadline(end)
			for {
				n, err := fetch(c, path, &each[i])
				if errors.Is(err, os.ErrDeadlineExceeded) {
					return
				}
				if err != nil || n != httpSize {
					bad.Add(1)
					return
				}
			}
		})
	}
	wg.Wait()
	return each, int(bad.Load()), time.Since(began), nil
}

// fetch asks once and has the kernel throw the content away: what is measured
// is the server. Total grows as bytes come.
func fetch(c net.Conn, path string, total *int64) (int64, error) {
	if _, err := c.Write([]byte("GET " + path + " HTTP/1.1\r\nHost: " + serverIP + "\r\n\r\n")); err != nil {
		return 0, err
	}
	var head []byte
	buf := make([]byte, 4096)
	for !strings.Contains(string(head), "\r\n\r\n") {
		n, err := c.Read(buf)
		if err != nil {
			return 0, err
		}
		head = append(head, buf[:n]...)
	}
	text, rest, _ := strings.Cut(string(head), "\r\n\r\n")
	length := int64(-1)
	for _, l := range strings.Split(text, "\r\n") {
		if k, v, ok := strings.Cut(l, ":"); ok && strings.EqualFold(k, "Content-Length") {
			length, _ = strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		}
	}
	if !strings.HasPrefix(text, "HTTP/1.1 200") || length < 0 {
		return 0, fmt.Errorf("answered %q", strings.SplitN(text, "\r\n", 2)[0])
	}
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	have := int64(len(rest))
	*total += have
	for have < length {
		var n int
		var errno syscall.Errno
		err := raw.Read(func(fd uintptr) bool {
			// A length without a buffer: MSG_TRUNC on TCP discards (tcp(7)).
			r, _, e := unix.Syscall6(unix.SYS_RECVFROM, fd, 0, uintptr(min(1<<20, length-have)), unix.MSG_TRUNC|unix.MSG_DONTWAIT, 0, 0)
			n, errno = int(r), e
			return e != unix.EAGAIN
		})
		if err != nil {
			return have, err
		}
		if errno != 0 || n == 0 {
			return have, fmt.Errorf("the connection ended: %v", errno)
		}
		have += int64(n)
		*total += int64(n)
	}
	return have, nil
}
