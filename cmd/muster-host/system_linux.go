package main

import (
	"context"
	"encoding/json"
	"log/slog"

	"muster.internal"
	"muster.internal/inventory"
	"muster.internal/linux"
)

// toolPath is where this system keeps its tools.
const toolPath = linux.Path

// systemUsage are the commands that only this system has.
const systemUsage = `  apply FILE what a declaration says, JSON or YAML, by hand (--dry-run shows it)
  owned      what this host answers for on this machine
  restore    an adopted file as it was found
  adopt      resolve what was adopted and is not as declared: take or keep
  reconcile  what the control plane declared last, now (--dry-run shows it);
             without one, raise one from the bundle that this machine carries
  briefing   how the last apply went, resource by resource
  rollback   look whether the installed version may be tried (run by the unit)
  setup      do the setup that the environment describes (sent over the boot bus)
`

var systemCommands = map[string]func(context.Context, *env) error{
	"setup": doSetup, "apply": applyFile, "owned": owned, "restore": restore,
	"adopt": adopt, "reconcile": reconcile, "briefing": briefing,
	"rollback": rollBack,
}

func newMachine(log *slog.Logger) system { return onLinux{linux.New(log)} }

// onLinux is a Linux machine.
type onLinux struct{ *linux.Machine }

// Devices and Disks say which machine this is; Survey only what there is.
func (m onLinux) Devices() ([]muster.Disk, error) {
	disks, err := linux.ReadDisks(m.Sys, m.Proc, m.Dev)
	return m.Evident(disks), err
}

func (m onLinux) Disks() ([]muster.Disk, error) {
	disks, err := m.Machine.Disks()
	return m.Evident(disks), err
}

func (m onLinux) Survey() ([]muster.Disk, error) { return m.Machine.Disks() }
func (m onLinux) Identify(uuid string)           { m.UUID = uuid }
func (m onLinux) Prepare() error                 { return nil }

func (m onLinux) Await(ctx context.Context, file string) error { return linux.Await(ctx, file) }

func (m onLinux) Describe(f inventory.Facts) (json.RawMessage, error) {
	return inventory.Redact(f.Sysinfo())
}

// linux is the machine with all that only Linux can do.
func (e *env) linux() *linux.Machine { return e.machine.(onLinux).Machine }
