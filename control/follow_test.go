package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/client"
	"muster.internal/control"
)

// TestEventsSurviveKills: a follower that comes back after its last event hears
// every change once and in order, however often musterd is killed meanwhile.
func TestEventsSurviveKills(t *testing.T) {
	for _, engine := range []string{"sqlite", "postgres"} {
		t.Run(engine, func(t *testing.T) {
			store := ""
			if engine == "postgres" {
				store = postgresURL(t)
			}
			t.Setenv("MUSTERD_TEST_STORE", store)
			followKilled(t, t.TempDir())
		})
	}
}

const changesARound = 40

func followKilled(t *testing.T, dir string) {
	var heard []int64
	q := muster.EventQuery{} // from the beginning
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
		defer anyone.Close()
		tok, err := anyone.Login(t.Context(), muster.Login{Name: first.Operator, Password: first.Password})
		if err != nil {
			t.Fatal(err)
		}
		admin := anyone.WithToken(tok.Token)
		ctx, end := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		if round == 2 { // to the end, at last
			head, err := admin.VerifyAudit(ctx)
			if err != nil || !head.OK {
				t.Fatalf("%+v %v", head, err)
			}
			err = admin.Events(ctx, q, func(e muster.FeedEvent) error {
				if e.Kind != "" {
					heard = append(heard, e.ID)
				} else if e.ID >= head.VerifiedTo {
					return errors.ErrUnsupported
				}
				return nil
			})
			if !errors.Is(err, errors.ErrUnsupported) {
				t.Fatal(err)
			}
		} else {
			for range 4 {
				wg.Go(func() {
					for ctx.Err() == nil {
						if _, err := admin.CreateKey(ctx, muster.NewKey{Scope: muster.ScopeReadOnly}); err != nil {
							return
						}
					}
				})
			}
			n := 0
			err = admin.Events(ctx, q, func(e muster.FeedEvent) error {
				if e.ID > 0 {
					q.After = e.ID
				}
				if e.Kind == "" {
					return nil
				}
				heard = append(heard, e.ID)
				if n++; n == changesARound {
					pr.kill() // what is on its way is still read
				}
				return nil
			})
			if !errors.As(err, new(*client.Unreachable)) {
				t.Errorf("round %d: the stream ended with %v", round, err)
			}
		}
		end()
		wg.Wait()
		pr.kill()
	}
	for i, id := range heard {
		if id != int64(i+1) {
			t.Fatalf("event %d is number %d", i+1, id)
		}
	}
	if len(heard) < 2*changesARound {
		t.Fatalf("%d events", len(heard))
	}
	t.Logf("%d events, each once and in order, over two kills", len(heard))
}

