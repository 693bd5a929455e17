package resource

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A State is what stands on a machine, or should, as named fields with values
// for people. Nil means that there is nothing.
type State map[string]string

// The fields, by their wire names.
const (
	FieldType        = "type" // file, directory, symlink, other: what is at a path
	FieldContent     = "content"
	FieldMode        = "mode"
	FieldOwner       = "owner"
	FieldGroup       = "group"
	FieldOwnerID     = "owner_id" // the same as a number, where it was declared as one
	FieldGroupID     = "group_id"
	FieldVersion     = "version"
	FieldEnabled     = "enabled"
	FieldRunning     = "running"
	FieldImage       = "image"
	FieldCommand     = "command"
	FieldEnvironment = "environment"
	FieldMounts      = "mounts"
	FieldPorts       = "ports"
	FieldNetwork     = "network"
	FieldRestart     = "restart"
	FieldIdentity    = "identity"   // of a disk
	FieldFilesystem  = "filesystem" // that a disk carries
	FieldID          = "id"         // of that file system; Gone: its disk is not there any more
	FieldDone        = "done"       // of an action: yes when its unless says so
)

// Values of fields that are one of two.
const (
	Yes  = "yes"
	No   = "no"
	Gone = "gone"
)

// YesNo spells a truth.
func YesNo(b bool) string {
	if b {
		return Yes
	}
	return No
}

// Hash is how a content appears in a state.
func Hash(content string) string {
	sum := sha256.Sum256([]byte(content))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// A Difference is one field that is not as it should be.
type Difference struct {
	Field string `json:"field"`
	Is    string `json:"is,omitempty"`
	Want  string `json:"want,omitempty"`
}

// Differences are the fields in which what stands there is not as wanted, by
// name. Fields that are not wanted do not count.
func Differences(is, want State) []Difference {
	var all []Difference
	for _, f := range slices.Sorted(maps.Keys(want)) {
		if is[f] != want[f] {
			all = append(all, Difference{f, is[f], want[f]})
		}
	}
	return all
}

// Satisfies tells whether what stands there is as wanted, field by field.
func (is State) Satisfies(want State) bool {
	if is == nil {
		return len(want) == 0
	}
	for f, v := range want {
		if is[f] != v {
			return false
		}
	}
	return true
}

// Want is what should stand on the machine. Names are for the template of a
// file.
func (r *Resource) Want(names map[string]string) (State, error) {
	switch {
	case r.File != nil:
		text, err := r.File.Text(names)
		if err != nil {
			return nil, err
		}
		return pathState("file", r.File.Mode, "0644", r.File.Owner, r.File.Group, Hash(text)), nil
	case r.Directory != nil:
		return pathState("directory", r.Directory.Mode, "0755", r.Directory.Owner, r.Directory.Group, ""), nil
	case r.Package != nil:
		s := State{FieldType: "installed"}
		if r.Package.Version != "" {
			s[FieldVersion] = r.Package.Version
		}
		return s, nil
	case r.Service != nil:
		return State{FieldEnabled: YesNo(orTrue(r.Service.Enabled)), FieldRunning: YesNo(orTrue(r.Service.Running))}, nil
	case r.Container != nil:
		return r.Container.State(true), nil
	case r.Disk != nil:
		return State{FieldType: string(KindDisk), FieldIdentity: r.Disk.Identity, FieldFilesystem: r.Disk.Filesystem, FieldID: r.Disk.ID}, nil
	}
	return State{FieldDone: Yes}, nil
}

func pathState(kind, mode, usual, owner, group, content string) State {
	if mode == "" {
		mode = usual
	}
	perm, _ := ParseMode(mode) // it was checked when it was parsed
	s := State{FieldType: kind, FieldMode: FormatMode(perm)}
	s[account(owner, FieldOwner, FieldOwnerID)] = orRoot(owner)
	s[account(group, FieldGroup, FieldGroupID)] = orRoot(group)
	if content != "" {
		s[FieldContent] = content
	}
	return s
}

// State is how a container appears, when it is as this says and runs or not.
// Two that are the same spell the same: lists whose order means nothing are in
// one order, names that runtimes spell in more than one way in one. The
// environment may hold secrets, so it appears as a hash.
func (c *Container) State(running bool) State {
	restart, network := c.Restart, c.Network
	if restart == "" {
		restart = "always"
	}
	if network == "default" || network == "bridge" {
		network = "" // both runtimes' own
	}
	mounts := slices.SortedFunc(slices.Values(c.Mounts), func(a, b Mount) int { return strings.Compare(a.Target, b.Target) })
	return State{
		FieldImage: imageName(c.Image), FieldCommand: list(c.Command), FieldEnvironment: environmentHash(c.Environment),
		FieldMounts: list(mounts), FieldPorts: list(c.ports()), FieldNetwork: network,
		FieldRestart: restart, FieldRunning: YesNo(running),
	}
}

func (c *Container) ports() []Port {
	all := slices.Clone(c.Ports)
	for i := range all {
		if all[i].Protocol == "" {
			all[i].Protocol = "tcp"
		}
	}
	slices.SortFunc(all, func(a, b Port) int {
		return cmp.Or(a.Host-b.Host, a.Container-b.Container, strings.Compare(a.Protocol, b.Protocol))
	})
	return all
}

// imageName spells the name of an image as people do, with its tag: runtimes
// add where it comes from, each in its own way.
func imageName(name string) string {
	for _, where := range []string{"docker.io/library/", "index.docker.io/library/", "docker.io/", "index.docker.io/"} {
		if rest, is := strings.CutPrefix(name, where); is && rest != "" {
			name = rest
			break
		}
	}
	if last := name[strings.LastIndexByte(name, '/')+1:]; !strings.ContainsAny(last, ":@") {
		name += ":latest"
	}
	return name
}

// environmentHash is how a container's environment appears in a state.
func environmentHash(env map[string]string) string {
	if len(env) == 0 {
		return ""
	}
	b, _ := json.Marshal(env) // a map of strings always can be, in order
	return Hash(string(b))
}

// list spells values as JSON, and nothing as nothing.
func list[T any](all []T) string {
	if len(all) == 0 {
		return ""
	}
	b, _ := json.Marshal(all) // of strings and numbers
	return string(b)
}

// ParseMode reads permission bits in octal.
func ParseMode(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 8, 32)
	if err != nil || n > 0o7777 || len(s) < 3 {
		return 0, fmt.Errorf("%q is no mode; say it in octal, such as \"0644\"", s)
	}
	return uint32(n), nil
}

// FormatMode spells permission bits in octal, with four digits.
func FormatMode(m uint32) string { return fmt.Sprintf("%04o", m&0o7777) }

// account is the field that an account is compared by: as it was declared.
func account(name, byName, byNumber string) string {
	if name != "" && name[0] >= '0' && name[0] <= '9' {
		return byNumber
	}
	return byName
}

func orTrue(b *bool) bool { return b == nil || *b }

func orRoot(name string) string {
	if name == "" {
		return "root"
	}
	return name
}
