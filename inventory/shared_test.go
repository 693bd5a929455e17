package inventory_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"muster.internal"
	"muster.internal/inventory"
)

func TestSharedRowsSayWhoseAndWhereFrom(t *testing.T) {
	rows := inventory.BuiltinShared().Rows()
	for _, r := range rows {
		if r.Vendor == "" || r.Comment == "" || !r.Builtin {
			t.Errorf("%+v", r)
		}
	}
	if len(rows) < 40 {
		t.Errorf("%d rows", len(rows))
	}
}

func TestOperatorsAddShared(t *testing.T) {
	s := inventory.BuiltinShared().With([]muster.SharedIdentity{
		{Kind: muster.SharedUUID, Value: "33221100-AA44-7766-8899-aabbccddeea1"},
		{Kind: muster.SharedSerial, Value: " Chassis  7 "},
		{Kind: muster.SharedMAC, Value: "A0-CE-C8-1-2-3"},
		{Kind: muster.SharedMAC, Value: "00:50:B6"},
	})
	for _, u := range []string{"33221100-aa44-7766-8899-aabbccddeea1", "00112233-44aa-6677-8899-aabbccddeea1"} {
		if _, is := s.UUID(u); !is {
			t.Errorf("%s is the same in the other byte order", u)
		}
		if inventory.SharedUUID(u) {
			t.Error("the rows that come with muster have changed")
		}
	}
	e := s.Evidence(inventory.Facts{UUID: uuid, Serial: "chassis 7", MACs: []string{"a0:ce:c8:01:02:03", "00:50:b6:12:34:56", "00:50:b7:12:34:56", "02:42:ac:11:00:02"}})
	if e.Serial != "" || !slices.Equal(e.MACs, []string{"00:50:b7:12:34:56"}) {
		t.Errorf("%+v", e)
	}
	for _, bad := range []muster.SharedIdentity{
		{Kind: "disk", Value: "x"}, {Kind: muster.SharedUUID, Value: "x"}, {Kind: muster.SharedUUID, Value: "00000000-0000-0000-0000-000000000000"},
		{Kind: muster.SharedSerial, Value: "  "}, {Kind: muster.SharedSerial, Value: strings.Repeat("x", 65)},
		{Kind: muster.SharedMAC, Value: "00"}, {Kind: muster.SharedMAC, Value: "00:gg"}, {Kind: muster.SharedMAC, Value: "1:2:3:4:5:6:7"},
	} {
		if v, err := inventory.CanonicalShared(bad.Kind, bad.Value); err == nil {
			t.Errorf("%+v was taken as %q", bad, v)
		}
	}
}

// The derived UUID is what machines announce themselves by for years: it must
// never change.
func TestDeriveIsForEver(t *testing.T) {
	got, ok := inventory.Derive(" S1 ", "52:54:00:77:00:01")
	if want := "46c9d51a-113a-834b-9f05-bd0718c78223"; !ok || got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if _, ok := inventory.Derive("", ""); ok {
		t.Error("a UUID was made of nothing")
	}
	shape := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	rapid.Check(t, func(t *rapid.T) {
		serial := rapid.SampledFrom([]string{"", "S1", "s1", "S2"})
		mac := rapid.SampledFrom([]string{"", "52:54:00:00:00:01", "52:54:00:00:00:02"})
		s, m, s2, m2 := serial.Draw(t, "serial"), mac.Draw(t, "mac"), serial.Draw(t, "other serial"), mac.Draw(t, "other mac")
		a, _ := inventory.Derive(s, m)
		b, _ := inventory.Derive(s2, m2)
		if same := strings.EqualFold(s, s2) && m == m2; (a == b) != same {
			t.Fatalf("%q %q and %q %q lead to %s and %s", s, m, s2, m2, a, b)
		}
		if a != "" && !shape.MatchString(a) {
			t.Fatalf("%s is no UUID of version 8", a)
		}
	})
}

func TestOwnUsesWhatIsItsOwn(t *testing.T) {
	s := inventory.BuiltinShared()
	const dongle = "00:e0:4c:68:00:01"
	both, _ := s.Own("S1", "52:54:00:00:00:01")
	serial, _ := s.Own("S1", dongle)
	mac, _ := s.Own("Default string", "52:54:00:00:00:01")
	_, none := s.Own("Default string", dongle)
	if none || both == serial || both == mac || serial == mac {
		t.Error(both, serial, mac, none)
	}
	if d, _ := inventory.Derive("S1", ""); d != serial {
		t.Error("a shared MAC is part of the derived UUID")
	}
}

func TestEveryCaseHasItsRow(t *testing.T) {
	known := inventory.Evidence{UUID: uuid, Serial: "S1", MACs: []string{"a", "b"}, Disks: []string{"d", "e"}}
	const other = "11111111-0000-0000-0000-000000000001"
	for want, n := range map[inventory.Case]inventory.Evidence{
		inventory.OneUUID:       {UUID: uuid, Serial: "S2", MACs: []string{"c"}, Disks: []string{"x"}},
		inventory.OneChassis:    {UUID: muster.SwapUUID(uuid), Serial: "s1", MACs: []string{"c"}, Disks: []string{"x"}},
		inventory.SerialChanged: {UUID: uuid, Serial: "S2", MACs: []string{"a"}},
		inventory.DisksMoved:    {UUID: uuid, Serial: "S2", MACs: []string{"c"}, Disks: []string{"d"}},
		inventory.UUIDChanged:   {UUID: other, Serial: "S1", MACs: []string{"a"}, Disks: []string{"d", "e"}},
		inventory.BoardSwapped:  {UUID: other, Serial: "S2", MACs: []string{"c"}, Disks: []string{"x"}, Stamps: []string{uuid}},
		inventory.NICMoved:      {UUID: other, Serial: "S2", MACs: []string{"a"}, Disks: []string{"x"}},
		inventory.DefaultUUID:   {UUID: "03000200-0400-0500-0006-000700080009", SharedUUID: true, MACs: []string{"c"}},
		inventory.KeyMoved:      {UUID: uuid, Serial: "S2", MACs: []string{"c"}, Key: "k"},
	} {
		k := known
		if n.Key != "" {
			k.Key = n.Key
		}
		if n.SharedUUID {
			k.UUID, k.SharedUUID = n.UUID, true
		}
		v := inventory.Judge(k, n)
		if v.Case != want || len(v.Case.Verbs()) == 0 || v.Case.Row().Looks == "" {
			t.Errorf("%s: %+v", want, v)
		}
	}
	for _, r := range inventory.Cases {
		if r.Case != inventory.KeyMoved && !slices.Contains(r.Verbs, inventory.VerbForget) {
			t.Errorf("a newcomer in case %s cannot be forgotten", r.Case)
		}
	}
}
