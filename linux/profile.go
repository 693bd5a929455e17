package linux

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"muster.internal/inventory"
)

// Profile reads what the running system is made of.
func (m *Machine) Profile() inventory.Profile {
	p := profileFrom(m.Sys, m.Proc, os.DirFS("/"))
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		p.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	return p
}

func profileFrom(sys, proc, root fs.FS) inventory.Profile {
	p := inventory.Profile{Arch: runtime.GOARCH, Firmware: factsFrom(sys, proc, root).Firmware}
	b, _ := fs.ReadFile(root, "etc/os-release")
	for line := range strings.Lines(string(b)) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch v = strings.Trim(v, `"'`); k {
		case "ID":
			p.OS = v
		case "VERSION_ID":
			p.OSVersion = v
		}
	}
	there := func(names ...string) bool {
		for _, n := range names {
			if all, _ := fs.Glob(root, n); len(all) > 0 {
				return true
			}
		}
		return false
	}
	one, _ := fs.ReadFile(proc, "1/comm")
	switch c := strings.TrimSpace(string(one)); {
	case there("run/systemd/system"):
		p.ServiceManager = "systemd"
	case c == "init" && p.OS == "muster" || c == "muster-host":
		p.ServiceManager = "muster-host"
	default:
		p.ServiceManager = "other"
	}
	p.PackageManager = firstThere(there, "apt-get", "dnf", "pacman", "apk")
	p.PackageManager = strings.TrimSuffix(p.PackageManager, "-get")
	p.ContainerRuntime = firstThere(there, "docker", "podman")
	p.Graphical = there("tmp/.X11-unix/X*", "run/user/*/wayland-*")
	cpu, _ := fs.ReadFile(proc, "cpuinfo")
	p.Virtualised = strings.Contains(string(cpu), " hypervisor")
	switch {
	case sysHas(sys, "module/zfs"):
		p.Pools = "openzfs"
	case firstThere(there, "zfs-fuse") != "":
		p.Pools = "zfs-fuse"
	}
	return p
}

func sysHas(sys fs.FS, name string) bool {
	_, err := fs.Stat(sys, name)
	return err == nil
}

func firstThere(there func(...string) bool, programs ...string) string {
	for _, n := range programs {
		for _, dir := range filepath.SplitList(Path) {
			if there(strings.TrimPrefix(dir, "/") + "/" + n) {
				return n
			}
		}
	}
	return ""
}
