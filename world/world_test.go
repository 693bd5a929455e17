package world

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the transcripts")

// TestScenarios plays the kept scenarios. Each has its transcript below it.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("there are no scenarios", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s, err := Parse(strings.NewReader(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			r, err := Run(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			for _, wrong := range r.Wrong {
				t.Error(wrong)
			}
			t.Logf("%+v", r.Load)
			got := s.String() + r.String()
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(text) {
				t.Errorf("it came otherwise; -update rewrites the transcript:\n%s", difference(string(text), got))
			}
		})
	}
}

// difference shows the first lines that differ.
func difference(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("line %d was\n%s\nand is\n%s", i+1, a[i], b[i])
		}
	}
	return fmt.Sprintf("%d lines were, and %d are", len(a), len(b))
}

var (
	seeds = flag.Int("seeds", 0, "how many seeds to run; 0: a short list")
	from  = flag.Uint64("from", 1, "the first of them")
)

// TestSeeds plays what seeds make up. One that fails is made smaller and printed,
// to be kept in testdata.
func TestSeeds(t *testing.T) {
	list := []uint64{1}
	if *seeds > 0 {
		list = nil
		for n := range uint64(*seeds) {
			list = append(list, *from+n)
		}
	}
	for _, seed := range list {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s := Generate(seed)
			r, err := Run(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d steps in %v: %+v", len(s.Steps), s.Until, r.Load)
			if len(r.Wrong) == 0 {
				return
			}
			tries := 0
			if *seeds > 0 {
				tries = 200
			}
			if s, r, err = Shrink(t.Context(), s, tries); err != nil {
				t.Fatal(err)
			}
			t.Errorf("seed %d: %s\nPut this into world/testdata/NAME.txt to keep it:\n%s%s", seed, strings.Join(r.Wrong, "\n"), s, r)
		})
	}
}

// TestSame: a seed comes to the same end, event for event.
func TestSame(t *testing.T) {
	s := Generate(4)
	s.Steps, s.Until = s.Steps[:12], s.Steps[12].At
	var was string
	for range 2 {
		r, err := Run(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		if was != "" && was != r.String() {
			t.Fatalf("the same seed came to another end:\n%s", difference(was, r.String()))
		}
		was = r.String()
	}
}

var (
	nodes = flag.Int("nodes", 0, "how many machines TestMonth has; 0: a few")
	days  = flag.Int("days", 3, "and for how long")
)

// TestMonth is a large fleet at work: something is done every day, and power fails
// once everywhere. Nobody may storm the control plane when that is back.
func TestMonth(t *testing.T) {
	n := *nodes
	if n == 0 {
		n = 20
	}
	began := time.Now()
	r, err := Run(t.Context(), month(n, *days))
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range r.Wrong {
		t.Error(wrong)
	}
	if most := n/5 + 20; r.Load.Return > most {
		t.Errorf("hosts made %d calls in one second after power came back, and should make at most %d", r.Load.Return, most)
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	t.Logf("%d nodes for %d days: %+v in %v, %d MB from the system", n, *days, r.Load, time.Since(began), memory.Sys>>20)
}

// month is what is done to n machines.
func month(n, days int) Scenario {
	s := Scenario{Seed: 9, Until: time.Duration(days) * 24 * time.Hour}
	at := func(d time.Duration, format string, args ...any) {
		s.Steps = append(s.Steps, Step{d, strings.Fields(fmt.Sprintf(format, args...))})
	}
	for _, m := range []string{"time", "db", "web", "one"} {
		at(0, "want %s 1", m)
	}
	for i := range n {
		at(time.Duration(i)*10*time.Second, "adopt n%d rack=r%d", i+1, i%20)
	}
	for day := 1; day < days; day++ {
		noon := time.Duration(day)*24*time.Hour + 12*time.Hour
		name := fmt.Sprintf("n%d", day*7%n+1)
		switch day % 5 {
		case 0:
			at(noon, "want time %d", day)
		case 1:
			at(noon, "off all 1h")
		case 2:
			at(noon, "node %s graceful_remove", name)
			at(noon+6*time.Hour, "readd %s rack=r1", name)
		case 3:
			at(noon, "away %s 20h", name)
		case 4:
			at(noon, "want db %d", day)
		}
	}
	return s
}
