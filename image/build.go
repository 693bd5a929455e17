package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"muster.internal"
)

// Options say which Linux image to build. The zero value builds one for
// virtual machines, with zfs-fuse and btrfs, into the directory NAME.
type Options struct {
	Name   string // of the image; default linux-FLAVOUR-KERNELVERSION
	Out    string // directory to make; default: the image's name
	Arch   string // default amd64
	Kernel string // flavour: "cloud" (default; virtual machines) or "generic" (also real hardware)
	// ZFS is "fuse" (default: Debian's zfs-fuse), "openzfs" (with kernel
	// modules built elsewhere, in ZFSModules) or "none".
	ZFS        string
	ZFSModules string
	// Host is the static muster-host to boot; default: beside the running
	// program, else built by go when run in muster's source tree.
	Host     string
	Compress string   // "zstd" (default) or "gzip"
	Args     []string // kernel arguments after the usual ones
	Cache    string   // default: muster/image in the user's cache directory
	// Progress hears one line for each step; default: nobody.
	Progress io.Writer
}

// defaultArgs are what every boot of a Linux image carries: a console on the
// screen and one on the first serial line (the last one is /dev/console), and
// a reboot instead of a dead machine when the kernel panics.
var defaultArgs = []string{"console=tty0", "console=ttyS0,115200n8", "panic=10", "quiet", "random.trust_cpu=on"}

// Build makes an image directory in one go and returns it. It needs apt and a
// network (or a filled cache), and neither root nor anything installed.
func Build(ctx context.Context, o Options) (string, error) {
	if err := o.complete(); err != nil {
		return "", err
	}
	say := func(format string, args ...any) { fmt.Fprintf(o.Progress, format+"\n", args...) }
	if err := os.MkdirAll(o.Cache, 0o755); err != nil {
		return "", err
	}
	unlock, err := lockCache(ctx, o.Cache, say)
	if err != nil {
		return "", err
	}
	defer unlock()
	host, err := findHost(ctx, o, say)
	if err != nil {
		return "", err
	}
	if err := checkStatic(host, o.Arch); err != nil {
		return "", err
	}
	packages := []string{"busybox-static", "btrfs-progs"}
	packages = append(packages, zfsPackages[o.ZFS]...)
	a := &apt{work: o.Cache, arch: o.Arch, contrib: o.ZFS == "openzfs", say: say}
	debs, kernel, err := a.fetch(ctx, flavours[o.Kernel].meta+o.Arch, packages)
	if err != nil {
		return "", err
	}
	root, err := a.unpack(ctx, debs)
	if err != nil {
		return "", err
	}
	version := strings.TrimPrefix(kernel, "linux-image-")
	if o.Name == "" {
		o.Name = "linux-" + version
	}
	if o.Out == "" {
		o.Out = o.Name
	}
	t, err := initrd(o, root, version, host, say)
	if err != nil {
		return "", err
	}
	return o.Out, o.write(t, filepath.Join(root, "boot/vmlinuz-"+version), comment(debs), say)
}

