package booter

import (
	"context"
	"encoding/json"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"muster.internal"
	"muster.internal/bus"
	"muster.internal/setup"
)

// TestInstallFromAnnouncementToCompletion, with nothing in its way.
func TestInstallFromAnnouncementToCompletion(t *testing.T) {
	inLife(t, -1, 0, works, func(l *lifeTest) {
		if state, how := l.plane.now(); state != muster.Approved || l.plane.approvals != 1 || l.runs["1"] != 1 || how != `approved after ["complete"]` {
			t.Errorf("%s, %d approvals, runs %v", how, l.plane.approvals, l.runs)
		}
		if l.install.finishedMAC(macA) {
			t.Error("what the control plane has said itself need not be outranked")
		}
	})
}

// TestInstallSurvivesKill kills the booter at everything it does: before and
// after each call to the control plane, in the middle of each line of the
// journal, before each sync. It ends in an approved machine all the same, no
// script has run twice, and an operator has had to approve again at most once.
func TestInstallSurvivesKill(t *testing.T) {
	for _, down := range []time.Duration{time.Second, 10 * time.Minute, 2 * time.Hour} {
		n := 0
		for ; inLife(t, n, down, works, func(l *lifeTest) {
			if state, how := l.plane.now(); state != muster.Approved || l.plane.approvals > 2 {
				t.Errorf("killed at deed %d, back after %v: %s, %d approvals, runs %v", n, down, how, l.plane.approvals, l.runs)
			}
		}); n++ {
		}
		if n < 24 {
			t.Errorf("only %d deeds", n)
		}
		t.Logf("killed at %d deeds, back after %v", n, down)
	}
}

// TestFailingInstallSurvivesKill: the same with a script that fails at first.
func TestFailingInstallSurvivesKill(t *testing.T) {
	for n := 0; ; n++ {
		tries := 0
		died := inLife(t, n, time.Second, func(epoch int64) bus.Reply {
			if tries++; tries == 1 {
				return bus.Reply{ExitStatus: 1, Stdout: setup.FailureLine("a foreign pool is on /dev/vdb") + "\n"}
			}
			return works(epoch)
		}, func(l *lifeTest) {
			if state, how := l.plane.now(); state != muster.Approved || l.plane.approvals > 4 {
				t.Errorf("killed at deed %d: %s, %d approvals", n, how, l.plane.approvals)
			}
			if n == 0 {
				return
			}
			told := false
			for _, e := range l.plane.ends {
				told = told || e == "failed: a foreign pool is on /dev/vdb"
			}
			if !told {
				t.Errorf("killed at deed %d: the reason was lost: %q", n, l.plane.ends)
			}
		})
		if !died {
			return
		}
	}
}

// TestFinishedInstallOutranksTheRecord: the control plane goes away while the
// script runs. The booter knows how it ended, also after a restart, until the
// control plane says so itself.
func TestFinishedInstallOutranksTheRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lifeTest{t: t, plane: newInstallPlane(), journal: filepath.Join(t.TempDir(), "journal"), runs: map[string]int{}}
		ctx, cancel := context.WithCancel(context.Background())
		var work sync.WaitGroup
		l.start(-1, nil)
		away := func(down bool) {
			l.plane.mu.Lock()
			defer l.plane.mu.Unlock()
			l.plane.down = down
		}
		work.Go(func() {
			l.machine(ctx, func(epoch int64) bus.Reply { away(true); return works(epoch) })
		})
		is := func(when string, want bool) {
			t.Helper()
			synctest.Wait()
			if l.install.finishedMAC(macA) != want || l.install.finishedMAC(macB) {
				t.Errorf("%s: finished %v", when, l.install.finishedMAC(macA))
			}
		}
		time.Sleep(time.Minute)
		is("while the script runs", false)
		time.Sleep(90 * time.Second) // it ends, and the machine has not yet proved it itself
		is("when it has ended", true)
		l.kill()
		l.start(-1, nil)
		is("after a restart", true)
		away(false)
		time.Sleep(2 * time.Minute)
		is("when the control plane knows", false)
		if state, how := l.plane.now(); state != muster.Approved {
			t.Error(how)
		}
		cancel()
		work.Wait()
		l.kill()
	})
}

