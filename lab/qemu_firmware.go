package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Firmware is what a virtual machine starts from.
type Firmware string

const (
	BIOS      Firmware = "bios"       // SeaBIOS, with iPXE as the network card's ROM
	UEFI      Firmware = "uefi"       // OVMF with its own PXE, which loads iPXE
	UEFIHTTP  Firmware = "uefi-http"  // OVMF with its own HTTP boot, which loads iPXE
	ARM64     Firmware = "arm64"      // AAVMF with its own PXE, which loads iPXE
	ARM64HTTP Firmware = "arm64-http" // AAVMF with its own HTTP boot, which loads iPXE
)

// Firmwares are all kinds, in the order in which help names them.
var Firmwares = []Firmware{BIOS, UEFI, UEFIHTTP, ARM64, ARM64HTTP}

// A board is what QEMU makes for a kind of firmware.
type board struct {
	arch       string // as Go spells it
	qemu       string
	options    []string
	code, vars string // of UEFI: the firmware, and the empty store of its settings
}

var (
	x64 = board{arch: "amd64", qemu: "qemu-system-x86_64", options: []string{"-machine", "q35,smm=off", "-cpu", "max"},
		code: "/usr/share/OVMF/OVMF_CODE_4M.fd", vars: "/usr/share/OVMF/OVMF_VARS_4M.fd"}
	// Without graphics SeaBIOS and iPXE speak on the serial line; when the
	// network gave nothing to boot, try again instead of halting.
	pc = board{arch: "amd64", qemu: "qemu-system-x86_64",
		options: []string{"-machine", "pc,graphics=off", "-cpu", "max", "-vga", "none", "-boot", "reboot-timeout=3000"}}
	virt = board{arch: "arm64", qemu: "qemu-system-aarch64", options: []string{"-machine", "virt", "-cpu", "cortex-a57"},
		code: "/usr/share/AAVMF/AAVMF_CODE.fd", vars: "/usr/share/AAVMF/AAVMF_VARS.fd"}
)

func (f Firmware) board() board {
	switch f {
	case UEFI, UEFIHTTP:
		return x64
	case ARM64, ARM64HTTP:
		return virt
	default:
		return pc
	}
}

// options are QEMU's for the machine up to its network card.
func (f Firmware) options() []string {
	b := f.board()
	a := append(slices.Clone(b.options), "-display", "none")
	if b.code != "" {
		a = append(a, "-drive", "if=pflash,format=raw,unit=0,readonly=on,file="+b.code,
			"-drive", "if=pflash,format=raw,unit=1,file=nvram")
	}
	if f == UEFIHTTP || f == ARM64HTTP { // so that HTTP boot is what is left
		for _, v := range []string{"IPv4", "IPv6"} {
			a = append(a, "-fw_cfg", "name=opt/org.tianocore/"+v+"PXESupport,string=n")
		}
	}
	return a
}

// writeNVRAM gives a machine with UEFI settings of its own.
func (f Firmware) writeNVRAM(to string) error {
	from := f.board().vars
	if from == "" {
		return nil
	}
	vars, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, vars, 0o644)
}

// firmwareSet reads what a person asks for: one kind, or several by turns.
func firmwareSet(name string) ([]Firmware, error) {
	switch {
	case name == "both":
		return []Firmware{BIOS, UEFI}, nil
	case name == "all":
		return Firmwares, nil
	case slices.Contains(Firmwares, Firmware(name)):
		return []Firmware{Firmware(name)}, nil
	}
	return nil, fmt.Errorf("firmware %q is not one of %s", name, strings.Join(FirmwareWords(), ", "))
}

// FirmwareWords is what `muster lab --firmware` takes.
func FirmwareWords() []string {
	var ws []string
	for _, f := range Firmwares {
		ws = append(ws, string(f))
	}
	return append(ws, "both", "all")
}

// arches of the machines with these kinds of firmware, amd64 first.
func arches(fs []Firmware) []string {
	var as []string
	for _, f := range fs {
		if a := f.board().arch; !slices.Contains(as, a) {
			as = append(as, a)
		}
	}
	slices.Sort(as)
	return as
}

// Missing lists what virtual machines with such firmware need and this system
// lacks.
func Missing(fs ...Firmware) []string {
	tools := map[string]string{"ip": "iproute2"}
	files := map[string]string{"/usr/lib/ipxe/snponly.efi": "ipxe"}
	for _, f := range fs {
		switch b := f.board(); b.arch {
		case "arm64":
			tools[b.qemu], files[b.code] = "qemu-system-arm", "qemu-efi-aarch64"
		default:
			tools[b.qemu] = "qemu-system-x86"
			if b.code != "" {
				files[b.code] = "ovmf"
			} else {
				files["/usr/share/seabios/bios-256k.bin"], files["/usr/lib/ipxe/qemu/pxe-virtio.rom"] = "seabios", "ipxe-qemu"
			}
		}
	}
	var ms []string
	for tool, pkg := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			ms = append(ms, "the Debian package "+pkg)
		}
	}
	for file, pkg := range files {
		if _, err := os.Stat(filepath.Clean(file)); err != nil {
			ms = append(ms, "the Debian package "+pkg)
		}
	}
	if os.Geteuid() != 0 {
		ms = append(ms, "root")
	}
	slices.Sort(ms)
	return slices.Compact(ms)
}
