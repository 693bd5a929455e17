package setup

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestParseLine(t *testing.T) {
	for _, c := range []struct {
		line string
		want Progress
		ok   bool
	}{
		{"muster-host: " + StepLine(1, 11, "clock", "setting the clock"), Progress{7, "clock", 0, "setting the clock"}, true},
		{StepLine(8, 11, "build", "building the pool") + "\r", Progress{7, "build", 63, "building the pool"}, true},
		{"setup 12/11 x: y", Progress{7, "", 40, "setup 12/11 x: y"}, true},
		{"setup 0/0 x: y", Progress{7, "", 40, "setup 0/0 x: y"}, true},
		{"zpool: warning", Progress{7, "", 40, "zpool: warning"}, true},
		{strings.Repeat("ä", 400), Progress{7, "", 40, strings.Repeat("ä", 256)}, true},
		{"  ", Progress{}, false},
		{Sentinel(7, Proof([]byte("k"), "u", 7)), Progress{}, false},
	} {
		if got, ok := ParseLine(7, 40, c.line); got != c.want || ok != c.ok {
			t.Errorf("%.60q: %+v %v", c.line, got, ok)
		}
	}
}

func FuzzParseProgress(f *testing.F) {
	f.Add([]byte(`{"epoch":1,"step":"build","percent":40,"text":"x"}`))
	f.Add([]byte(`{"epoch":1,"percent":-4,"text":"x"}`))
	f.Add([]byte(`{"epoch":1,"step":"B!","percent":400}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		p, err := ParseProgress(body)
		if err != nil {
			return
		}
		if p.Percent < 0 || p.Percent > 100 || p.Step != "" && !stepName.MatchString(p.Step) || p.Step == "" && p.Text == "" {
			t.Fatalf("accepted %+v", p)
		}
		b, _ := json.Marshal(p)
		if q, err := ParseProgress(b); len(b) <= maxProgress && (err != nil || q != p) {
			t.Fatalf("%+v becomes %+v, %v", p, q, err)
		}
	})
}
