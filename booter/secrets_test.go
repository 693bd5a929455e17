package booter

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/boot"
	"muster.internal/dhcp"
)

const someShadow = "$6$saltsalt$QQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQ"

// TakeRootPassword is the test plane's: a nonce gets the hash once.
func (p *plane) TakeRootPassword(_ context.Context, mac string, q muster.BootSecretRequest) (muster.BootSecret, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		return muster.BootSecret{}, errDown
	}
	p.asked = append(p.asked, mac+" "+q.Nonce)
	return muster.BootSecret{RootPasswordHash: someShadow}, nil
}

var onceURL = regexp.MustCompile(`muster\.once=(\S+)`)

// TestRootPasswordOnLinux: the script holds a nonce and not the hash; the nonce
// gets it once, for this machine, and the next boot's replaces it.
func TestRootPasswordOnLinux(t *testing.T) {
	p := newPlane()
	ref := p.addImage("node-1", strings.Repeat("kernel", 10), "initrd")
	p.do(func() { p.policy.Networks = adminNetwork() })
	with := enrolled(1, ref)
	with.RootPassword = true
	p.set(with)
	p.set(enrolled(2, ref))
	cfg := loopback(t, p)
	var log lockedLog
	cfg.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	b, _ := run(t, cfg)
	staged(t, b, ref)
	get := func(path string) (int, string) {
		t.Helper()
		if !strings.HasPrefix(path, "http") {
			path = fmt.Sprintf("http://127.0.0.1:%d/boot/%s", b.Ports().HTTP, path)
		}
		a, err := http.Get(path)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		body, err := io.ReadAll(a.Body)
		if err != nil {
			t.Fatal(err)
		}
		return a.StatusCode, string(body)
	}
	promise := func() string {
		t.Helper()
		_, script := get("52-54-00-77-00-01/script.ipxe")
		m := onceURL.FindStringSubmatch(script)
		if m == nil || strings.Contains(script, "$6$") {
			t.Fatalf("script:\n%s", script)
		}
		return m[1]
	}
	if _, script := get("52-54-00-77-00-02/script.ipxe"); onceURL.MatchString(script) {
		t.Error("a machine without a root password is promised one")
	}
	stale := promise()
	url := promise()
	nonce := url[strings.LastIndex(url, "/")+1:]
	if code, _ := get(stale); code != 404 {
		t.Errorf("the nonce of an earlier boot: %d", code)
	}
	if code, _ := get("52-54-00-77-00-02/once/" + nonce); code != 404 {
		t.Errorf("another machine's nonce: %d", code)
	}
	if code, body := get(url); code != 200 || body != someShadow+"\n" {
		t.Errorf("%d %q", code, body)
	}
	if code, _ := get(url); code != 404 {
		t.Errorf("a second time: %d", code)
	}
	if len(p.asked) != 1 || p.asked[0] != mac(1)+" "+nonce {
		t.Errorf("the control plane was asked %q", p.asked)
	}
	// The control plane away: the boot goes on without, and the log says so.
	url = promise()
	p.mu.Lock()
	p.down = true
	p.mu.Unlock()
	if code, _ := get(url); code != 503 {
		t.Errorf("without a control plane: %d", code)
	}
	said := log.String()
	if !strings.Contains(said, "the machine boots without its root password") {
		t.Error("the log says nothing of it")
	}
	if strings.Contains(said, "$6$") || strings.Contains(said, nonce) {
		t.Error("the log holds the secret")
	}
}

// TestRootPasswordIsItsOwnMachines: who asks for a machine's script from another
// address gets no secret by either kind of image, and does not spend the promise
// that the machine has.
func TestRootPasswordIsItsOwnMachines(t *testing.T) {
	p := newPlane()
	b := &Booter{cfg: Config{Address: netip.MustParseAddr("10.77.0.1"), Control: p}, tally: &tally{}, log: slog.New(slog.DiscardHandler), now: time.Now}
	m := dhcp.MAC{0x52, 0x54, 0, 0x77, 0, 1}
	rec := enrolled(1, nil)
	rec.RootPassword = true
	for _, kind := range []muster.ImageKind{muster.LinuxImage, muster.SmartOSImage} {
		d := boot.Decision{Serve: true, Mode: boot.Node, Image: &muster.Image{Kind: kind}, Address: netip.MustParsePrefix("10.77.0.102/16")}
		asks := func(from string) boot.Extra {
			return b.extra(&http.Request{Method: http.MethodGet, RemoteAddr: from}, m, &d, &rec)
		}
		mine := asks("10.77.0.102:4711")
		if (mine.Nonce != "") != (kind == muster.LinuxImage) || (mine.RootShadow != "") != (kind == muster.SmartOSImage) {
			t.Errorf("%s: the machine itself gets %+v", kind, mine)
		}
		for _, from := range []string{"10.77.0.66:4711", "[::ffff:10.77.0.66]:4711", "127.0.0.1:1", "", "nonsense"} {
			if x := asks(from); x != (boot.Extra{}) {
				t.Errorf("%s: %q gets %+v", kind, from, x)
			}
		}
		if kind == muster.LinuxImage && !b.secrets.take(m, mine.Nonce, time.Now()) {
			t.Error("a stranger's request killed the machine's nonce")
		}
	}
	if n := b.tally.snapshot()["http_secrets_refused"]; n != 10 {
		t.Errorf("%d refusals counted", n)
	}
}

// A lockedLog is written by many.
type lockedLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
