package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	muster "muster.internal"
	"muster.internal/api"
	"muster.internal/client"
)

var update = flag.Bool("update", false, "rewrite golden files")

// TestStories runs what people type, against a small true fleet, at noon: once
// with the fleet at hand, once through the real client and the real API. Each
// file is one command's manual.
//
// Beside testscript's own words: "muster …" (also after !), "code N" for the
// exit code of the last one, "type TEXT" for what is typed at its next prompt,
// "fleet KNOB [VALUE]" to turn a knob of the fleet.
func TestStories(t *testing.T) {
	t.Run("near", func(t *testing.T) {
		tell(t, *update, func(_ *testscript.Env, m *memory, c connection) (fleet, error) { return m.dial(c) })
	})
	t.Run("far", func(t *testing.T) {
		tell(t, false, func(e *testscript.Env, m *memory, c connection) (fleet, error) {
			srv, _ := e.Values["server"].(*httptest.Server)
			if srv == nil {
				srv = httptest.NewTLSServer(api.New(farEnd{m}, api.Options{}))
				e.Values["server"] = srv
				e.Defer(srv.Close)
			}
			if c.url != storyURL { // nobody listens there
				nobody, err := client.New("https://127.0.0.1:1", c.token, client.Trust{})
				if err == nil {
					nobody.Pause = func(context.Context, time.Duration) {}
				}
				return nobody, err
			}
			ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
			return client.New(srv.URL, c.token, client.Trust{CA: ca})
		})
	})
}

const storyURL = "https://muster.test:8443"

type teller struct {
	fleet *memory
	dial  func(connection) (fleet, error)
	code  int
	typed string
}

func tell(t *testing.T, update bool, dial func(*testscript.Env, *memory, connection) (fleet, error)) {
	of := func(ts *testscript.TestScript) *teller { return ts.Value("teller").(*teller) }
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/stories",
		UpdateScripts: update,
		Setup: func(e *testscript.Env) error {
			m := usual()
			e.Values["teller"] = &teller{fleet: m, dial: func(c connection) (fleet, error) { return dial(e, m, c) }}
			e.Setenv("MUSTER_URL", storyURL)
			e.Setenv("MUSTER_KEY", goodKey)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"muster": func(ts *testscript.TestScript, neg bool, args []string) {
				if of(ts).run(ts, args); (of(ts).code != 0) != neg {
					ts.Fatalf("exit code %d", of(ts).code)
				}
			},
			"code": func(ts *testscript.TestScript, _ bool, args []string) {
				if got := strconv.Itoa(of(ts).code); got != args[0] {
					ts.Fatalf("exit code %s, want %s", got, args[0])
				}
			},
			"type": func(ts *testscript.TestScript, _ bool, args []string) {
				of(ts).typed += strings.Join(args, " ") + "\n"
			},
			"fleet": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Check(of(ts).fleet.knob(args))
			},
		},
	})
}

func (s *teller) run(ts *testscript.TestScript, args []string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.fleet.idle, s.fleet.followed = cancel, 0
	in := strings.NewReader(s.typed)
	s.typed = ""
	s.code = run(ctx, env{
		stdin: in, stdout: ts.Stdout(), stderr: ts.Stderr(), getenv: ts.Getenv, abs: ts.MkAbs,
		now: func() time.Time { return noon }, configDir: filepath.Join(ts.Getenv("WORK"), "config"), controlDir: filepath.Join(ts.Getenv("WORK"), "musterd"),
		dial: s.dial, readSecret: func(string) (string, error) { return readLine(in) },
	}, args)
}

// dial is the near end: it lets in who has the right key, at the right address.
func (m *memory) dial(c connection) (fleet, error) {
	if c.url != storyURL {
		return nil, &client.Unreachable{URL: c.url, Err: errors.New("connection refused")}
	}
	if c.token != "" && c.token != goodKey {
		return nil, muster.Problemf(muster.CodeUnauthenticated, "the key is not known")
	}
	return m, nil
}

// farEnd puts the same fleet behind the API.
type farEnd struct{ m *memory }

func (f farEnd) Authenticate(_ context.Context, p api.Proof, _ string) (muster.Caller, error) {
	if p.Bearer != goodKey {
		return muster.Caller{}, muster.Problemf(muster.CodeUnauthenticated, "the key is not known")
	}
	return muster.Caller{Operator: "admin", Role: muster.Admin}, nil
}

