package boot

import (
	"testing"
	"time"

	"muster.internal"
	"muster.internal/dhcp"
)

// A ride drives a watch through boots of one machine, by the decisions that a
// booter would take.
type ride struct {
	t   *testing.T
	w   *Watch
	now time.Time
	rec *muster.BootRecord
	xid uint32
}

func newRide(t *testing.T) *ride {
	return &ride{t: t, w: NewWatch(), now: now, rec: rec(muster.Enrolled)}
}

func (r *ride) decide(q Request) Decision {
	e := env(linuxImage("enroll-1", "a"), linuxImage("node-1", "b"), linuxImage("node-2", "c"))
	e.Now = r.now
	e.Loop = r.w.Loop
	return Decide(q, NewMachine(r.rec), NewPolicy(policy()), e)
}

// ask is a whole DHCP exchange, its DISCOVER repeated; false: silence.
func (r *ride) ask(ipxe bool) bool {
	r.xid++
	q := discover(7)
	q.IPXE = ipxe
	for range 4 {
		d := r.decide(q)
		r.w.Asked(&d, r.now)
		if !d.Serve {
			return false
		}
	}
	q.Type = dhcp.Request
	for range 2 {
		d := r.decide(q)
		r.w.Asked(&d, r.now)
		if d.Stage == Start {
			r.w.Served(&d, r.xid, r.now)
		}
	}
	return true
}

func (r *ride) fetch(via Via, s Stage) bool {
	if via == HTTP {
		r.w.Fetched(mac, s)
	}
	d := r.decide(Request{Via: via, MAC: mac, Want: s})
	if d.Serve {
		r.w.Served(&d, 0, r.now)
	}
	return d.Serve
}

// boot goes as far as the given stage; false: it was refused something.
func (r *ride) boot(upTo Stage) bool {
	r.t.Helper()
	ok := r.ask(false) && r.fetch(TFTP, Loader)
	if upTo >= Start {
		ok = ok && r.ask(true)
	}
	if upTo >= Script {
		ok = ok && r.fetch(HTTP, Start) && r.fetch(HTTP, Script)
	}
	if upTo >= File {
		ok = ok && r.fetch(HTTP, File)
	}
	return ok
}

func (r *ride) boots(n int, upTo Stage, each time.Duration) (served int) {
	for range n {
		if r.boot(upTo) {
			served++
		}
		r.now = r.now.Add(each)
	}
	return served
}

func TestLoops(t *testing.T) {
	tests := []struct {
		name   string
		upTo   Stage
		served int // of 20 boots a minute apart
	}{
		{"a machine that restarts often", File, 20},
		{"a loader that never asks for more", Loader, 6}, // five, and one more after the pause
		{"an iPXE that fetches no script", Start, 6},
		{"a script by which nothing boots", Script, 9},
	}
	for _, tt := range tests {
		r := newRide(t)
		if got := r.boots(20, tt.upTo, time.Minute); got != tt.served {
			t.Errorf("%s: %d of 20 boots were served, want %d", tt.name, got, tt.served)
		}
	}
}

func TestLoopIsTold(t *testing.T) {
	r := newRide(t)
	r.boots(6, Loader, time.Minute)
	q := discover(7)
	d := r.decide(q)
	if d.Serve || d.Reason != Looping || d.Rule != RuleLoop || d.Loop.Stage != Loader || d.Loop.Count != 5 || len(r.w.All(r.now)) != 1 {
		t.Fatalf("%+v", d)
	}
	t.Log(d.Why())
	// What holds an address keeps it, and what is fetching files goes on.
	q.Type, q.Class, q.Claimed = dhcp.Request, dhcp.OtherClass, d.Address.Addr()
	if d := r.decide(q); !d.Serve || d.Stage != Address {
		t.Errorf("a renewal: %s", d.Why())
	}
	if d := r.decide(Request{Via: HTTP, MAC: mac, Want: File}); !d.Serve {
		t.Errorf("a file: %s", d.Why())
	}
	// Another image is another try at once.
	r.rec.AssignedPI = &muster.ImageRef{Name: "node-2", Digest: digest("c")}
	if !r.boot(Loader) {
		t.Error("another image is held back by the old one's loop")
	}
}

// TestScriptOverAndOver: a kernel that fails sends iPXE back to the script
// without a new DHCP exchange, however often its files are fetched.
func TestScriptOverAndOver(t *testing.T) {
	r := newRide(t)
	r.ask(true)
	n := 0
	for range 30 {
		if r.fetch(HTTP, Start) && r.fetch(HTTP, Script) && r.fetch(HTTP, File) {
			n++
		}
		r.now = r.now.Add(10 * time.Second)
	}
	if n != 8 {
		t.Errorf("served %d times", n)
	}
}

// TestDownloadsAreNoLoop: one exchange, many transfers of one file.
func TestDownloadsAreNoLoop(t *testing.T) {
	r := newRide(t)
	r.ask(false)
	for range 100 {
		if !r.fetch(TFTP, Loader) {
			t.Fatal("refused")
		}
	}
}

func TestWatchForgets(t *testing.T) {
	w := NewWatch()
	d := Decision{Serve: true, Stage: Loader}
	for i := range watched + 5 {
		d.MAC = dhcp.MAC{2, 0, byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)}
		w.Asked(&d, now.Add(time.Duration(i)*time.Second))
	}
	if n := len(w.courses); n > watched {
		t.Errorf("%d machines are remembered", n)
	}
	n := testing.AllocsPerRun(100, func() { w.Asked(&d, now); w.Served(&d, 0, now) })
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestWatchOfManyMachines: when all that are watched are under way nothing can be
// forgotten, and not each that comes may search them all for it.
func TestWatchOfManyMachines(t *testing.T) {
	w := NewWatch()
	d := Decision{Serve: true, Stage: Loader}
	boot := func(i int, now time.Time) {
		d.MAC = dhcp.MAC{2, 0, byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)}
		w.Asked(&d, now)
		w.Served(&d, 0, now)
	}
	const many = watched + 10
	for i := range many {
		boot(i, now)
	}
	if n := len(w.courses); n != many {
		t.Errorf("%d of %d machines are remembered", n, many)
	}
	if w.room < 2*watched {
		t.Errorf("there is room for %d: every machine that comes searches all", w.room)
	}
	for i := many; i <= 2*watched; i++ {
		boot(i, now.Add(2*loopPause))
	}
	if n := len(w.courses); n > watched {
		t.Errorf("later %d machines are remembered", n)
	}
}
