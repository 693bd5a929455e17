package image

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
)

// A tree is what goes into an initrd: each path, relative and clean, once.
// The same tree makes the same bytes, whoever builds it, where and when.
type tree map[string]entry

type entry struct {
	mode   uint32 // type and permissions, as in stat(2)
	body   []byte // of a file or a symbolic link
	source string // of a file: where its content is, instead of body
	major  uint32 // of a device
	minor  uint32
}

const (
	modeDir     = 0o040000
	modeFile    = 0o100000
	modeLink    = 0o120000
	modeCharDev = 0o020000
)

func (t tree) dir(names ...string) {
	for _, n := range names {
		t[n] = entry{mode: modeDir | 0o755}
	}
}
func (t tree) text(name, body string) { t[name] = entry{mode: modeFile | 0o644, body: []byte(body)} }
func (t tree) link(name, target string) {
	t[name] = entry{mode: modeLink | 0o777, body: []byte(target)}
}
func (t tree) copy(name, from string, mode uint32) {
	t[name] = entry{mode: modeFile | mode, source: from}
}
func (t tree) charDev(name string, mode, major, minor uint32) {
	t[name] = entry{mode: modeCharDev | mode, major: major, minor: minor}
}

// writeCPIO writes the tree as a cpio archive in the "newc" form (Linux
// Documentation/driver-api/early-userspace/buffer-format.rst): directories
// before what is in them, owner root, no times, inodes counted.
func (t tree) writeCPIO(w io.Writer) error {
	for n := range t {
		if n != path.Clean(n) || path.IsAbs(n) || n == "." || strings.HasPrefix(n, "..") {
			return fmt.Errorf("initrd: %q is not a clean relative path", n)
		}
	}
	t.addParents()
	c := &cpioWriter{w: w}
	for _, n := range t.names() {
		if err := c.add(n, t[n]); err != nil {
			return fmt.Errorf("initrd: %s: %w", n, err)
		}
	}
	return c.end()
}

// addParents adds the directories that something is in.
func (t tree) addParents() {
	for n := range t {
		for d := path.Dir(n); d != "."; d = path.Dir(d) {
			if _, ok := t[d]; !ok {
				t.dir(d)
			}
		}
	}
}

func (t tree) names() []string { return slices.Sorted(maps.Keys(t)) }

type cpioWriter struct {
	w   io.Writer
	n   int64 // bytes written
	ino uint32
}

func (c *cpioWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

func (c *cpioWriter) add(name string, e entry) error {
	size := int64(len(e.body))
	var src *os.File
	if e.source != "" {
		var err error
		if src, err = os.Open(e.source); err != nil {
			return err
		}
		defer src.Close()
		st, err := src.Stat()
		if err != nil {
			return err
		}
		size = st.Size()
	}
	if size >= 1<<32 {
		return fmt.Errorf("%d bytes are more than the format can say", size)
	}
	c.ino++
	if err := c.header(name, e, uint32(size)); err != nil {
		return err
	}
	if src == nil {
		if _, err := c.Write(e.body); err != nil {
			return err
		}
	} else if n, err := io.Copy(c, src); err != nil || n != size {
		return fmt.Errorf("read %d of %d bytes: %w", n, size, err)
	}
	return c.pad(4)
}

func (c *cpioWriter) header(name string, e entry, size uint32) error {
	links := uint32(1)
	if e.mode&0o170000 == modeDir {
		links = 2
	}
	// ino mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check
	_, err := fmt.Fprintf(c, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		c.ino, e.mode, 0, 0, links, 0, size, 0, 0, e.major, e.minor, len(name)+1, 0, name)
	if err != nil {
		return err
	}
	return c.pad(4)
}

func (c *cpioWriter) pad(to int64) error {
	_, err := c.Write(make([]byte, (to-c.n%to)%to))
	return err
}

func (c *cpioWriter) end() error {
	c.ino = 0
	if err := c.header("TRAILER!!!", entry{}, 0); err != nil {
		return err
	}
	return c.pad(512)
}