// TestCancelledWhileItRuns: the operator gives up on a setup whose script runs,
// the machine comes back on a new connection, and its setup is approved again.
// It is sent nothing until the first script has ended.
func TestCancelledWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lifeTest{t: t, plane: newInstallPlane(), journal: filepath.Join(t.TempDir(), "journal"), runs: map[string]int{}}
		ctx, cancel := context.WithCancel(context.Background())
		var work sync.WaitGroup
		l.start(-1, nil)
		work.Go(func() {
			l.machine(ctx, func(epoch int64) bus.Reply {
				if epoch == 1 {
					return bus.Reply{ExitStatus: 1, Stdout: setup.FailureLine("a disk is in use") + "\n"}
				}
				return works(epoch)
			})
		})
		time.Sleep(30 * time.Second)
		l.mu.Lock()
		first := l.runs["1"]
		l.mu.Unlock()
		if first != 1 {
			t.Fatalf("the first setup ran %d times", first)
		}
		l.plane.mu.Lock()
		l.plane.end(muster.AwaitingSetup, "cancelled")
		l.plane.mu.Unlock()
		reconnect := func(then time.Duration) { // the new connection is surveyed, and its setup approved
			time.Sleep(time.Second)
			l.mu.Lock()
			l.cut()
			l.mu.Unlock()
			time.Sleep(then)
		}
		reconnect(40 * time.Second)
		l.plane.mu.Lock()
		if l.plane.approvals < 2 || l.plane.ends[1] != "failed: "+whyBusy {
			t.Errorf("%d approvals, ends %q", l.plane.approvals, l.plane.ends)
		}
		l.plane.mu.Unlock()
		time.Sleep(time.Minute) // the first script ends
		reconnect(10 * time.Minute)
		synctest.Wait()
		if state, how := l.plane.now(); state != muster.Approved || l.beside != 0 || l.overtime != 0 {
			t.Errorf("%s, runs %v, %d scripts beside another", how, l.runs, l.beside)
		}
		cancel()
		work.Wait()
		l.kill()
		if len(l.bus.expected) > 0 || len(l.install.awaited) > 0 {
			t.Errorf("it still waits for %v", l.install.awaited)
		}
	})
}

// TestImpostorAfterApproval: somebody with the machine's own address takes its
// name over between approval and script. He gets nothing, the epoch is void,
// and the machine is set up by the next approval. From another address he
// gets nothing either.
func TestImpostorAfterApproval(t *testing.T) {
	for _, source := range []string{ipA, ipB} {
		synctest.Test(t, func(t *testing.T) {
			l := &lifeTest{t: t, plane: newInstallPlane(), journal: filepath.Join(t.TempDir(), "journal"), runs: map[string]int{}}
			l.plane.holdTake = true
			ctx, cancel := context.WithCancel(context.Background())
			var work sync.WaitGroup
			l.start(-1, nil)
			work.Go(func() { l.machine(ctx, works) })
			time.Sleep(10 * time.Second)
			if state, how := l.plane.now(); state != muster.SettingUp {
				t.Fatal(how)
			}
			key := publicKey()
			conn, err := bus.Dial(ctx, bus.Options{User: "muster", Password: "s3cret", UUID: uuidA, MAC: macA, Connect: l.listener.from(source)})
			if (err == nil) != (source == ipA) {
				t.Fatalf("from %s: %v", source, err)
			}
			if err == nil {
				conn.Publish("ur.sysinfo."+uuidA+".1", sysinfo(uuidA, key))
				work.Go(func() {
					for {
						d, err := conn.Next(ctx)
						if err != nil {
							return
						}
						var m bus.Message
						if json.Unmarshal(d.Body, &m); len(m.Env) > 0 || m.Script != "" && m.Script != setup.SurveyScript {
							t.Errorf("the impostor was sent %s", d.Body)
						}
					}
				})
			}
			time.Sleep(5 * time.Second)
			l.plane.mu.Lock()
			if len(l.plane.ends) == 0 || l.plane.ends[0] != "void by a newcomer" && source == ipA || l.plane.ends[0] != "void by a lost session" && source == ipB {
				t.Errorf("from %s the epoch ended by %q", source, l.plane.ends)
			}
			l.plane.holdTake = false
			l.plane.mu.Unlock()
			time.Sleep(10 * time.Second)
			if conn != nil {
				conn.Close()
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			if state, how := l.plane.now(); state != muster.Approved || l.runs["1"] != 0 || l.overtime != 0 {
				t.Errorf("from %s: %s, runs %v", source, how, l.runs)
			}
			cancel()
			work.Wait()
			l.kill()
		})
	}
}
