package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"muster.internal"
)

// A Platform says where a SmartOS platform is and what image to make of it.
type Platform struct {
	From string   // its directory, or a tar file of it, gzip or not
	Out  string   // image directory to make
	Name string   // empty: smartos- and the platform's stamp
	Args []string // boot properties for every boot of it, NAME=VALUE
}

// parts are a platform's files that a boot needs, by the path that the kernel
// knows them by, and their roles.
var parts = []struct {
	path, role string
	needed     bool
	limit      int64 // bytes
}{
	{"i86pc/kernel/amd64/unix", "unix", true, 64 << 20},
	{"i86pc/amd64/boot_archive", "boot_archive", true, 4 << 30},
	{"i86pc/amd64/boot_archive.hash", "hash", false, 1 << 10},
}

// ImportPlatform makes an image directory of a SmartOS platform. The boot
// archive must be what its hash says; that shows damage, and proves nothing.
func ImportPlatform(p Platform) (muster.Image, error) {
	none := muster.Image{}
	if _, err := os.Lstat(filepath.Join(p.Out, manifestName)); !errors.Is(err, fs.ErrNotExist) {
		return none, fmt.Errorf("%s holds an image already: name another directory", p.Out)
	}
	blobs, err := OpenBlobs(filepath.Join(p.Out, blobsName))
	if err != nil {
		return none, err
	}
	in := &platform{blobs: blobs, found: map[string]muster.ImageFile{}}
	st, err := os.Stat(p.From)
	switch {
	case err != nil:
		return none, err
	case st.IsDir():
		err = in.readTree(os.DirFS(p.From))
	default:
		err = in.readTar(p.From)
	}
	if err != nil {
		return none, fmt.Errorf("%s: %w", p.From, err)
	}
	v := muster.ImageVariant{Arch: "amd64", Args: p.Args}
	for _, part := range parts {
		f, ok := in.found[part.role]
		if !ok && part.needed {
			return none, fmt.Errorf("%s is not a SmartOS platform: it holds no %s", p.From, part.path)
		}
		if ok {
			v.Files = append(v.Files, f)
		}
	}
	if in.hash != "" && in.hash != in.archive {
		return none, fmt.Errorf("%s is damaged: SHA-1 of its boot archive is %s, and boot_archive.hash says %s", p.From, in.archive, in.hash)
	}
	if p.Name == "" {
		p.Name = platformName(p.From, in.top)
	}
	return writeDir(p.Out, muster.Image{Name: p.Name, Kind: muster.SmartOSImage, Variants: []muster.ImageVariant{v}})
}

// platformName finds the stamp, 20190228T233723Z, in one of the names.
func platformName(from, top string) string {
	for _, s := range []string{top, filepath.Base(from)} {
		for _, w := range strings.FieldsFunc(s, func(r rune) bool { return r == '-' || r == '.' || r == '/' }) {
			if len(w) == 16 && w[8] == 'T' && w[15] == 'Z' && strings.Trim(w[:8]+w[9:15], "0123456789") == "" {
				return "smartos-" + w
			}
		}
	}
	return "smartos"
}

// A platform is one that is being read.
type platform struct {
	blobs         *Blobs
	found         map[string]muster.ImageFile // by role
	top           string                      // what stands before i86pc/
	hash, archive string                      // of the boot archive: as said, as it is
}

// want tells which part a path is, wherever the platform begins in it.
func want(name string) (part int, top string, ok bool) {
	name = path.Clean("/" + name)[1:]
	for i, p := range parts {
		if top, is := strings.CutSuffix(name, p.path); is && (top == "" || strings.HasSuffix(top, "/")) {
			return i, top, true
		}
	}
	return 0, "", false
}

func (in *platform) readTree(tree fs.FS) error {
	return fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.Count(name, "/") > 6 {
			return fs.SkipDir
		}
		i, top, ok := want(name)
		if !ok || d.IsDir() {
			return nil
		}
		if !d.Type().IsRegular() {
			return fmt.Errorf("%s is not a plain file", name)
		}
		f, err := tree.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		return in.take(i, top, f)
	})
}

func (in *platform) readTar(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	b := bufio.NewReaderSize(f, 1<<20)
	var src io.Reader = b
	if magic, _ := b.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(b)
		if err != nil {
			return err
		}
		defer z.Close()
		src = z
	}
	for t := tar.NewReader(src); ; {
		h, err := t.Next()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("it is neither a directory nor a whole tar file: %w", err)
		}
		i, top, ok := want(h.Name)
		if !ok || h.Typeflag == tar.TypeDir {
			continue
		}
		if h.Typeflag != tar.TypeReg {
			return fmt.Errorf("%s is not a plain file", h.Name)
		}
		if err := in.take(i, top, t); err != nil {
			return err
		}
	}
}

// take keeps one part.
func (in *platform) take(i int, top string, r io.Reader) error {
	p := parts[i]
	if _, twice := in.found[p.role]; twice {
		return fmt.Errorf("it holds %s twice: name one platform", p.path)
	}
	in.top = top
	tmp, err := os.CreateTemp(in.blobs.dir, partial)
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	strong, weak := sha256.New(), sha1.New()
	var head bytes.Buffer
	n, err := io.Copy(io.MultiWriter(tmp, strong, weak), io.TeeReader(io.LimitReader(r, p.limit+1), &first{&head, 128}))
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", p.path, err)
	case n > p.limit:
		return fmt.Errorf("%s has more than %d bytes", p.path, p.limit)
	case n == 0:
		return fmt.Errorf("%s is empty", p.path)
	}
	switch p.role {
	case "unix":
		if !bytes.HasPrefix(head.Bytes(), []byte("\x7fELF")) {
			return fmt.Errorf("%s is not a kernel", p.path)
		}
	case "boot_archive":
		in.archive = hex.EncodeToString(weak.Sum(nil))
	case "hash":
		in.hash = strings.ToLower(strings.TrimSpace(head.String()))
		if raw, err := hex.DecodeString(in.hash); err != nil || len(raw) != sha1.Size {
			return fmt.Errorf("%s is not a SHA-1 of 40 hex digits", p.path)
		}
	}
	digest := "sha256:" + hex.EncodeToString(strong.Sum(nil))
	if _, err := tmp.Seek(0, io.SeekStart); err != nil {
		return err
	}
	in.found[p.role] = muster.ImageFile{Role: p.role, Digest: digest, Size: n}
	return in.blobs.Put(digest, n, tmp)
}

// first keeps the first bytes of what is written.
type first struct {
	b *bytes.Buffer
	n int
}

func (f *first) Write(p []byte) (int, error) {
	if room := f.n - f.b.Len(); room > 0 {
		f.b.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}
