package linux

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// SetClock sets the system's clock.
func (m *Machine) SetClock(t time.Time) error {
	tv := unix.NsecToTimeval(t.UnixNano())
	if err := unix.Settimeofday(&tv); err != nil {
		return fmt.Errorf("the clock cannot be set: %w", err)
	}
	return nil
}

// SetHostname names the machine; without a name it keeps the one it has.
func (m *Machine) SetHostname(name string) error {
	if name == "" {
		return nil
	}
	if err := unix.Sethostname([]byte(name)); err != nil {
		return fmt.Errorf("the hostname cannot be set: %w", err)
	}
	return nil
}
