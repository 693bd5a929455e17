package host

import (
	"strings"
	"testing"
	"time"

	"muster.internal/resource"
)

func TestCandidate(t *testing.T) {
	now := Moment{time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC), "b1", time.Hour}
	at := func(d time.Duration) Moment { return Moment{now.Wall.Add(d), now.Boot, now.Up + d} }
	other := Moment{now.Wall.Add(time.Hour), "b2", time.Second}
	two := Candidate{Digest: "two", Since: now}
	for name, k := range map[string]struct {
		c                 Candidate
		installed, proven string
		last              RolledBack
		failed            bool
		now               Moment
		want              Candidate
		verdict           Verdict
		says              string
	}{
		"nothing is proven yet":             {Candidate{}, "one", "", RolledBack{}, true, now, Candidate{}, Proven, ""},
		"the proven one":                    {two, "one", "one", RolledBack{}, true, at(time.Hour), Candidate{}, Proven, ""},
		"a new one":                         {Candidate{}, "two", "one", RolledBack{}, false, now, two, OnTrial, ""},
		"another new one":                   {Candidate{"three", at(-time.Hour), 2}, "two", "one", RolledBack{}, false, now, two, OnTrial, ""},
		"started again":                     {two, "two", "one", RolledBack{}, false, at(time.Minute), two, OnTrial, ""},
		"failed at once":                    {Candidate{}, "two", "one", RolledBack{}, true, now, Candidate{"two", now, 1}, OnTrial, ""},
		"failed twice":                      {Candidate{"two", now, 1}, "two", "one", RolledBack{}, true, at(time.Second), Candidate{"two", now, 2}, OnTrial, ""},
		"failed three times":                {Candidate{"two", now, 2}, "two", "one", RolledBack{}, true, at(time.Second), Candidate{"two", now, 3}, Refused, "failed 3 times"},
		"failed, and the power went":        {Candidate{"two", now, 2}, "two", "one", RolledBack{}, false, other, Candidate{"two", other, 2}, OnTrial, ""},
		"failed before and after the power": {Candidate{"two", now, 2}, "two", "one", RolledBack{}, true, other, Candidate{"two", other, 3}, Refused, "failed 3 times"},
		"not linked, just in time":          {two, "two", "one", RolledBack{}, false, at(CandidateWithin - time.Second), two, OnTrial, ""},
		"not linked":                        {two, "two", "one", RolledBack{}, false, at(CandidateWithin), two, Overdue, "within 5m"},
		"switched off for a month":          {two, "two", "one", RolledBack{}, false, other, Candidate{"two", other, 0}, OnTrial, ""},
		"rolled back before":                {Candidate{}, "two", "one", RolledBack{Digest: "two", Reason: "it crashed"}, false, now, Candidate{}, Refused, "before: it crashed"},
		"another was rolled back":           {Candidate{}, "three", "one", RolledBack{Digest: "two"}, false, now, Candidate{"three", now, 0}, OnTrial, ""},
	} {
		got, verdict, why := k.c.Judge(k.installed, k.proven, k.last, k.failed, CandidateWithin, k.now)
		if got != k.want || verdict != k.verdict || !strings.Contains(why, k.says) || (why == "") != (k.says == "") {
			t.Errorf("%s: %+v, %d, %q; want %+v, %d, %q", name, got, verdict, why, k.want, k.verdict, k.says)
		}
	}
}

// A version that was rolled back is not installed again, and that is said, until
// the declaration names another one.
func TestRolledBackPackage(t *testing.T) {
	bad := RolledBack{Digest: "two", Package: "0.0.2", Reason: "it failed 3 times"}
	with := func(w *Work) { w.RolledBack = bad }
	for name, k := range map[string]struct {
		installed, text, want string
	}{
		"the same":     {"0.0.2", `{"name":"muster-host","version":"0.0.2"}`, "failed"},
		"any":          {"0.0.2", `{"name":"muster-host"}`, "failed"},
		"by hand":      {"0.0.3", `{"name":"muster-host","version":"0.0.2"}`, "failed"},
		"any, by hand": {"0.0.3", `{"name":"muster-host"}`, "ok"},
		"another":      {"0.0.2", `{"name":"muster-host","version":"0.0.3"}`, "changed"},
		"it is not it": {"0.0.1", `{"name":"muster-host","version":"0.0.1"}`, "ok"},
		"not the host": {"0.0.2", `{"name":"chrony","version":"0.0.2"}`, "ok"},
	} {
		m := newFake()
		for _, name := range []string{"muster-host", "chrony"} {
			m.there[resource.NewRef(resource.KindPackage, name)] = resource.State{resource.FieldType: "installed", resource.FieldVersion: k.installed}
		}
		r := apply(t, m, newLedger(m.plug), `{"resources":[{"adopt":true,"resolve":"take","package":`+k.text+`}]}`, with)
		if len(r.Lines) != 1 || string(r.Lines[0].Outcome) != k.want || k.want == "failed" && !strings.Contains(r.Lines[0].Reason, "it failed 3 times") {
			t.Errorf("%s: %+v", name, r.Lines)
		}
	}
}
