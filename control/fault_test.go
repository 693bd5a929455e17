package control_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/client"
	"muster.internal/control"
)

// raw sends bytes that no client of ours would.
func (p *place) raw(method, path, token, body string) (int, muster.Problem) {
	p.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(p.c.CA())
	h := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(p.Context(), method, p.c.URL()+path, strings.NewReader(body))
	p.ok(err)
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := h.Do(req)
	if err != nil {
		// The server answered before it had read all that was sent, and closed.
		return http.StatusRequestEntityTooLarge, muster.Problem{}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	p.ok(err)
	var problem muster.Problem
	if resp.StatusCode >= 400 {
		p.ok(json.Unmarshal(b, &problem))
	}
	return resp.StatusCode, problem
}

// TestBadInputChangesNothing: 400 with the field's name, and the end of the
// audit chain stays where it was.
func TestBadInputChangesNothing(t *testing.T) {
	engines(t, func(p *place) {
		p.content()
		m := p.bare(1)
		m.sighted()
		secret := func(s muster.Scope) string {
			k := must(p, func(ctx context.Context) (muster.CreatedKey, error) {
				return p.admin.CreateKey(ctx, muster.NewKey{Scope: s})
			})
			return k.Secret
		}
		full, booter, enroll := secret(muster.ScopeFull), secret(muster.ScopeBooter), secret(muster.ScopeURenroll)
		announce := func(change func(*muster.Announcement)) string {
			a := m.announcement()
			change(&a)
			b, err := json.Marshal(a)
			p.ok(err)
			return string(b)
		}
		sysinfo := func(s string) string {
			return announce(func(a *muster.Announcement) { a.Sysinfo = json.RawMessage(s) })
		}
		policy := func(network string) string {
			return `{"auto_enroll":true,"answer_only_pxe":true,"allow":[],"networks":[` + network + `]}`
		}
		before := p.head()
		for _, c := range []struct {
			name, method, path, token, body string
			field                           string
		}{
			{"20 MiB", "POST", "/v1/booter/announce", enroll, `{"mac":"` + strings.Repeat("x", 20<<20) + `"}`, ""},
			{"unknown field", "POST", "/v1/agent/register", "", `{"server_uuid":"` + claimUUID + `","hostname":"h","sysinfo":{},"root":1}`, "root"},
			{"NUL", "POST", "/v1/agent/register", "", `{"server_uuid":"` + claimUUID + `","hostname":"h\u0000","sysinfo":{"UUID":"` + claimUUID + `"}}`, "hostname"},
			{"quotes", "POST", "/v1/agent/register", "", `{"server_uuid":"'; DROP TABLE registrations; --","hostname":"h","sysinfo":{}}`, "server_uuid"},
			{"hostname", "POST", "/v1/agent/register", "", `{"server_uuid":"` + claimUUID + `","hostname":"a b\"c","sysinfo":{"UUID":"` + claimUUID + `"}}`, "hostname"},
			{"nil UUID", "POST", "/v1/agent/register", "", `{"server_uuid":"00000000-0000-0000-0000-000000000000","hostname":"h","sysinfo":{}}`, "server_uuid"},
			{"other UUID in sysinfo", "POST", "/v1/agent/register", "", `{"server_uuid":"` + claimUUID + `","hostname":"h","sysinfo":{"UUID":"` + m.uuid + `"}}`, ""},
			{"announce: sysinfo is a list", "POST", "/v1/booter/announce", enroll, sysinfo(`[]`), "sysinfo"},
			{"announce: sysinfo is text", "POST", "/v1/booter/announce", enroll, sysinfo(`"x"`), "sysinfo"},
			{"announce: no UUID", "POST", "/v1/booter/announce", enroll, sysinfo(`{}`), ""},
			{"announce: all ones", "POST", "/v1/booter/announce", enroll, announce(func(a *muster.Announcement) {
				a.ServerUUID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
				a.Sysinfo = json.RawMessage(`{"UUID":"ffffffff-ffff-ffff-ffff-ffffffffffff"}`)
			}), "server_uuid"},
			{"announce: topic and body differ", "POST", "/v1/booter/announce", enroll, announce(func(a *muster.Announcement) { a.ServerUUID = claimUUID }), ""},
			{"announce: MAC", "POST", "/v1/booter/announce", enroll, announce(func(a *muster.Announcement) { a.MAC = "52:54" }), "mac"},
			{"announce: session", "POST", "/v1/booter/announce", enroll, announce(func(a *muster.Announcement) { a.Session = "" }), "session"},
			{"announce: public key", "POST", "/v1/booter/announce", enroll, announce(func(a *muster.Announcement) { a.PublicKey = "AAAA" }), "public_key"},
			{"sighting: MAC", "POST", "/v1/booter/sightings", booter, `{"booter":"b1","sightings":[{"mac":"'","arch":7,"at":"2026-01-01T00:00:00Z"}]}`, "sightings[0].mac"},
			{"sighting: time", "POST", "/v1/booter/sightings", booter, `{"booter":"b1","sightings":[{"mac":"52:54:00:00:00:01","arch":7,"at":"yesterday"}]}`, "sightings[0].at"},
			{"policy: prefix", "PUT", "/v1/boot-policy", full, policy(`{"name":"n","prefix":"10.0.0.0/33","start":"10.0.0.1","end":"10.0.0.9"}`), ""},
			{"policy: range", "PUT", "/v1/boot-policy", full, policy(`{"name":"n","prefix":"10.0.0.0/24","start":"10.0.1.1","end":"10.0.0.9"}`), ""},
			{"policy: allow", "PUT", "/v1/boot-policy", full, `{"auto_enroll":true,"answer_only_pxe":true,"allow":[{}],"networks":[]}`, ""},
			{"policy: image", "PUT", "/v1/boot-policy", full, `{"auto_enroll":true,"answer_only_pxe":true,"allow":[],"networks":[],"enrollment_pi":{"name":"no such image"}}`, ""},
			{"kernel argument", "PATCH", "/v1/boot-records/" + m.mac, full, `{"kernel_args":["a\nb"]}`, ""},
			{"mode", "PATCH", "/v1/boot-records/" + m.mac, full, `{"mode":"sideways"}`, ""},
			{"rescue for ever", "PATCH", "/v1/boot-records/" + m.mac, full, `{"mode":"rescue","rescue_seconds":9999999}`, ""},
			{"record of no MAC", "PATCH", "/v1/boot-records/xyz", full, `{"kernel_args":[]}`, ""},
			{"blob of another digest", "PUT", "/v1/blobs/sha256:" + strings.Repeat("0", 64), full, "content", "digest"},
			{"blob of no digest", "PUT", "/v1/blobs/..%2f..%2fetc%2fpasswd", full, "content", "digest"},
			{"image without its blobs' shape", "POST", "/v1/images", full, `{"name":"../x","kind":"linux","variants":[]}`, ""},
			{"event that nobody raises", "POST", "/v1/registrations/" + m.uuid + "/take", full, "", ""},
		} {
			status, problem := p.raw(c.method, c.path, c.token, c.body)
			if status < 400 || status > 413 || status == 401 || status == 403 {
				p.Errorf("%s: %d %+v", c.name, status, problem)
				continue
			}
			if named := len(problem.Errors) > 0 && problem.Errors[0].Field != ""; c.field != "" && (!named || problem.Errors[0].Field != c.field) {
				p.Errorf("%s: field %+v, want %s", c.name, problem.Errors, c.field)
			}
			if now := p.head(); now != before {
				p.Errorf("%s: something changed", c.name)
				before = now
			}
		}
	})
}

// TestEmptyBlob: nothing is no content.
func TestEmptyBlob(t *testing.T) {
	p := newPlace(t, "")
	err := p.c.As(muster.Caller{}).PutBlob(t.Context(), "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", 0, bytes.NewReader(nil))
	p.refused(err, muster.CodeInvalid)
}

// TestRestart: everything is still there, the first login too, with where it serves now.
func TestRestart(t *testing.T) {
	engines(t, func(p *place) {
		p.content()
		m := p.bare(1)
		grant := m.approved()
		fingerprint := p.c.Fingerprint()
		p.ok(p.c.Close())
		first, err := control.ReadFirstLogin(p.dir)
		p.ok(err)
		p.start()
		again, err := control.ReadFirstLogin(p.dir)
		p.ok(err)
		if again.Password != first.Password || p.c.Fingerprint() != fingerprint {
			p.Error("a restart made another operator or another CA")
		}
		if again.URL != p.c.URL() || again.URL == first.URL {
			p.Errorf("the first login is for %s, and %s serves", again.URL, p.c.URL())
		}
		p.login()
		p.booter, p.enroll = p.key(muster.ScopeBooter), p.key(muster.ScopeURenroll)
		p.ok(m.complete(m.opened(grant.Epoch)))
		if r := p.registration(m.uuid); r.State != muster.Approved {
			p.Errorf("%+v", r)
		}
	})
}

// TestShutdownEndsLongPolls: closing does not wait for a minute.
func TestShutdownEndsLongPolls(t *testing.T) {
	p := newPlace(t, "")
	var wg sync.WaitGroup
	var err error
	p.booter.Pause = func(context.Context, time.Duration) {}
	feed, feedErr := p.booter.Feed(t.Context(), "b1", 0, 0)
	p.ok(feedErr)
	wg.Go(func() { _, err = p.booter.Feed(t.Context(), "b1", feed.Seq+1000, time.Minute) })
	p.ok(p.c.Close())
	wg.Wait()
	if err == nil {
		t.Log("the poll was answered before the end")
	}
}

// child is a real musterd in a process of its own.
func child(dir string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	err := control.Run(ctx, control.Config{Dir: dir, Store: os.Getenv("MUSTERD_TEST_STORE"), Listen: os.Getenv("MUSTERD_TEST_LISTEN"), Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// A process is a musterd that can be killed.
type process struct {
	cmd *exec.Cmd
	url string
}

func spawn(t *testing.T, dir string, environ ...string) *process {
	t.Helper()
	pr := &process{cmd: exec.Command(os.Args[0])}
	pr.cmd.Env = append(os.Environ(), "MUSTERD_TEST_DIR="+dir, "MUSTERD_TEST_LISTEN=127.0.0.1:0")
	pr.cmd.Env = append(pr.cmd.Env, environ...)
	out, err := pr.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := pr.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pr.cmd.Process.Kill(); _ = pr.cmd.Wait() })
	lines := bufio.NewScanner(out)
	for pr.url == "" && lines.Scan() {
		if m := regexp.MustCompile(`msg=serving .*url=(\S+)`).FindStringSubmatch(lines.Text()); m != nil {
			pr.url = m[1]
		}
	}
	if pr.url == "" {
		t.Fatal("musterd did not start")
	}
	go func() { // a full pipe would stop it
		_, _ = io.Copy(io.Discard, out)
	}()
	return pr
}

func (pr *process) kill() {
	_ = pr.cmd.Process.Signal(syscall.SIGKILL)
	_ = pr.cmd.Wait()
}

// TestKill kills a musterd while it answers, three times: what was
// acknowledged is there afterwards, and the chain is whole.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	kept := map[string]bool{}
	for round := range 3 {
		pr := spawn(t, dir)
		first, err := control.ReadFirstLogin(dir)
		if err != nil {
			t.Fatal(err)
		}
		anyone, err := client.New(first.URL, "", client.Trust{CA: []byte(first.CA)})
		if err != nil {
			t.Fatal(err)
		}
		tok, err := anyone.Login(t.Context(), muster.Login{Name: first.Operator, Password: first.Password})
		if err != nil {
			t.Fatal(err)
		}
		admin := anyone.WithToken(tok.Token)
		v, err := admin.VerifyAudit(t.Context())
		if err != nil || !v.OK {
			t.Fatalf("round %d: %+v %v", round, v, err)
		}
		keys, err := admin.Keys(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		there := map[string]bool{}
		for _, k := range keys {
			there[k.ID] = true
		}
		for id := range kept {
			if !there[id] {
				t.Errorf("round %d: key %s was acknowledged and is gone", round, id)
			}
		}
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for n := 0; ; n++ {
					k, err := admin.CreateKey(t.Context(), muster.NewKey{Scope: muster.ScopeReadOnly})
					if err != nil {
						return // it was killed
					}
					mu.Lock()
					kept[k.ID] = true
					enough := len(kept) >= 40*(round+1)
					mu.Unlock()
					if enough && n > 2 {
						pr.cmd.Process.Signal(syscall.SIGKILL)
					}
				}
			})
		}
		wg.Wait()
		pr.kill()
		anyone.Close()
	}
	t.Logf("%d acknowledged keys survived", len(kept))
}
