package muster_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"muster.internal"
)

// callers are everybody who may ask, and some who only look like it.
var callers = []struct {
	name string
	muster.Caller
}{
	{"nobody", muster.Caller{Source: "10.0.0.1"}},
	{"admin", muster.Caller{Operator: "ann", Role: muster.Admin}},
	{"viewer", muster.Caller{Operator: "vic", Role: muster.Viewer}},
	{"full", muster.Caller{KeyID: "k", Scope: muster.ScopeFull}},
	{"read_only", muster.Caller{KeyID: "k", Scope: muster.ScopeReadOnly}},
	{"audit_only", muster.Caller{KeyID: "k", Scope: muster.ScopeAuditOnly}},
	{"agent", muster.Caller{KeyID: "k", Scope: muster.ScopeAgent}},
	{"booter", muster.Caller{KeyID: "k", Scope: muster.ScopeBooter}},
	{"ur_enroll", muster.Caller{KeyID: "k", Scope: muster.ScopeURenroll}},
	{"node", muster.Caller{NodeID: "n", KeyID: "k", Scope: muster.ScopeAgent}},
	{"lapsed", muster.Caller{NodeID: "n", KeyID: "k", Scope: muster.ScopeAgent, Lapsed: true}},
	{"next key", muster.Caller{KeyID: "k", Scope: muster.ScopeAgent, Lapsed: true}},
	{"clock", muster.Clock},
	{"no role", muster.Caller{Operator: "eve"}},
	{"odd role", muster.Caller{Operator: "eve", Role: "root"}},
	{"odd scope", muster.Caller{KeyID: "k", Scope: "everything"}},
	{"no key", muster.Caller{Scope: muster.ScopeFull}},
	{"two hats", muster.Caller{Operator: "vic", Role: muster.Viewer, KeyID: "k", Scope: muster.ScopeFull}},
}

// TestGoldenAccess shows every action for every caller.
func TestGoldenAccess(t *testing.T) {
	actions := muster.Actions()
	slices.Sort(actions)
	out := new(bytes.Buffer)
	fmt.Fprintf(out, "%-22s", "")
	for _, c := range callers {
		fmt.Fprintf(out, " %-10s", c.name)
	}
	fmt.Fprintln(out)
	for _, a := range append(actions, "no_such_action") {
		fmt.Fprintf(out, "%-22s", a)
		for _, c := range callers {
			fmt.Fprintf(out, " %-10s", map[bool]string{true: "yes", false: "-"}[c.May(a)])
		}
		fmt.Fprintln(out)
	}
	lines := strings.Split(out.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	golden(t, "access.golden", []byte(strings.Join(lines, "\n")))
	t.Logf("%d actions, %d callers", len(actions), len(callers))
}

// TestAccessPromises says what the table must never allow, apart from it.
func TestAccessPromises(t *testing.T) {
	inPerson := []muster.Action{muster.ActSetupApprove, muster.ActDoorChange, muster.ActKeyManage, muster.ActOperatorManage, muster.ActExpunge, muster.ActRootPassword, muster.ActBooterRemove}
	anonymous := []muster.Action{muster.ActHealth, muster.ActLogin, muster.ActRegister}
	for _, a := range muster.Actions() {
		read := strings.HasSuffix(string(a), "_read") || a == muster.ActSetupPlan
		open := slices.Contains(anonymous, a)
		for _, c := range callers {
			may := c.May(a)
			admin := c.Operator != "" && c.Role == muster.Admin
			switch {
			case !may && open:
				t.Errorf("%s may not %s, and everybody may", c.name, a)
			case !may || open:
			case c.NodeID != "" && !strings.HasPrefix(string(a), "link"):
				t.Errorf("%s may %s, which is not the link", c.name, a)
			case c.Lapsed && a != "link_certificate":
				t.Errorf("%s may %s, which takes a certificate that has not expired", c.name, a)
			case c.Operator == "" && c.KeyID == "" || c.Role == "" && c.Scope == "":
				t.Errorf("%s may %s", c.name, a)
			case slices.Contains(inPerson, a) && !admin:
				t.Errorf("%s may %s, which takes an admin in person", c.name, a)
			case c.Role == muster.Viewer && !read && a != muster.ActPasswordChange:
				t.Errorf("%s may %s, which is not reading", c.name, a)
			case c.KeyID != "" && c.Operator == "" && c.Scope == muster.ScopeReadOnly && !read:
				t.Errorf("%s may %s, which is not reading", c.name, a)
			case c.KeyID != "" && c.Operator == "" && c.Scope == muster.ScopeAuditOnly && a != muster.ActAuditRead:
				t.Errorf("%s may %s, which is not the audit", c.name, a)
			case c.KeyID != "" && c.Operator == "" && c.Scope == muster.ScopeURenroll && a != muster.ActAnnounce:
				t.Errorf("%s may %s, which is more than announcing", c.name, a)
			}
		}
	}
	for _, c := range callers {
		if c.May("no_such_action") {
			t.Errorf("%s may do what is not in the table", c.name)
		}
	}
}

func TestCallerNames(t *testing.T) {
	for want, c := range map[string]muster.Caller{
		"operator:ann": {Operator: "ann", Role: muster.Admin},
		"key:k1":       {KeyID: "k1", Scope: muster.ScopeFull},
		"node:n1":      {NodeID: "n1", KeyID: "k1", Scope: muster.ScopeAgent},
		"anonymous":    {Source: "10.0.0.1"},
		"clock":        muster.Clock,
	} {
		if got := c.String(); got != want {
			t.Errorf("%+v is called %q, want %q", c, got, want)
		}
	}
}
