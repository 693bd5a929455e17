package layout_test

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"muster.internal/layout"

	"pgregory.net/rapid"
)

type kase struct {
	ID      int            `json:"id"`
	Why     string         `json:"why"`
	Request layout.Request `json:"request"`
	Result  struct {
		layout.Result
		Error string `json:"error"`
	} `json:"result"`
}

func cases(t testing.TB) []kase {
	b, err := os.ReadFile("testdata/cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var cs []kase
	if err := json.Unmarshal(b, &cs); err != nil {
		t.Fatal(err)
	}
	return cs
}

// The answers of the original rules to 200 inventories. They differ in one
// point: the original plans mirrors of one disk, which no pool accepts.
func TestTheRulesAgreeWithTheirModel(t *testing.T) {
	cs := cases(t)
	if len(cs) != 200 {
		t.Fatalf("%d cases, not 200", len(cs))
	}
	for _, c := range cs {
		got, err := layout.Plan(c.Request)
		if oneDiskMirror(c.Result.Result) {
			if err == nil || !strings.Contains(err.Error(), "without a partner") {
				t.Errorf("case %d (%s): a mirror of one disk must be refused, got %v", c.ID, c.Why, err)
			}
			continue
		}
		if text(err) != c.Result.Error {
			t.Errorf("case %d (%s): got error %q, want %q", c.ID, c.Why, text(err), c.Result.Error)
			continue
		}
		g, _ := json.Marshal(got)
		w, _ := json.Marshal(c.Result.Result)
		if err == nil && !bytes.Equal(g, w) {
			t.Errorf("case %d (%s):\n got %s\nwant %s", c.ID, c.Why, g, w)
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func oneDiskMirror(r layout.Result) bool {
	for _, v := range r.VDevs {
		if v.Type == "mirror" && len(v.Devices) == 1 {
			return true
		}
	}
	return false
}

func requests(t *rapid.T) layout.Request {
	sizes := rapid.SampledFrom([]int64{0, 1e8, 1e11, 240e9, 251e9, 6e11, 605e9, 1e12, 4e12, 1 << 52})
	var q layout.Request
	for i := range rapid.IntRange(0, 40).Draw(t, "disks") {
		q.Disks = append(q.Disks, layout.Disk{
			Name: "d" + string(rune('A'+i/26)) + string(rune('a'+i%26)), Size: sizes.Draw(t, "size"),
			Type:      rapid.SampledFrom([]string{"SCSI", "ATA", "NVMe"}).Draw(t, "type"),
			Removable: rapid.IntRange(0, 9).Draw(t, "removable") == 0, SolidState: rapid.Bool().Draw(t, "ssd"),
		})
	}
	if rapid.Bool().Draw(t, "with spares") {
		n := rapid.IntRange(-1, 12).Draw(t, "spares")
		q.Spares = &n
	}
	if rapid.Bool().Draw(t, "with width") {
		n := rapid.IntRange(0, 21).Draw(t, "width")
		q.Width = &n
	}
	if rapid.Bool().Draw(t, "with cache") {
		b := rapid.Bool().Draw(t, "cache")
		q.Cache = &b
	}
	q.Layout = rapid.SampledFrom(append([]string{"", "raidz"}, layout.Names...)).Draw(t, "layout")
	if len(q.Disks) > 0 && rapid.Bool().Draw(t, "exclude") {
		q.Exclude = []string{strings.ToUpper(q.Disks[0].Name)}
	}
	return q
}

func TestEveryPlanIsSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := requests(t)
		before, _ := json.Marshal(q)
		r, err := layout.Plan(q)
		if after, _ := json.Marshal(q); !bytes.Equal(before, after) {
			t.Fatal("planning changed the request")
		}
		again, err2 := layout.Plan(q)
		if !reflect.DeepEqual(r, again) || text(err) != text(err2) {
			t.Fatal("the same request had two answers")
		}
		if err == nil {
			sound(t, q, r)
		}
	})
}

var parities = map[string]int{"": 0, "mirror": 0, "raidz": 1, "raidz2": 2, "raidz3": 3}

// sound checks what must hold of every plan, whatever the rules say.
func sound(t interface{ Fatalf(string, ...any) }, q layout.Request, r layout.Result) {
	given := map[string]layout.Disk{}
	for _, d := range q.Disks {
		given[d.Name] = d
	}
	used := map[string]bool{}
	use := func(ds []layout.Device) (sum int64) {
		for _, d := range ds {
			g, ok := given[d.Name]
			switch {
			case !ok || g.Size != d.Size || g.SolidState != d.SolidState:
				t.Fatalf("disk %q is not one of the machine's", d.Name)
			case used[d.Name]:
				t.Fatalf("disk %q is used twice", d.Name)
			case g.Removable:
				t.Fatalf("removable disk %q is used", d.Name)
			case len(q.Exclude) > 0 && strings.EqualFold(q.Exclude[0], d.Name):
				t.Fatalf("excluded disk %q is used", d.Name)
			}
			used[d.Name] = true
			sum += d.Size
		}
		return sum
	}
	var sum int64
	if len(r.VDevs) == 0 {
		t.Fatalf("a pool without disks")
	}
	for _, v := range r.VDevs {
		sum += use(v.Devices)
		parity, known := parities[v.Type]
		if !known || len(v.Devices) <= parity || v.Type == "mirror" && len(v.Devices) < 2 || v.Type == "" && len(v.Devices) != 1 {
			t.Fatalf("a %q of %d disks", v.Type, len(v.Devices))
		}
		if len(v.Devices) != len(r.VDevs[0].Devices) {
			t.Fatalf("groups of different widths")
		}
	}
	if r.Capacity <= 0 || r.Capacity > sum {
		t.Fatalf("capacity %d of disks that hold %d", r.Capacity, sum)
	}
	use(r.Spares)
	use(r.Logs)
	use(r.Cache)
	for n := range r.Unused {
		if used[n] {
			t.Fatalf("disk %q is used, and said to be unused", n)
		}
		used[n] = true
	}
	if len(used) != len(q.Disks) {
		t.Fatalf("%d disks, %d accounted for", len(q.Disks), len(used))
	}
}

func FuzzPlan(f *testing.F) {
	for _, c := range cases(f)[:20] {
		b, _ := json.Marshal(c.Request)
		f.Add(b)
	}
	f.Add([]byte(`{"disks":[{"name":"a","size":4503599627370496},{"name":"a","size":-1}],"width":-5,"spares":99999}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := layout.ParseRequest(bytes.NewReader(b))
		if err != nil {
			return
		}
		if r, err := layout.Plan(q); err == nil && len(q.Exclude) == 0 {
			sound(t, q, r)
		}
	})
}

func TestRequestsAreReadStrictly(t *testing.T) {
	for _, s := range []string{"", "{", `{"colour":1}`, `{"disks":{}}`, `{"disks":[{"size":"1"}]}`, `{} {}`, strings.Repeat(" ", 2<<20)} {
		if _, err := layout.ParseRequest(strings.NewReader(s)); err == nil {
			t.Errorf("%.20q was read", s)
		}
	}
}
