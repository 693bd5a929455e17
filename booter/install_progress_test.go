package booter

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"muster.internal"
	"muster.internal/bus"
	"muster.internal/setup"
)

// progressed is what the control plane was told of an install, line by line.
func (f *fakeControl) progressed() (lines []string, batches int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.heard {
		if s.what != "progress" {
			continue
		}
		batches++
		for _, p := range s.p.Steps {
			lines = append(lines, fmt.Sprintf("%s %d %s", p.Step, p.Percent, p.Text))
		}
	}
	return lines, batches
}

// installing is a bus with an installer whose one machine is approved.
func installing(t *testing.T, l *pipeListener) (b *testBus, approve func(session string)) {
	b = serveBus(t, l, busOptions{}, newFakeControl())
	b.control.survey = false
	b.control.take = func(string, muster.TakeRequest) (muster.TakenBundle, error) {
		return muster.TakenBundle{Epoch: 4, Script: setup.Script, Env: map[string]string{setup.EnvEpoch: "4"}}, nil
	}
	i, err := newInstaller(installerOptions{Journal: filepath.Join(t.TempDir(), "journal"), Machines: b.dir, Bus: b.Bus, Control: b.control,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), disk: quickDisk()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); i.Run(ctx) }()
	stop := b.stop
	b.stop = func() { cancel(); <-done; stop() }
	return b, func(session string) {
		b.dir.Apply(1, muster.BooterFeed{Seq: 2, Installs: []muster.Install{{ServerUUID: uuidA, Epoch: 4, Session: session, Deadline: time.Now().Add(muster.SetupDeadline)}}})
	}
}

// TestProgressIsTold: in batches, in order, before the end; and only what the
// connection that runs the install says, of its own epoch.
func TestProgressIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipeListener()
		b, approve := installing(t, l)
		defer func() { b.stop() }()
		other, err := bus.Dial(t.Context(), b.piped(l, uuidB, macB, ipB))
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		twin, err := bus.Dial(t.Context(), b.piped(l, uuidA, macB, ipB)) // the same UUID, another machine
		if err != nil {
			t.Fatal(err)
		}
		defer twin.Close()
		twin.Publish("ur.sysinfo."+uuidA+".1", sysinfo(uuidA, keyB))
		var a *bus.Agent
		m := b.machine(t, b.piped(l, uuidA, macA, ipA), keyA, func(msg bus.Message) bus.Reply {
			for n := 1; n <= 4; n++ {
				a.Progress(msg.ID, setup.Progress{Epoch: 4, Step: fmt.Sprintf("s%d", n), Percent: 20 * n, Text: "step\x1b[31m"})
				time.Sleep(time.Second)
			}
			a.Progress(msg.ID, setup.Progress{Epoch: 3, Step: "old"})
			a.Progress(msg.ID, setup.Progress{Epoch: 4, Step: "NO"})
			a.Progress("1", setup.Progress{Epoch: 4, Step: "who"})
			for _, c := range []*bus.Conn{other, twin} {
				c.Publish("ur.progress."+uuidA+"."+msg.ID, []byte(`{"epoch":4,"step":"forged","percent":99}`))
				c.Publish("ur.progress."+uuidB+"."+msg.ID, []byte(`{"epoch":4,"step":"forged","percent":99}`))
			}
			a.Progress(msg.ID, setup.Progress{Epoch: 4, Percent: 80, Text: "the last word"})
			time.Sleep(time.Millisecond)
			return bus.Reply{ExitStatus: 1, Stdout: setup.FailureLine("no luck") + "\n", Stderr: "zpool: a reason\n"}
		})
		a = m.agent
		session := b.control.await(t, "announce", func(s said) bool { return s.a.MAC == macA }).session
		approve(session)
		b.control.await(t, "failed", nil)
		lines, batches := b.control.progressed()
		want := "sent 0 the script was sent to " + macA + "; s1 20 step [31m; s2 40 step [31m; s3 60 step [31m; s4 80 step [31m;  80 the last word"
		if got := strings.Join(lines, "; "); got != want || batches < 4 || batches > 6 {
			t.Errorf("%d batches: %s\nwant %s", batches, got, want)
		}
		if n := b.Counters()["bus_refused_progress"]; n != 5 { // other epoch, no step, another request, twin, other
			t.Errorf("%d refused: %v", n, b.Counters())
		}
		b.control.mu.Lock()
		last := b.control.heard[len(b.control.heard)-1]
		b.control.mu.Unlock()
		if last.what != "failed" || last.o.Stderr != "zpool: a reason\n" || !strings.Contains(last.o.Stdout, "no luck") {
			t.Errorf("at the end %+v", last)
		}
		m.stop()
	})
}

// TestSilentAgent: of a machine that tells nothing there is what we know.
func TestSilentAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipeListener()
		b, approve := installing(t, l)
		defer func() { b.stop() }()
		m := b.machine(t, b.piped(l, uuidA, macA, ipA), keyA, func(bus.Message) bus.Reply {
			time.Sleep(20 * time.Minute)
			return bus.Reply{ExitStatus: 1}
		})
		session := b.control.await(t, "announce", nil).session
		began := time.Now().UTC()
		approve(session)
		time.Sleep(time.Minute)
		lines, _ := b.control.progressed()
		if len(lines) != 2 || !strings.HasPrefix(lines[0], "sent 0 ") || !strings.HasPrefix(lines[1], "running 0 the script runs since "+began.Format(time.TimeOnly)) {
			t.Errorf("told %q", lines)
		}
		m.stop()
	})
}

// TestProgressIsBounded: the lines are bounded, steps outlive
// other lines, and what is missing is counted.
func TestProgressIsBounded(t *testing.T) {
	ps := newProgresses()
	for n := range 5000 {
		s := muster.SetupStep{Text: fmt.Sprint(n)}
		if n%100 == 0 {
			s.Step = "step"
		}
		ps.add(uuidA, 1, "s", s)
	}
	b := ps.take(uuidA)
	ps.add(uuidA, 1, "s", muster.SetupStep{Text: "later"})
	ps.giveBack(uuidA, b)
	b = ps.take(uuidA)
	steps := 0
	for _, s := range b.Steps {
		if s.Step != "" {
			steps++
		}
	}
	if len(b.Steps) != progressHeld || len(b.Steps)+b.Dropped != 5001 || steps != 50 || b.Steps[len(b.Steps)-1].Text != "later" {
		t.Errorf("%d lines, %d steps, %d left out, the last is %q", len(b.Steps), steps, b.Dropped, b.Steps[len(b.Steps)-1].Text)
	}
	ps.add(uuidA, 2, "s2", muster.SetupStep{Text: "x"})
	ps.add(uuidA, 1, "s", muster.SetupStep{Text: "of an epoch that is over"})
	if b := ps.take(uuidA); b.Epoch != 2 || len(b.Steps) != 1 {
		t.Errorf("%+v", b)
	}
}
