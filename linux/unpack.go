package linux

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

// unpack extracts a tar archive, compressed by zstd, into an empty directory:
// owners, modes, times and extended attributes included, and nothing outside
// of it whatever the archive says. Devices are not for it: they are devtmpfs's.
func unpack(file, dir string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err != nil {
		return err
	}
	defer z.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	u := unpacker{root}
	var dirs []*tar.Header
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		h.Name = path.Clean(strings.TrimPrefix(h.Name, "./"))
		if err := u.entry(h, r); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
		if h.Typeflag == tar.TypeDir {
			dirs = append(dirs, h)
		}
	}
	for _, h := range dirs { // which what is in them has changed
		if err := root.Chtimes(h.Name, h.ModTime, h.ModTime); err != nil {
			return err
		}
	}
	return nil
}

type unpacker struct{ *os.Root }

func (u unpacker) entry(h *tar.Header, body io.Reader) error {
	mode := os.FileMode(h.Mode & 0o777)
	for bit, m := range map[int64]os.FileMode{0o4000: os.ModeSetuid, 0o2000: os.ModeSetgid, 0o1000: os.ModeSticky} {
		if h.Mode&bit != 0 {
			mode |= m
		}
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if err := u.Mkdir(h.Name, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		if err := u.Chown(h.Name, h.Uid, h.Gid); err != nil {
			return err
		}
		return u.Chmod(h.Name, mode)
	case tar.TypeReg:
		return u.file(h, mode, body)
	case tar.TypeSymlink:
		if err := u.Symlink(h.Linkname, h.Name); err != nil {
			return err
		}
		return u.Lchown(h.Name, h.Uid, h.Gid)
	case tar.TypeLink:
		return u.Link(filepath.Clean(strings.TrimPrefix(h.Linkname, "./")), h.Name)
	}
	return fmt.Errorf("the archive holds something of type %q", h.Typeflag)
}

// file writes one: the owner first, since a change of owner takes away what
// mode and attributes allow.
func (u unpacker) file(h *tar.Header, mode os.FileMode, body io.Reader) (err error) {
	f, err := u.OpenFile(h.Name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err == nil {
			err = u.Chtimes(h.Name, h.ModTime, h.ModTime)
		}
	}()
	if _, err := io.Copy(f, body); err != nil {
		return err
	}
	if err := f.Chown(h.Uid, h.Gid); err != nil {
		return err
	}
	if err := f.Chmod(mode); err != nil {
		return err
	}
	for k, v := range h.PAXRecords {
		if name, ok := strings.CutPrefix(k, "SCHILY.xattr."); ok {
			if err := unix.Fsetxattr(int(f.Fd()), name, []byte(v), 0); err != nil && !errors.Is(err, unix.ENOTSUP) {
				return fmt.Errorf("attribute %s: %w", name, err)
			}
		}
	}
	return nil
}