// TestEventsOfAnInstall: an install is told step by step, before its end, also
// at another control plane; who may read registrations alone hears steps alone,
// and who may read the audit alone changes alone.
func TestEventsOfAnInstall(t *testing.T) {
	t.Parallel()
	p := newPlace(t, postgresURL(t))
	p.content()
	o := p.replica()
	readers := map[string]*client.Client{"admin": o.admin, "read_only": o.key(muster.ScopeReadOnly), "audit_only": o.key(muster.ScopeAuditOnly)}
	m := p.bare(1)
	type told struct{ kinds []string }
	got := map[string]*told{}
	var wg, ready sync.WaitGroup
	var mu sync.Mutex
	for name, c := range readers {
		ready.Add(1)
		var once sync.Once
		got[name] = new(told)
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(p.Context(), time.Minute)
			defer cancel()
			c.Events(ctx, muster.EventQuery{After: muster.FromNow, Subject: "registration/" + m.uuid}, func(e muster.FeedEvent) error {
				if e.Kind == "" {
					once.Do(ready.Done)
					return nil
				}
				text := strings.TrimPrefix(e.Kind, "registration.")
				var d muster.ProgressDetail
				if e.ID == 0 && json.Unmarshal(e.Detail, &d) == nil {
					text = fmt.Sprintf("%d/%s", d.N, d.Step)
				}
				if text == "announce" || text == "survey" {
					return nil
				}
				mu.Lock()
				defer mu.Unlock()
				got[name].kinds = append(got[name].kinds, text)
				if e.Kind == "registration.setup_complete" || d.Step == "complete" && name == "read_only" {
					return errors.ErrUnsupported
				}
				return nil
			})
		})
	}
	ready.Wait()
	grant := m.approved()
	b := m.opened(grant.Epoch)
	p.ok(p.booter.SetupProgress(p.Context(), m.uuid, muster.SetupProgress{Epoch: grant.Epoch, Session: m.session,
		Steps: []muster.SetupStep{{Step: "build", Percent: 60, Text: "building the pool"}, {Text: "a line"}}}))
	wait, err := o.admin.InstallLog(p.Context(), muster.InstallQuery{ServerUUID: m.uuid, After: 2, Wait: 30 * time.Second})
	p.ok(err)
	if wait.Step != "build" || wait.Percent != 60 || len(wait.Lines) != 2 {
		t.Errorf("%+v", wait)
	}
	p.ok(m.complete(b))
	wg.Wait()
	l, err := p.admin.InstallLog(p.Context(), muster.InstallQuery{OperationID: grant.OperationID})
	p.ok(err)
	if l.Outcome != muster.InstallComplete || l.Last != 5 {
		t.Errorf("%+v", l)
	}
	steps := "1/approved 2/taken 3/build 4/ 5/complete"
	for name, want := range map[string]string{"read_only": steps, "audit_only": "approve_setup take setup_complete"} {
		if have := strings.Join(got[name].kinds, " "); have != want {
			t.Errorf("%s hears %s, want %s", name, have, want)
		}
	}
	all := strings.Join(got["admin"].kinds, " ")
	if strings.Index(all, "5/complete") > strings.Index(all, "setup_complete") || len(got["admin"].kinds) != 8 {
		t.Errorf("admin hears %s", all)
	}
}

// TestSlowFollower: who does not read is dropped, told so, and comes back to the
// same place.
func TestSlowFollower(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "")
	s := p.c.As(muster.Caller{Operator: "ada", Role: muster.Admin})
	stuck, going := make(chan struct{}), make(chan struct{})
	var heard []int64
	q := muster.EventQuery{After: muster.FromNow}
	listen := func(e muster.FeedEvent) error {
		if e.ID > 0 {
			q.After = e.ID
		}
		if e.Kind == "" {
			if going != nil {
				close(going)
				going = nil
			}
			return nil
		}
		heard = append(heard, e.ID)
		<-stuck
		return nil
	}
	ended := make(chan error, 1)
	first := going
	go func() { ended <- s.Events(t.Context(), q, listen) }()
	<-first
	const n = 700 // more than waits for one
	for range n {
		must(p, func(ctx context.Context) (muster.CreatedKey, error) {
			return s.CreateKey(ctx, muster.NewKey{Scope: muster.ScopeReadOnly})
		})
	}
	for { // until the hub has had enough of it: another follower hears the last one
		done := errors.ErrUnsupported
		head := must(p, p.c.As(muster.Caller{Operator: "ada", Role: muster.Admin}).VerifyAudit).VerifiedTo
		if err := s.Events(t.Context(), muster.EventQuery{After: head}, func(muster.FeedEvent) error { return done }); errors.Is(err, done) {
			break
		}
	}
	close(stuck)
	if err := <-ended; !muster.IsCode(err, muster.CodeUnavailable) {
		t.Fatalf("it ended with %v", err)
	}
	lost := len(heard)
	ctx, cancel := context.WithCancel(t.Context())
	last := must(p, s.VerifyAudit).VerifiedTo
	s.Events(ctx, q, func(e muster.FeedEvent) error {
		if e.Kind != "" {
			heard = append(heard, e.ID)
		}
		if e.ID >= last {
			cancel()
		}
		return nil
	})
	for i, id := range heard {
		if id != heard[0]+int64(i) {
			t.Fatalf("%d follows %d", id, heard[max(0, i-1)])
		}
	}
	if len(heard) != n || lost >= n {
		t.Errorf("%d heard, %d of them before it was dropped", len(heard), lost)
	}
}
