// Package resource holds declarations: the ordered list of what a machine is
// told to have, how it is parsed, what each kind wants to stand there, how that
// differs from what does, and what becomes of it when it is told no longer.
//
// It must never read a machine or change one: no I/O, no clock, no dice. The
// hands are in package linux, the order of steps in package host.
package resource

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Kind is one of the kinds of resource.
type Kind string

// The kinds, by their wire names.
const (
	KindFile      Kind = "file"
	KindDirectory Kind = "directory"
	KindPackage   Kind = "package"
	KindService   Kind = "service"
	KindContainer Kind = "container"
	KindAction    Kind = "action"
	KindDisk      Kind = "disk"
)

// Kinds are all of them.
var Kinds = []Kind{KindFile, KindDirectory, KindPackage, KindService, KindContainer, KindAction, KindDisk}

// since is the capability (muster.Capability) of the first hosts that know a
// kind. A new kind comes with a new capability.
var since = map[Kind]int{KindFile: 1, KindDirectory: 1, KindPackage: 1, KindService: 1, KindContainer: 1, KindAction: 1, KindDisk: 3}

// A Ref names a resource on its machine: "file:/etc/motd", "package:chrony".
type Ref string

// NewRef makes one.
func NewRef(k Kind, key string) Ref { return Ref(string(k) + ":" + key) }

// RefOf is the resource that a person names; a path alone is a file's.
func RefOf(text string) Ref {
	if strings.HasPrefix(text, "/") {
		return NewRef(KindFile, text)
	}
	return Ref(text)
}

// Kind is what comes before the colon.
func (r Ref) Kind() Kind {
	k, _, _ := strings.Cut(string(r), ":")
	return Kind(k)
}

// Key is what comes after: a path or a name.
func (r Ref) Key() string {
	_, key, _ := strings.Cut(string(r), ":")
	return key
}

// A Declaration is what one machine is told to be.
type Declaration struct {
	// Generation grows with every declaration of a node; zero in a local file.
	Generation int64 `json:"generation,omitempty"`
	// Confirm, such as "2m", makes the host undo this declaration by itself
	// when it cannot reach the control plane that long after applying it.
	Confirm string `json:"confirm,omitempty"`
	// Values are names that templates can use, beside the node's facts.
	Values    map[string]string `json:"values,omitempty"`
	Resources []Resource        `json:"resources"`
	// Checks are how the host sees that placements are up. One that is older than
	// muster.Capability 3 passes over them, and says nothing of health.
	Checks []Check `json:"checks,omitempty"`
}

// A Check says how to see, on the machine itself, that a placement is up.
type Check struct {
	ID   string `json:"id"`             // of the placement
	Port int    `json:"port"`           // must take a TCP connection,
	Path string `json:"path,omitempty"` // or answer this path over HTTP with success
	// CaughtUp is a second path, which answers with success once the placement has
	// what its peers have.
	CaughtUp string `json:"caught_up,omitempty"`
}

// A Resource is one of the kinds, and what holds for all of them.
type Resource struct {
	File      *File      `json:"file,omitempty"`
	Directory *Directory `json:"directory,omitempty"`
	Package   *Package   `json:"package,omitempty"`
	Service   *Service   `json:"service,omitempty"`
	Container *Container `json:"container,omitempty"`
	Action    *Action    `json:"action,omitempty"`
	Disk      *DataDisk  `json:"disk,omitempty"`

	// Adopt takes ownership of what is there already. Without it an existing
	// file, directory, running service or container is kept as it is.
	Adopt bool `json:"adopt,omitempty"`
	// Resolve is a person's word on an adopted resource that is not as declared;
	// without it the machine's own stays until there is one.
	Resolve Resolution `json:"resolve,omitempty"`
	// After are earlier resources that must have worked before this is tried.
	// A path always comes after the declared directories it is in.
	After []Ref `json:"after,omitempty"`

	// Unread is there instead of a kind: this version cannot read it.
	Unread *Unread `json:"-"`
}

// A Resolution is a person's word on a conflict.
type Resolution string

const (
	ResolveTake Resolution = "take" // the declaration wins
	ResolveKeep Resolution = "keep" // the machine's own stays; the host owns nothing there
)

// A File is a regular file with a content.
type File struct {
	Path string `json:"path"`
	// Content, or Template with {{ names }} of facts and values.
	Content  string `json:"content,omitempty"`
	Template string `json:"template,omitempty"`
	// Source is a file with the content, beside the declaration's own; over the
	// link nothing is beside it.
	Source string `json:"source,omitempty"`
	Mode   string `json:"mode,omitempty"`  // octal, "0644" when absent
	Owner  string `json:"owner,omitempty"` // name or number, "root" when absent
	Group  string `json:"group,omitempty"`
	// Secret contents are shown nowhere, only their hash.
	Secret bool `json:"secret,omitempty"`
}

// A Directory is a directory; what is in it is not meant.
type Directory struct {
	Path  string `json:"path"`
	Mode  string `json:"mode,omitempty"` // octal, "0755" when absent
	Owner string `json:"owner,omitempty"`
	Group string `json:"group,omitempty"`
}

// A Package is installed by the machine's own package manager.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"` // any when absent
}

// A Service is a unit of the machine's service manager.
type Service struct {
	Name    string `json:"name"`              // without a suffix it is a .service
	Enabled *bool  `json:"enabled,omitempty"` // starts with the machine; true when absent
	Running *bool  `json:"running,omitempty"` // true when absent
	// RestartOn are earlier resources; when one has changed, a running service
	// is restarted, once, after all of them.
	RestartOn []Ref `json:"restart_on,omitempty"`
}

