// Package illumos is the host's view of a SmartOS machine: what the platform's
// own sysinfo says of it, read and spelled for the control plane.
//
// It has no hands: the platform builds, imports and destroys pools itself, and
// this package must never do so. It must never pass on what sysinfo says
// without striking out the secrets that stand among its boot parameters.
package illumos

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"muster.internal"
	"muster.internal/durable"
	"muster.internal/inventory"
)

const (
	// Path is where SmartOS keeps its tools.
	Path = "/usr/bin:/usr/sbin:/sbin:/smartdc/bin:/opt/local/bin:/opt/local/sbin"
	// SysinfoVar names, in the environment, another program than SysinfoPath.
	SysinfoVar  = "MUSTER_SYSINFO"
	SysinfoPath = "/usr/bin/sysinfo"

	sysinfoTime = time.Minute
	maxSysinfo  = 5 << 20 // as much as the control plane takes
)

// What this program cannot do here.
var (
	ErrSetup  = errors.New("muster-host does not set up illumos machines: a SmartOS platform builds its own pool; nothing was changed. Boot a Linux image to have muster install this machine")
	ErrBoot   = errors.New("muster-host is the first process of Linux images alone: on illumos it is a service beside the platform's own (muster-host smf prints its manifest)")
	ErrSurvey = errors.New("sysinfo tells neither serial numbers nor what is on a disk, so that no approval to destroy may rest on it: muster-host inventory lists the disks that it names")
)

// Manifest describes the service that runs muster-host here, to SMF.
//
//go:embed muster-host.xml
var Manifest []byte

// A Machine is this machine. Make it with New; tests give it another sysinfo
// and other files.
type Machine struct {
	Log     *slog.Logger
	Sysinfo string // path of the program
	UUID    string // overrides what sysinfo says
	Root    string // where /system and /var are looked for

	said []byte // what sysinfo printed last
}

// New is the machine that this program runs on.
func New(log *slog.Logger) *Machine {
	m := &Machine{Log: log, Sysinfo: SysinfoPath, Root: "/"}
	if p := os.Getenv(SysinfoVar); p != "" {
		m.Sysinfo = p
	}
	return m
}

// Identify makes a UUID this machine's.
func (m *Machine) Identify(uuid string) { m.UUID = uuid }

// Facts asks sysinfo what this machine is. The platform's UUID follows the
// disks: the pool's stamp goes before the firmware's.
func (m *Machine) Facts() (inventory.Facts, error) {
	said, err := m.ask()
	if err != nil {
		return inventory.Facts{}, err
	}
	if m.UUID != "" {
		if said, err = inventory.Rename(said, m.UUID); err != nil {
			return inventory.Facts{}, m.odd(err)
		}
	}
	f, err := inventory.Parse(said)
	if err != nil {
		return f, m.odd(err)
	}
	if !muster.ValidHostname(f.Hostname) {
		f.Hostname = "" // the control plane chooses one
	}
	m.said = said
	return f, nil
}

func (m *Machine) odd(err error) error {
	return fmt.Errorf("what %s says of this machine cannot be used: %w", m.Sysinfo, err)
}

// ask runs sysinfo.
func (m *Machine) ask() ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), sysinfoTime)
	defer cancel()
	out, bad := &capped{limit: maxSysinfo}, &capped{limit: 4 << 10}
	cmd := exec.CommandContext(ctx, m.Sysinfo)
	cmd.Env = []string{"PATH=" + Path, "LC_ALL=C"}
	cmd.Stdout, cmd.Stderr = out, bad
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no %s: muster-host knows SmartOS alone, not every illumos (%s names another program)", m.Sysinfo, SysinfoVar)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s did not answer within %v", m.Sysinfo, sysinfoTime)
	case err != nil:
		return nil, fmt.Errorf("%s failed: %v: %.400s", m.Sysinfo, err, strings.Join(strings.Fields(inventory.RedactLine(bad.kept.String())), " "))
	}
	return out.kept.Bytes(), nil
}

// A capped keeps the beginning, and one byte more than its limit, so that who
// reads it sees that there was more.
type capped struct {
	kept  bytes.Buffer // not embedded: its ReadFrom would take everything
	limit int
}

func (c *capped) Write(p []byte) (int, error) {
	if room := c.limit + 1 - c.kept.Len(); room > 0 {
		c.kept.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}

// Devices lists the disks that sysinfo names: by size alone, but for those
// whose device name holds their WWN.
func (m *Machine) Devices() ([]muster.Disk, error) {
	f, err := m.Facts()
	return f.Disks, err
}

// Disks is the same: sysinfo says nothing of what is on them.
func (m *Machine) Disks() ([]muster.Disk, error) { return m.Devices() }

// Survey fails: what sysinfo says is not enough to destroy by.
func (m *Machine) Survey() ([]muster.Disk, error) { return nil, ErrSurvey }

// Describe is what sysinfo said, under the UUID of the facts and without
// secrets, with the part that our own host adds.
func (m *Machine) Describe(f inventory.Facts) (json.RawMessage, error) {
	return inventory.Extend(m.said, f)
}

// Where the loader's file is found, and where the platform looks for the
// configuration of a machine that has none of its own.
const (
	bootConfig = "system/boot/node.config"
	nodeConfig = "var/tmp/node.config/node.config"
)

// Await looks again after a minute.
func (m *Machine) Await(ctx context.Context, _ string) error {
	select {
	case <-time.After(time.Minute):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Prepare puts the node.config that came with the boot where the platform's
// config.sh reads it. A machine that was set up has one of its own, which goes
// before this one and is left alone.
func (m *Machine) Prepare() error {
	b, err := os.ReadFile(filepath.Join(m.Root, bootConfig))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was not booted from here, or for a rescue
	}
	if err == nil {
		err = durable.Replace(filepath.Join(m.Root, nodeConfig), b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("the node.config of this boot was not put in place: %w", err)
	}
	return nil
}

// Profile is what the running system is made of.
func (m *Machine) Profile() inventory.Profile {
	p := inventory.Profile{Arch: runtime.GOARCH, OS: "smartos", ServiceManager: "smf", Pools: "openzfs"}
	if _, err := os.Stat(filepath.Join(m.Root, "opt/local/bin/pkgin")); err == nil {
		p.PackageManager = "pkgin"
	}
	said, err := m.ask()
	if err != nil {
		m.Log.Warn("the profile is not whole", "error", err)
		return p
	}
	var info struct {
		Image        string `json:"Live Image"`
		Manufacturer string
		Product      string
	}
	if json.Unmarshal(said, &info) == nil {
		p.OSVersion = info.Image
		p.Virtualised = virtual[info.Manufacturer] || strings.Contains(info.Product, "HVM") || strings.HasPrefix(info.Product, "VMware")
	}
	return p
}

// virtual are the manufacturers that virtual machines name.
var virtual = map[string]bool{"QEMU": true, "Bochs": true, "VMware, Inc.": true, "innotek GmbH": true, "Joyent": true, "Xen": true}
