package resource_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster.internal/resource"
)

// TestBriefing pins the words and fields that programs read.
func TestBriefing(t *testing.T) {
	differ := []resource.Difference{{Field: "mode", Is: "0644", Want: "0600"}}
	r := resource.Report{Generation: 3, Trigger: "start", Started: time.Unix(1, 0).UTC(), Finished: time.Unix(2, 0).UTC(), Version: "v1", Outcome: resource.OutcomeFailed, Lines: []resource.Line{
		{Ref: "file:/a", Outcome: resource.OutcomeOK},
		{Ref: "file:/b", Outcome: resource.OutcomeChanged, Did: "updated", Differences: differ, Drift: true},
		{Ref: "file:/c", Outcome: resource.OutcomeKept, Did: "adopted", Reason: "it differs", Differences: differ},
		{Ref: "file:/d", Outcome: "newer", Reason: "a word of a newer host"},
		{Ref: "file:/e", Outcome: resource.OutcomeFailed, Reason: "full"},
	}}
	const want = `{"generation":3,"trigger":"start","finished":"1970-01-01T00:00:02Z","version":"v1","outcome":"failed",` +
		`"sum":{"failed":1,"kept":1,"ok":2,"unknown":1},"lines":[` +
		`{"ref":"file:/a","outcome":"ok"},` +
		`{"ref":"file:/b","outcome":"ok","did":"updated"},` +
		`{"ref":"file:/c","outcome":"kept","did":"adopted","reason":"it differs","differences":[{"field":"mode","is":"0644","want":"0600"}]},` +
		`{"ref":"file:/d","outcome":"unknown","reason":"a word of a newer host"},` +
		`{"ref":"file:/e","outcome":"failed","reason":"full"}]}`
	got, err := json.Marshal(r.Briefing())
	if diff := cmp.Diff(want, string(got)); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if b := (resource.Report{Outcome: resource.OutcomeChanged}).Briefing(); b.Outcome != resource.OutcomeOK || b.Lines == nil || len(b.Sum) != 4 {
		t.Errorf("of nothing: %+v", b)
	}
}

// TestNote pins what everybody may read: no reason, no difference.
func TestNote(t *testing.T) {
	r := resource.Report{Generation: 3, Finished: time.Unix(2, 0), Outcome: resource.OutcomeFailed, Lines: []resource.Line{
		{Ref: "file:/a", Outcome: resource.OutcomeChanged, Did: "updated"},
		{Ref: "file:/b", Outcome: resource.OutcomeKept, Reason: "planted", Differences: []resource.Difference{{Field: "content", Is: "planted", Want: "planted"}}},
		{Ref: "file:/c", Outcome: resource.OutcomeFailed, Reason: "planted"},
	}}
	sum := func(words string) string {
		return "This machine is looked after by muster-host; outcome: " + words + ", generation 3, " + time.Unix(2, 0).Format(time.DateTime) + "\n"
	}
	want := sum("failed (1 ok, 1 kept, 0 unknown, 1 failed)") + "kept     file:/b\nfailed   file:/c\nAs root, `muster-host briefing` says why.\n"
	if diff := cmp.Diff(want, r.Briefing().Note()); diff != "" {
		t.Error(diff)
	}
	r.Outcome, r.Lines = resource.OutcomeOK, r.Lines[:1]
	if diff := cmp.Diff(sum("ok (1 ok, 0 kept, 0 unknown, 0 failed)"), r.Briefing().Note()); diff != "" {
		t.Error(diff)
	}
	r.Lines = slices.Repeat([]resource.Line{{Ref: "file:/x", Outcome: resource.OutcomeFailed}}, 13)
	if note := r.Briefing().Note(); strings.Count(note, "file:/x") != 10 || !strings.Contains(note, "\nand 3 more\n") {
		t.Error(note)
	}
}
