package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	muster "muster.internal"
	"muster.internal/image"
)

func (a *app) imageCmd() *cobra.Command {
	return group("image", "Platform images: what machines boot",
		`A platform image is a manifest and its files, all known by digest. It is built
into a directory, added to the control plane, and pulled by booters as policy
and records name it.`,
		a.imageBuild(), a.imageImport(), a.imageAdd(), a.imageLs(), a.imageShow(), a.imageRm())
}

func (a *app) imageBuild() *cobra.Command {
	var o image.Options
	c := &cobra.Command{
		Use:   "build [DIR]",
		Short: "Build a Linux platform image out of Debian's packages",
		Long: `Build a Linux platform image: Debian's kernel, and an initrd with muster-host as
init, the modules it needs, and the pool tools. It takes apt and a network (or
what an earlier build has kept), and neither root nor anything installed.

The image boots virtual machines by default; --kernel generic also boots real
hardware. OpenZFS needs its modules built for that kernel, in a directory.

With --root the image is for machines that serve, too: it carries a Debian with
systemd, built by mmdebstrap (of the package of that name; as root, or where
users may have namespaces). A node of such an image fetches that root file system
once, checks its hash, keeps it on its pool and lives there: muster-host is a
unit, and what is declared is applied. Without --root a node lives in its initrd
and does no more than say that it is there. What a root holds that was neither
declared nor put below /srv or /home stays behind in that root when the machine is
given another image. The same packages make the same bytes; --mirror with an
archive of one day (snapshot.debian.org) fixes them. For arm64 on amd64, or the
other way round, the package qemu-user-static is needed as well.`,
		Example: `  muster image build
  muster image build ./serving --root --root-package nftables --root-package vim-tiny
  muster image build ./both --arch amd64,arm64
  muster image build ./metal --kernel generic --zfs openzfs --zfs-modules ./zfs-6.1
  muster image add ./metal`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.Out = a.abs(args[0])
			}
			o.Progress = a.stderr
			dir, err := image.Build(c.Context(), o)
			if err != nil {
				return err
			}
			i, _, err := image.ReadDir(dir)
			if err != nil {
				return err
			}
			return a.show(map[string]any{"directory": dir, "image": i}, func(w io.Writer) {
				fmt.Fprintf(w, "image %s, %s, is in %s: muster image add %s\n", i.Name, size(imageSize(i)), dir, dir)
			})
		},
	}
	f := c.Flags()
	f.StringVar(&o.Name, "name", "", "name of the image (default linux-FLAVOUR-KERNELVERSION)")
	f.StringSliceVar(&o.Arches, "arch", []string{"amd64"}, "architectures, each a variant of the one image: amd64, arm64")
	f.StringVar(&o.Kernel, "kernel", "cloud", "cloud (virtual machines) or generic (also real hardware)")
	f.StringVar(&o.ZFS, "zfs", "", "fuse, openzfs or none (default: fuse; none for arm64, where pools are btrfs)")
	f.StringVar(&o.ZFSModules, "zfs-modules", "", "directory with OpenZFS's modules for that kernel, with --zfs openzfs")
	f.StringVar(&o.Host, "host", "", "the static muster-host to boot (default: beside this program)")
	f.BoolVar(&o.Root, "root", false, "add a root file system with systemd, for nodes to live in")
	f.StringSliceVar(&o.RootPackages, "root-package", nil, "a package for that root file system; repeat for more")
	f.StringVar(&o.Mirror, "mirror", "", "Debian's archive to take packages from (default: those that apt uses here)")
	f.StringVar(&o.Compress, "compress", "zstd", "zstd or gzip")
	f.StringArrayVar(&o.Args, "arg", nil, "a kernel argument after the usual ones; repeat for more")
	f.StringVar(&o.Cache, "cache", "", "where downloads are kept (default: the user's cache directory)")
	a.complete(c, "kernel", "cloud", "generic")
	a.complete(c, "zfs", "fuse", "openzfs", "none")
	a.complete(c, "compress", "zstd", "gzip")
	return c
}

func (a *app) imageImport() *cobra.Command {
	var p image.Platform
	c := &cobra.Command{
		Use:   "import PLATFORM DIR",
		Short: "Make an image of a SmartOS platform",
		Long: `Make an image directory of a SmartOS platform: a directory that holds i86pc/, or
a tar file of it, as SmartOS is published. The kernel and the boot archive are
needed; the archive is compared with boot_archive.hash when that is there.

A machine that boots it announces itself as every SmartOS machine does. What it
cannot do is a setup approved here: a SmartOS platform has no program to survey
its disks by serial number and to install with. Approve by code instead, with
muster-host for illumos on the installed system.`,
		Example: `  muster image import platform-20260115T001122Z.tgz ./smartos
  muster image import /mnt/platform ./smartos --name smartos-lab --arg console=ttyb
  muster image add ./smartos`,
		Args: names("PLATFORM", "DIR"),
		RunE: func(_ *cobra.Command, args []string) error {
			p.From, p.Out = a.abs(args[0]), a.abs(args[1])
			i, err := image.ImportPlatform(p)
			if err != nil {
				return err
			}
			return a.show(map[string]any{"directory": p.Out, "image": i}, func(w io.Writer) {
				if len(i.Variants[0].Files) < 3 {
					a.warn(a.stderr, "the platform has no boot_archive.hash: damage on the way to a machine will not be noticed")
				}
				fmt.Fprintf(w, "image %s, %s, is in %s: muster image add %s\n", i.Name, size(imageSize(i)), args[1], args[1])
			})
		},
	}
	f := c.Flags()
	f.StringVar(&p.Name, "name", "", "name of the image (default smartos-STAMP)")
	f.StringArrayVar(&p.Args, "arg", nil, "a boot property for every boot of it, NAME=VALUE; repeat for more")
	return c
}

