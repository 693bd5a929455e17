package layout

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Roles of disks, each sorted by size, then name.
type roles struct{ storage, logs, cache []Device }

// A bucket holds disks that are alike: transport, rounded size, solid state.
type bucket struct {
	transport string
	gb        float64
	ssd       bool
	disks     []Device
	swallowed bool
}

// steps, in MB, are the sizes in which disks are sold.
var steps = []float64{500000, 150000, 80000, 20000, 4500, 1000}

// roundedGB is the size in GB by which disks count as equal; 0 means too small
// to use.
func roundedGB(size int64) float64 {
	if size <= 0 {
		return 0
	}
	mb := float64(size) / 1e6
	kept, best := 0.0, 0.0
	for _, t := range steps {
		r := math.Floor((mb+math.Floor(t/2))/t) * t
		if math.Abs(mb-r)/mb > 0.05 {
			continue
		}
		score := math.Pow(mb-r, 2) * math.Pow(r/t, 4)
		// An exact hit does not stick: a later step within 5% replaces it.
		if score < best || best == 0 {
			kept, best = r, score
		}
	}
	if math.Abs(mb-kept)/mb <= 0.05 {
		return kept / 1000
	}
	return math.Floor(mb/1000 + 0.5)
}

// assign sorts the disks into buckets, merges those that are nearly alike, and
// gives each a role. Why a disk has none goes to unused.
func assign(q Request, unused map[string]string) (roles, error) {
	all := merge(buckets(q, unused))
	switch len(all) {
	case 0:
		return roles{}, refuse("disks", "no primary storage disks available")
	case 1:
		return roles{storage: all[0].disks}, nil
	}
	slices.SortStableFunc(all, func(a, b *bucket) int { return cmp.Compare(a.disks[0].Size, b.disks[0].Size) })
	var ssds, spinning []*bucket
	for _, b := range all {
		if b.ssd {
			ssds = append(ssds, b)
		} else {
			spinning = append(spinning, b)
		}
	}
	var ro roles
	if n := len(spinning); n > 0 {
		ro.storage, spinning = spinning[n-1].disks, spinning[:n-1]
	} else {
		n := len(ssds)
		ro.storage, ssds = ssds[n-1].disks, ssds[:n-1]
	}
	if len(ssds) > 0 && len(ssds[0].disks) < 5 {
		ro.logs, ssds = ssds[0].disks, ssds[1:]
	}
	for _, b := range append(spinning, ssds...) {
		if q.Cache == nil || *q.Cache {
			ro.cache = append(ro.cache, b.disks...)
			continue
		}
		for _, d := range b.disks {
			unused[d.Name] = "would be a cache, and caches are switched off"
		}
	}
	slices.SortFunc(ro.cache, bySize) // a role's list is sorted as a whole
	return ro, nil
}

func buckets(q Request, unused map[string]string) []*bucket {
	var all []*bucket
	for _, d := range q.Disks {
		gb := roundedGB(d.Size)
		switch {
		case excluded(q, d.Name):
			unused[d.Name] = "excluded"
			continue
		case d.Removable:
			unused[d.Name] = "removable"
			continue
		case gb == 0:
			unused[d.Name] = fmt.Sprintf("too small (%d bytes)", d.Size)
			continue
		}
		i := slices.IndexFunc(all, func(b *bucket) bool { return b.transport == d.Type && b.gb == gb && b.ssd == d.SolidState })
		if i < 0 {
			i, all = len(all), append(all, &bucket{transport: d.Type, gb: gb, ssd: d.SolidState})
		}
		all[i].disks = append(all[i].disks, Device{d.Name, d.VID, d.PID, d.Size, d.SolidState})
	}
	return all
}

// merge lets the larger of two nearly equal buckets swallow the smaller. The
// transport does not matter here.
func merge(all []*bucket) []*bucket {
	for _, a := range all {
		for _, b := range all {
			if a == b || a.swallowed || b.swallowed || a.ssd != b.ssd || math.Abs(a.gb-b.gb)/b.gb > 0.05 {
				continue
			}
			eater, eaten := b, a
			if len(a.disks) > len(b.disks) {
				eater, eaten = a, b
			}
			eater.disks = append(eater.disks, eaten.disks...)
			eaten.swallowed = true
		}
	}
	all = slices.DeleteFunc(all, func(b *bucket) bool { return b.swallowed })
	for _, b := range all {
		slices.SortFunc(b.disks, bySize)
	}
	return all
}

func bySize(a, b Device) int {
	return cmp.Or(cmp.Compare(a.Size, b.Size), cmp.Compare(a.Name, b.Name))
}
