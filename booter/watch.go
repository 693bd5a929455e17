package booter

import (
	"sync"
	"time"

	"muster.internal/boot"
	"muster.internal/dhcp"
)

// A watch is boot.Watch for all the protocols at once.
type watch struct {
	mu sync.Mutex
	w  *boot.Watch
}

func newWatch() *watch { return &watch{w: boot.NewWatch()} }

func (w *watch) Asked(d *boot.Decision, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.w.Asked(d, now)
}

func (w *watch) Fetched(m dhcp.MAC, s boot.Stage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.w.Fetched(m, s)
}

func (w *watch) Served(d *boot.Decision, xid uint32, now time.Time) boot.Loop {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Served(d, xid, now)
}

func (w *watch) Loop(m dhcp.MAC, mode boot.Mode, image string, now time.Time) boot.Loop {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Loop(m, mode, image, now)
}

func (w *watch) All(now time.Time) map[dhcp.MAC]boot.Loop {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.All(now)
}
