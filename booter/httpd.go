package booter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"time"

	"muster.internal"
	"muster.internal/boot"
	"muster.internal/dhcp"
)

const (
	maxHTTPConns   = 4096
	maxHTTPSource  = 64 // from one address
	httpHeaderTime = 10 * time.Second
	httpIdleTime   = 2 * time.Minute
	httpHeaderSize = 16 << 10
	httpGrace      = 2 * time.Second // for answers going on when we end
	// A file may take this long, and a second more for each of slowRate bytes.
	fileGrace = time.Minute
	slowRate  = 64 << 10
	// Smaller pieces cost more, larger ones are less fair.
	fileTurn = 4 << 20
)

// serveHTTP serves scripts and image files until ctx ends.
func (b *Booter) serveHTTP(ctx context.Context) error {
	each := maxHTTPSource
	if b.cfg.Address.IsLoopback() { // everybody comes from the same address
		each = maxHTTPConns
	}
	l := limitConns(b.http, maxHTTPConns, each)
	s := &http.Server{Handler: http.HandlerFunc(b.handle), ReadHeaderTimeout: httpHeaderTime, IdleTimeout: httpIdleTime,
		MaxHeaderBytes: httpHeaderSize, DisableGeneralOptionsHandler: true, ConnState: l.state,
		ErrorLog: slog.NewLogLogger(b.log.Handler(), slog.LevelDebug)}
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), httpGrace)
		defer cancel()
		if s.Shutdown(grace) != nil {
			s.Close()
		}
	})
	defer func() {
		if !stop() {
			<-done
		}
	}()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) && ctx.Err() == nil {
		return err
	}
	return nil
}

// handle answers /boot/MAC/…, by GET and HEAD. Paths are taken as they are: a
// redirect to a tidier one is more than some firmware can follow. The response
// writer is handed on as it is, or in byTurns, so that files go by sendfile.
func (b *Booter) handle(w http.ResponseWriter, r *http.Request) {
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(fileGrace))
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, "only GET and HEAD are served")
		return
	}
	if r.URL.Path == "/healthz" {
		text(w, r, []byte("ok\n"))
		return
	}
	rest, ok := strings.CutPrefix(r.URL.Path, "/boot/")
	dir, file, ok2 := strings.Cut(rest, "/")
	m, err := dhcp.ParseMAC(dir)
	if !ok || !ok2 || err != nil {
		refuse(w, http.StatusNotFound, "no such file; paths are /boot/MAC-WITH-HYPHENS/…")
		return
	}
	switch file {
	case "start.ipxe":
		b.start(w, r, m)
	case "script.ipxe":
		b.script(w, r, m)
	case autoexec: // what a loader looks for beside itself first
		d, _ := b.decide(boot.Request{Via: boot.HTTP, MAC: m, Want: boot.Autoexec})
		if trace, ok := b.allowed(w, r, autoexec, &d, 0); ok {
			text(w, r, nil)
			b.traces.done(trace, "done", 0, b.now())
		}
	case boot.NetworkingPath, boot.NetworkingPath + boot.HashSuffix:
		b.rendered(w, r, m, file, boot.Networking)
	case boot.NodeConfigPath, boot.NodeConfigPath + boot.HashSuffix:
		b.rendered(w, r, m, file, func(d boot.Decision, _ *muster.BootRecord) ([]byte, error) { return boot.NodeConfig(d) })
	default:
		if nonce, ok := strings.CutPrefix(file, boot.OncePath); ok {
			b.once(w, r, m, nonce)
			return
		}
		if boot.IsLoader(file) {
			b.program(w, r, m, file)
			return
		}
		b.file(w, r, m, file)
	}
}

// program serves a boot loader to firmware that boots by HTTP. Firmware goes by
// the content type before it looks at the name (UEFI 2.10, §24.7.3), and asks
// for the size first.
func (b *Booter) program(w http.ResponseWriter, r *http.Request, m dhcp.MAC, name string) {
	content, d := b.loader(boot.HTTP, m, name)
	trace, ok := b.allowed(w, r, name, &d, int64(len(content)))
	if !ok {
		return
	}
	if r.Method == http.MethodGet {
		b.tally.add(countLoaders)
	}
	b.log.Debug("loader asked for", "mac", m.String(), "file", name, "method", r.Method)
	w.Header().Set("Content-Type", "application/octet-stream")
	if strings.HasSuffix(name, ".efi") {
		w.Header().Set("Content-Type", "application/efi")
	}
	w.Header().Set("Cache-Control", "no-store")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	b.traces.done(trace, "done", int64(len(content)), b.now())
	if r.Method == http.MethodGet && r.Header.Get("Range") == "" {
		b.stepped(&d, 0, b.now())
	}
}

