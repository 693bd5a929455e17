package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	muster "muster.internal"
	"muster.internal/client"
	tokens "muster.internal/enrol"
	"muster.internal/sim"
)

// The machines of the walk and what happens to them beside the command line.

// slowly stands between booter and control plane: a machine whose cable is not
// plugged in is not seen, and bundles may take long.
type slowly struct {
	muster.ForBooter
	w *walk
}

// Sight leaves out whose cable is not plugged in.
func (s slowly) Sight(ctx context.Context, booter string, seen []muster.Sighting) ([]muster.BootRecord, error) {
	var plugged []muster.Sighting
	for _, x := range seen {
		if !s.w.unplugged(x.MAC) {
			plugged = append(plugged, x)
		}
	}
	if len(plugged) == 0 {
		return nil, nil
	}
	return s.ForBooter.Sight(ctx, booter, plugged)
}

// TakeBundle waits as long as it is told to, as a slow machine would.
func (s slowly) TakeBundle(ctx context.Context, uuid string, r muster.TakeRequest) (muster.TakenBundle, error) {
	select {
	case <-s.w.holding():
	case <-ctx.Done():
		return muster.TakenBundle{}, ctx.Err()
	}
	return s.ForBooter.TakeBundle(ctx, uuid, r)
}

// A stage is what the machines' goroutines read of a walk.
type stage struct {
	mu    sync.Mutex
	hold  chan struct{}   // closed: bundles may be taken
	loose map[string]bool // MACs whose cables are not plugged in
	later time.Duration   // than it is
}

func (s *stage) holding() chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hold
}

func (s *stage) unplugged(mac string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loose[mac]
}

// now is the clock of control plane and command line.
func (s *stage) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Add(s.later)
}

// hardware is what a dev's machines are: the third has a clock that cannot be
// set, the fourth waits for its cable.
func (w *walk) hardware(n int) *sim.Machine {
	m := sim.Hardware(n)
	switch n {
	case 3:
		m.Faults.StuckClock = true
	case 4:
		w.stage.loose = map[string]bool{m.MACs[0]: true, m.MACs[1]: true}
	}
	return m
}

// direct does what happens beside the command line.
func (w *walk) direct(what string) {
	was := w.states()
	words := strings.Fields(what)
	number := func(i int) int {
		n, err := strconv.Atoi(words[i])
		w.ok(err)
		return n
	}
	switch {
	case what == "bundles wait":
		w.stage.mu.Lock()
		w.stage.hold = make(chan struct{})
		w.stage.mu.Unlock()
	case what == "bundles go":
		close(w.stage.holding())
	case what == "muster-host register":
		w.register()
	case what == "muster-host ends":
		select {
		case <-w.ended:
		case <-time.After(time.Minute):
			w.t.Fatal("muster-host register does not end")
		}
	case what == "forget credential":
		os.Remove(filepath.Join(w.dir, "state", "credential"))
	case what == "plug in":
		w.stage.mu.Lock()
		w.stage.loose = nil
		w.stage.mu.Unlock()
	case words[0] == "hours":
		w.pass(time.Duration(number(1)) * time.Hour)
	case words[0] == "asks":
		w.asks(sim.Hardware(number(1)))
	case words[0] == "twin": // of a machine: its UUID is the same, and nothing else
		m := sim.Hardware(number(1))
		m.UUID = sim.Hardware(number(2)).UUID
		w.asks(m)
	case words[0] == "card": // of a machine that is built into another one
		m := sim.Hardware(number(1))
		m.MACs = sim.Hardware(number(2)).MACs
		w.asks(m)
	case words[0] == "redeems":
		w.redeems(sim.Hardware(number(1)))
	default:
		w.t.Fatalf("no stage direction %q", what)
	}
	w.note(was)
}

const claimant = "c1a1ab1e-0009-4000-8000-000000000009"

