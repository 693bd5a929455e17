package boot

import "fmt"

// An arch is one client architecture (IANA, "Processor Architecture Types").
// One without loaders is served only when it comes with iPXE already in it; one
// without goarch never: nothing is guessed.
type arch struct {
	name    string
	goarch  string   // of the image's variant
	loaders []string // files for such firmware: the first that is there is served
	brings  string   // what to install to have one of them
}

var (
	biosLoaders  = []string{"undionly.kpxe"}
	x64Loaders   = []string{"snponly.efi", "ipxe-amd64.efi", "ipxe.efi"}
	arm64Loaders = []string{"snponly-arm64.efi", "ipxe-arm64.efi"}
)

const (
	anyIPXE   = "install the package ipxe"
	arm64IPXE = "install the package ipxe of Debian 13 or later, or point --ipxe at what `muster-booter loaders DIR` fetches"
)

// archs are the architectures by their code. 7 and 9 are one, and so are 16
// and 17: boards report either for 64-bit UEFI (a quirk says so, since 9 and 17
// are EFI byte code by the book).
var archs = [...]arch{
	0:  {"BIOS", "amd64", biosLoaders, anyIPXE},
	1:  {name: "NEC PC98"},
	2:  {name: "Itanium"},
	3:  {name: "DEC Alpha"},
	4:  {name: "Arc x86"},
	5:  {name: "Intel Lean Client"},
	6:  {name: "UEFI x86, 32 bits"},
	7:  {"UEFI x64", "amd64", x64Loaders, anyIPXE},
	8:  {name: "EFI Xscale"},
	9:  {"UEFI x64", "amd64", x64Loaders, anyIPXE},
	10: {name: "UEFI arm, 32 bits"},
	11: {"UEFI arm64", "arm64", arm64Loaders, arm64IPXE},
	12: {name: "PowerPC Open Firmware"},
	13: {name: "PowerPC ePAPR"},
	14: {name: "POWER OPAL"},
	15: {name: "UEFI x86 HTTP boot, 32 bits"},
	16: {"UEFI x64 HTTP boot", "amd64", x64Loaders, anyIPXE},
	17: {"UEFI x64 HTTP boot", "amd64", x64Loaders, anyIPXE},
	18: {name: "UEFI arm HTTP boot, 32 bits"},
	19: {"UEFI arm64 HTTP boot", "arm64", arm64Loaders, arm64IPXE},
	20: {"BIOS HTTP boot", "amd64", biosLoaders, anyIPXE},
	21: {name: "U-Boot arm, 32 bits"},
	22: {"U-Boot arm64", "arm64", arm64Loaders, arm64IPXE},
	23: {name: "U-Boot arm HTTP boot, 32 bits"},
	24: {name: "U-Boot arm64 HTTP boot"},
	25: {name: "UEFI RISC-V, 32 bits"},
	26: {name: "UEFI RISC-V HTTP boot, 32 bits"},
	27: {name: "UEFI RISC-V, 64 bits"},
	28: {name: "UEFI RISC-V HTTP boot, 64 bits"},
	37: {name: "UEFI LoongArch, 32 bits"},
	38: {name: "UEFI LoongArch HTTP boot, 32 bits"},
	39: {name: "UEFI LoongArch, 64 bits"},
	40: {name: "UEFI LoongArch HTTP boot, 64 bits"},
	41: {name: "Raspberry Pi boot ROM"},
}

// rpiArch is the one that the Raspberry Pi's own ROM should report.
const rpiArch = 41

func archOf(code uint16) arch {
	if int(code) < len(archs) {
		return archs[code]
	}
	return arch{}
}

// ArchName names a client architecture for people.
func ArchName(code uint16) string {
	if a := archOf(code); a.name != "" {
		return fmt.Sprintf("%s (architecture %d)", a.name, code)
	}
	return fmt.Sprintf("architecture %d", code)
}

// loader is the file for firmware of this kind: the first that is there, or
// the first at all.
func (a arch) loader(has func(string) bool) (name string, there bool) {
	for _, l := range a.loaders {
		if has(l) {
			return l, true
		}
	}
	return a.loaders[0], false
}

// A LoaderSet is one kind of firmware and the files that can serve it, of
// which one is enough.
type LoaderSet struct {
	Arch   string // for people
	Files  []string
	Remedy string // how to get one of them
}

// LoaderSets lists what a booter needs to serve every kind of firmware.
func LoaderSets() []LoaderSet {
	return []LoaderSet{{"BIOS", biosLoaders, anyIPXE}, {"UEFI x64", x64Loaders, anyIPXE}, {"UEFI arm64", arm64Loaders, arm64IPXE}}
}

// Loaders lists every loader file that a booter may serve, each once.
func Loaders() []string {
	var names []string
	for _, s := range LoaderSets() {
		names = append(names, s.Files...)
	}
	return names
}

// IsLoader tells whether a file name is that of a loader.
func IsLoader(name string) bool {
	for _, set := range [...][]string{biosLoaders, x64Loaders, arm64Loaders} {
		for _, l := range set {
			if l == name {
				return true
			}
		}
	}
	return false
}

// builds are the architectures by the name that iPXE has for its own build;
// a 32-bit BIOS build boots 64-bit kernels.
var builds = map[string]uint16{"i386": 0, "x86_64": 7, "arm64": 11}

// ArchOfBuild turns iPXE's ${buildarch} into an architecture.
func ArchOfBuild(name string) (uint16, bool) {
	a, ok := builds[name]
	return a, ok
}
