package boot

import (
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"muster.internal"
)

// Rule: nothing that makes a platform destroy pools, or import foreign ones,
// gets into a boot, however it is spelled.
func TestNoSpellingHarmsPools(t *testing.T) {
	for _, arg := range []string{
		"destroy_zpools=true", "DESTROY_ZPOOLS=true", "Destroy-Zpools=1", "destroy__zpools=true", "destroyzpools=true", "destroy.zpools=true",
		"-Bdestroy_zpools=true", "x=destroy_zpools=true", "boot_args=destroy_zpools", "console=ttya,destroy_zpools=true", "a=b,-B=c,Destroy_Zpools=1",
		"destroy%5fzpools=true", "%64estroy_zpools=true", "%2564estroy_zpools=true", "destroy_zpool%73=true", "de%73troy-zpool/s",
		"smartdc:factoryreset=yes", "smartdc:factory_reset=yes", "FactoryReset=yes", "x=FACTORY-RESET", "factory%72eset=yes",
		"noimport=false", "NoImport=false", "zpools=x", "headnode=true", "destroy_zpools%3dtrue",
	} {
		if err := CheckArg(arg); err == nil {
			t.Errorf("a record may carry %q", arg)
		}
		d, r := decided(t, muster.SmartOSImage, Node)
		r.KernelArgs = []string{arg}
		if e := Decide(Request{Via: HTTP, MAC: mac, Want: Script}, NewMachine(r), NewPolicy(policy()), env(d.Image)); e.Serve {
			t.Errorf("%q in a record that is there already is served", arg)
		}
	}
	for _, arg := range []string{"console=ttyb", "destroyer=1", "zpool_x=1", "a=100%25", "x=%zz", "factory=1", "x=50%"} {
		if err := CheckArg(arg); err != nil {
			t.Errorf("%v", err)
		}
	}
}

// What follows -B is what the platform takes apart again.
func TestProperties(t *testing.T) {
	for arg, want := range map[string]string{
		"smt_enabled=true": "", "aggr0_aggr=0:1:2:3:4:5,6:7:8:9:a:b": "", "ttyb-mode=115200,8,n,1,-": "",
		"quiet": "NAME=VALUE", "x=": "NAME=VALUE", "=x": "NAME=VALUE", "a=b=c": "second equal sign", "a:b=c": "its name must be", "-k=1": "its name must be", "%61=1": "its name must be",
	} {
		d, r := decided(t, muster.SmartOSImage, Node)
		r.KernelArgs = []string{arg}
		got, err := Render(d, r, site(), now, Extra{})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", arg, err, want)
		}
		if name, value, _ := strings.Cut(arg, "="); want == "" && strings.Contains(value, ",") && !strings.Contains(string(got), ","+name+`="`+value+`",`) {
			t.Errorf("%s is not quoted in\n%s", arg, got)
		}
	}
}

// The agent splits rabbitmq at colons, so its host is an IPv4 address; and the
// kernel looks for its modules below platform/i86pc.
func TestStockAgentsParameters(t *testing.T) {
	s := site()
	s.Bus = netip.MustParseAddrPort("[fd00::1]:5672")
	if err := s.Check(); err == nil || !strings.Contains(err.Error(), "IPv4") {
		t.Errorf("a bus at %s: %v", s.Bus, err)
	}
	for _, mode := range []Mode{Enroll, Node, Rescue} {
		d, r := decided(t, muster.SmartOSImage, mode)
		got, err := Render(d, r, site(), now, Extra{})
		if err != nil {
			t.Fatal(err)
		}
		bus := regexp.MustCompile(`[ ,]rabbitmq=([^ ,]*)`).FindStringSubmatch(string(got))
		if bus == nil || len(strings.Split(bus[1], ":")) != 4 || strings.Contains(bus[1], "=") {
			t.Errorf("%v: rabbitmq is %q", mode, bus)
		}
		if !strings.Contains(string(got), "admin_nic="+mac.String()) || strings.Contains(string(got), "${") {
			t.Errorf("%v:\n%s", mode, got)
		}
		for _, line := range strings.Split(string(got), "\n") {
			if word, rest, _ := strings.Cut(line, " "); (word == "kernel" || strings.Contains(rest, "type=rootfs")) && !regexp.MustCompile(`/os/[^/ ]+/platform/i86pc/`).MatchString(rest) {
				t.Errorf("%v: %s", mode, line)
			}
		}
		if n := strings.Count(string(got), "noimport"); n != map[Mode]int{Enroll: 1, Node: 0, Rescue: 1}[mode] {
			t.Errorf("%v: noimport %d times", mode, n)
		}
	}
}
