package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"muster.internal"
	"muster.internal/inventory"
	"muster.internal/layout"
)

func profile(_ context.Context, e *env) error {
	if err := e.flags("profile", nil); err != nil {
		return err
	}
	p := e.machine.Profile()
	return e.print(p, func(w io.Writer) {
		for _, l := range [][2]string{{"architecture", p.Arch}, {"system", p.OS + " " + p.OSVersion}, {"kernel", p.Kernel}, {"firmware", p.Firmware},
			{"services", p.ServiceManager}, {"packages", p.PackageManager}, {"containers", p.ContainerRuntime}, {"ZFS", p.Pools},
			{"graphical", fmt.Sprint(p.Graphical)}, {"virtualised", fmt.Sprint(p.Virtualised)}} {
			if l[1] == "" {
				l[1] = "none"
			}
			fmt.Fprintf(w, "%-13s %s\n", l[0], l[1])
		}
	})
}

// sysinfo is what this machine says of itself, disks included.
func sysinfo(e *env) (inventory.Facts, error) {
	f, err := e.machine.Facts()
	if err != nil {
		return f, err
	}
	f.Version = muster.Build
	f.Disks, err = e.machine.Disks()
	return f, err
}

func facts(_ context.Context, e *env) error {
	if err := e.flags("inventory", nil); err != nil {
		return err
	}
	f, err := sysinfo(e)
	if err != nil {
		return err
	}
	info, err := e.machine.Describe(f)
	if err != nil {
		return err
	}
	return e.print(info, func(w io.Writer) {
		said := func(text string) string { return cmp.Or(strings.TrimSpace(text), "unknown") }
		fmt.Fprintf(w, "UUID     %s\nmachine  %s\nserial   %s\nmemory   %d MiB\nCPUs     %d\nfirmware %s\n",
			said(f.UUID), said(f.Manufacturer+" "+f.Product), said(f.Serial), f.MemoryMiB, f.CPUs, said(f.Firmware))
		for _, m := range f.MACs {
			fmt.Fprintf(w, "NIC      %s\n", m)
		}
		printDisks(w, f.Disks)
	})
}

func survey(_ context.Context, e *env) error {
	if err := e.flags("survey", nil); err != nil {
		return err
	}
	if _, err := e.machine.Facts(); err != nil {
		return err
	}
	disks, err := e.machine.Survey()
	if err != nil {
		return err
	}
	return e.print(disks, func(w io.Writer) { printDisks(w, disks) })
}

func printDisks(w io.Writer, disks []muster.Disk) {
	for _, d := range disks {
		fmt.Fprintf(w, "disk     %s  %.1f GB  %s\n", d.Path, float64(d.Size)/1e9, d.Describe())
		if d.Identity() == "" {
			fmt.Fprintf(w, "           it could not be recognised again: no WWN, no serial number\n")
		}
		for _, c := range d.Contents {
			stamp := ""
			if c.Stamp != "" {
				stamp = " of machine " + c.Stamp
			}
			fmt.Fprintf(w, "           %s%s\n", layout.Contains(c), stamp)
		}
	}
}
