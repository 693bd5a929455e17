package layout

import (
	"fmt"
	"slices"
)

// unshareable are counts of disks that no group width divides.
var unshareable = []int{17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67}

func checkSpares(disks int, spares *int) error {
	if spares == nil {
		return nil
	}
	n := disks - *spares
	if *spares > 0 && n < 2 {
		return refuse("spares", "too many spares (%d) for this disk configuration", *spares)
	}
	if slices.Contains(unshareable, n) {
		return refuse("spares", "invalid number of spares (%d) for this disk configuration", *spares)
	}
	return nil
}

// choose picks a layout when none was asked for.
func choose(storage []Device, q Request) string {
	a, given := len(storage), q.Spares != nil
	if given {
		a -= *q.Spares
	}
	ssd := storage[0].SolidState
	switch {
	case a == 1:
		return "single"
	case a == 2:
		return "mirror"
	case a == 3 || a == 4:
		return "raidz1"
	case a == 5 || a == 6:
		if ssd || given {
			return "raidz1"
		}
		return "raidz2"
	case q.Width != nil:
		return byWidth(*q.Width)
	case a > 16 || a > 7 && storage[0].Size > 1_500_000_000_000:
		return forMany(a, given)
	case a < 12 && ssd:
		return "raidz2"
	case a%2 == 1 && given:
		switch a {
		case 15:
			return "raidz1"
		case 13:
			return "raidz3"
		}
		return "raidz2"
	}
	return "mirror"
}

func byWidth(w int) string {
	switch {
	case w <= 2:
		return "mirror"
	case w <= 6:
		return "raidz1"
	case w <= 12:
		return "raidz2"
	}
	return "raidz3"
}

// forMany is for many disks, or for large ones, whose repair takes long.
func forMany(a int, sparesGiven bool) string {
	if !sparesGiven {
		return "raidz2"
	}
	for w := 7; w <= 12; w++ {
		if a%w == 0 {
			return "raidz2"
		}
	}
	if a == 13 {
		return "raidz3"
	}
	return "raidz1"
}

// build makes the groups. storage is ascending by size; spares are its end.
func build(r *Result, storage []Device, q Request) error {
	switch r.Layout {
	case "single":
		return single(r, storage, q)
	case "mirror":
		return mirror(r, storage, q)
	case "raidz1":
		return raidz(r, storage, q, 1, 3, 6, 7, "raidz")
	case "raidz2":
		lo, hi := narrow(len(storage), 5, 6, 7, 12)
		return raidz(r, storage, q, 2, lo, hi, 12, "raidz2")
	case "raidz3":
		lo, hi := narrow(len(storage), 7, 8, 9, 20)
		return raidz(r, storage, q, 3, lo, hi, 15, "raidz3")
	}
	return refuse("layout", "unknown layout %s", r.Layout)
}

// narrow allows one group of all disks where there are just too few for the
// usual width.
func narrow(disks, few, more, lo, hi int) (int, int) {
	if disks == few || disks == more {
		return disks, disks
	}
	return lo, hi
}

func single(r *Result, storage []Device, q Request) error {
	if q.Spares != nil && *q.Spares != 0 {
		return refuse("spares", "spares are not allowed for a single disk pool")
	}
	r.VDevs, r.Capacity = []VDev{{Devices: storage[:1]}}, storage[0].Size
	leftOver(r, storage[1:])
	return nil
}

func mirror(r *Result, storage []Device, q Request) error {
	disks, width, spares := len(storage), 2, 0
	if disks < 2 {
		return refuse("layout", "at least 2 disks are required for mirroring")
	}
	if q.Spares != nil {
		spares = *q.Spares
	}
	if q.Width != nil {
		if width = *q.Width; width > disks-spares {
			return refuse("width", "%d is an invalid width for mirroring and %d disks", width, disks-spares)
		}
	}
	if q.Spares == nil {
		switch {
		case q.Width != nil:
			spares = disks % width
		case disks != 2 && disks != 4:
			spares = (disks + 15) / 16
			spares += (disks - spares) % 2
		}
	}
	if q.Width == nil && (disks-spares)%2 != 0 {
		// The rules would make a mirror of one disk, which no pool accepts.
		return refuse("spares", "%d disks less %d spares leave one disk without a partner to mirror it", disks, spares)
	}
	r.groups("mirror", storage, spares, width, 1)
	return nil
}

func raidz(r *Result, storage []Device, q Request, parity, lo, hi, perSpare int, name string) error {
	disks := len(storage)
	spares := min(2, disks/perSpare)
	if q.Spares != nil {
		spares = *q.Spares
	}
	width := 0
	if q.Width != nil {
		if width = *q.Width; width < lo || width > disks {
			return refuse("width", "%d is an invalid width for %s and %d disks (min: %d, default max: %d)", width, name, disks, lo, hi)
		}
		if q.Spares == nil {
			spares = disks % width
		} else if disks-spares < width {
			return refuse("width", "%d is an invalid width for %s and %d spares", width, name, spares)
		}
	}
	for width == 0 && disks-spares >= lo {
		for w := lo; w <= hi && width == 0; w++ {
			if (disks-spares)%w == 0 {
				width = w
			}
		}
		if width != 0 {
			break
		}
		if q.Spares != nil {
			return refuse("spares", "no acceptable %s layout is possible with %d disks and %s", name, disks, countSpares(spares))
		}
		spares++
	}
	if disks-spares < lo {
		return refuse("layout", "no acceptable %s layout is possible with %d disks", name, disks)
	}
	r.groups(name, storage, spares, width, width-parity)
	return nil
}

func countSpares(n int) string {
	if n == 1 {
		return "1 spare"
	}
	return fmt.Sprintf("%d spares", n)
}

// groups cuts the spares from the end and makes groups of width from the
// front; each holds as many times its smallest disk as data says.
func (r *Result) groups(kind string, storage []Device, spares, width, data int) {
	usable := len(storage) - spares
	at := 0
	for ; at+width <= usable; at += width {
		r.VDevs = append(r.VDevs, VDev{kind, storage[at : at+width]})
		r.Capacity += int64(data) * storage[at].Size
	}
	leftOver(r, storage[at:usable])
	r.Spares = append([]Device(nil), storage[usable:]...)
}

func leftOver(r *Result, ds []Device) {
	for _, d := range ds {
		r.Unused[d.Name] = "left over: layout " + r.Layout + " has no place for it"
	}
}
