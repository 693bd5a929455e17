package control

import (
	"context"
	"fmt"
	"time"

	"muster.internal"
	"muster.internal/store"
)

func (s session) BootRecords(ctx context.Context, f muster.BootFilter) ([]muster.BootRecord, error) {
	return s.store.BootRecords(ctx, f)
}

func (s session) BootRecord(ctx context.Context, mac string) (muster.BootRecord, error) {
	return s.store.BootRecord(ctx, mac)
}

func (s session) SetBootRecord(ctx context.Context, mac string, c muster.BootChange) (muster.BootRecord, error) {
	return s.store.SetBootRecord(ctx, s.now(), s.by, mac, c)
}

func (s session) RaiseBootRecord(ctx context.Context, mac string, e muster.Event) (muster.BootRecord, error) {
	return s.store.RaiseBootRecord(ctx, s.now(), s.by, mac, e)
}

func (s session) BootPolicy(ctx context.Context) (muster.BootPolicy, error) {
	return s.store.BootPolicy(ctx)
}

func (s session) SetBootPolicy(ctx context.Context, p muster.BootPolicy) (muster.BootPolicy, error) {
	return s.store.SetBootPolicy(ctx, s.now(), s.by, p)
}

// Sight checks what a booter reports, whole: a sighting that cannot be read is
// the booter's mistake, and its name is told.
func (s session) Sight(ctx context.Context, booter string, seen []muster.Sighting) ([]muster.BootRecord, error) {
	if err := checkBooter(booter); err != nil {
		return nil, err
	}
	for i, v := range seen {
		at := fmt.Sprintf("sightings[%d]", i)
		if _, err := muster.ParseMAC(v.MAC); err != nil {
			return nil, muster.Invalid(at+".mac", "%v", err)
		}
		for field, text := range map[string]string{"interface": v.Interface, "giaddr": v.Giaddr, "circuit_id": v.CircuitID, "class": v.Class} {
			if err := checkText(at+"."+field, text); err != nil {
				return nil, err
			}
		}
		if v.Arch < 0 || v.Arch > 0xffff {
			return nil, muster.Invalid(at+".arch", "%d is no DHCP option 93", v.Arch)
		}
	}
	rs, err := s.store.Sight(ctx, s.now(), s.by, booter, seen)
	if err != nil {
		return nil, err
	}
	return rs, s.store.MarkPasswords(ctx, rs)
}

func checkBooter(name string) error {
	if !muster.ValidStamp(name) {
		return muster.Invalid("booter", "a booter's name is 1 to 64 letters, digits, dots, hyphens or underscores")
	}
	return nil
}

// Feed answers at once when there is news, else when there is or wait is over.
// When the server shuts down, or the booter goes, it answers what there is.
func (s session) Feed(ctx context.Context, booter string, after int64, wait time.Duration) (muster.BooterFeed, error) {
	if err := checkBooter(booter); err != nil {
		return muster.BooterFeed{}, err
	}
	if after > 0 { // it has followed so far, by its own word
		s.store.Followed(s.now(), booter, after)
	}
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	f, err := s.store.BooterFeed(ctx, after)
	if err == nil && wait > 0 && f.Seq == after {
		if err = s.store.Wait(waiting, after); err == nil && ctx.Err() == nil {
			f, err = s.store.BooterFeed(ctx, after)
		}
	}
	return f, err
}

// Bounds of a booter's report.
const (
	maxReported = 1000
	maxErrors   = 64
	maxSessions = 10_000
)

func (s session) ReportBooter(ctx context.Context, b muster.BooterStatus) error {
	if len(b.Staged) > maxReported || len(b.Counters) > maxReported || len(b.Errors) > maxErrors || len(b.OtherServers) > maxErrors || len(b.Loops) > maxReported {
		return muster.Invalid("staged", "a report holds up to %d images, counters and loops, and %d errors and servers", maxReported, maxErrors)
	}
	if len(b.Sessions) > maxSessions {
		return muster.Invalid("sessions", "a report holds up to %d bus sessions", maxSessions)
	}
	return s.store.ReportBooter(ctx, s.now(), s.by, b)
}

// RemoveBooter is refused until booters had the time to speak: which of them are
// gone is not known before.
func (s session) RemoveBooter(ctx context.Context, name string) error {
	if up := s.now().Sub(s.opened); up < store.BooterSilence {
		return muster.Problemf(muster.CodeConflict, "the control plane has been up for %s: which booters still report is known %s after its start; try again then", up.Round(time.Second), store.BooterSilence)
	}
	return s.store.RemoveBooter(ctx, s.now(), s.by, name)
}

func (s session) Booters(ctx context.Context) ([]muster.BooterStatus, error) {
	return s.store.Booters(ctx)
}