// lockCache lets one build at a time download and unpack into a cache.
func lockCache(ctx context.Context, dir string, say func(string, ...any)) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for told := false; ; told = true {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if err != unix.EWOULDBLOCK && err != unix.EINTR {
			f.Close()
			return nil, fmt.Errorf("locking the package cache %s: %w", dir, err)
		}
		if !told {
			say("another build uses the package cache %s; waiting for it", dir)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (o *Options) complete() error {
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	setDefault(&o.Arch, "amd64")
	setDefault(&o.Kernel, "cloud")
	setDefault(&o.ZFS, "fuse")
	setDefault(&o.Compress, "zstd")
	if o.Cache == "" {
		c, err := os.UserCacheDir()
		if err != nil {
			return fmt.Errorf("where to keep downloaded packages? %w; or name a cache directory", err)
		}
		o.Cache = filepath.Join(c, "muster", "image")
	}
	var err error
	if o.Cache, err = filepath.Abs(o.Cache); err != nil {
		return err
	}
	if _, ok := machines[o.Arch]; !ok {
		return fmt.Errorf("architecture %q is not one of %s", o.Arch, strings.Join(Arches, ", "))
	}
	if _, ok := flavours[o.Kernel]; !ok {
		return fmt.Errorf("kernel %q is not one of cloud, generic", o.Kernel)
	}
	if _, ok := zfsPackages[o.ZFS]; !ok {
		return fmt.Errorf("zfs %q is not one of fuse, openzfs, none", o.ZFS)
	}
	if o.ZFS == "openzfs" && o.ZFSModules == "" {
		return fmt.Errorf("zfs openzfs needs the directory of the kernel modules, built for this kernel: Debian has no package of them")
	}
	if !slices.Contains([]string{"zstd", "gzip"}, o.Compress) {
		return fmt.Errorf("compression %q is not one of zstd, gzip", o.Compress)
	}
	if o.Name != "" && !muster.ValidStamp(o.Name) {
		return fmt.Errorf("%q is not an image name: letters, digits, dots, hyphens and underscores, at most 64", o.Name)
	}
	for _, arg := range o.Args {
		if !muster.ValidArg(arg) {
			return fmt.Errorf("%q is not a kernel argument that a boot script can carry", arg)
		}
	}
	return nil
}

func setDefault(s *string, to string) {
	if *s == "" {
		*s = to
	}
}

// comment says what an image is made of, within the manifest's limit.
func comment(debs []deb) string {
	var parts []string
	for _, d := range debs {
		if !strings.HasPrefix(d.name, "lib") && !strings.HasPrefix(d.name, "gcc-") {
			parts = append(parts, d.name+" "+d.version)
		}
	}
	return strings.Join(parts, ", ")
}

func (o *Options) write(t tree, kernel, comment string, say func(string, ...any)) error {
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return err
	}
	// Without a manifest the directory is no image, until the new one is whole.
	if err := os.Remove(filepath.Join(o.Out, manifestName)); err != nil && !os.IsNotExist(err) {
		return err
	}
	blobs, err := OpenBlobs(filepath.Join(o.Out, blobsName))
	if err != nil {
		return err
	}
	tmp := filepath.Join(o.Out, blobsName, partial+"initrd")
	defer os.Remove(tmp)
	if err := t.pack(tmp, o.Compress); err != nil {
		return err
	}
	v := muster.ImageVariant{Arch: o.Arch, Args: append(slices.Clone(defaultArgs), o.Args...)}
	for _, f := range []struct{ role, from string }{{"kernel", kernel}, {"initrd", tmp}} {
		file, err := keep(blobs, f.role, f.from)
		if err != nil {
			return err
		}
		say("%-7s %9d bytes  %s", f.role, file.Size, file.Digest)
		v.Files = append(v.Files, file)
	}
	i, err := writeDir(o.Out, muster.Image{Name: o.Name, Kind: muster.LinuxImage, Comment: comment, Variants: []muster.ImageVariant{v}})
	if err != nil {
		return err
	}
	if err := blobs.Sweep(func(d string) bool {
		return slices.ContainsFunc(v.Files, func(f muster.ImageFile) bool { return f.Digest == d })
	}); err != nil {
		return err
	}
	say("image %s %s in %s", i.Name, i.Digest, o.Out)
	return nil
}

// pack writes the tree as a compressed cpio archive.
func (t tree) pack(file, compress string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	var z io.WriteCloser
	if compress == "gzip" {
		z, err = gzip.NewWriterLevel(f, gzip.BestCompression)
	} else {
		// One goroutine: the bytes must not depend on the machine. The kernel's
		// decoder takes windows up to 128 MiB; this level uses 8.
		z, err = zstd.NewWriter(f, zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithEncoderConcurrency(1))
	}
	if err != nil {
		return err
	}
	if err := t.writeCPIO(z); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return f.Close()
}

func keep(blobs *Blobs, role, from string) (muster.ImageFile, error) {
	f, err := os.Open(from)
	if err != nil {
		return muster.ImageFile{}, fmt.Errorf("the image's %s: %w", role, err)
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err != nil {
		return muster.ImageFile{}, fmt.Errorf("the image's %s: %w", role, err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return muster.ImageFile{}, err
	}
	file := muster.ImageFile{Role: role, Digest: "sha256:" + hex.EncodeToString(h.Sum(nil)), Size: n}
	return file, blobs.Put(file.Digest, n, f)
}
