package main

import (
	"strings"

	"github.com/spf13/cobra"

	"muster.internal/lab"
)

// labCmd starts real virtual machines; only the installation it makes for
// itself is touched.
func (a *app) labCmd() *cobra.Command {
	c := lab.LabConfig{Out: a.stdout}
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Virtual machines that boot from the network by real firmware (root)",
		Long: `Start an installation in a network namespace of its own, musterd and
muster-booter as real processes, and virtual machines that boot there from the
network: with SeaBIOS and iPXE (bios), with OVMF by PXE or HTTP (uefi,
uefi-http), or 64-bit ARM with AAVMF (arm64, arm64-http). "both" is bios and
uefi by turns, "all" every kind by turns. ARM machines get pools of btrfs
(approve them with --pool btrfs). It shows what happens and stays up until ^C.

It needs root, QEMU and the boot loaders ("make packages" installs them), and
touches nothing but its directory and its namespace.`,
		Example: `  muster lab --machines 4 --firmware uefi --auto
  make lab
  make lab LAB='--machines 4 --firmware uefi'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.Dir = a.abs(c.Dir)
			return lab.RunLab(cmd.Context(), c)
		},
	}
	f := cmd.Flags()
	numberVar(f, &c.Machines, "machines", 2, 1, 64, "how many")
	f.StringVar(&c.Firmware, "firmware", "both", strings.Join(lab.FirmwareWords(), ", "))
	f.StringVar(&c.Dir, "dir", "muster-lab", "directory of disks, consoles and logs; made anew each time")
	f.BoolVar(&c.Auto, "auto", false, "approve by itself whatever can be approved")
	a.complete(cmd, "firmware", lab.FirmwareWords()...)
	return cmd
}
