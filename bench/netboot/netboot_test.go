//go:build linux

package main

import (
	"errors"
	"net/netip"
	"os"
	"testing"
	"time"

	"muster.internal/boot"
	"muster.internal/dhcp"
)

// The load must be what the booter takes for firmware, or it measures silence.
func TestMessageIsFirmware(t *testing.T) {
	for _, c := range []struct {
		server []byte
		want   dhcp.MessageType
	}{{nil, dhcp.Discover}, {[]byte{10, 0, 0, 1}, dhcp.Request}} {
		var p dhcp.Packet
		if err := p.Parse(appendMessage(nil, 77, &asking{n: 70_000}, c.server)); err != nil {
			t.Fatal(err)
		}
		q, ok := boot.FromDHCP(&p)
		if !ok || q.Type != c.want || q.Class != dhcp.PXEClass || q.Arch != 7 || q.MAC.String() != macText(70_000) {
			t.Errorf("the booter reads %+v", q)
		}
		if c.server != nil && (q.ServerID != netip.MustParseAddr(serverIP) || q.Claimed.String() != addressText(70_000)) {
			t.Errorf("the REQUEST names %v of %v", q.Claimed, q.ServerID)
		}
		if p.GIAddr != netip.MustParseAddr(loadIP) {
			t.Errorf("relayed by %v", p.GIAddr)
		}
	}
}

func TestAddressesAreApart(t *testing.T) {
	seen := map[string]bool{}
	for n := range 200_000 {
		seen[addressText(n)] = true
	}
	if len(seen) != 200_000 || addressText(0) != "10.16.0.0" || addressText(100_000) != "10.17.134.160" {
		t.Errorf("%d addresses, the first %s, the hundred thousandth %s", len(seen), addressText(0), addressText(100_000))
	}
}

func TestOption(t *testing.T) {
	p := append(make([]byte, 240), 0, 53, 1, 2, 54, 4, 10, 0, 0, 1, 255, 51, 1, 9)
	if got := option(p, 54); len(got) != 4 || got[0] != 10 {
		t.Errorf("54 is %v", got)
	}
	if got := option(p, 51); got != nil {
		t.Errorf("51 behind the end is %v", got)
	}
	if got := option(append(make([]byte, 240), 54, 40, 1), 54); got != nil {
		t.Errorf("an option that is cut is %v", got)
	}
}

func TestGoals(t *testing.T) {
	c := newComparison("work", "CPU us")
	c.of("muster").Values, c.of("muster").Rates = []float64{5, 1, 3}, []float64{100}
	c.of("kea").Values, c.of("kea").Rates = []float64{10, 20}, []float64{25}
	c.atMost(0.2, "muster", "kea")
	c.faster(4, "muster", "kea")
	c.atMost(1, "muster", "absent")
	if len(c.Goals) != 2 || c.Goals[0].Ratio != 0.2 || !c.Goals[0].met() || c.Goals[1].Ratio != 4 || !c.Goals[1].met() {
		t.Errorf("%+v", c.Goals)
	}
	c.Goals[0].Ratio, c.Goals[1].Ratio = 0.21, 3.9
	if c.Goals[0].met() || c.Goals[1].met() {
		t.Errorf("a goal that is missed is met: %+v", c.Goals)
	}
}

func TestBytesAreTheSame(t *testing.T) {
	a, b := bytesOf(1000), bytesOf(2000)
	if len(a) != 1000 || string(a) != string(b[:1000]) || string(a[:32]) == string(a[32:64]) {
		t.Error("content is not the same on every run, or repeats itself")
	}
}

// A peer that does not start, or fails, loses its rounds; the others have theirs.
// Of ours it is an error.
func TestAPeerMayFail(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("it takes root to make network namespaces and control groups")
	}
	b, err := newBench(settings{rounds: 2})
	if err != nil {
		t.Skip("this system does not let us set the stage: ", err)
	}
	defer b.close()
	sleeps := []string{"sleep", "1000"}
	for _, tt := range []struct {
		name   string
		other  server
		failed bool
	}{
		{"does not start", server{name: "other", args: []string{"false"}, peer: true}, false},
		{"fails", server{name: "other", args: sleeps, peer: true}, false},
		{"is ours", server{name: "other", args: sleeps}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newComparison("work", "CPU s")
			err := b.compare(t.Context(), c, []server{tt.other, {name: "muster", args: sleeps}},
				func(s server) bool { return s.args[0] == "sleep" },
				func(t *turn, r *result) (int, int, time.Duration, error) {
					if t.s.name == "other" {
						return 0, 1, time.Second, errors.New("it broke")
					}
					return 1, 0, time.Second, nil
				}, 1)
			if tt.failed != (err != nil) {
				t.Fatal(err)
			}
			if err == nil && (c.of("other").Lost != 2 || len(c.of("other").Values) != 0 || len(c.of("muster").Values) != 2) {
				t.Errorf("other %+v, muster %+v", c.of("other"), c.of("muster"))
			}
		})
	}
}
