package linux

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"

	"muster.internal"
	"muster.internal/layout"
)

// readContents looks at a disk's superblocks, read-only.
func readContents(path string, size int64) ([]muster.Content, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Contents(f, size)
}

// A region is a disk or a partition of it.
type region struct {
	r    io.ReaderAt
	from int64
	size int64
	err  error // the first that was not the end of the region
}

// read returns n bytes at off, short at the region's end.
func (g *region) read(off int64, n int) []byte {
	if off < 0 || off >= g.size || g.err != nil {
		return nil
	}
	b := make([]byte, min(int64(n), g.size-off))
	got, err := g.r.ReadAt(b, g.from+off)
	if err != nil && err != io.EOF {
		g.err = err
	}
	return b[:got]
}

// Contents says what is on a disk of size bytes: partition tables and what is
// in the partitions, file systems, parts of pools. Nothing that it reads is
// trusted. A disk that is not blank, and on which nothing is recognised,
// contains something unknown.
func Contents(r io.ReaderAt, size int64) ([]muster.Content, error) {
	g := &region{r: r, size: size}
	table, parts := partitions(g)
	all := table
	for _, c := range probe(g) {
		if len(table) > 0 && c.Kind == "fat" { // a boot sector is no file system
			continue
		}
		all = append(all, c)
	}
	for _, p := range parts {
		for _, c := range probe(p) {
			if !slices.Contains(all, c) {
				all = append(all, c)
			}
		}
		if g.err == nil {
			g.err = p.err
		}
	}
	if len(all) == 0 && !blank(g) {
		all = append(all, muster.Content{Kind: "unknown"})
	}
	return all, g.err
}

// blank tells whether the first and last part of a region hold nothing.
func blank(g *region) bool {
	const n = 256 << 10
	for _, off := range []int64{0, max(0, g.size-n)} {
		if len(bytes.TrimLeft(g.read(off, n), "\x00")) > 0 {
			return false
		}
	}
	return true
}

const maxPartitions = 128

// partitions reads a GPT (UEFI 5.3) or an MBR.
func partitions(g *region) ([]muster.Content, []*region) {
	for _, sector := range []int64{512, 4096} {
		h := g.read(sector, 92)
		if len(h) < 92 || string(h[:8]) != "EFI PART" {
			continue
		}
		first, n, each := le64(h[72:]), le32(h[80:]), le32(h[84:])
		n = min(n, maxPartitions)
		if each < 128 || each > 4096 || first > 1<<40 {
			n = 0
		}
		var parts []*region
		for i := range int64(n) {
			e := g.read(int64(first)*sector+i*int64(each), 128)
			if len(e) == 128 && !bytes.Equal(e[:16], make([]byte, 16)) {
				parts = g.part(parts, le64(e[32:]), le64(e[40:])-le64(e[32:])+1, sector)
			}
		}
		return []muster.Content{{Kind: "partitions", Name: "gpt"}}, parts
	}
	b := g.read(0, 512)
	if len(b) < 512 || b[510] != 0x55 || b[511] != 0xaa {
		return nil, nil
	}
	var parts []*region
	entries := 0
	for i := range 4 {
		e := b[446+16*i : 462+16*i]
		if e[4] != 0 && (e[0] == 0 || e[0] == 0x80) && le32(e[12:]) > 0 {
			entries++
			parts = g.part(parts, uint64(le32(e[8:])), uint64(le32(e[12:])), 512)
		}
	}
	if entries == 0 {
		return nil, nil
	}
	return []muster.Content{{Kind: "partitions", Name: "mbr"}}, parts
}

// part adds a partition that lies within the region.
func (g *region) part(parts []*region, start, sectors uint64, sector int64) []*region {
	limit := uint64(g.size / sector)
	if start == 0 || start >= limit || sectors == 0 || sectors > limit-start {
		return parts
	}
	return append(parts, &region{r: g.r, from: g.from + int64(start)*sector, size: int64(sectors) * sector})
}

// A mark is a value at a fixed place.
type mark struct {
	kind  string
	off   int64
	magic string
	label int64 // where a name stands; 0: none
	n     int
}

var marks = []mark{
	{"xfs", 0, "XFSB", 108, 12},
	{"luks", 0, "LUKS\xba\xbe", 0, 0},
	{"squashfs", 0, "hsqs", 0, 0},
	{"ntfs", 3, "NTFS    ", 0, 0},
	{"fat", 82, "FAT32   ", 71, 11},
	{"fat", 54, "FAT1", 43, 11},
	{"f2fs", 1024, "\x10\x20\xf5\xf2", 0, 0},
	{"md", 0, "\xfc\x4e\x2b\xa9", 32, 32},
	{"md", 4096, "\xfc\x4e\x2b\xa9", 4096 + 32, 32},
	{"swap", 4086, "SWAPSPACE2", 1052, 16},
	{"iso9660", 32769, "CD001", 32808, 32},
	{"bcache", 4096 + 24, "\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", 0, 0},
	{"lvm", 0, "LABELONE", 0, 0}, {"lvm", 512, "LABELONE", 0, 0}, {"lvm", 1024, "LABELONE", 0, 0}, {"lvm", 1536, "LABELONE", 0, 0},
}

// probe recognises what fills a region.
func probe(g *region) []muster.Content {
	var all []muster.Content
	add := func(c muster.Content) {
		if c.Kind != "" && !slices.Contains(all, c) {
			all = append(all, c)
		}
	}
	for _, at := range labelPlaces(g.size) {
		add(zfsContent(g.read(at, zfsLabelSize)))
	}
	for _, m := range marks {
		if string(g.read(m.off, len(m.magic))) == m.magic {
			add(muster.Content{Kind: m.kind, Name: printable(g.read(m.label, m.n))})
		}
	}
	add(extContent(g.read(1024, 264)))
	add(btrfsContent(g.read(btrfsSuper, 4096)))
	if end := (g.size &^ 0xffff) - 0x10000; g.size > 0x20000 && string(g.read(end, 4)) == "\xfc\x4e\x2b\xa9" {
		add(muster.Content{Kind: "md"}) // version 0.90
	}
	return all
}

// extContent reads an ext superblock.
func extContent(b []byte) muster.Content {
	if len(b) < 264 || le16(b[0x38:]) != 0xef53 {
		return muster.Content{}
	}
	kind := "ext2"
	if le32(b[0x5c:])&4 != 0 {
		kind = "ext3"
	}
	if le32(b[0x60:])&0x2c0 != 0 {
		kind = "ext4"
	}
	return muster.Content{Kind: kind, Name: printable(b[0x78:0x88])}
}

const btrfsSuper = 64 << 10

// btrfsContent reads a btrfs superblock. Our label is the pool's name and the
// server UUID, so that both are written in the instant of its creation.
func btrfsContent(b []byte) muster.Content {
	if len(b) < 4096 || string(b[0x40:0x48]) != "_BHRfS_M" {
		return muster.Content{}
	}
	id := b[0x20:0x30]
	c := muster.Content{
		Kind: layout.ContentBtrfs, Name: printable(b[0x12b:0x22b]),
		GUID: uuidText(id),
	}
	c.Name, c.Stamp = splitLabel(c.Name)
	return c
}

func uuidText(id []byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

func le16(b []byte) uint16 { return binary.LittleEndian.Uint16(b) }
func le32(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }
func le64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }
