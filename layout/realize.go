package layout

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"muster.internal"
)

// btrfsCompressions are what a btrfs pool can do of muster.Compressions.
var btrfsCompressions = []string{"on", "off", "gzip", "zstd"}

// Realize says exactly which pool a request leads to on a machine with these
// disks. The digest and the image are the caller's to set. Errors are
// *muster.Problem: invalid when the request cannot be met, conflict when a disk
// holds a pool that must not be replaced.
func Realize(serverUUID, serial string, disks []muster.Disk, q muster.SetupRequest) (muster.SetupPlan, error) {
	if err := checkRequest(&q); err != nil {
		return muster.SetupPlan{}, err
	}
	p := muster.SetupPlan{
		ServerUUID: serverUUID, Serial: serial, Pool: q.Pool, Compression: q.Compression, Hostname: q.Hostname, Rebuild: q.Rebuild,
		VDevs: []muster.VDev{},
	}
	usable, unused := Distinct(disks)
	if err := checkPools(serverUUID, q.Rebuild, append(slices.Clone(usable), disksOf(unused)...)); err != nil {
		return muster.SetupPlan{}, err
	}
	if err := checkExcluded(q.Exclude, disks); err != nil {
		return muster.SetupPlan{}, err
	}
	byPath := map[string]muster.Disk{}
	r := Request{Layout: q.Layout, Spares: q.Spares, Width: q.Width}
	if q.NoCache {
		r.Cache = new(bool)
	}
	for _, d := range usable {
		if why := setAside(d, q.Exclude); why != "" {
			unused = append(unused, muster.UnusedDisk{Disk: d, Why: why})
			continue
		}
		if err := checkForeign(d); err != nil {
			return muster.SetupPlan{}, err
		}
		byPath[d.Path] = d
		r.Disks = append(r.Disks, Disk{Type: d.Transport, Name: d.Path, VID: d.Vendor, PID: d.Model, Size: d.Size, Removable: d.Removable, SolidState: d.SSD})
	}
	build := Plan
	if q.Pool == muster.Btrfs {
		build = planBtrfs
	}
	res, err := build(r)
	var refused *Refusal
	switch {
	case errors.As(err, &refused):
		return muster.SetupPlan{}, muster.Invalid(refused.Field, "%s", refused.Text)
	case err != nil:
		return muster.SetupPlan{}, err
	}
	fill(&p, res, byPath)
	for name, why := range res.Unused {
		unused = append(unused, muster.UnusedDisk{Disk: byPath[name], Why: why})
	}
	slices.SortStableFunc(unused, func(a, b muster.UnusedDisk) int { return comparePaths(a.Path, b.Path) })
	p.Unused = unused
	p.Warnings = warnings(p)
	return p, nil
}

// checkRequest fills in defaults and refuses what no disks could satisfy.
func checkRequest(q *muster.SetupRequest) error {
	if q.Pool == "" {
		q.Pool = muster.ZFS
	}
	if q.Compression == "" {
		q.Compression = muster.Compressions[0]
	}
	switch {
	case q.Pool != muster.ZFS && q.Pool != muster.Btrfs:
		return muster.Invalid("pool", "%q is none of zfs, btrfs", q.Pool)
	case q.Layout != "" && !slices.Contains(Names, q.Layout):
		return muster.Invalid("layout", "%q is none of %s", q.Layout, strings.Join(Names, ", "))
	case !slices.Contains(muster.Compressions, q.Compression):
		return muster.Invalid("disk_compress", "%q is none of %s", q.Compression, strings.Join(muster.Compressions, ", "))
	case q.Hostname != "" && !muster.ValidHostname(q.Hostname):
		return muster.Invalid("hostname", "%q is not one RFC 1123 label", q.Hostname)
	case q.Pool != muster.Btrfs:
		return nil
	case q.Layout != "" && q.Layout != "single" && q.Layout != "mirror":
		return muster.Invalid("layout", "btrfs is built as single or mirror only, not %s", q.Layout)
	case !slices.Contains(btrfsCompressions, q.Compression):
		return muster.Invalid("disk_compress", "btrfs has none of %q; it has %s", q.Compression, strings.Join(btrfsCompressions, ", "))
	case q.Spares != nil && *q.Spares > 0:
		return muster.Invalid("spares", "btrfs has no spare disks")
	case q.Width != nil:
		return muster.Invalid("width", "a btrfs mirror spans all its disks; it has no width")
	}
	return nil
}

