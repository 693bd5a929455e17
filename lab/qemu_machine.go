package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"muster.internal"
)

// A MachineSpec is the hardware of a virtual machine.
type MachineSpec struct {
	Name     string
	Firmware Firmware
	UUID     string
	Serial   string
	MAC      string
	PoolKind muster.PoolKind // of the pool that it is to get; default: the usual one of its architecture
	MemoryMB int             // default 512
	Disks    []int64         // sizes in bytes
	Lifetime time.Duration   // after which it is cut off for good; default 30 minutes
}

// A Machine is a virtual machine on a segment. It may be switched on and off
// as often as one likes; its disks stay.
type Machine struct {
	MachineSpec
	Dir string

	seg *Segment
	tap string

	*Transcript // of the serial console; times count from power-on

	mu      sync.Mutex
	cmd     *exec.Cmd
	exited  chan struct{}
	monitor *qmp
}

// NewMachine makes a machine's disks and plugs it in, switched off.
func (s *Segment) NewMachine(ctx context.Context, dir string, spec MachineSpec) (*Machine, error) {
	if spec.MemoryMB == 0 {
		spec.MemoryMB = 512
	}
	if spec.Lifetime == 0 {
		spec.Lifetime = 30 * time.Minute
	}
	m := &Machine{MachineSpec: spec, Dir: filepath.Join(dir, spec.Name), seg: s, Transcript: newTranscript(spec.Name)}
	if err := os.MkdirAll(m.Dir, 0o755); err != nil {
		return nil, err
	}
	for n, size := range spec.Disks {
		f, err := os.OpenFile(m.Disk(n), os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return nil, err
		}
		err = f.Truncate(size)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
	}
	err := spec.Firmware.writeNVRAM(m.path("nvram"))
	if err != nil {
		return nil, err
	}
	m.tap, err = s.Tap(ctx)
	return m, err
}

// Pool is the kind of pool that it is to get. Debian has zfs-fuse for amd64, and
// for arm64 only btrfs.
func (m *Machine) Pool() muster.PoolKind {
	if m.PoolKind != "" {
		return m.PoolKind
	}
	if m.Firmware.board().arch == "arm64" {
		return muster.Btrfs
	}
	return muster.ZFS
}

func (m *Machine) path(name string) string { return filepath.Join(m.Dir, name) }

// Disk is the file that is the machine's n-th disk, counted from 0, sector by
// sector.
func (m *Machine) Disk(n int) string { return m.path(fmt.Sprintf("disk%d.raw", n)) }

// Wire is the file that everything is written to that has crossed the machine's
// network card since it was switched on: a packet capture.
func (m *Machine) Wire() string { return m.path("wire.pcap") }

// Console is the file that everything from the serial line is written to.
func (m *Machine) Console() string { return m.path("console.log") }

func (m *Machine) args() []string {
	a := []string{"-name", m.Name, "-accel", "tcg", "-m", fmt.Sprint(m.MemoryMB),
		"-nodefaults", "-serial", "stdio", "-chardev", "socket,id=monitor,fd=3", "-mon", "chardev=monitor,mode=control",
		"-uuid", m.UUID,
		"-smbios", "type=1,manufacturer=QEMU,product=muster-lab,serial=" + m.Serial + ",uuid=" + m.UUID,
		"-netdev", "tap,id=n0,ifname=" + m.tap + ",script=no,downscript=no,vnet_hdr=off",
		"-object", "filter-dump,id=wire,netdev=n0,file=" + filepath.Base(m.Wire()),
		"-device", "virtio-rng-pci"}
	nic := "virtio-net-pci,netdev=n0,bootindex=1,mac=" + m.MAC
	if m.Firmware != BIOS {
		nic += ",romfile=" // so that the firmware's own network boot is what asks
	}
	a = append(append(a, m.Firmware.options()...), "-device", nic)
	for n := range m.Disks {
		a = append(a, "-drive", fmt.Sprintf("if=none,id=d%d,format=raw,file=%s", n, filepath.Base(m.Disk(n))),
			"-device", fmt.Sprintf("virtio-blk-pci,drive=d%d,serial=%s", n, m.DiskSerial(n)))
	}
	return a
}

