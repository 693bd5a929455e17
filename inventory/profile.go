package inventory

// A Profile is what a machine's system is made of: a fixed schema, and the only
// source of what a module may need. An empty word means that there is none.
type Profile struct {
	Arch             string `json:"arch"` // as Go spells it
	OS               string `json:"os"`   // ID of os-release
	OSVersion        string `json:"os_version,omitempty"`
	Kernel           string `json:"kernel,omitempty"`
	Firmware         string `json:"firmware"`                    // bios, uefi
	ServiceManager   string `json:"service_manager,omitempty"`   // systemd, muster-host, other
	PackageManager   string `json:"package_manager,omitempty"`   // apt, dnf, pacman, apk
	ContainerRuntime string `json:"container_runtime,omitempty"` // docker, podman
	Graphical        bool   `json:"graphical_session"`
	Virtualised      bool   `json:"virtualised"`
	Pools            string `json:"zfs,omitempty"` // openzfs, zfs-fuse
}
