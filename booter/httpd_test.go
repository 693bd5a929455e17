package booter

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster.internal/image"
)

var kernel = strings.Repeat("kernel", 100000) // what serving has staged

func fileURL(b *Booter, mac string) string {
	return fmt.Sprintf("http://127.0.0.1:%d/boot/%s/file/%s", b.Ports().HTTP, mac, strings.TrimPrefix(image.DigestOf([]byte(kernel)), "sha256:"))
}

func TestHTTPFiles(t *testing.T) {
	b, _ := serving(t)
	url := fileURL(b, "52-54-00-77-00-01")
	do := func(method string, header ...string) (*http.Response, []byte) {
		t.Helper()
		r, err := http.NewRequest(method, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		body, err := io.ReadAll(a.Body)
		if err != nil {
			t.Fatal(err)
		}
		return a, body
	}
	if a, body := do("GET"); a.StatusCode != 200 || string(body) != kernel || a.Header.Get("Accept-Ranges") != "bytes" {
		t.Errorf("GET: %s, %d bytes", a.Status, len(body))
	}
	if a, body := do("HEAD"); a.StatusCode != 200 || len(body) != 0 || a.ContentLength != int64(len(kernel)) {
		t.Errorf("HEAD: %s, %d bytes, length %d", a.Status, len(body), a.ContentLength)
	}
	tests := []struct {
		ranges string
		status int
		want   string
	}{
		{"bytes=0-5", 206, "kernel"}, {"bytes=599994-", 206, "kernel"}, {"bytes=-3", 206, "nel"},
		{"bytes=600000-", 416, ""}, {"bytes=7-12", 206, kernel[7:13]}, {"nonsense", 416, ""},
	}
	for _, tt := range tests {
		a, body := do("GET", "Range", tt.ranges)
		if a.StatusCode != tt.status || tt.want != "" && string(body) != tt.want {
			t.Errorf("%s: %s, %d bytes", tt.ranges, a.Status, len(body))
		}
	}
	a, _ := do("GET")
	if a, body := do("GET", "If-None-Match", a.Header.Get("ETag")); a.StatusCode != 304 || len(body) != 0 {
		t.Errorf("unchanged: %s", a.Status)
	}
	if a, _ := do("POST"); a.StatusCode != 405 || a.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %s", a.Status)
	}
}

// The gate is the one that DHCP has: what a machine does not boot it cannot
// fetch, and paths are never tidied by a redirect.
func TestHTTPRefusals(t *testing.T) {
	b, _ := serving(t)
	base := fmt.Sprintf("http://127.0.0.1:%d", b.Ports().HTTP)
	client := &http.Client{CheckRedirect: func(r *http.Request, _ []*http.Request) error { return fmt.Errorf("redirect to %s", r.URL) }}
	for path, want := range map[string]int{
		"/boot/52-54-00-77-00-01/start.ipxe":                                      200,
		"/boot/52:54:00:77:00:01/start.ipxe":                                      200,
		"/boot/52-54-00-77-00-03/start.ipxe":                                      404,
		"/boot/52-54-00-77-00-03/script.ipxe":                                     404,
		"/boot/52-54-00-77-00-03/file/" + fileURL(b, "")[len(fileURL(b, ""))-64:]: 404,
		"/boot/52-54-00-77-00-99/start.ipxe":                                      404,
		"/boot/52-54-00-77-00-01/file/" + strings.Repeat("0", 64):                 404,
		"/boot/52-54-00-77-00-01/file/../../../etc/passwd":                        404,
		"/boot//52-54-00-77-00-01/start.ipxe":                                     404,
		"/boot/52-54-00-77-00-01":                                                 404,
		"/boot/52-54-00-77-00-01/":                                                404,
		"/":                                                                       404,
		"/healthz":                                                                200,
	} {
		r, err := client.Get(base + path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		body, _ := io.ReadAll(r.Body)
		r.Body.Close()
		if r.StatusCode != want {
			t.Errorf("%s: %s, want %d", path, r.Status, want)
		}
		if want == 404 && len(body) < 10 {
			t.Errorf("%s: no reason given: %q", path, body)
		}
	}
	if n := b.Counters(); n["http_refused_decommissioned"] != 3 || n["http_refused_not_offered"] != 3 {
		t.Errorf("%v", n)
	}
}

func TestServiceTag(t *testing.T) {
	for query, want := range map[string]string{
		"uuid=x&serial=SN%207&x&product=PC&serial=no": "SN 7&x",
		"serial=%20ABC%20&product=":                   "ABC",
		"uuid=x&serial=&product=PC":                   "",
		"uuid=x":                                      "",
		"serial=50%&product=x":                        "50%",
		"serial=a%00b%0Ac":                            "a.b.c",
		"serial=" + strings.Repeat("x", 100):          strings.Repeat("x", 64),
	} {
		if got := serviceTag(query); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
}

func TestKeepAlive(t *testing.T) {
	b, _ := serving(t)
	reused := 0
	for range 3 {
		r, _ := http.NewRequest("GET", fileURL(b, "52-54-00-77-00-01"), nil)
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
			if i.Reused {
				reused++
			}
		}}))
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, a.Body)
		a.Body.Close()
	}
	if reused < 2 {
		t.Errorf("%d of 2 requests used the connection again", reused)
	}
}