func (b *Booter) start(w http.ResponseWriter, r *http.Request, m dhcp.MAC) {
	b.watch.Fetched(m, boot.Start)
	d, _ := b.decide(boot.Request{Via: boot.HTTP, MAC: m, Want: boot.Start})
	if trace, ok := b.allowed(w, r, "start.ipxe", &d, 0); ok {
		b.tally.add(countStarts)
		text(w, r, boot.First(b.site, m))
		b.traces.done(trace, "done", 0, b.now())
	}
}

// script renders what the machine boots. The firmware tells who the machine
// says it is; for a machine that is probed that is all that was wanted.
func (b *Booter) script(w http.ResponseWriter, r *http.Request, m dhcp.MAC) {
	if arch, ok := buildArch(r.URL.RawQuery); ok {
		b.sight.built(m, b.dir.lookup(m) != nil, arch, b.now())
	}
	b.watch.Fetched(m, boot.Script)
	d, rec := b.decide(boot.Request{Via: boot.HTTP, MAC: m, Want: boot.Script})
	if tag := serviceTag(r.URL.RawQuery); tag != "" || d.Reason == boot.AwaitingUUID {
		uuid, err := muster.ParseUUID(r.URL.Query().Get("uuid"))
		if err != nil {
			uuid = ""
		}
		if d.Serve || d.Reason == boot.Probing || d.Reason == boot.AwaitingUUID {
			b.sight.tag(m, rec, uuid, tag, b.now())
		}
	}
	trace, ok := b.allowed(w, r, "script.ipxe", &d, 0)
	if !ok {
		return
	}
	s, err := boot.Render(d, rec, b.site, b.now(), b.extra(r, m, &d, rec))
	if err != nil {
		b.traces.done(trace, "failed", 0, b.now())
		b.tally.add(countRenderErrors)
		b.log.Error("no boot script", "mac", m.String(), "image", d.Image.Name, "error", err)
		refuse(w, http.StatusInternalServerError, "no boot script: "+err.Error())
		return
	}
	b.tally.add(countScripts)
	address := d.Address.Addr()
	if !address.IsValid() { // the site's DHCP server has given it one
		src, _ := netip.ParseAddrPort(r.RemoteAddr)
		address = src.Addr().Unmap()
	}
	b.log.Info("boots", "mac", m.String(), "mode", d.Mode.String(), "image", d.Image.Name, "digest", d.Image.Digest, "address", address.String(), "rule", string(d.Rule))
	if r.Method == http.MethodGet {
		b.stepped(&d, 0, b.now())
	}
	text(w, r, s)
	b.traces.done(trace, "done", 0, b.now())
}

// buildArch is the architecture that iPXE is built for, the last of what the
// first stage tells.
func buildArch(query string) (uint16, bool) {
	i := strings.LastIndex(query, "&buildarch=")
	if i < 0 {
		return 0, false
	}
	return boot.ArchOfBuild(query[i+len("&buildarch="):])
}

// serviceTag is the serial number that the first stage tells. It stands
// between two names that are ours, because iPXE leaves ampersands in values.
func serviceTag(query string) string {
	_, value, _ := strings.Cut(query, "serial=")
	if i := strings.LastIndex(value, "&product="); i >= 0 {
		value = value[:i]
	}
	if plain, err := url.PathUnescape(value); err == nil {
		value = plain
	}
	return strings.TrimSpace(clip([]byte(value), 64))
}

// rendered serves a file that is made for this machine's normal boot, or its
// hash.
func (b *Booter) rendered(w http.ResponseWriter, r *http.Request, m dhcp.MAC, path string, render func(boot.Decision, *muster.BootRecord) ([]byte, error)) {
	d, rec := b.decide(boot.Request{Via: boot.HTTP, MAC: m, Want: boot.File})
	if d.Serve && (d.Mode == boot.Rescue || d.Image == nil || d.Image.Kind != muster.SmartOSImage) {
		d = d.Deny(boot.NotOffered)
	}
	trace, ok := b.allowed(w, r, path, &d, 0)
	if !ok {
		return
	}
	body, err := render(d, rec)
	if err != nil {
		b.traces.done(trace, "failed", 0, b.now())
		b.tally.add(countRenderErrors)
		b.log.Error("a file of the boot cannot be made", "mac", m.String(), "file", path, "error", err)
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	if strings.HasSuffix(path, boot.HashSuffix) {
		body = boot.FileHash(body)
	}
	text(w, r, body)
	b.traces.done(trace, "done", 0, b.now())
}

// file serves a file of the image that the machine boots, and no other.
func (b *Booter) file(w http.ResponseWriter, r *http.Request, m dhcp.MAC, path string) {
	d, _ := b.decide(boot.Request{Via: boot.HTTP, MAC: m, Want: boot.File})
	f, ok := d.Find(path)
	if d.Serve && !ok {
		d = d.Deny(boot.NotOffered)
	}
	asked := f.Role
	if asked == "" {
		asked = "another file" // whose name is anybody's
	}
	trace, ok := b.allowed(w, r, asked, &d, f.Size)
	if !ok {
		return
	}
	c, err := b.stage.blobs.Open(f.Digest)
	if err != nil {
		b.traces.done(trace, "failed", 0, b.now())
		b.log.Error("a staged file cannot be opened", "mac", m.String(), "digest", f.Digest, "error", err)
		refuse(w, http.StatusInternalServerError, "the file cannot be opened")
		return
	}
	defer c.Close()
	b.tally.add(countFiles)
	b.watch.Fetched(m, boot.File)
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(fileGrace + time.Duration(f.Size/slowRate)*time.Second))
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("ETag", `"`+strings.TrimPrefix(f.Digest, "sha256:")+`"`)
	http.ServeContent(byTurns{w}, r, "", time.Time{}, c)
	// How far the file was read is how much of it went out, to its last buffer.
	at, err := c.Seek(0, io.SeekCurrent)
	outcome := "done"
	if r.Method != http.MethodHead && (err != nil || r.Context().Err() != nil || r.Header.Get("Range") == "" && at < f.Size) {
		outcome = "cut"
	}
	b.traces.done(trace, outcome, at, b.now())
}

