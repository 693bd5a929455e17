package host_test

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"muster.internal/host"
)

const line = "initrd=initrd console=ttyS0 muster.mac=52:54:00:00:00:01 muster.ip=10.77.0.101/24 muster.gw=10.77.0.1 muster.bus=bus:planted:10.77.0.1:5672 muster.mode=enroll muster.time=1700000000\n"

func TestParseArgs(t *testing.T) {
	got, err := host.ParseArgs(line)
	want := host.Args{
		MAC: "52:54:00:00:00:01", Address: netip.MustParsePrefix("10.77.0.101/24"), Gateway: netip.MustParseAddr("10.77.0.1"), Mode: "enroll",
		Time: time.Unix(1700000000, 0).UTC(), BusAddr: "10.77.0.1:5672", BusUser: "bus", BusPassword: "planted",
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v: got %+v", err, got)
	}
	if got, err := host.ParseArgs(strings.Replace(line, "muster.gw=10.77.0.1 ", "", 1)); err != nil || got.Gateway.IsValid() {
		t.Errorf("without a gateway: %+v, %v", got, err)
	}
	if got, err := host.ParseArgs(strings.Replace(line, "muster.gw", "muster.uuid=4C4C4544-0000-4000-8000-000000000001 muster.gw", 1)); err != nil || got.UUID != "4c4c4544-0000-4000-8000-000000000001" {
		t.Errorf("with a UUID: %+v, %v", got, err)
	}
	sum := strings.Repeat("0a", 32)
	rooted := strings.Replace(line, "muster.bus", "muster.root=http://10.77.0.1/boot/x/file/"+sum+" muster.dns=9.9.9.9,2001:db8::1 muster.dhcp=site muster.bus", 1)
	got, err = host.ParseArgs(rooted)
	want.Root, want.RootSum, want.Leased = "http://10.77.0.1/boot/x/file/"+sum, sum, true
	want.Resolvers = []netip.Addr{netip.MustParseAddr("9.9.9.9"), netip.MustParseAddr("2001:db8::1")}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("with a root file system: %v: got %+v", err, got)
	}
	for from, to := range map[string]string{
		"http://": "https://", sum: sum[1:], "9.9.9.9": "9.9.9", "/" + sum: sum,
	} {
		if got, err := host.ParseArgs(strings.Replace(rooted, from, to, 1)); err == nil {
			t.Errorf("%s for %s: %+v", to, from, got)
		}
	}
	for from, to := range map[string]string{
		"muster.gw=":                  "muster.uuid=00000000-0000-0000-0000-000000000000 muster.gw=",
		"muster.":                     "x.",
		"mac=52:54:00:00:00:01":       "mac=x",
		"10.77.0.101/24":              "10.77.0.101",
		"muster.ip=10":                "muster.ip=fe80::1/64 x=",
		"gw=10.77.0.1 ":               "gw=x ",
		"mode=enroll":                 "mode=wipe",
		"time=1700000000":             "time=now",
		"bus:planted:10.77.0.1:5672":  "bus:planted:10.77.0.1",
		"bus:planted:10.77.0.1:5672 ": "bus:planted:booter:5672 ",
		"5672 ":                       "0 ",
	} {
		bad := strings.ReplaceAll(line, from, to)
		if _, err := host.ParseArgs(bad); err == nil || strings.Contains(err.Error(), "planted") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func FuzzParseArgs(f *testing.F) {
	f.Add(line)
	f.Fuzz(func(t *testing.T, s string) {
		if a, err := host.ParseArgs(s); err == nil && (a.MAC == "" || !a.Address.IsValid() || a.BusAddr == "") {
			t.Errorf("half understood: %+v", a)
		}
	})
}
