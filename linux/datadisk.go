package linux

import (
	"fmt"
	"io/fs"
	"strings"

	"muster.internal/resource"
)

// DisksThere says of each disk whether it is plugged in, and mounted: what it
// says is another text when that has changed.
func (m *Machine) DisksThere(all []resource.DataDisk) string {
	disks, err := ReadDisks(m.Sys, m.Proc, m.Dev)
	if err != nil {
		return err.Error()
	}
	mounts, _ := fs.ReadFile(m.Proc, "self/mountinfo")
	b := new(strings.Builder)
	for _, k := range all {
		plugged := 0
		for _, d := range disks {
			if d.Identity() == k.Identity {
				plugged++
			}
		}
		fmt.Fprintln(b, k.ID, plugged, strings.Contains(string(mounts), " "+escapeMount(k.Path)+" "))
	}
	return b.String()
}

// escapeMount spells a path as the kernel's tables of mounts do.
func escapeMount(path string) string {
	return strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`).Replace(path)
}
