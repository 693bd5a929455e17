package linux

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"muster.internal/durable"
	"muster.internal/host"
	"muster.internal/resource"
)

// paths is the hand for files and directories.
type paths struct {
	originals     string
	users, groups accounts
	buffer        []byte
	lasting       lasting
}

func newPaths(originals string) (*paths, error) {
	p := &paths{originals: originals, buffer: make([]byte, 64<<10), lasting: lasting{}}
	return p, p.reread()
}

// reread reads the machine's accounts anew: a package may have made some.
func (p *paths) reread() (err error) {
	if p.users, err = readAccounts("/etc/passwd"); err == nil {
		p.groups, err = readAccounts("/etc/group")
	}
	return err
}

var types = map[uint32]string{unix.S_IFREG: "file", unix.S_IFDIR: "directory", unix.S_IFLNK: "symlink"}

// read tells what is at a path: a file with the hash of its content, always
// read anew, a directory, or something else.
func (p *paths) read(file string) (resource.State, error) {
	dir, name, err := openParent(file)
	if gone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); gone(err) {
		return nil, nil
	} else if err != nil {
		return nil, wrap("stat", file, err)
	}
	s := p.state(&st)
	if s[resource.FieldType] == "file" {
		if s[resource.FieldContent], err = p.hash(dir, name, st.Size); err != nil {
			return nil, wrap("read", file, err)
		}
	}
	return s, nil
}

// gone tells that there is nothing; a path through a file holds nothing either.
func gone(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) }

func (p *paths) state(st *unix.Stat_t) resource.State {
	kind := types[st.Mode&unix.S_IFMT]
	if kind == "" {
		kind = "other"
	}
	return resource.State{
		resource.FieldType: kind, resource.FieldMode: resource.FormatMode(st.Mode),
		resource.FieldOwner: p.users.name(st.Uid), resource.FieldOwnerID: strconv.Itoa(int(st.Uid)),
		resource.FieldGroup: p.groups.name(st.Gid), resource.FieldGroupID: strconv.Itoa(int(st.Gid)),
	}
}

// hash reads a regular file. A FIFO or a device that took its place since is
// not opened for long. At the size that it had it is not asked for more.
func (p *paths) hash(dir int, name string, size int64) (string, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	sum := sha256.New()
	for {
		n, err := unix.Read(fd, p.buffer)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return "", err
		}
		sum.Write(p.buffer[:n])
		if size -= int64(n); n == 0 || size == 0 {
			return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
		}
	}
}

// access is mode, user and group of a declared path.
type access struct {
	mode     uint32
	uid, gid int
}

func (p *paths) access(mode, usual, owner, group string) (a access, err error) {
	if mode == "" {
		mode = usual
	}
	if a.mode, err = resource.ParseMode(mode); err != nil {
		return a, err
	}
	if a.uid, err = p.users.number(owner); err != nil {
		return a, err
	}
	if a.gid, err = p.groups.number(group); err != nil {
		return a, fmt.Errorf("group: %w", err)
	}
	return a, nil
}

// fresh is the name under which something is made ready beside its place. It is
// always the same, so that what a crash left is found and removed.
func fresh(name string) string {
	if len(name) > 200 {
		sum := sha256.Sum256([]byte(name))
		name = hex.EncodeToString(sum[:8])
	}
	return "." + name + ".muster-new"
}

// putFile writes a file beside its place and moves it there: whole or not at
// all. When it is to replace one, that one's labels are kept.
func (p *paths) putFile(f *resource.File, text string, is resource.State) error {
	a, err := p.access(f.Mode, "0644", f.Owner, f.Group)
	if err != nil {
		return err
	}
	if is != nil && is[resource.FieldType] != "file" {
		return fmt.Errorf("a %s is at %s, and the host does not replace it with a file", is[resource.FieldType], f.Path)
	}
	dir, name, err := openParent(f.Path)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if is != nil && is[resource.FieldContent] == resource.Hash(text) {
		p.lasting.access(f.Path)
		return wrap("change", f.Path, setAccess(dir, name, unix.O_RDONLY, a))
	}
	return p.place(dir, name, f.Path, is != nil, a, func(fd int) error { return writeAll(fd, text) })
}

