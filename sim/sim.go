// Package sim is imaginary hardware: machines with firmware, disks, a clock and
// a power button, around the real brains. Package host decides what such a
// machine does with its disks, package dhcp what its firmware says; nothing
// here is a model of muster.
//
// It does no I/O, reads no clock, throws no dice and starts no goroutine:
// whoever runs a machine hands it a Wire. It must never be kinder than real
// hardware: what a firmware, a disk or an operator can do wrong has a knob.
package sim

import (
	"context"
	"errors"
	"net/netip"
	"time"
)

// A Wire is everything below a firmware: the network and time.
type Wire interface {
	// DHCP sends a message and waits for an answer to it, at most patience.
	// Silence is ErrSilence.
	DHCP(ctx context.Context, message []byte, patience time.Duration) ([]byte, error)
	// TFTP reads a file from a server.
	TFTP(ctx context.Context, server netip.Addr, name string) ([]byte, error)
	// HTTP reads what a URL holds.
	HTTP(ctx context.Context, url string) ([]byte, error)
	// Sleep waits; it returns early with ctx's error.
	Sleep(ctx context.Context, d time.Duration) error
	// Say is what the machine's screen shows.
	Say(line string)
}

// ErrSilence means that nobody answered.
var ErrSilence = errors.New("nobody answered")

// A Boot is what firmware has loaded and hands the machine over to.
type Boot struct {
	Kernel, Initrd []byte
	Args           []string // the kernel's command line
}
