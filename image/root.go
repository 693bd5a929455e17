package image

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"muster.internal/packaging"
)

// rootPackages are in every root file system, beside what Debian itself calls
// required and apt: a system that is started, looked after, reached and told
// the time.
var rootPackages = strings.Fields(`systemd-sysv dbus udev kmod usr-is-merged iproute2 iputils-ping libnss-myhostname
	systemd-timesyncd ca-certificates openssh-server btrfs-progs`)

// rootZFS are the tools of the pool, and what they must not do by themselves: the
// initrd has imported it, and its daemon runs already.
var rootZFS = map[string][]string{"fuse": {"zfs-fuse"}, "openzfs": {"zfsutils-linux"}, "none": nil}

// unread are files of packages that a server has no reader for. They stay out
// of what is installed later, too.
var unread = []string{"/usr/share/man/*", "/usr/share/info/*", "/usr/share/doc/*", "/usr/share/locale/*/LC_MESSAGES/*"}

// makeRoot makes the root file system of a variant, in the cache, and returns the
// file: a tar archive, compressed by zstd. Debian's part is built by mmdebstrap
// and kept for the next time; ours is added behind it.
func (g *ingredients) makeRoot(ctx context.Context, a *apt, say func(string, ...any)) (string, error) {
	kernel, err := os.Stat(filepath.Join(g.root, "boot/vmlinuz-"+g.version))
	if err != nil {
		return "", err
	}
	epoch := kernel.ModTime()
	if s := os.Getenv("SOURCE_DATE_EPOCH"); s != "" {
		seconds, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return "", fmt.Errorf("SOURCE_DATE_EPOCH is %q, and no number of seconds", s)
		}
		epoch = time.Unix(seconds, 0)
	}
	args, packages, err := g.bootstrap(ctx)
	if err != nil {
		return "", err
	}
	versions, err := a.versions(ctx, packages)
	if err != nil {
		return "", err
	}
	id := sha256.Sum256([]byte(strings.Join(slices.Concat(args, emptied, unsettled, []string{versions, epoch.UTC().String()}), "\n")))
	base := filepath.Join(g.Cache, "base-"+hex.EncodeToString(id[:])[:16]+".tar.zst")
	if _, err := os.Stat(base); err != nil {
		say("building a root file system for %s of %d packages", g.arch, strings.Count(versions, "\n"))
		if err := debootstrap(ctx, args, epoch, base); err != nil {
			return "", err
		}
	}
	out := filepath.Join(g.Cache, partial+"root-"+g.arch)
	return out, finish(out, base, g.host, epoch)
}

// bootstrap are the arguments of mmdebstrap, and the packages that it is to take.
func (g *ingredients) bootstrap(ctx context.Context) (args, packages []string, err error) {
	packages = slices.Concat(rootPackages, rootZFS[g.ZFS], g.RootPackages)
	sources, err := g.sources(ctx)
	if err != nil {
		return nil, nil, err
	}
	modules := filepath.Join(g.root, "lib/modules", g.version)
	args = []string{"--quiet", "--variant=minbase", "--format=tar", "--architectures=" + g.arch, "--include=" + strings.Join(packages, ",")}
	for _, p := range unread {
		args = append(args, "--dpkgopt=path-exclude="+p)
	}
	args = append(args, "--dpkgopt=path-include=/usr/share/doc/*/copyright",
		"--hook-dir=/usr/share/mmdebstrap/hooks/maybe-merged-usr") // else a tool that merges is installed, with all of Perl
	for _, hook := range []string{
		`mkdir -p "$1/usr/lib/modules"`,
		`copy-in '` + modules + `' /usr/lib/modules`,
		`chroot "$1" depmod ` + g.version,
		`chroot "$1" systemctl --quiet enable systemd-networkd.service`,
		`chroot "$1" systemctl --quiet mask zfs-fuse.service zfs-import-cache.service zfs-import-scan.service`,
	} {
		args = append(args, "--customize-hook="+hook)
	}
	suite, err := codename()
	return append(append(args, suite, "-"), sources...), packages, err
}

// debootstrap runs mmdebstrap and keeps of what it makes what is the same
// whoever makes it, where and when. The file is there, whole, or it is not.
func debootstrap(ctx context.Context, args []string, epoch time.Time, to string) error {
	c := exec.CommandContext(ctx, "mmdebstrap", args...)
	c.Env = append(os.Environ(), "LC_ALL=C", "SOURCE_DATE_EPOCH="+strconv.FormatInt(epoch.Unix(), 10))
	var complaints bytes.Buffer
	c.Stderr = &complaints
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	tmp := to + ".part"
	defer os.Remove(tmp)
	err = writeTar(tmp, false, func(w *tar.Writer) error { return settle(w, out) })
	io.Copy(io.Discard, out) // so that it ends
	if bad := c.Wait(); bad != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("mmdebstrap: %s (%w)", firstComplaint(complaints.String()), bad)
	}
	if err != nil {
		return fmt.Errorf("what mmdebstrap made: %w", err)
	}
	return os.Rename(tmp, to)
}