// A Container is run by the machine's container runtime.
type Container struct {
	Name        string            `json:"name"`
	Image       string            `json:"image"`
	Command     []string          `json:"command,omitempty"`
	Environment map[string]string `json:"environment,omitempty"`
	Mounts      []Mount           `json:"mounts,omitempty"`
	Ports       []Port            `json:"ports,omitempty"`
	Network     string            `json:"network,omitempty"` // of the runtime; its default when absent
	Restart     string            `json:"restart,omitempty"` // no, on-failure, always, unless-stopped; always when absent
	RestartOn   []Ref             `json:"restart_on,omitempty"`
}

// A Mount shows a path of the machine inside a container.
type Mount struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// A Port of a container, reachable at the machine's.
type Port struct {
	Host      int    `json:"host"`
	Container int    `json:"container"`
	Protocol  string `json:"protocol,omitempty"` // tcp or udp; tcp when absent
}

// An Action is a command. It comes from a bundle or a local file, never over
// the link.
type Action struct {
	Name    string   `json:"name"`
	Command []string `json:"command"`
	Unless  []string `json:"unless,omitempty"`  // done already when this ends with zero
	Timeout string   `json:"timeout,omitempty"` // "5m" when absent
}

// A DataDisk is a whole disk with one file system, which carries the disk's id as its
// own and is mounted. A blank disk is given one; nothing else is ever written to.
type DataDisk struct {
	ID string `json:"id"` // a UUID
	// Identity is how the disk is found: "wwn …" or "serial …", as an inventory has
	// it.
	Identity   string `json:"identity"`
	Path       string `json:"path"` // where it is mounted
	Filesystem string `json:"filesystem"`
}

// Kind is which of them it is; empty when it is none, another word when this
// version cannot read it.
func (r *Resource) Kind() Kind {
	switch {
	case r.File != nil:
		return KindFile
	case r.Directory != nil:
		return KindDirectory
	case r.Package != nil:
		return KindPackage
	case r.Service != nil:
		return KindService
	case r.Container != nil:
		return KindContainer
	case r.Action != nil:
		return KindAction
	case r.Disk != nil:
		return KindDisk
	case r.Unread != nil:
		return r.Unread.Ref.Kind()
	}
	return ""
}

// Ref names it on its machine.
func (r *Resource) Ref() Ref {
	key := ""
	switch {
	case r.File != nil:
		key = r.File.Path
	case r.Directory != nil:
		key = r.Directory.Path
	case r.Package != nil:
		key = r.Package.Name
	case r.Service != nil:
		key = r.Service.Name
	case r.Container != nil:
		key = r.Container.Name
	case r.Action != nil:
		key = r.Action.Name
	case r.Disk != nil:
		key = r.Disk.Path
	case r.Unread != nil:
		return r.Unread.Ref
	}
	return NewRef(r.Kind(), key)
}

// RestartOn are the resources whose change restarts it.
func (r *Resource) RestartOn() []Ref {
	switch {
	case r.Service != nil:
		return r.Service.RestartOn
	case r.Container != nil:
		return r.Container.RestartOn
	}
	return nil
}

// Hides tells whether its content must not be shown.
func (r *Resource) Hides() bool { return r.File != nil && r.File.Secret }

// Find is the resource of that name, or nil.
func (d *Declaration) Find(ref Ref) *Resource {
	i := slices.IndexFunc(d.Resources, func(r Resource) bool { return r.Ref() == ref })
	if i < 0 {
		return nil
	}
	return &d.Resources[i]
}

// LocalOnly is what only a bundle or a local file may hold, and a link must
// refuse: actions, and files whose content lies beside the declaration.
func (d *Declaration) LocalOnly() []Ref {
	var all []Ref
	for i := range d.Resources {
		if r := &d.Resources[i]; r.Kind() == KindAction || r.File != nil && r.File.Source != "" {
			all = append(all, r.Ref())
		}
	}
	return all
}

// Beyond is what a host of that capability does not know.
func (d *Declaration) Beyond(capability int) []Ref {
	var all []Ref
	for i := range d.Resources {
		if r := &d.Resources[i]; since[r.Kind()] > capability {
			all = append(all, r.Ref())
		}
	}
	return all
}

// CheckRemote refuses what may not come over the link.
func (d *Declaration) CheckRemote() error {
	if local := d.LocalOnly(); len(local) > 0 {
		return fmt.Errorf("%s may not be declared from afar: actions, and files with a source, come to a machine with a bundle, or with a file and muster-host apply", local[0])
	}
	return nil
}

// ConfirmWithin is Confirm as a time, and zero without.
func (d *Declaration) ConfirmWithin() time.Duration {
	t, _ := time.ParseDuration(d.Confirm) // it was checked when it was parsed
	return t
}

const actionTimeout = 5 * time.Minute

// TimeoutAfter is Timeout as a time.
func (a *Action) TimeoutAfter() time.Duration {
	if t, err := time.ParseDuration(a.Timeout); err == nil {
		return t
	}
	return actionTimeout
}

func (r Ref) valid() error {
	if !slices.Contains(Kinds, r.Kind()) || r.Key() == "" {
		return fmt.Errorf("%q names no resource; say KIND:NAME, such as file:/etc/motd", string(r))
	}
	return nil
}
