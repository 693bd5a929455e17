package linux

import (
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"reflect"
	"testing"
	"testing/fstest"

	"muster.internal"
)

func TestHardwareWithoutSystemCalls(t *testing.T) {
	table := []byte{17, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 1, 0, 0, 0, 0, 0, 0, 2, 3, 0, 4, 0, 0, 0, 0, 0}
	table = append(table, "A1\x00Hynix\x00S1\x00P1\x00\x00"...)
	sys := fstest.MapFS{
		"firmware/dmi/tables/DMI":           {Data: table},
		"class/dmi/id/sys_vendor":           {Data: []byte("Dell Inc.\n")},
		"class/dmi/id/product_name":         {Data: []byte("PowerEdge R640\n")},
		"class/dmi/id/bios_version":         {Data: []byte("2.8.1\n")},
		"class/net/eth0/device/vendor":      {Data: []byte("0x8086\n")},
		"class/net/eth0/device/device":      {Data: []byte("0x1521\n")},
		"block/nvme0n1/device/firmware_rev": {Data: []byte("GDC5602Q\n")},
		"block/sda/device/rev":              {Data: []byte("HPG1\n")},
		"block/vda":                         {Data: []byte("../devices/pci0000:00/0000:00:05.0/virtio2/block/vda"), Mode: fs.ModeSymlink},
		"block/sdb":                         {Data: []byte("../devices/pci0000:00/0000:00:1f.2/ata2/host1/target1:0:0/1:0:0:0/block/sdb"), Mode: fs.ModeSymlink},
		"block/sdc":                         {Data: []byte("../devices/pci0000:00/0000:03:00.0/host4/target4:2:1/4:2:1:0/block/sdc"), Mode: fs.ModeSymlink},
		"block/nvme1n1":                     {Data: []byte("../devices/pci0000:00/0000:00:01.0/0000:01:00.0/nvme/nvme1/nvme1n1"), Mode: fs.ModeSymlink},
	}
	proc := fstest.MapFS{"meminfo": {Data: []byte("MemTotal:       2097152 kB\n")}, "cpuinfo": {Data: []byte("processor : 0\nmodel name\t: Xeon  Silver\n")}}
	h := hardwareFrom(sys, proc, fstest.MapFS{})
	h.CPUs[0].Threads = 0 // this machine's
	want := muster.Hardware{Vendor: "Dell Inc.", Product: "PowerEdge R640", BIOS: muster.BIOS{Version: "2.8.1"}, MemoryMiB: 2048,
		CPUs: []muster.CPU{{Model: "Xeon Silver"}}, DIMMs: []muster.DIMM{{Slot: "A1", SizeMiB: 16384, Vendor: "Hynix", Serial: "S1", Part: "P1"}}}
	if !reflect.DeepEqual(h, want) {
		t.Errorf("got  %+v\nwant %+v", h, want)
	}
	if n := nicFrom(sys, "eth0"); n.Part != "8086:1521" || n.Vendor != "8086" {
		t.Errorf("%+v", n)
	}
	for name, want := range map[string]string{"nvme0n1": "GDC5602Q", "sda": "HPG1", "vdz": ""} {
		if got := diskFirmware(sys, name); got != want {
			t.Errorf("firmware of %s: %q", name, got)
		}
	}
	for name, want := range map[string]string{"vda": "pci-0000:00:05.0/virtio2", "sdb": "pci-0000:00:1f.2/ata2", "sdc": "pci-0000:03:00.0/scsi-2:1:0", "nvme1n1": "pci-0000:01:00.0", "sda": ""} {
		if got := slotOf(sys, name); got != want {
			t.Errorf("slot of %s: %q, want %q", name, got, want)
		}
	}
}

// Whatever machine this is, its hardware can be read, twice the same.
func TestThisMachinesHardware(t *testing.T) {
	m := New(slog.New(slog.NewTextHandler(io.Discard, nil)))
	ours := func(string) bool { return false }
	a, err := m.Hardware(ours)
	if err != nil {
		t.Fatal(err)
	}
	b, err := m.Hardware(ours)
	if err != nil || !reflect.DeepEqual(a, b) {
		t.Errorf("%v\n%+v\n%+v", err, a, b)
	}
	if a.MemoryMiB == 0 || len(a.CPUs) == 0 {
		t.Errorf("%+v", a)
	}
}

func TestForeignContainers(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "engine")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	answer := `[{"Names":["/theirs"]},{"Names":["/ours"],"Labels":{"internal.muster.declared":"x"}},{"Names":["/adopted"]},{"Names":[]}]`
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/containers/json" {
			http.NotFound(w, r)
			return
		}
		io.WriteString(w, answer)
	})}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	ours := func(name string) bool { return name == "adopted" }
	got, looked := foreignContainers([]string{"/no/such/socket", socket}, ours)
	if want := []muster.ForeignName{{Kind: "container", Name: "theirs"}}; !looked || !reflect.DeepEqual(got, want) {
		t.Errorf("%v %+v", looked, got)
	}
	answer = "not JSON"
	if got, looked := foreignContainers([]string{socket}, ours); looked || got != nil {
		t.Errorf("a runtime that answers nonsense: %v %+v", looked, got)
	}
	if got, looked := foreignContainers(nil, ours); !looked || got != nil {
		t.Errorf("no runtime: %v %+v", looked, got)
	}
}