// checkPools refuses when a disk, used or not, holds a pool by the name of ours
// that is not this machine's: two pools of one name cannot live in a machine.
func checkPools(serverUUID string, rebuild bool, disks []muster.Disk) error {
	for _, d := range disks {
		for _, c := range d.Contents {
			if c.Name != muster.PoolName || c.Kind != ContentPool && c.Kind != ContentBtrfs {
				continue
			}
			whose := "without a stamp"
			if c.Stamp != "" {
				whose = "stamped by machine " + c.Stamp
			}
			switch {
			case c.Stamp != serverUUID || c.Stamp == "":
				return muster.Problemf(muster.CodeConflict,
					"disk %s (%s) holds a pool '%s' (guid %s) %s: it is not this machine's to replace; take the disk out, or erase it by hand, then survey again",
					d.Path, d.Describe(), c.Name, c.GUID, whose)
			case !rebuild:
				return muster.Problemf(muster.CodeConflict,
					"disk %s (%s) holds this machine's own pool '%s' (guid %s): ask for a rebuild to replace it",
					d.Path, d.Describe(), c.Name, c.GUID)
			}
		}
	}
	return nil
}

// checkForeign refuses a candidate that holds a pool by another name: a setup
// never destroys a pool that it does not recognise, so a person has to say that
// the disk is left alone, or erase it.
func checkForeign(d muster.Disk) error {
	for _, c := range d.Contents {
		if c.Kind == ContentPool && c.Name != muster.PoolName {
			return muster.Problemf(muster.CodeConflict,
				"disk %s (%s) belongs to a pool '%s' (guid %s) that is not this machine's: exclude the disk, or erase it by hand and survey again",
				d.Path, d.Describe(), c.Name, c.GUID)
		}
	}
	return nil
}

func checkExcluded(exclude []string, disks []muster.Disk) error {
	for _, e := range exclude {
		if !slices.ContainsFunc(disks, func(d muster.Disk) bool { return named(d, e) }) {
			return muster.Invalid("exclude", "the machine has no disk %q", e)
		}
	}
	return nil
}

func named(d muster.Disk, name string) bool {
	for _, p := range append([]string{d.Path}, d.Paths...) {
		if strings.EqualFold(p, name) || strings.EqualFold(path.Base(p), name) {
			return true
		}
	}
	return false
}

// setAside says why a disk is no candidate, or "".
func setAside(d muster.Disk, exclude []string) string {
	for _, e := range exclude {
		if named(d, e) {
			return "excluded"
		}
	}
	for _, c := range d.Contents {
		switch c.Kind {
		case ContentMounted:
			return "mounted at " + c.Name
		case ContentInUse:
			return "in use by " + c.Name
		case ContentHidden:
			return "what is on it cannot be read: " + c.Name
		}
	}
	return ""
}

// planBtrfs makes one disk, or one mirror of all disks of the storage role.
// There are no logs or caches, so those disks stay unused.
func planBtrfs(q Request) (Result, error) {
	if err := check(q); err != nil {
		return Result{}, err
	}
	r := Result{Unused: map[string]string{}}
	ro, err := assign(q, r.Unused)
	if err != nil {
		return Result{}, err
	}
	for _, d := range append(ro.logs, ro.cache...) {
		r.Unused[d.Name] = "btrfs has no logs and no caches"
	}
	if r.Layout = q.Layout; r.Layout == "" {
		r.Layout = "mirror"
		if len(ro.storage) == 1 {
			r.Layout = "single"
		}
	}
	if r.Layout == "single" {
		return r, single(&r, ro.storage, q)
	}
	if len(ro.storage) < 2 {
		return Result{}, refuse("layout", "at least 2 disks are required for mirroring")
	}
	var sum int64
	for _, d := range ro.storage {
		sum += d.Size
	}
	r.VDevs = []VDev{{"mirror", ro.storage}}
	// Each block lies on two disks: what the largest has beyond the sum of the
	// others has no partner.
	r.Capacity = min(sum/2, sum-ro.storage[len(ro.storage)-1].Size)
	return r, nil
}

func fill(p *muster.SetupPlan, r Result, byPath map[string]muster.Disk) {
	disks := func(ds []Device) []muster.Disk {
		var all []muster.Disk
		for _, d := range ds {
			all = append(all, byPath[d.Name])
		}
		return all
	}
	for _, v := range r.VDevs {
		p.VDevs = append(p.VDevs, muster.VDev{Type: v.Type, Disks: disks(v.Devices)})
	}
	p.Layout, p.Capacity = r.Layout, r.Capacity
	p.Spares, p.Logs, p.Cache = disks(r.Spares), disks(r.Logs), disks(r.Cache)
}

// warnings tell what an approval destroys.
func warnings(p muster.SetupPlan) []string {
	var all []string
	for _, d := range p.Members() {
		for _, c := range d.Contents {
			what := "contains " + Contains(c)
			if c.Stamp != "" && c.Stamp == p.ServerUUID {
				what = "holds this machine's own " + Contains(c)
			}
			all = append(all, fmt.Sprintf("%s (%s) %s: it will be destroyed", d.Path, d.Describe(), what))
		}
	}
	if p.Layout == "single" {
		all = append(all, "the pool is one disk: when it fails, what is on it is lost")
	}
	return all
}

func disksOf(us []muster.UnusedDisk) []muster.Disk {
	var ds []muster.Disk
	for _, u := range us {
		ds = append(ds, u.Disk)
	}
	return ds
}
