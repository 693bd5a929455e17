package boot

import "fmt"

// An arch is one client architecture (IANA, "Processor Architecture Types").
// One without loader is served only when it comes with iPXE already in it; one
// without goarch never.
type arch struct {
	name   string
	goarch string // of the image's variant
	loader string // the file that such firmware loads by TFTP
}

// archs are the architectures by their code. 7 and 9 are one: boards report
// either for 64-bit UEFI.
var archs = [...]arch{
	0:  {"BIOS", "amd64", "undionly.kpxe"},
	1:  {name: "NEC PC98"},
	2:  {name: "Itanium"},
	6:  {name: "UEFI x86, 32 bits"},
	7:  {"UEFI x64", "amd64", "snponly.efi"},
	9:  {"UEFI x64", "amd64", "snponly.efi"},
	10: {name: "UEFI arm, 32 bits"},
	11: {name: "UEFI arm64", goarch: "arm64"},
	15: {name: "UEFI x86 HTTP boot, 32 bits"},
	16: {name: "UEFI x64 HTTP boot", goarch: "amd64"},
	18: {name: "UEFI arm HTTP boot, 32 bits"},
	19: {name: "UEFI arm64 HTTP boot", goarch: "arm64"},
	20: {name: "BIOS HTTP boot", goarch: "amd64"},
	22: {name: "U-Boot arm64"},
	41: {name: "Raspberry Pi"},
}

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

// Loaders lists the loader files that a booter needs, each once.
func Loaders() []string {
	var names []string
	seen := map[string]bool{"": true}
	for _, a := range archs {
		if !seen[a.loader] {
			seen[a.loader] = true
			names = append(names, a.loader)
		}
	}
	return names
}
