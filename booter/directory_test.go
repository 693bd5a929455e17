package booter

import (
	"testing"

	"muster.internal"
	"muster.internal/dhcp"
)

func record(mac string, state muster.BootState, seq int64) muster.BootRecord {
	return muster.BootRecord{MAC: mac, State: state, Mode: muster.NormalMode, Seq: seq}
}

func TestDirectoryFollowsTheFeed(t *testing.T) {
	d := newDirectory()
	before := d.Changed()
	if odd := d.Apply(0, muster.BooterFeed{Seq: 7, Records: []muster.BootRecord{
		record("52:54:00:77:00:a1", muster.Discovered, 5), record("52:54:00:77:00:a2", muster.Enrolled, 7), record("nonsense", muster.Enrolled, 6)},
		Installs: []muster.Install{{ServerUUID: "u", Epoch: 1}}}); len(odd) != 1 {
		t.Errorf("odd records %v", odd)
	}
	select {
	case <-before:
	default:
		t.Error("the change was not told")
	}
	if r, ok := d.Record("52-54-00-77-00-A1"); !ok || r.State != muster.Discovered {
		t.Errorf("%+v %v", r, ok)
	}
	// The answer to a sighting runs ahead of the feed, which must not undo it.
	d.Learn([]muster.BootRecord{record("52:54:00:77:00:a1", muster.Enrolling, 9)})
	d.Apply(7, muster.BooterFeed{Seq: 8, Records: []muster.BootRecord{record("52:54:00:77:00:a1", muster.Discovered, 8)}})
	if r, _ := d.Record("52:54:00:77:00:a1"); r.State != muster.Enrolling {
		t.Errorf("an older record won: %+v", r)
	}
	if len(d.Installs()) != 0 || d.Seq() != 8 {
		t.Errorf("installs %v, seq %d: every answer holds all installs", d.Installs(), d.Seq())
	}
	// An answer without news wakes nobody.
	quiet := d.Changed()
	d.Apply(8, muster.BooterFeed{Seq: 9})
	select {
	case <-quiet:
		t.Error("nothing changed, and everybody was woken")
	default:
	}
	// The answer to 0 replaces everything.
	d.Apply(0, muster.BooterFeed{Seq: 20, Records: []muster.BootRecord{record("52:54:00:77:00:a3", muster.Enrolled, 3)}})
	if _, ok := d.Record("52:54:00:77:00:a1"); ok {
		t.Error("a record outlived a whole answer")
	}
}

func TestDirectoryFromCacheResumesNoInstall(t *testing.T) {
	d := newDirectory()
	d.Apply(0, muster.BooterFeed{Seq: 7, Records: []muster.BootRecord{record("52:54:00:77:00:a2", muster.Enrolled, 7)},
		Installs: []muster.Install{{ServerUUID: "u", Epoch: 1}}})
	e := newDirectory()
	e.restore(d.snapshot())
	if _, ok := e.Record("52:54:00:77:00:a2"); !ok || len(e.Installs()) != 0 || e.Live() {
		t.Errorf("record %v, installs %v, live %v", ok, e.Installs(), e.Live())
	}
}

func TestLookupMakesNoGarbage(t *testing.T) {
	d := newDirectory()
	d.Apply(0, muster.BooterFeed{Records: []muster.BootRecord{record("52:54:00:77:00:a2", muster.Enrolled, 7)}})
	m := dhcp.MAC{0x52, 0x54, 0, 0x77, 0, 0xa2}
	if n := testing.AllocsPerRun(100, func() {
		if d.lookup(m) == nil {
			t.Fatal("not found")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
