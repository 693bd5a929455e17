package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	Name   string   // of the image; default linux-FLAVOUR-KERNELVERSION
	Out    string   // directory to make; default: the image's name
	Arches []string // one variant each, under one name; default amd64
	Kernel string   // flavour: "cloud" (default; virtual machines) or "generic" (also real hardware)
	// ZFS is "fuse" (Debian's zfs-fuse), "openzfs" (with kernel modules built
	// elsewhere, in ZFSModules; one architecture at a time) or "none". The
	// default is fuse where Debian has it and none elsewhere, which is arm64:
	// there pools are btrfs.
	ZFS        string
	ZFSModules string
	// Host is the static muster-host to boot; default: beside the running
	// program, as muster-host or muster-host-ARCH, else built by go when run in
	// muster's source tree. A named one is for the architecture that it is for.
	Host string
	// Root adds a root file system with systemd, for nodes to live in, of
	// Debian's packages and RootPackages. Its host is the same.
	Root         bool
	RootPackages []string
	Mirror       string   // of Debian; default: what apt uses on this system
	Compress     string   // "zstd" (default) or "gzip"
	Args         []string // kernel arguments after the usual ones
	Cache        string   // default: muster/image in the user's cache directory
	// Progress hears one line for each step; default: nobody.
	Progress io.Writer

	arch string // of the variant that is being built
}

// defaultArgs are what every boot of a Linux image carries: a console on the
// screen and one on the first serial line (the last one is /dev/console), and
// a reboot instead of a dead machine when the kernel panics.
func defaultArgs(arch string) []string {
	return []string{"console=tty0", "console=" + machines[arch].serial + ",115200n8", "panic=10", "quiet", "random.trust_cpu=on"}
}

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
	var all []*ingredients
	for _, arch := range o.Arches {
		v, err := o.gather(ctx, arch, say)
		if err != nil {
			return "", err
		}
		all = append(all, v)
	}
	if o.Name == "" {
		o.Name = "linux-" + all[0].version
		if len(all) > 1 {
			o.Name = strings.TrimSuffix(o.Name, "-"+o.Arches[0])
		}
	}
	if o.Out == "" {
		o.Out = o.Name
	}
	return o.Out, o.write(all, say)
}

// ingredients are what one variant is made of.
type ingredients struct {
	Options // with the variant's architecture and pool tools
	host    string
	debs    []deb
	root    string // where the packages are unpacked
	version string // of the kernel
	rootfs  string // file with the root file system; empty: none
}

// gather fetches what a variant is made of.
func (o Options) gather(ctx context.Context, arch string, say func(string, ...any)) (*ingredients, error) {
	o.arch = arch
	setDefault(&o.ZFS, machines[arch].zfs)
	v := &ingredients{Options: o}
	var err error
	if v.host, err = findHost(ctx, o, say); err != nil {
		return nil, err
	}
	if err := checkStatic(v.host, arch); err != nil {
		return nil, err
	}
	packages := append([]string{"busybox-static", "btrfs-progs"}, zfsPackages[o.ZFS]...)
	a := &apt{work: o.Cache, arch: arch, say: say}
	if o.Mirror != "" || o.ZFS == "openzfs" {
		a.archives = o.sources
	}
	var kernel string
	if v.debs, kernel, err = a.fetch(ctx, flavours[o.Kernel].meta+arch, packages); err != nil {
		return nil, err
	}
	v.version = strings.TrimPrefix(kernel, "linux-image-")
	if v.root, err = a.unpack(ctx, v.debs); err == nil && o.Root {
		v.rootfs, err = v.makeRoot(ctx, a, say)
	}
	return v, err
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
	if len(o.Arches) == 0 {
		o.Arches = []string{"amd64"}
	}
	setDefault(&o.Kernel, "cloud")
	setDefault(&o.Compress, "zstd")
	var err error
	if o.Cache, err = cacheDir(o.Cache); err != nil {
		return err
	}
	for n, arch := range o.Arches {
		if _, ok := machines[arch]; !ok || slices.Contains(o.Arches[:n], arch) {
			return fmt.Errorf("architecture %q is not one of %s, each at most once", arch, strings.Join(Arches, ", "))
		}
		if o.ZFS == "fuse" && machines[arch].zfs != "fuse" {
			return fmt.Errorf("zfs fuse: Debian has no zfs-fuse for %s; leave it out for pools of btrfs there", arch)
		}
	}
	if _, ok := flavours[o.Kernel]; !ok {
		return fmt.Errorf("kernel %q is not one of cloud, generic", o.Kernel)
	}
	if _, ok := zfsPackages[o.ZFS]; !ok && o.ZFS != "" {
		return fmt.Errorf("zfs %q is not one of fuse, openzfs, none", o.ZFS)
	}
	if o.ZFS == "openzfs" && len(o.Arches) > 1 {
		return fmt.Errorf("zfs openzfs: its modules are for one kernel; build one architecture at a time")
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
	if _, err := exec.LookPath("mmdebstrap"); err != nil && o.Root {
		return errors.New("mmdebstrap is not here, and root file systems are built with it: install the package mmdebstrap")
	}
	if len(o.RootPackages) > 0 && !o.Root {
		return fmt.Errorf("packages are named for a root file system, and the image is to have none: say root as well")
	}
	for _, p := range o.RootPackages {
		if !packageName.MatchString(p) {
			return fmt.Errorf("%q is not the name of a package", p)
		}
	}
	if o.Mirror != "" && !mirrorURL.MatchString(o.Mirror) {
		return fmt.Errorf("mirror %q is not an http or https URL", o.Mirror)
	}
	for _, arg := range o.Args {
		if !muster.ValidArg(arg) {
			return fmt.Errorf("%q is not a kernel argument that a boot script can carry", arg)
		}
	}
	return nil
}

var (
	packageName = regexp.MustCompile(`^[a-z0-9][a-z0-9.+-]+$`) // Debian policy 5.6.1
	mirrorURL   = regexp.MustCompile(`^https?://[^\s\[\]#]+$`)
)

// cacheDir is where downloaded packages are kept.
func cacheDir(named string) (string, error) {
	if named == "" {
		c, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("where to keep downloaded packages? %w; or name a cache directory", err)
		}
		named = filepath.Join(c, "muster", "image")
	}
	return filepath.Abs(named)
}