// DiskSerial is the serial number of the machine's n-th disk.
func (m *Machine) DiskSerial(n int) string { return fmt.Sprintf("%s-D%d", m.Serial, n) }

// PowerOn starts the machine. Times on its console count from here.
func (m *Machine) PowerOn() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cmd != nil {
		return fmt.Errorf("%s is on already", m.Name)
	}
	log, err := os.OpenFile(m.Console(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	monitor, theirs, err := newQMP()
	if err != nil {
		log.Close()
		return err
	}
	defer theirs.Close()
	c := exec.Command(m.Firmware.board().qemu, m.args()...)
	c.Dir = m.Dir // its options cannot carry every path: a comma ends one
	c.ExtraFiles = []*os.File{theirs}
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	var complaints strings.Builder
	c.Stderr = &complaints
	m.begin(time.Now(), log)
	if err := m.seg.Start(c); err != nil {
		log.Close()
		return fmt.Errorf("switching %s on: %w", m.Name, err)
	}
	exited := make(chan struct{})
	m.cmd, m.exited, m.monitor = c, exited, monitor
	limit := time.AfterFunc(m.Lifetime, func() { c.Process.Kill() })
	go func() {
		io.Copy(m, out)
		c.Wait()
		limit.Stop()
		if s := strings.TrimSpace(complaints.String()); s != "" {
			m.Write([]byte("\nQEMU: " + s + "\n"))
		}
		m.mu.Lock()
		m.monitor.conn.Close()
		m.cmd, m.monitor = nil, nil
		m.mu.Unlock()
		m.end("is off")
		log.Close()
		close(exited)
	}()
	return nil
}

// Cut takes the power away, in the middle of whatever the machine does.
func (m *Machine) Cut() {
	m.mu.Lock()
	c, exited := m.cmd, m.exited
	m.mu.Unlock()
	if c == nil {
		return
	}
	c.Process.Kill()
	<-exited
}

// Reset presses the reset button.
func (m *Machine) Reset() error { return m.command("system_reset") }

// PowerDown presses the power button, and waits until the machine is off.
func (m *Machine) PowerDown(ctx context.Context) error {
	m.mu.Lock()
	exited := m.exited
	m.mu.Unlock()
	if err := m.command("system_powerdown"); err != nil {
		return err
	}
	select {
	case <-exited:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s does not switch itself off: %w%s", m.Name, ctx.Err(), m.Tail())
	}
}

// Freeze stops the machine's processors, and Thaw lets them go on: to the
// network it looks like a machine that has lost its way for a while.
func (m *Machine) Freeze() error { return m.command("stop") }

// Thaw ends a freeze.
func (m *Machine) Thaw() error { return m.command("cont") }

func (m *Machine) command(c string) error {
	q, err := m.qmp()
	if err != nil {
		return err
	}
	return q.do(c, nil)
}

// PlugDisk puts another disk into the running machine, and waits until its
// driver has taken it. It stays until the power goes.
func (m *Machine) PlugDisk(ctx context.Context, file, serial string) error {
	q, err := m.qmp()
	if err != nil {
		return err
	}
	if err := q.do("blockdev-add", map[string]any{"driver": "raw", "node-name": "more", "file": map[string]any{"driver": "file", "filename": file}}); err != nil {
		return err
	}
	if err := q.do("device_add", map[string]any{"driver": "virtio-blk-pci", "id": "more", "drive": "more", "serial": serial}); err != nil {
		return err
	}
	for {
		st, err := q.ask("x-query-virtio-status", map[string]any{"path": "/machine/peripheral/more/virtio-backend"})
		if err != nil || strings.Contains(string(st), "DRIVER_OK") {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not take the disk: %w%s", m.Name, ctx.Err(), m.Tail())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (m *Machine) qmp() (*qmp, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cmd == nil {
		return nil, fmt.Errorf("%s is off", m.Name)
	}
	return m.monitor, nil
}

// On tells whether the machine runs.
func (m *Machine) On() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cmd != nil
}
