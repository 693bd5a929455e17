package linux

import (
	"encoding/binary"
	"strconv"

	"muster.internal"
	"muster.internal/layout"
)

// A ZFS label is 256 KiB; two stand at the start of a device and two at its
// end, each with the pool's configuration as an XDR name-value list (On-Disk
// Format, chapter 1).
const (
	zfsLabelSize  = 128 << 10 // what is read of each: the list ends there
	zfsListOffset = 16 << 10
	zfsListMax    = 112 << 10
)

func labelPlaces(size int64) []int64 {
	const label = 256 << 10
	end := size / label * label
	if end < 4*label {
		return nil
	}
	return []int64{0, label, end - 2*label, end - label}
}

// States of a pool in a label.
const (
	zfsDestroyed = 2
	zfsSpare     = 3
	zfsCache     = 4
)

// zfsContent reads a label. A destroyed pool is told from a live one.
func zfsContent(b []byte) muster.Content {
	if len(b) < zfsListOffset+4 {
		return muster.Content{}
	}
	list, ok := parseNVList(b[zfsListOffset:min(len(b), zfsListOffset+zfsListMax)])
	if !ok {
		return muster.Content{}
	}
	c := muster.Content{Kind: layout.ContentPool, Name: list.name}
	if list.guid != 0 {
		c.GUID = strconv.FormatUint(list.guid, 10)
	}
	switch list.state {
	case zfsDestroyed:
		c.Kind = "destroyed zpool"
	case zfsSpare:
		c.Kind = "zpool spare"
	case zfsCache:
		c.Kind = "zpool cache"
	}
	return c
}

type nvlist struct {
	name        string
	guid, state uint64
}

const (
	nvUint64 = 8
	nvString = 9
)

// parseNVList reads the few pairs that matter of an XDR name-value list (RFC
// 4506) and steps over the others by their size.
func parseNVList(b []byte) (nvlist, bool) {
	var l nvlist
	if len(b) < 12 || b[0] != 1 { // XDR
		return l, false
	}
	any := false
	for b = b[12:]; len(b) >= 8; {
		size := int(int32(binary.BigEndian.Uint32(b)))
		if size == 0 {
			return l, any
		}
		if size < 20 || size > len(b) {
			return l, false
		}
		pair := b[8:size]
		b = b[size:]
		key, rest, ok := xdrString(pair)
		if !ok || len(rest) < 8 {
			return l, false
		}
		kind, n, data := binary.BigEndian.Uint32(rest), binary.BigEndian.Uint32(rest[4:]), rest[8:]
		switch {
		case kind == nvUint64 && n == 1 && len(data) >= 8:
			v := binary.BigEndian.Uint64(data)
			switch key {
			case "pool_guid":
				l.guid, any = v, true
			case "state":
				l.state, any = v, true
			}
		case kind == nvString && n == 1 && key == "name":
			s, _, ok := xdrString(data)
			if !ok {
				return l, false
			}
			l.name, any = printable([]byte(s)), true
		}
	}
	return l, false
}

func xdrString(b []byte) (string, []byte, bool) {
	if len(b) < 4 {
		return "", nil, false
	}
	n := int64(binary.BigEndian.Uint32(b))
	padded := (n + 3) &^ 3
	if padded > int64(len(b)-4) {
		return "", nil, false
	}
	return string(b[4 : 4+n]), b[4+padded:], true
}
