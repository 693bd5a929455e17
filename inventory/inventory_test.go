package inventory_test

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
	"muster.internal/inventory"

	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const uuid = "00112233-4455-6677-8899-aabbccddeea1"

func samples(t testing.TB) map[string]json.RawMessage {
	b, err := os.ReadFile("testdata/samples.json")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	delete(all, "_about")
	return all
}

// What the stock agents' objects come to, facts and redacted form.
func TestStockSysinfo(t *testing.T) {
	out := map[string]any{}
	for name, s := range samples(t) {
		f, err := inventory.Parse(s)
		if err != nil { // two samples lack a UUID; they get one
			if !strings.Contains(err.Error(), "sysinfo.UUID") {
				t.Errorf("%s: %v", name, err)
			}
			var o map[string]any
			json.Unmarshal(s, &o)
			o["UUID"] = uuid
			s, _ = json.Marshal(o)
			if f, err = inventory.Parse(s); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		red, err := inventory.Redact(s)
		if err != nil || strings.Contains(string(red), "guest:guest") {
			t.Errorf("%s: %v: a password is left in %s", name, err, red)
		}
		again, err := inventory.Parse(red)
		if err != nil || !reflect.DeepEqual(f, again) {
			t.Errorf("%s: redacting changed the facts", name)
		}
		out[name] = f
	}
	got, _ := json.MarshalIndent(out, "", " ")
	f := filepath.Join("testdata", "facts.json")
	if *update {
		os.WriteFile(f, append(got, '\n'), 0o644)
	}
	if want, _ := os.ReadFile(f); string(want) != string(got)+"\n" {
		t.Errorf("%s: got\n%s", f, got)
	}
}

func ours() inventory.Facts {
	return inventory.Facts{
		UUID: uuid, Hostname: "52-54-00-00-00-01", Manufacturer: "QEMU", Product: "Standard PC", Serial: "LAB-1", MemoryMiB: 512, CPUs: 2,
		MACs: []string{"52:54:00:00:00:01", "52:54:00:00:00:02"}, AdminMAC: "52:54:00:00:00:01", AdminIP: "10.77.0.101",
		Tags:      map[string][]string{"52:54:00:00:00:01": {"admin"}},
		Disks:     []muster.Disk{{Path: "/dev/vdb", Serial: "d1", Size: 4 << 30, Transport: "virtio", Contents: []muster.Content{{Kind: "zpool", Name: "zones", GUID: "1", Stamp: uuid}}}},
		PublicKey: "abc", Version: "1", Firmware: "uefi",
	}
}

func TestOurOwnSysinfoComesBack(t *testing.T) {
	got, err := inventory.Parse(ours().Sysinfo())
	if err != nil || !reflect.DeepEqual(got, ours()) {
		t.Errorf("%v\n got %+v\nwant %+v", err, got, ours())
	}
}

// TestWhatIsAnnouncedCanBeSurveyed: one limit holds for both ways in which disks
// come in.
func TestWhatIsAnnouncedCanBeSurveyed(t *testing.T) {
	many := func(n int) (ds []muster.Disk) {
		for i := range n {
			ds = append(ds, muster.Disk{Path: fmt.Sprintf("/dev/sd%d", i), Size: 1})
		}
		return ds
	}
	one := func(d muster.Disk) []muster.Disk { return []muster.Disk{d} }
	for name, c := range map[string]struct {
		disks []muster.Disk
		ok    bool
	}{
		"none":                     {nil, true},
		"600":                      {many(600), true},
		"1024":                     {many(1024), true},
		"1025":                     {many(1025), false},
		"a long model":             {one(muster.Disk{Path: "a", Model: strings.Repeat("m", 1024)}), true},
		"too long a model":         {one(muster.Disk{Path: "a", Model: strings.Repeat("m", 1025)}), false},
		"no path":                  {one(muster.Disk{Size: 1}), false},
		"a negative size":          {one(muster.Disk{Path: "a", Size: -1}), false},
		"128 partitions":           {one(muster.Disk{Path: "a", Contents: make([]muster.Content, 128)}), true},
		"too many contents":        {one(muster.Disk{Path: "a", Contents: make([]muster.Content, 257)}), false},
		"too many paths":           {one(muster.Disk{Path: "a", Paths: make([]string, 257)}), false},
		"a terminal's control":     {one(muster.Disk{Path: "a", Serial: "\x1b[2J"}), false},
		"a line break in contents": {one(muster.Disk{Path: "a", Contents: []muster.Content{{Name: "x\ny"}}}), false},
	} {
		f := ours()
		f.Disks = c.disks
		if _, err := inventory.Parse(f.Sysinfo()); (err == nil) != c.ok {
			t.Errorf("%s, announced: %v", name, err)
		}
		if err := inventory.CheckDisks(c.disks); (err == nil) != c.ok {
			t.Errorf("%s, surveyed: %v", name, err)
		}
	}
}

func TestBadSysinfoNamesTheField(t *testing.T) {
	with := func(key string, v any) string {
		var o map[string]any
		json.Unmarshal(ours().Sysinfo(), &o)
		o[key] = v
		b, _ := json.Marshal(o)
		return string(b)
	}
	for _, c := range []struct{ in, field string }{
		{"", "sysinfo"}, {"[]", "sysinfo"}, {`"x"`, "sysinfo"}, {"{} {}", "sysinfo"}, {"{", "sysinfo"},
		{strings.Repeat(" ", 6<<20), "sysinfo"},
		{`{"UUID":` + strings.Repeat("[", 100000), "sysinfo"},
		{with("UUID", nil), "sysinfo.UUID"},
		{with("UUID", "00000000-0000-0000-0000-000000000000"), "sysinfo.UUID"},
		{with("UUID", []int{1}), "sysinfo.UUID"},
		{with("Serial Number", map[string]any{}), "sysinfo.Serial Number"},
		{with("Serial Number", "a\x00b"), "sysinfo.Serial Number"},
		{with("Serial Number", strings.Repeat("x", 5000)), "sysinfo.Serial Number"},
		{with("MiB of Memory", "much"), "sysinfo.MiB of Memory"},
		{with("MiB of Memory", 1.5), "sysinfo.MiB of Memory"},
		{with("Network Interfaces", []int{}), "sysinfo.Network Interfaces"},
		{with("Network Interfaces", map[string]any{"e0": 1}), "sysinfo.Network Interfaces.e0"},
		{with("Network Interfaces", map[string]any{"e0": map[string]any{"MAC Address": "zz"}}), "sysinfo.Network Interfaces.e0.MAC Address"},
		{with("Disks", map[string]any{"d": map[string]any{"Size in GB": "9223372036854775807"}}), "sysinfo.Disks.d"},
		{with("Muster", map[string]any{"macs": []any{1}}), "sysinfo.Muster.macs"},
		{with("Muster", map[string]any{"boot_mac": "x"}), "sysinfo.Muster.boot_mac"},
		{with("Muster", map[string]any{"disks": []any{map[string]any{"path": "", "size": 1}}}), "sysinfo.Muster.disks"},
		{with("Muster", map[string]any{"disks": []any{map[string]any{"path": "a", "size": "big"}}}), "sysinfo.Muster.disks"},
		{with("Muster", 1), "sysinfo.Muster"},
	} {
		_, err := inventory.Parse([]byte(c.in))
		p, ok := err.(*muster.Problem)
		if !ok || p.Code != muster.CodeInvalid || len(p.Errors) != 1 || p.Errors[0].Field != c.field {
			t.Errorf("%.60q: got %v, want a word about %s", c.in, err, c.field)
		}
	}
}

func TestRedact(t *testing.T) {
	in := `{"Boot Parameters":{"root_shadow":"$6$planted","rabbitmq":"u:planted:1:2","Muster.Bus":{"p":"planted"},"boot_args":"console=ttyS0 muster.bus=muster:planted:10.0.0.1:5672 quiet","list":["root_shadow=planted,x=1"],"plain":"stays"}}`
	got, err := inventory.Redact([]byte(in))
	if err != nil || strings.Contains(string(got), "planted") || !strings.Contains(string(got), "stays") || !strings.Contains(string(got), "quiet") {
		t.Errorf("%v: %s", err, got)
	}
	if got := inventory.RedactLine("a muster.bus=u:p:1:2 b"); got != "a muster.bus=REDACTED b" {
		t.Error(got)
	}
}

func TestRealSerial(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "  ": "", "To Be Filled By O.E.M.": "", "Default string": "", "0123456789": "", "0000000": "", "XXXX": "", "--": "",
		"4QENZE2": "4QENZE2", " S2480 \t25X ": "S2480 25X", "10": "10",
	} {
		if got := inventory.RealSerial(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestSharedUUIDs(t *testing.T) {
	for _, s := range []string{"00020003-0004-0005-0006-000700080009", "03000200-0400-0500-0006-000700080009"} {
		if !inventory.SharedUUID(s) {
			t.Errorf("%s is on many boards", s)
		}
	}
	if inventory.SharedUUID(uuid) || inventory.SharedUUID("00000000-0000-0000-0000-ac1f6b2c3d0a") {
		t.Error("a UUID with the MAC in its tail is as good as any")
	}
	if got := muster.SwapUUID(uuid); got != "33221100-5544-7766-8899-aabbccddeea1" || muster.SwapUUID(got) != uuid {
		t.Errorf("swapped to %s", got)
	}
}

func TestJudge(t *testing.T) {
	const shared = "03000200-0400-0500-0006-000700080009"
	known := inventory.Evidence{UUID: uuid, Serial: "S1", MACs: []string{"a", "b"}, Disks: []string{"d", "e"}}
	for _, c := range []struct {
		name   string
		change func(k, n *inventory.Evidence)
		want   inventory.Outcome
	}{
		{"the same again", func(k, n *inventory.Evidence) {}, inventory.Same},
		{"UUID in the other byte order", func(k, n *inventory.Evidence) { n.UUID = muster.SwapUUID(uuid) }, inventory.Same},
		{"new NIC beside the old", func(k, n *inventory.Evidence) { n.MACs = []string{"c", "a"} }, inventory.Same},
		{"all disks new", func(k, n *inventory.Evidence) { n.Disks = []string{"x"} }, inventory.Same},
		{"NICs replaced", func(k, n *inventory.Evidence) { n.MACs = []string{"c"} }, inventory.Same},
		{"no serials", func(k, n *inventory.Evidence) { k.Serial, n.Serial = "", "" }, inventory.Same},
		{"nothing but UUID", func(k, n *inventory.Evidence) { *k = inventory.Evidence{UUID: uuid} }, inventory.Same},
		{"another board with one UUID", func(k, n *inventory.Evidence) { n.Serial, n.MACs, n.Disks = "S2", []string{"c"}, []string{"x"} }, inventory.Conflict},
		{"blade of one chassis", func(k, n *inventory.Evidence) { n.MACs, n.Disks = []string{"c"}, []string{"x"} }, inventory.Conflict},
		{"disks moved, same UUID from the stamp", func(k, n *inventory.Evidence) { n.Serial, n.MACs = "S2", []string{"c"} }, inventory.Conflict},
		{"clone without serial", func(k, n *inventory.Evidence) { n.Serial, n.MACs = "", []string{"c"} }, inventory.Conflict},
		{"clone without serial and NICs", func(k, n *inventory.Evidence) { n.Serial, n.MACs, n.Disks = "", nil, []string{"x"} }, inventory.Conflict},
		{"another machine", func(k, n *inventory.Evidence) {
			*n = inventory.Evidence{UUID: "11111111-0000-0000-0000-000000000001", Serial: "S2", MACs: []string{"c"}}
		}, inventory.New},
		{"firmware lost its UUID", func(k, n *inventory.Evidence) { n.UUID = "11111111-0000-0000-0000-000000000001" }, inventory.Conflict},
		{"disks in another machine", func(k, n *inventory.Evidence) {
			n.UUID, n.Serial, n.MACs = "11111111-0000-0000-0000-000000000001", "S2", []string{"c"}
		}, inventory.Conflict},
		{"one disk of it in another machine", func(k, n *inventory.Evidence) {
			n.UUID, n.Serial, n.MACs, n.Disks = "11111111-0000-0000-0000-000000000001", "S2", []string{"c"}, []string{"d", "x"}
		}, inventory.New},
		{"default UUID, another board", func(k, n *inventory.Evidence) { k.UUID, n.UUID, n.MACs, n.Disks = shared, shared, []string{"c"}, nil }, inventory.Conflict},
		{"default UUID, same board", func(k, n *inventory.Evidence) { k.UUID, n.UUID = shared, shared }, inventory.Same},
		{"same key", func(k, n *inventory.Evidence) { k.Key, n.Key = "k", "k" }, inventory.Same},
		{"new key", func(k, n *inventory.Evidence) { k.Key, n.Key = "k", "l" }, inventory.SameHardwareNewKey},
		{"no key shown", func(k, n *inventory.Evidence) { k.Key = "k" }, inventory.Same},
		{"key on other hardware", func(k, n *inventory.Evidence) {
			k.Key, n.Key, n.UUID, n.MACs = "k", "k", "11111111-0000-0000-0000-000000000001", []string{"c"}
		}, inventory.SameKeyNewHardware},
	} {
		k, n := known, known
		c.change(&k, &n)
		if v := inventory.Judge(k, n); v.Outcome != c.want || v.Reason == "" {
			t.Errorf("%s: got %+v, want %s", c.name, v, c.want)
		}
	}
}

// Judging never panics, always gives a reason, and is blind to which of the two
// was there first.
func TestJudgeIsTotalAndSymmetric(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) inventory.Evidence {
			return inventory.Evidence{
				UUID:   rapid.SampledFrom([]string{"", uuid, muster.SwapUUID(uuid), "03000200-0400-0500-0006-000700080009", "x"}).Draw(t, label+" uuid"),
				Serial: rapid.SampledFrom([]string{"", "S1", "S2"}).Draw(t, label+" serial"),
				MACs:   rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 2).Draw(t, label+" macs"),
				Disks:  rapid.SliceOfN(rapid.SampledFrom([]string{"d", "e"}), 0, 2).Draw(t, label+" disks"),
				Key:    rapid.SampledFrom([]string{"", "k", "l"}).Draw(t, label+" key"),
			}
		}
		a, b := draw("known"), draw("newcomer")
		v, w := inventory.Judge(a, b), inventory.Judge(b, a)
		if v.Reason == "" || v.Outcome != w.Outcome {
			t.Fatalf("%+v and %+v", v, w)
		}
		if a.Serial != "" && b.Serial != "" && a.Serial != b.Serial && v.Outcome == inventory.Same && !slices.ContainsFunc(a.MACs, func(m string) bool { return slices.Contains(b.MACs, m) }) {
			t.Fatalf("merged two machines: %+v", v)
		}
	})
}