func (f farEnd) As(muster.Caller) api.Session {
	return struct {
		*memory
		muster.ForBooter
		muster.ForHost
		muster.ForLink
	}{memory: f.m, ForBooter: withImages{m: f.m}}
}

// withImages is what an operator asks of the booters' side.
type withImages struct {
	muster.ForBooter
	m *memory
}

func (w withImages) ImageByDigest(ctx context.Context, digest string) (muster.Image, error) {
	return w.m.Image(ctx, digest)
}

func (f farEnd) Ready(context.Context) error { return f.m.up() }

func (m *memory) knob(args []string) error {
	switch args[0] {
	case "down":
		m.down = true
	case "broken-at":
		n, err := strconv.Atoi(args[1])
		m.brokenAt = int64(n)
		return err
	case "outcome":
		m.outcome = strings.Join(args[1:], " ")
	case "foreign":
		m.foreign = true
	case "heard": // its firmware has asked for five minutes
		m.traces = map[string]muster.BootTrace{args[1]: heard(args[1])}
	case "watched":
		m.watched = true
	case "stopped": // one more booter, whose last word was that it stops
		seen := noon.Add(-42 * time.Second)
		m.booters = append(m.booters, muster.BooterStatus{Booter: args[1], Address: "10.9.0.1", Seq: 5, Staged: []string{}, LastSeen: &seen, Stopped: true})
	case "away": // at each look it is away again, or back, and in the end it is approved
		m.leaving = []string{args[1], args[1], "", ""}
	case "slow":
		m.slow = true
	case "twin": // a second machine with the same serial number
		m.regs["4c4c4544-0043-5810-8032-000000000000"] = &muster.Registration{ServerUUID: "4c4c4544-0043-5810-8032-000000000000", Serial: "8CX2P53", State: muster.Pending, LastSeen: noon}
	case "newcomer": // one more machine waits, in this case
		m.newcomer = args[1]
	case "conflict":
		m.regs[uuidWeb1].Conflicts = []muster.Conflict{{MAC: "52:54:00:77:00:66", Source: "10.77.0.166", Reason: "other serial number and other disks", At: noon}}
	case "hostile": // a machine that puts control characters in its names
		m.regs[uuidBare].Product = "R640\x1b]0;owned\a\x1b[2J"
	default:
		return fmt.Errorf("no knob %q", args[0])
	}
	return nil
}

// colour and width: what only a terminal sees.
func TestColoursAreForTerminals(t *testing.T) {
	for _, colour := range []bool{false, true} {
		var out bytes.Buffer
		code := run(t.Context(), env{stdout: &out, stderr: &out, colour: colour, now: func() time.Time { return noon }, dial: usual().dial,
			getenv: func(k string) string {
				return map[string]string{"MUSTER_URL": storyURL, "MUSTER_KEY": goodKey}[k]
			}}, []string{"registration", "ls"})
		if code != 0 || strings.Contains(out.String(), "\x1b[") != colour {
			t.Errorf("colour %v: exit %d\n%q", colour, code, out.String())
		}
	}
}

func TestEveryErrorHasItsExitCode(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
	}{
		{nil, exitOK},
		{errors.New("x"), exitFailed},
		{&fs.PathError{Op: "open", Path: "x", Err: fs.ErrNotExist}, exitFailed},
		{usagef("x"), exitUsage},
		{&hinted{err: usagef("x")}, exitUsage},
		{&client.Unreachable{Err: errors.New("refused")}, exitUnreachable},
		{muster.Problemf(muster.CodeUnavailable, "x"), exitUnreachable},
		{fmt.Errorf("wrapped: %w", muster.Problemf(muster.CodeNotFound, "x")), exitNotFound},
		{muster.Problemf(muster.CodeUnauthenticated, "x"), exitForbidden},
		{muster.Problemf(muster.CodeForbidden, "x"), exitForbidden},
		{muster.Problemf(muster.CodeConflict, "x"), exitConflict},
		{muster.Problemf(muster.CodeInvalid, "x"), exitFailed},
		{muster.Problemf(muster.CodeInternal, "x"), exitFailed},
	} {
		if got := exitCode(c.err); got != c.code {
			t.Errorf("%v: exit code %d, want %d", c.err, got, c.code)
		}
	}
}
