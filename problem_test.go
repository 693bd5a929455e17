package muster_test

import (
	"errors"
	"fmt"
	"testing"

	"muster.internal"
)

func TestProblems(t *testing.T) {
	conflict := muster.Problemf(muster.CodeConflict, "cannot delete %s: it is approved", "M")
	conflict.State, conflict.Allowed = "approved", []string{"disable", "factory-reset"}
	for _, c := range []struct {
		p      *muster.Problem
		status int
		says   string
	}{
		{muster.Problemf(muster.CodeNotFound, "no machine has the UUID %s", "u"), 404, "no machine has the UUID u"},
		{muster.Invalid("mac", "%q is not a MAC address", "x"), 400, `the request is not valid; mac: "x" is not a MAC address`},
		{conflict, 409, "cannot delete M: it is approved (allowed now: disable, factory-reset)"},
		{&muster.Problem{Title: "too large"}, 0, "too large"},
	} {
		if c.p.Status != c.status || c.p.Error() != c.says {
			t.Errorf("%d %q, want %d %q", c.p.Status, c.p.Error(), c.status, c.says)
		}
	}
	for _, code := range []muster.Code{muster.CodeInvalid, muster.CodeUnauthenticated, muster.CodeForbidden, muster.CodeNotFound, muster.CodeNotAllowed,
		muster.CodeConflict, muster.CodeTooLarge, muster.CodeTooMany, muster.CodeInternal, muster.CodeUnavailable} {
		p := muster.Problemf(code, "x")
		if p.Status < 400 || p.Title == "" || !muster.IsCode(fmt.Errorf("deeper: %w", p), code) {
			t.Errorf("%s: %+v", code, p)
		}
	}
	if muster.IsCode(errors.New("x"), muster.CodeInternal) || muster.IsCode(nil, muster.CodeInternal) {
		t.Error("an error that is no problem has a code")
	}
}

func TestPlanMembers(t *testing.T) {
	d := func(path string) muster.Disk { return muster.Disk{Path: path} }
	p := muster.SetupPlan{
		VDevs:  []muster.VDev{{Type: "mirror", Disks: []muster.Disk{d("a"), d("b")}}, {Disks: []muster.Disk{d("c")}}},
		Spares: []muster.Disk{d("d")}, Logs: []muster.Disk{d("e")}, Cache: []muster.Disk{d("f")},
		Unused: []muster.UnusedDisk{{Disk: d("g")}},
	}
	var got string
	for _, m := range p.Members() {
		got += m.Path
	}
	if got != "abcdef" {
		t.Errorf("members %q: everything that is written to, and nothing else", got)
	}
}