// writeTar writes an archive compressed by zstd, or with more to follow the
// part of one: parts are put together by putting their bytes together.
func writeTar(file string, last bool, write func(*tar.Writer) error) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := zstd.NewWriter(f, zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	w := tar.NewWriter(z)
	if err := write(w); err != nil {
		return err
	}
	end := w.Flush
	if last {
		end = w.Close
	}
	return errors.Join(end(), z.Close(), f.Close())
}

// emptied are directories in which something else is mounted at every start.
var emptied = []string{"dev/", "proc/", "sys/", "run/", "tmp/"}

// unsettled is what differs from build to build, or is a secret that machines
// must not share, or is made for each machine.
var unsettled = []string{"etc/hostname", "etc/resolv.conf", "etc/machine-id", "etc/ssh/ssh_host_*", "etc/.pwd.lock", "etc/*-",
	"var/log/*.log", "var/log/apt/*", "var/cache/apt/*.bin", "var/cache/debconf/*-old", "var/cache/ldconfig/*", "var/lib/dpkg/*-old",
	"var/lib/dbus/machine-id", "var/lib/systemd/random-seed"}

func settle(w *tar.Writer, from io.Reader) error {
	for r := tar.NewReader(from); ; {
		h, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		name := path.Clean(strings.TrimPrefix(h.Name, "./"))
		if slices.ContainsFunc(emptied, func(d string) bool { return strings.HasPrefix(name, d) }) ||
			slices.ContainsFunc(unsettled, func(p string) bool { ok, _ := path.Match(p, name); return ok }) {
			continue
		}
		clean := tar.Header{Typeflag: h.Typeflag, Name: name, Linkname: h.Linkname, Size: h.Size, Mode: h.Mode, Uid: h.Uid, Gid: h.Gid,
			ModTime: h.ModTime.Truncate(time.Second), Format: tar.FormatPAX, PAXRecords: map[string]string{}}
		if h.Typeflag == tar.TypeLink {
			clean.Linkname = path.Clean(strings.TrimPrefix(h.Linkname, "./"))
		}
		for k, v := range h.PAXRecords {
			if strings.HasPrefix(k, "SCHILY.xattr.") {
				clean.PAXRecords[k] = v
			}
		}
		if err := w.WriteHeader(&clean); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if _, err := io.Copy(w, r); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
}

// ownFiles are ours in a root: the host as a unit, and a door for the operator
// whose host key is the machine's, not the image's.
func ownFiles() tree {
	t := tree{}
	t.text("usr/lib/systemd/system/muster-host.service", packaging.HostUnit)
	t.link("etc/systemd/system/multi-user.target.wants/muster-host.service", "/lib/systemd/system/muster-host.service")
	t.text("etc/ssh/sshd_config.d/muster.conf", "HostKey /etc/ssh/keys/ssh_host_ed25519_key\n")
	t.text("usr/lib/systemd/system/ssh.service.d/muster.conf", `[Service]
ExecStartPre=
ExecStartPre=/bin/sh -c 'k=/etc/ssh/keys/ssh_host_ed25519_key; [ -s $k ] || { rm -f $k* && ssh-keygen -q -t ed25519 -N "" -f $k.new && sync $k.new && mv $k.new.pub $k.pub && mv $k.new $k; }'
ExecStartPre=/usr/sbin/sshd -t
`)
	// There is nothing to be brought up to date at the first start
	// (systemd-update-done.service(8)).
	t.text("etc/.updated", "")
	t.text("var/.updated", "")
	return t
}

// finish writes a whole root: Debian's part as it is, and ours behind it.
func finish(to, base, host string, epoch time.Time) error {
	own := ownFiles()
	own.copy("usr/bin/muster-host", host, 0o755)
	mine := to + ".own"
	defer os.Remove(mine)
	if err := writeTar(mine, true, func(w *tar.Writer) error { return own.writeTar(w, epoch) }); err != nil {
		return err
	}
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, part := range []string{base, mine} {
		p, err := os.Open(part)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, p)
		if err := errors.Join(err, p.Close()); err != nil {
			return err
		}
	}
	return f.Close()
}

// writeTar writes the tree's files and links, owned by root, with the
// directories that they are in.
func (t tree) writeTar(w *tar.Writer, at time.Time) error {
	t.addParents()
	for _, name := range t.names() {
		e := t[name]
		h := &tar.Header{Name: name, Mode: int64(e.mode & 0o7777), ModTime: at, Format: tar.FormatPAX}
		switch e.mode & 0o170000 {
		case modeDir:
			h.Typeflag = tar.TypeDir
		case modeLink:
			h.Typeflag, h.Linkname = tar.TypeSymlink, string(e.body)
		default:
			h.Typeflag = tar.TypeReg
			if e.source != "" {
				b, err := os.ReadFile(e.source)
				if err != nil {
					return err
				}
				e.body = b
			}
			h.Size = int64(len(e.body))
		}
		if err := w.WriteHeader(h); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write(e.body); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}