// register starts a real muster-host that asks for a code.
func (w *walk) register() {
	cmd := exec.Command(w.host, "register", "--url", w.vars["MUSTER_URL"], "--ca", w.vars["MUSTER_CA"], "--state", filepath.Join(w.dir, "state"), "--uuid", claimant)
	out, err := cmd.StdoutPipe()
	w.ok(err)
	w.ok(cmd.Start())
	w.ended = make(chan error, 1)
	code := make(chan string, 1)
	ended := w.ended
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if _, c, ok := strings.Cut(lines.Text(), "Claim code:  "); ok {
				code <- c
			}
		}
		ended <- cmd.Wait()
	}()
	w.t.Cleanup(func() { cmd.Process.Kill() })
	select {
	case w.ids["CODE"] = <-code:
	case <-ended:
		w.t.Fatal("muster-host register ended without a code")
	case <-time.After(time.Minute):
		w.t.Fatal("muster-host register shows no code")
	}
	w.names[w.ids["CODE"]] = "4K7-9PQ"
	w.machineSays("muster-host register", "\n    Claim code:  4K7-9PQ\n\n")
}

// machineSays writes down what happens on a machine.
func (w *walk) machineSays(command, says string) {
	fmt.Fprintf(&w.page, "\n```console\nmachine# %s\n%s```\n\n", command, w.calm(says))
}

// anyone speaks to the control plane as a machine without a credential does.
func (w *walk) anyone() *client.Client {
	ca, err := os.ReadFile(w.vars["MUSTER_CA"])
	w.ok(err)
	c, err := client.New(w.vars["MUSTER_URL"], "", client.Trust{CA: ca})
	w.ok(err)
	w.t.Cleanup(c.Close)
	return c
}

// asks lets a simulated machine that runs a system of its own ask to be let in,
// and fetch its key when it is.
func (w *walk) asks(m *sim.Machine) {
	w.ok(m.PowerOn())
	api := w.anyone()
	r, err := api.Register(w.t.Context(), muster.RegisterRequest{ServerUUID: m.UUID, Hostname: m.Name, Sysinfo: m.Sysinfo(muster.Build)})
	var refused *muster.Problem
	switch {
	case errors.As(err, &refused):
		w.machineSays("muster-host register", "refused: "+refused.Detail+"\n")
		return
	case err != nil:
		w.t.Fatal(err)
	case r.State != muster.Approved:
		w.ids["CODE"], w.names[r.ClaimCode] = r.ClaimCode, "4K7-9PQ"
		w.machineSays("muster-host register", "\n    Claim code:  4K7-9PQ\n\n")
		return
	}
	s, err := api.RegisterStatus(w.t.Context(), r.PollToken, 0)
	w.ok(err)
	if s.APIKey == "" {
		w.t.Fatalf("%s is let in without a key: %+v", m.Name, s)
	}
	w.machineSays("muster-host register", "let in; the credential is in /var/lib/muster\n")
}

// redeems lets a simulated machine redeem the token that was issued last.
func (w *walk) redeems(m *sim.Machine) {
	w.ok(m.PowerOn())
	t, err := tokens.Decode(w.ids["WORD"])
	w.ok(err)
	r, err := w.anyone().Enrol(w.t.Context(), muster.EnrolRequest{TokenID: t.ID, Secret: base64.RawURLEncoding.EncodeToString(t.Secret),
		Nonce: hex.EncodeToString([]byte(m.UUID[:16])), ServerUUID: m.UUID, Hostname: m.Name, Sysinfo: m.Sysinfo(muster.Build)})
	w.ok(err)
	w.machineSays("muster-host enrol --token -", "let in as node "+r.NodeID+"\n")
}

// pass lets time pass for control plane and command line. An operator's token
// lives for half a day: whoever comes back later logs in again.
func (w *walk) pass(d time.Duration) {
	w.stage.mu.Lock()
	w.stage.later += d
	w.stage.mu.Unlock()
	password, err := os.ReadFile(filepath.Join(w.dir, "dev", "admin.password"))
	w.ok(err)
	t, err := w.anyone().Login(w.t.Context(), muster.Login{Name: "admin", Password: strings.TrimSpace(string(password))})
	w.ok(err)
	w.vars["MUSTER_KEY"] = t.Token
}
