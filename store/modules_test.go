package store

import (
	"strings"
	"testing"
	"time"

	"muster.internal"
	"muster.internal/module"
	"muster.internal/resource"
)

// motd is a module that puts a file on each node.
func motd(text string) module.Module {
	return module.Module{Name: "motd", Place: module.Rule{EachNode: true}, Resources: []resource.Resource{{File: &resource.File{Path: "/etc/motd", Content: text}}}}
}

// TestModules: a version never changes, what says the same is no new one, one is
// wanted, and what was removed is kept.
func TestModules(t *testing.T) {
	engines(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		add := func(m module.Module, want bool) (muster.ModuleVersion, error) {
			return s.AddModule(ctx, start, ada, m, want)
		}
		before := must[[]muster.AuditEntry](t)(s.Audit(ctx, muster.AuditFilter{Subject: "module/motd"}))
		if v := must[muster.ModuleVersion](t)(add(motd("one"), true)); v.Version != 1 || !v.Wanted || v.Place != "each node" || !v.AddedAt.Equal(start) {
			t.Errorf("%+v", v)
		}
		if v := must[muster.ModuleVersion](t)(s.AddModule(ctx, start.Add(time.Hour), ada, motd("one"), true)); v.Version != 1 || !v.AddedAt.Equal(start) {
			t.Errorf("the same again is %+v", v)
		}
		if n := len(must[[]muster.AuditEntry](t)(s.Audit(ctx, muster.AuditFilter{Subject: "module/motd"}))) - len(before); n != 2 {
			t.Errorf("%d audit entries for one that was added and is wanted", n)
		}
		if v := must[muster.ModuleVersion](t)(add(motd("two"), false)); v.Version != 2 || v.Wanted {
			t.Errorf("%+v", v)
		}
		wanted := must[[]module.Module](t)(s.WantedModules(ctx))
		if len(wanted) != 1 || wanted[0].Version != 1 || wanted[0].Resources[0].File.Content != "one" {
			t.Errorf("%+v", wanted)
		}
		if all := must[[]muster.ModuleVersion](t)(s.Modules(ctx)); len(all) != 1 || all[0].Version != 1 || !all[0].Wanted || all[0].Document != nil {
			t.Errorf("%+v", all)
		}

		// What a version says stays; a number of one's own is higher than all.
		same := motd("two")
		same.Version = 2
		if v := must[muster.ModuleVersion](t)(add(same, true)); v.Version != 2 || !v.Wanted {
			t.Errorf("%+v", v)
		}
		other := motd("three")
		for version, code := range map[int64]muster.Code{2: muster.CodeConflict, 1: muster.CodeConflict} {
			other.Version = version
			_, err := add(other, true)
			wantCode(t, err, code)
		}
		other.Version = 7
		if v := must[muster.ModuleVersion](t)(add(other, true)); v.Version != 7 {
			t.Errorf("%+v", v)
		}
		other.Version, other.Resources[0].File.Content = 5, "five"
		_, err := add(other, true)
		wantCode(t, err, muster.CodeInvalid)

		// Back to an older one, then to none.
		if v := must[muster.ModuleVersion](t)(s.WantModule(ctx, start, ada, "motd", 1)); v.Version != 1 || !v.Wanted {
			t.Errorf("%+v", v)
		}
		_, err = s.WantModule(ctx, start, ada, "motd", 3)
		wantCode(t, err, muster.CodeNotFound)
		_, err = s.WantModule(ctx, start, ada, "nothing", 1)
		wantCode(t, err, muster.CodeNotFound)
		for range 2 { // to remove what is removed changes nothing
			if err := s.RemoveModule(ctx, start, ada, "motd"); err != nil {
				t.Fatal(err)
			}
		}
		wantCode(t, s.RemoveModule(ctx, start, ada, "nothing"), muster.CodeNotFound)
		all := must[[]muster.ModuleVersion](t)(s.Module(ctx, "motd"))
		if len(all) != 3 || all[0].Version != 7 || all[0].Wanted || all[2].Document.Resources[0].File.Content != "one" {
			t.Errorf("%+v", all)
		}
		if wanted := must[[]module.Module](t)(s.WantedModules(ctx)); len(wanted) != 0 {
			t.Errorf("%+v", wanted)
		}
		_, err = s.Module(ctx, "nothing")
		wantCode(t, err, muster.CodeNotFound)
		if n := entries(t, s, "module/motd", ActionRemoveModule); n != 1 {
			t.Errorf("%d entries of one removal", n)
		}
		healthy(t, s)
	})
}

// TestModulesRefused: neither what no host takes over the link, nor a secret as
// it is.
func TestModulesRefused(t *testing.T) {
	s := open(t, sqliteURL(t))
	for want, r := range map[string]resource.Resource{
		"no host takes one over the link": {Action: &resource.Action{Name: "x", Command: []string{"true"}}},
		"muster grant --help":             {File: &resource.File{Path: "/etc/key", Secret: true, Content: "planted"}},
		"must begin with /":               {File: &resource.File{Path: "relative", Content: "x"}},
	} {
		m := motd("x")
		m.Resources = []resource.Resource{r}
		_, err := s.AddModule(t.Context(), start, ada, m, true)
		wantCode(t, err, muster.CodeInvalid)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "planted") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	m := motd("x")
	m.Resources[0].File = &resource.File{Path: "/etc/key", Secret: true, Template: "{{ grant_app_password }}"}
	must[muster.ModuleVersion](t)(s.AddModule(t.Context(), start, ada, m, true))
}