func TestEvidenceLeavesOutWhatTellsNothing(t *testing.T) {
	f := ours()
	f.Serial, f.MACs = "Default string", append(f.MACs, "00:e0:4c:68:00:01")
	f.Disks = append(f.Disks, muster.Disk{Path: "/dev/sdz", Serial: "stick", Removable: true}, muster.Disk{Path: "/dev/sdy"})
	e := f.Evidence()
	if e.Serial != "" || len(e.MACs) != 2 || len(e.Disks) != 1 {
		t.Errorf("%+v", e)
	}
	r := muster.Registration{ServerUUID: f.UUID, Serial: f.Serial, MACs: f.MACs, Disks: f.Disks}
	if fmt.Sprint(inventory.BuiltinShared().EvidenceOf(r)) != fmt.Sprint(e) {
		t.Error("a registration has other evidence than the facts it came from")
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range samples(f) {
		f.Add([]byte(s))
	}
	f.Add([]byte(ours().Sysinfo()))
	f.Add([]byte(`{"UUID":"` + uuid + `","MiB of Memory":-1,"Disks":{"c1t5000CCA02203FAFDd0":{"Size in GB":"600"}},"x":"\u0000"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		facts, err := inventory.Parse(b)
		if err != nil {
			if !muster.IsCode(err, muster.CodeInvalid) {
				t.Errorf("%v is no refusal of input", err)
			}
			return
		}
		if _, err := inventory.Redact(b); err != nil {
			t.Errorf("understood, and cannot be redacted: %v", err)
		}
		again, err := inventory.Parse(facts.Sysinfo())
		if err != nil || again.UUID != facts.UUID || again.Serial != facts.Serial || !slices.Equal(again.MACs, facts.MACs) {
			t.Errorf("%v: %+v became %+v", err, facts, again)
		}
		inventory.Judge(facts.Evidence(), again.Evidence())
	})
}