// byTurns is a response writer that lets others have their turn after each piece
// of a file. The kernel sends as long as there is room in the socket, and a
// machine that takes what it is sent makes room: without turns, those that are
// being served may get their whole file before others get any more of theirs.
type byTurns struct{ http.ResponseWriter }

// ReadFrom hands on each piece with nothing but a limit around the file, as the
// kernel can send it.
func (w byTurns) ReadFrom(src io.Reader) (sent int64, err error) {
	part, ok := src.(*io.LimitedReader)
	if !ok {
		return io.Copy(w.ResponseWriter, src)
	}
	for part.N > 0 && err == nil {
		var n int64
		n, err = io.CopyN(w.ResponseWriter, part.R, min(part.N, fileTurn))
		sent += n
		part.N -= n
		runtime.Gosched()
	}
	if errors.Is(err, io.EOF) { // the end of the source is no failure (io.ReaderFrom)
		err = nil
	}
	return sent, err
}

// allowed refuses what was decided against, with the reason. It notes what was
// asked by what it is for: paths and queries may hold what is nobody's business.
func (b *Booter) allowed(w http.ResponseWriter, r *http.Request, asked string, d *boot.Decision, size int64) (trace handle, ok bool) {
	src, _ := netip.ParseAddrPort(r.RemoteAddr)
	trace = b.traces.request(boot.HTTP, asked, d, src, size, b.now())
	if d.Serve {
		return trace, true
	}
	b.quiet.note(boot.HTTP, d, b.now())
	refuse(w, http.StatusNotFound, d.Why())
	return trace, false
}

func text(w http.ResponseWriter, r *http.Request, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Content-Length", fmt.Sprint(len(body)))
	h.Set("Cache-Control", "no-store")
	if r.Method != http.MethodHead {
		w.Write(body)
	}
}

func refuse(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	fmt.Fprintln(w, why)
}

// A connLimit accepts at most as many connections at a time as it has slots,
// and of one address no more than each: the rest are closed at once, so that
// nobody keeps all others out. It hands connections on as they are, since a
// wrapper would hide sendfile; the server tells by its state hook when one is
// over.
type connLimit struct {
	net.Listener
	slots  chan struct{}
	each   int
	closed chan struct{}
	once   sync.Once

	mu      sync.Mutex
	sources map[netip.Addr]int
}

func limitConns(l net.Listener, n, each int) *connLimit {
	return &connLimit{Listener: l, slots: make(chan struct{}, n), each: each, closed: make(chan struct{}), sources: map[netip.Addr]int{}}
}

func (l *connLimit) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			<-l.slots
			return nil, err
		}
		if l.count(c, 1) {
			return c, nil
		}
		c.Close()
	}
}

// count books a connection, or takes it out of the books; false: there are too
// many from its address.
func (l *connLimit) count(c net.Conn, by int) bool {
	source, ok := sourceOf(c)
	l.mu.Lock()
	defer l.mu.Unlock()
	if by > 0 && (!ok || l.sources[source] >= l.each) {
		return false
	}
	if l.sources[source] += by; l.sources[source] <= 0 {
		delete(l.sources, source)
	}
	return true
}

func (l *connLimit) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// state is the server's hook.
func (l *connLimit) state(c net.Conn, s http.ConnState) {
	if s == http.StateClosed || s == http.StateHijacked {
		l.count(c, -1)
		<-l.slots
	}
}