func (a *app) imageAdd() *cobra.Command {
	return &cobra.Command{
		Use:   "add DIR",
		Short: "Send an image directory to the control plane",
		Long: `Send an image directory (manifest.json and blobs/, as "image build" makes it) to
the control plane. Files that are there already are not sent again, and every
digest is checked on both sides.`,
		Example: `  muster image add ./debian-12-3`,
		Args:    names("DIR"),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			i, blobs, err := image.ReadDir(a.abs(args[0]))
			if err != nil {
				return err
			}
			for _, file := range image.Files(i) {
				if err := a.sendBlob(c.Context(), f, blobs, file); err != nil {
					return err
				}
			}
			if i, err = f.AddImage(c.Context(), i); err != nil {
				return err
			}
			return a.show(i, func(w io.Writer) { fmt.Fprintf(w, "image %s is there, %s\n", i.Name, i.Digest) })
		}),
	}
}

func (a *app) sendBlob(ctx context.Context, f muster.Fleet, blobs *image.Blobs, file muster.ImageFile) error {
	there, err := f.HasBlob(ctx, file.Digest)
	if err != nil {
		return err
	}
	if there {
		fmt.Fprintf(a.stderr, "%s (%s) is there already\n", file.Role, size(file.Size))
		return nil
	}
	r, err := blobs.Open(file.Digest)
	if err != nil {
		return err
	}
	defer r.Close()
	fmt.Fprintf(a.stderr, "sending %s, %s\n", file.Role, size(file.Size))
	return f.PutBlob(ctx, file.Digest, file.Size, r)
}

func (a *app) imageLs() *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Short:   "List images",
		Example: `  muster image ls`,
		Args:    names(),
		RunE: a.with(func(c *cobra.Command, f fleet, _ []string) error {
			is, err := f.Images(c.Context())
			if err != nil {
				return err
			}
			return a.show(list(is), func(w io.Writer) {
				if len(is) == 0 {
					fmt.Fprintln(a.stderr, "there is no image: muster image build, then muster image add DIR")
					return
				}
				rows := make([][]string, len(is))
				for n, i := range is {
					var archs []string
					for _, v := range i.Variants {
						archs = append(archs, v.Arch)
					}
					rows[n] = []string{said(i.Name), string(i.Kind), strings.Join(archs, " "), size(imageSize(i)), shortDigest(i.Digest), a.ago(i.AddedAt), said(i.Comment)}
				}
				grid(w, []string{"NAME", "KIND", "ARCH", "SIZE", "DIGEST", "ADDED", "COMMENT"}, rows)
			})
		}),
	}
}

// imageSize counts a file that two variants share once.
func imageSize(i muster.Image) int64 {
	var n int64
	for _, f := range image.Files(i) {
		n += f.Size
	}
	return n
}

func shortDigest(d string) string {
	d = strings.TrimPrefix(d, "sha256:")
	if len(d) > 12 {
		d = d[:12]
	}
	return dash(d)
}

func (a *app) imageShow() *cobra.Command {
	return &cobra.Command{
		Use:               "show IMAGE",
		Short:             "Show an image, by name or by digest",
		Example:           `  muster image show debian-12-3`,
		Args:              names("IMAGE"),
		ValidArgsFunction: a.completeWith(imageWords),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			i, err := f.Image(c.Context(), args[0])
			if err != nil {
				return err
			}
			return a.show(i, func(w io.Writer) {
				a.fields(w, "name", said(i.Name), "kind", string(i.Kind), "digest", said(i.Digest), "added", a.ago(i.AddedAt), "comment", said(i.Comment))
				for _, v := range i.Variants {
					fmt.Fprintln(w)
					a.fields(w, "architecture", said(v.Arch), "arguments", said(strings.Join(v.Args, " ")))
					rows := make([][]string, len(v.Files))
					for n, file := range v.Files {
						rows[n] = []string{said(file.Role), size(file.Size), said(file.Digest)}
					}
					grid(w, []string{"FILE", "SIZE", "DIGEST"}, rows)
				}
			})
		}),
	}
}

func (a *app) imageRm() *cobra.Command {
	return &cobra.Command{
		Use:   "rm IMAGE",
		Short: "Remove an image that nothing names any more",
		Long: `Remove an image that nothing names any more. Content that no image needs goes
with it, unless it was sent within the last 24 hours: that goes with the next
image that is removed.`,
		Example:           `  muster image rm debian-12-2`,
		Args:              names("IMAGE"),
		ValidArgsFunction: a.completeWith(imageWords),
		RunE: a.with(func(c *cobra.Command, f fleet, args []string) error {
			if err := f.RemoveImage(c.Context(), args[0]); err != nil {
				return err
			}
			return a.show(map[string]string{"name": args[0], "removed": "true"}, func(w io.Writer) {
				fmt.Fprintf(w, "image %s is removed\n", said(args[0]))
			})
		}),
	}
}