func setDefault(s *string, to string) {
	if *s == "" {
		*s = to
	}
}

// comment says what an image is made of, within the manifest's limit.
func comment(all []*ingredients) string {
	var parts []string
	for _, v := range all {
		for _, d := range v.debs {
			part := d.name + " " + d.version
			if !strings.HasPrefix(d.name, "lib") && !strings.HasPrefix(d.name, "gcc-") && !slices.Contains(parts, part) {
				parts = append(parts, part)
			}
		}
	}
	return strings.Join(parts, ", ")
}

func (o *Options) write(all []*ingredients, say func(string, ...any)) error {
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
	i := muster.Image{Name: o.Name, Kind: muster.LinuxImage, Comment: comment(all)}
	for _, v := range all {
		v.Name = o.Name
		made, err := v.write(blobs, filepath.Join(o.Out, blobsName, partial+"initrd"), say)
		if err != nil {
			return err
		}
		i.Variants = append(i.Variants, made)
	}
	if i, err = writeDir(o.Out, i); err != nil {
		return err
	}
	files := Files(i)
	if err := blobs.Sweep(func(d string) bool {
		return slices.ContainsFunc(files, func(f muster.ImageFile) bool { return f.Digest == d })
	}); err != nil {
		return err
	}
	say("image %s %s in %s", i.Name, i.Digest, o.Out)
	return nil
}

// write puts a variant's files among the blobs; tmp is for the unfinished initrd.
func (g *ingredients) write(blobs *Blobs, tmp string, say func(string, ...any)) (muster.ImageVariant, error) {
	v := muster.ImageVariant{Arch: g.arch, Args: append(defaultArgs(g.arch), g.Args...)}
	t, err := initrd(g.Options, g.root, g.version, g.host, say)
	if err != nil {
		return v, err
	}
	defer os.Remove(tmp)
	if err := t.pack(tmp, g.Compress); err != nil {
		return v, err
	}
	parts := []struct{ role, from string }{{"kernel", filepath.Join(g.root, "boot/vmlinuz-"+g.version)}, {"initrd", tmp}}
	if g.rootfs != "" {
		defer os.Remove(g.rootfs)
		parts = append(parts, struct{ role, from string }{"rootfs", g.rootfs})
	}
	for _, f := range parts {
		file, err := keep(blobs, f.role, f.from)
		if err != nil {
			return v, err
		}
		say("%s %-7s %9d bytes  %s", g.arch, f.role, file.Size, file.Digest)
		v.Files = append(v.Files, file)
	}
	return v, nil
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
