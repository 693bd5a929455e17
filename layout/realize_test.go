package layout_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"muster.internal"
	"muster.internal/layout"

	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const (
	me    = "00112233-4455-6677-8899-aabbccddeea1"
	other = "00112233-4455-6677-8899-aabbccddeea2"
)

func disk(path, serial string, size int64, cs ...muster.Content) muster.Disk {
	return muster.Disk{Path: path, Vendor: "QEMU", Model: "HARDDISK", Serial: serial, Size: size, Transport: "SCSI", Contents: cs}
}

func num(n int) *int { return &n }

func TestRealize(t *testing.T) {
	two := []muster.Disk{disk("/dev/sda", "A", 4e9), disk("/dev/sdb", "B", 4e9)}
	wwn := func(d muster.Disk, w string) muster.Disk { d.WWN = w; return d }
	for _, c := range []struct {
		name    string
		disks   []muster.Disk
		request muster.SetupRequest
	}{
		{"two empty disks", two, muster.SetupRequest{Hostname: "n1"}},
		{"btrfs mirror of three", append(slices.Clone(two), disk("/dev/sdc", "C", 4e9)), muster.SetupRequest{Pool: muster.Btrfs}},
		{"btrfs single", two[:1], muster.SetupRequest{Pool: muster.Btrfs, Compression: "zstd"}},
		{"old contents are warned of", []muster.Disk{
			disk("/dev/sda", "A", 4e9, muster.Content{Kind: "partitions", Name: "gpt"}, muster.Content{Kind: "ext4", Name: "home"}),
			disk("/dev/sdb", "B", 4e9, muster.Content{Kind: "btrfs", Name: "tank", GUID: "123"})}, muster.SetupRequest{}},
		{"rebuild of the own pool", []muster.Disk{disk("/dev/sda", "A", 4e9, muster.Content{Kind: "zpool", Name: "zones", GUID: "7", Stamp: me})}, muster.SetupRequest{Rebuild: true}},
		{"two paths are one disk", []muster.Disk{wwn(two[0], "naa.5000"), wwn(two[1], "naa.6000"), wwn(disk("/dev/sdc", "A", 4e9), "naa.5000")}, muster.SetupRequest{}},
		{"set aside", []muster.Disk{
			two[0],
			disk("/dev/sdb", "", 4e9), // no identity
			disk("/dev/sdc", "C", 4e9, muster.Content{Kind: layout.ContentMounted, Name: "/"}),
			disk("/dev/sdd", "D", 4e9, muster.Content{Kind: layout.ContentInUse, Name: "dm-0"}),
			disk("/dev/sde", "E", 1e8), // too small
			disk("/dev/sdj", "J", 4e9, muster.Content{Kind: layout.ContentHidden, Name: "input/output error"}),
			{Path: "/dev/sdf", Serial: "F", Size: 4e9, Removable: true},
			disk("/dev/sdg", "G", 4e9),                             // excluded
			disk("/dev/sdh", "H", 4e9), disk("/dev/sdi", "H", 8e9), // one identity, two sizes
		}, muster.SetupRequest{Exclude: []string{"SDG"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := layout.Realize(me, "S1", c.disks, c.request)
			if err != nil {
				t.Fatal(err)
			}
			got, _ := json.MarshalIndent(p, "", " ")
			golden(t, "realize-"+strings.ReplaceAll(c.name, " ", "-")+".json", append(got, '\n'))
		})
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	f := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(f, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(f)
	if err != nil || string(got) != string(want) {
		t.Errorf("%s (%v): got\n%s", f, err, got)
	}
}

func TestRealizeRefuses(t *testing.T) {
	zones := func(kind, stamp string) []muster.Disk {
		return []muster.Disk{disk("/dev/sda", "A", 4e9), disk("/dev/sdb", "B", 4e9, muster.Content{Kind: kind, Name: "zones", GUID: "4711", Stamp: stamp})}
	}
	plain := []muster.Disk{disk("/dev/sda", "A", 4e9), disk("/dev/sdb", "B", 4e9), disk("/dev/sdc", "C", 4e9)}
	for _, c := range []struct {
		name    string
		disks   []muster.Disk
		request muster.SetupRequest
		code    muster.Code
		want    string
	}{
		{"pool without stamp", zones("zpool", ""), muster.SetupRequest{Rebuild: true}, muster.CodeConflict, "/dev/sdb (QEMU HARDDISK serial B) holds a pool 'zones' (guid 4711) without a stamp"},
		{"pool of another", zones("zpool", other), muster.SetupRequest{Rebuild: true}, muster.CodeConflict, "stamped by machine " + other},
		{"pool of another, excluded", zones("btrfs", other), muster.SetupRequest{Exclude: []string{"sdb"}}, muster.CodeConflict, "guid 4711"},
		{"pool of another name", []muster.Disk{disk("/dev/sda", "A", 4e9), disk("/dev/sdb", "B", 4e9, muster.Content{Kind: "zpool", Name: "tank", GUID: "123", Stamp: me})},
			muster.SetupRequest{Rebuild: true}, muster.CodeConflict, "/dev/sdb (QEMU HARDDISK serial B) belongs to a pool 'tank' (guid 123)"},
		{"own pool, no rebuild", zones("zpool", me), muster.SetupRequest{}, muster.CodeConflict, "ask for a rebuild"},
		{"no disks", nil, muster.SetupRequest{}, muster.CodeInvalid, "disks: no primary storage disks available"},
		{"unknown pool", plain, muster.SetupRequest{Pool: "ext4"}, muster.CodeInvalid, "pool:"},
		{"unknown layout", plain, muster.SetupRequest{Layout: "raidz"}, muster.CodeInvalid, "layout:"},
		{"unknown compression", plain, muster.SetupRequest{Compression: "gzip-9; reboot"}, muster.CodeInvalid, "disk_compress:"},
		{"hostname", plain, muster.SetupRequest{Hostname: "a'b"}, muster.CodeInvalid, "hostname:"},
		{"odd mirror", plain, muster.SetupRequest{Layout: "mirror", Spares: num(0)}, muster.CodeInvalid, "spares: 3 disks less 0 spares leave one"},
		{"exclude nothing", plain, muster.SetupRequest{Exclude: []string{"sdz"}}, muster.CodeInvalid, "exclude:"},
		{"exclude all", plain, muster.SetupRequest{Exclude: []string{"/dev/sda", "sdb", "sdc"}}, muster.CodeInvalid, "disks:"},
		{"btrfs raidz", plain, muster.SetupRequest{Pool: muster.Btrfs, Layout: "raidz1"}, muster.CodeInvalid, "layout: btrfs"},
		{"btrfs lz4", plain, muster.SetupRequest{Pool: muster.Btrfs, Compression: "lz4"}, muster.CodeInvalid, "disk_compress: btrfs"},
		{"btrfs spares", plain, muster.SetupRequest{Pool: muster.Btrfs, Spares: num(1)}, muster.CodeInvalid, "spares: btrfs"},
		{"btrfs width", plain, muster.SetupRequest{Pool: muster.Btrfs, Width: num(2)}, muster.CodeInvalid, "width:"},
		{"btrfs mirror of one", plain[:1], muster.SetupRequest{Pool: muster.Btrfs, Layout: "mirror"}, muster.CodeInvalid, "at least 2"},
		{"negative width", plain, muster.SetupRequest{Width: num(-1)}, muster.CodeInvalid, "width:"},
	} {
		_, err := layout.Realize(me, "S1", c.disks, c.request)
		if !muster.IsCode(err, c.code) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s with %q", c.name, err, c.code, c.want)
		}
	}
}

// Whatever the machine and the request: a disk is planned once, recognisable,
// and only if nothing forbids it; and every disk is accounted for.
func TestRealizeIsSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var disks []muster.Disk
		for i := range rapid.IntRange(0, 12).Draw(t, "disks") {
			d := disk(fmt.Sprintf("/dev/sd%c", 'a'+i), rapid.SampledFrom([]string{"", "0", "A", "B", "C", "D", "E"}).Draw(t, "serial"), rapid.SampledFrom([]int64{1e8, 4e9, 4e9, 8e9}).Draw(t, "size"))
			d.WWN = rapid.SampledFrom([]string{"", "", "w1", "w2", "0"}).Draw(t, "wwn")
			d.SSD = rapid.Bool().Draw(t, "ssd")
			d.Removable = rapid.IntRange(0, 8).Draw(t, "removable") == 0
			if rapid.IntRange(0, 5).Draw(t, "contents") == 0 {
				d.Contents = []muster.Content{{Kind: rapid.SampledFrom([]string{"zpool", "btrfs", "ext4", layout.ContentMounted, layout.ContentInUse}).Draw(t, "kind"),
					Name: rapid.SampledFrom([]string{"zones", "home"}).Draw(t, "name"), Stamp: rapid.SampledFrom([]string{"", me, other}).Draw(t, "stamp")}}
			}
			disks = append(disks, d)
		}
		q := muster.SetupRequest{Pool: rapid.SampledFrom([]muster.PoolKind{"", muster.ZFS, muster.Btrfs}).Draw(t, "pool"), Rebuild: rapid.Bool().Draw(t, "rebuild"), NoCache: rapid.Bool().Draw(t, "no cache")}
		p, err := layout.Realize(me, "S1", disks, q)
		again, err2 := layout.Realize(me, "S1", disks, q)
		if !reflect.DeepEqual(p, again) || text(err) != text(err2) {
			t.Fatal("one request, two answers")
		}
		if err != nil {
			return
		}
		ids, paths := map[string]bool{}, map[string]bool{}
		count := func(d muster.Disk) {
			for _, x := range append([]string{d.Path}, d.Paths[min(1, len(d.Paths)):]...) {
				if paths[x] {
					t.Fatalf("%s is there twice", x)
				}
				paths[x] = true
			}
		}
		for _, d := range p.Members() {
			count(d)
			id := d.Identity()
			if id == "" || ids[id] || d.Removable {
				t.Fatalf("disk %+v is planned", d)
			}
			ids[id] = true
			for _, c := range d.Contents {
				if c.Kind == layout.ContentMounted || c.Kind == layout.ContentInUse || c.Name == "zones" && c.Kind != "ext4" && (c.Stamp != me || !q.Rebuild) {
					t.Fatalf("disk with %+v is planned", c)
				}
			}
			if len(d.Contents) > 0 && len(p.Warnings) == 0 {
				t.Fatal("contents are destroyed without a warning")
			}
		}
		for _, d := range p.Unused {
			count(d.Disk)
			if d.Why == "" {
				t.Fatal("unused without a reason")
			}
		}
		if len(paths) != len(disks) {
			t.Fatalf("%d paths, %d accounted for", len(disks), len(paths))
		}
	})
}

func TestSame(t *testing.T) {
	d := disk("/dev/sda", "A", 4e9, muster.Content{Kind: "ext4"}, muster.Content{Kind: "swap"})
	moved := d
	moved.Path, moved.Contents = "/dev/sdq", []muster.Content{{Kind: "swap"}, {Kind: "ext4"}}
	if why := layout.Same(d, moved); why != "" {
		t.Errorf("a disk on another path is the same disk: %s", why)
	}
	for name, change := range map[string]func(*muster.Disk){
		"serial":   func(d *muster.Disk) { d.Serial = "B" },
		"size":     func(d *muster.Disk) { d.Size++ },
		"contents": func(d *muster.Disk) { d.Contents = nil },
		"stamp":    func(d *muster.Disk) { d.Contents = []muster.Content{{Kind: "ext4", Stamp: "x"}, {Kind: "swap"}} },
	} {
		c := d
		if change(&c); layout.Same(d, c) == "" {
			t.Errorf("another %s was not noticed", name)
		}
	}
	if layout.Same(muster.Disk{}, muster.Disk{}) == "" {
		t.Error("disks without identity are never the same")
	}
}