// place makes a file ready and moves it to its name. A file that must not be
// there and is by now is left.
func (p *paths) place(dir int, name, full string, replace bool, a access, write func(fd int) error) (err error) {
	temp := fresh(name)
	if err := unix.Unlinkat(dir, temp, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return wrap("remove", path.Join(path.Dir(full), temp), err)
	}
	fd, err := unix.Openat(dir, temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return wrap("create", full, explainWrite(dir, name, err))
	}
	defer func() {
		if err != nil {
			_ = unix.Unlinkat(dir, temp, 0)
		}
	}()
	err = write(fd)
	if err == nil && replace {
		err = copyLabels(dir, name, fd)
	}
	if err == nil {
		err = unix.Fchown(fd, a.uid, a.gid)
	}
	if err == nil {
		err = unix.Fchmod(fd, a.mode)
	}
	if err == nil {
		err = unix.Fdatasync(fd)
	}
	if e := unix.Close(fd); err == nil {
		err = e
	}
	if err == nil {
		flags := uint(unix.RENAME_NOREPLACE)
		if replace {
			flags = 0
		}
		p.lasting.name(full)
		err = rename(dir, temp, name, flags)
	}
	return wrap("write", full, explainWrite(dir, name, err))
}

// rename moves within a directory; file systems that cannot refuse to replace
// are asked first.
func rename(dir int, from, to string, flags uint) error {
	err := unix.Renameat2(dir, from, dir, to, flags)
	if flags != 0 && (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS)) {
		var st unix.Stat_t
		if err := unix.Fstatat(dir, to, &st, unix.AT_SYMLINK_NOFOLLOW); err == nil {
			return unix.EEXIST
		}
		err = unix.Renameat(dir, from, dir, to)
	}
	return err
}

// explainWrite says what a bare "operation not permitted" comes from.
func explainWrite(dir int, name string, err error) error {
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	for what, at := range map[string]string{"the file": name, "its directory": "."} {
		var st unix.Statx_t
		if unix.Statx(dir, at, unix.AT_SYMLINK_NOFOLLOW, 0, &st) == nil && st.Attributes&(unix.STATX_ATTR_IMMUTABLE|unix.STATX_ATTR_APPEND) != 0 {
			return fmt.Errorf("%s is marked immutable or append-only (see lsattr; chattr -i -a takes that off): %w", what, err)
		}
	}
	return err
}

func writeAll(fd int, text string) error {
	for b := []byte(text); len(b) > 0; {
		n, err := unix.Write(fd, b)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// notCopied are attributes that belong to a content, not to a name.
var notCopied = []string{"security.capability", "security.ima", "security.evm"}

// copyLabels gives a new file the extended attributes of the one that it
// replaces: its SELinux label, its access list.
func copyLabels(dir int, name string, to int) error {
	from, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(from)
	list := make([]byte, 64<<10)
	n, err := unix.Flistxattr(from, list)
	if errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	if err != nil {
		return err
	}
	value := make([]byte, 64<<10)
	for attr := range strings.SplitSeq(strings.TrimSuffix(string(list[:n]), "\x00"), "\x00") {
		if attr == "" || slices.Contains(notCopied, attr) {
			continue
		}
		n, err := unix.Fgetxattr(from, attr, value)
		if err == nil {
			err = unix.Fsetxattr(to, attr, value[:n], 0)
		}
		if err != nil && !errors.Is(err, unix.ENOTSUP) && !errors.Is(err, unix.ENODATA) {
			return fmt.Errorf("keeping %s: %w", attr, err)
		}
	}
	return nil
}

// setAccess changes owner and mode of what is there, without following a link.
func setAccess(dir int, name string, flags int, a access) error {
	fd, err := unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Fchown(fd, a.uid, a.gid); err != nil {
		return explainWrite(dir, name, err)
	}
	return explainWrite(dir, name, unix.Fchmod(fd, a.mode))
}

// putDirectory makes a directory, ready before it has its name, or changes the
// access to one.
func (p *paths) putDirectory(d *resource.Directory, is resource.State) error {
	a, err := p.access(d.Mode, "0755", d.Owner, d.Group)
	if err != nil {
		return err
	}
	if is != nil && is[resource.FieldType] != "directory" {
		return fmt.Errorf("a %s is at %s, and the host does not replace it with a directory", is[resource.FieldType], d.Path)
	}
	dir, name, err := openParent(d.Path)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if is != nil {
		p.lasting.access(d.Path)
		return wrap("change", d.Path, setAccess(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, a))
	}
	temp := fresh(name)
	if err := unix.Unlinkat(dir, temp, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
		return wrap("remove", path.Join(path.Dir(d.Path), temp), err)
	}
	if err := unix.Mkdirat(dir, temp, 0o700); err != nil {
		return wrap("create", d.Path, explainWrite(dir, name, err))
	}
	if err = setAccess(dir, temp, unix.O_RDONLY|unix.O_DIRECTORY, a); err == nil {
		p.lasting.name(d.Path)
		err = rename(dir, temp, name, unix.RENAME_NOREPLACE)
	}
	if err != nil {
		_ = unix.Unlinkat(dir, temp, unix.AT_REMOVEDIR)
	}
	return wrap("create", d.Path, err)
}

// remove takes away what the host made, and what a crash left beside it.
func (p *paths) remove(ref resource.Ref) error {
	full := ref.Key()
	dir, name, err := openParent(full)
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	flags := 0
	if ref.Kind() == resource.KindDirectory {
		flags = unix.AT_REMOVEDIR
	}
	_ = unix.Unlinkat(dir, fresh(name), flags)
	p.lasting.name(full)
	err = unix.Unlinkat(dir, name, flags)
	switch {
	case gone(err):
		return nil
	case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST):
		return fmt.Errorf("%s: %w", full, host.ErrNotEmpty)
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("%s is a mount point, or in use: %w", full, err)
	}
	return wrap("remove", full, explainWrite(dir, name, err))
}

func originalName(ref resource.Ref) string {
	sum := sha256.Sum256([]byte(ref))
	return hex.EncodeToString(sum[:12])
}

// keep copies a file before it is taken over. Its access is on the record.
func (p *paths) keep(ref resource.Ref) (string, error) {
	if ref.Kind() != resource.KindFile {
		return "", nil // a directory's access is on the record, and that is all
	}
	dir, name, err := openParent(ref.Key())
	if err != nil {
		return "", err
	}
	defer unix.Close(dir)
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", wrap("keep", ref.Key(), err)
	}
	from := os.NewFile(uintptr(fd), ref.Key())
	defer from.Close()
	// What took its place since may be a device without an end, or a FIFO.
	if is, err := from.Stat(); err != nil || !is.Mode().IsRegular() {
		return "", wrap("keep", ref.Key(), cmp.Or(err, fs.ErrInvalid))
	}
	if err := os.MkdirAll(p.originals, 0o700); err != nil {
		return "", err
	}
	to := path.Join(p.originals, originalName(ref))
	f, err := os.OpenFile(path.Join(p.originals, "."+path.Base(to)), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(f, from)
	for _, then := range []func() error{f.Sync, f.Close} {
		if e := then(); err == nil {
			err = e
		}
	}
	if err == nil {
		err = os.Rename(f.Name(), to)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return "", err
	}
	return to, durable.SyncDir(p.originals)
}

// restore gives an adopted path back as it was found.
func (p *paths) restore(o resource.Owned) error {
	mode, err := resource.ParseMode(o.Found[resource.FieldMode])
	if err != nil {
		return fmt.Errorf("the record does not say how it was: %w", err)
	}
	a := access{mode: mode}
	for _, n := range []struct {
		to    *int
		field string
	}{{&a.uid, resource.FieldOwnerID}, {&a.gid, resource.FieldGroupID}} {
		if *n.to, err = strconv.Atoi(o.Found[n.field]); err != nil {
			return fmt.Errorf("the record does not say whose it was: %w", err)
		}
	}
	dir, name, err := openParent(o.Ref.Key())
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if o.Ref.Kind() == resource.KindDirectory {
		p.lasting.access(o.Ref.Key())
		return wrap("restore", o.Ref.Key(), setAccess(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, a))
	}
	from, err := os.Open(o.Original)
	if err != nil {
		return fmt.Errorf("its original is not where it was kept: %w", err)
	}
	defer from.Close()
	var st unix.Stat_t
	there := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
	if there && st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("a %s is at %s, and the host does not replace it with the original", p.state(&st)[resource.FieldType], o.Ref.Key())
	}
	return p.place(dir, name, o.Ref.Key(), there, a, func(fd int) error {
		for {
			n, err := from.Read(p.buffer)
			if n > 0 {
				if err := writeAll(fd, string(p.buffer[:n])); err != nil {
					return err
				}
			}
			if err == io.EOF {
				return nil
			}
			if err != nil {
				return err
			}
		}
	})
}