// A spyListener hands out connections that tell how files leave: through
// ReadFrom with the *os.File itself, which the kernel sends without a copy
// through user space.
type spyListener struct {
	net.Listener
	files, bytes, most atomic.Int64 // the most in one piece
}

type spyConn struct {
	*net.TCPConn
	l *spyListener
}

func (l *spyListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &spyConn{c.(*net.TCPConn), l}, nil
}

func (c *spyConn) ReadFrom(r io.Reader) (int64, error) {
	if lr, ok := r.(*io.LimitedReader); ok {
		if _, ok := lr.R.(*os.File); ok {
			c.l.files.Add(1)
			c.l.bytes.Add(lr.N)
			c.l.most.Store(max(c.l.most.Load(), lr.N))
		}
	}
	return c.TCPConn.ReadFrom(r)
}

func TestFilesLeaveBySendfile(t *testing.T) {
	p := newPlane()
	ref := p.addImage("node-1", kernel, "initrd")
	p.do(func() { p.policy.Networks = adminNetwork() })
	p.set(enrolled(1, ref))
	b, err := Listen(loopback(t, p))
	if err != nil {
		t.Fatal(err)
	}
	spy := &spyListener{Listener: b.http}
	b.http = spy
	start(t, b)
	staged(t, b, ref)
	if got := get(t, fileURL(b, "52-54-00-77-00-01"), 200); got != kernel {
		t.Fatalf("%d bytes", len(got))
	}
	// The header goes first, with as much of the file as fits; the rest is the kernel's.
	if spy.files.Load() == 0 || spy.bytes.Load() < int64(len(kernel)-4096) {
		t.Errorf("%d files, %d bytes of %d left by sendfile", spy.files.Load(), spy.bytes.Load(), len(kernel))
	}
}

// TestFilesLeaveByTurns: a large file leaves whole, in pieces that the kernel
// sends, none of them larger than a turn; so does what is shorter than was said.
func TestFilesLeaveByTurns(t *testing.T) {
	const size = 2*fileTurn + 12345
	f, err := os.Create(filepath.Join(t.TempDir(), "image"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("the end"), size-7); err != nil {
		t.Fatal(err)
	}
	inner, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	spy := &spyListener{Listener: inner}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(byTurns{w}, r, "", time.Time{}, f)
		if n, err := io.CopyN(byTurns{httptest.NewRecorder()}, f, 5); n != 0 || err != io.EOF {
			t.Errorf("past the end: %d bytes, %v", n, err)
		}
	})}
	go s.Serve(spy)
	defer s.Close()
	got := get(t, "http://"+inner.Addr().String(), 200)
	if len(got) != size || !strings.HasSuffix(got, "\x00the end") {
		t.Errorf("%d bytes of %d", len(got), size)
	}
	if spy.files.Load() != 3 || spy.bytes.Load() < size-4096 || spy.most.Load() > fileTurn {
		t.Errorf("%d pieces of at most %d bytes, %d of %d left by sendfile", spy.files.Load(), spy.most.Load(), spy.bytes.Load(), size)
	}
}

func TestConnectionsAreLimited(t *testing.T) {
	inner, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := limitConns(inner, 2, 2)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("ok")) }), ConnState: l.state}
	go s.Serve(l)
	defer s.Close()
	var held []net.Conn
	for range 2 {
		c, err := net.Dial("tcp4", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, c)
	}
	until(t, "both slots are taken", func() bool { return len(l.slots) == 2 })
	third, err := net.Dial("tcp4", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer third.Close()
	fmt.Fprintf(third, "GET / HTTP/1.0\r\n\r\n")
	held[0].Close() // makes room
	answer, err := io.ReadAll(third)
	if err != nil || !bytes.Contains(answer, []byte("ok")) {
		t.Errorf("%q, %v", answer, err)
	}
	held[1].Close()
	until(t, "all slots but the waiting one are free", func() bool { return len(l.slots) == 1 })
}

// TestOneAddressKeepsNobodyOut: whoever opens more connections than a machine
// needs is turned away, and others are served.
func TestOneAddressKeepsNobodyOut(t *testing.T) {
	inner, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := limitConns(inner, 4, 2)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("ok")) }), ConnState: l.state}
	go s.Serve(l)
	defer s.Close()
	ask := func(source string, say bool) (net.Conn, string) {
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}).Dial("tcp4", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if !say {
			return c, ""
		}
		fmt.Fprintf(c, "GET / HTTP/1.0\r\n\r\n")
		answer, _ := io.ReadAll(c)
		return c, string(answer)
	}
	first, _ := ask("127.0.6.1", false)
	ask("127.0.6.1", false)
	for range 10 {
		if _, answer := ask("127.0.6.1", true); answer != "" {
			t.Errorf("a third connection hears %q", answer)
		}
	}
	if _, answer := ask("127.0.6.2", true); !strings.HasSuffix(answer, "ok") {
		t.Errorf("another machine hears %q", answer)
	}
	first.Close()
	until(t, "its end is booked", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.sources[parseAddr("127.0.6.1")] == 1 && len(l.sources) == 1
	})
	if _, answer := ask("127.0.6.1", true); !strings.HasSuffix(answer, "ok") {
		t.Errorf("when one is closed, the next hears %q", answer)
	}
}
