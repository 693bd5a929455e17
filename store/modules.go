package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster.internal"
	"muster.internal/module"
)

const moduleColumns = `SELECT name, version, document, wanted, added_at, added_by FROM modules `

var (
	modulesAll    = define("modules/list", moduleColumns+`ORDER BY name, version DESC`)
	modulesNamed  = define("modules/named", moduleColumns+`WHERE name = $1 ORDER BY version DESC`)
	modulesWanted = define("modules/wanted", moduleColumns+`WHERE wanted ORDER BY name`)
	addModule     = define("modules/add", `INSERT INTO modules (name, version, document, wanted, added_at, added_by) VALUES ($1, $2, $3, $4, $5, $6)`)
	wantNone      = define("modules/want-none", `UPDATE modules SET wanted = false WHERE name = $1 AND wanted`)
	wantModule    = define("modules/want", `UPDATE modules SET wanted = true WHERE name = $1 AND version = $2`)
)

// How the audit calls what happens to modules.
const (
	ActionAddModule    = "add_module"
	ActionWantModule   = "want_module"
	ActionRemoveModule = "remove_module"
)

func findModules(from source, q *query, args ...any) (all []muster.ModuleVersion, err error) {
	all = []muster.ModuleVersion{}
	err = from.each(q, args, func(scan func(...any) error) error {
		v := muster.ModuleVersion{Document: &module.Module{}}
		var document string
		var at int64
		if err := scan(&v.Name, &v.Version, &document, &v.Wanted, &at, &v.AddedBy); err != nil {
			return err
		}
		v.AddedAt = fromMicro(at)
		if err := json.Unmarshal([]byte(document), v.Document); err != nil {
			return fmt.Errorf("module %s version %d: %w", v.Name, v.Version, err)
		}
		v.Place = v.Document.Place.String()
		all = append(all, v)
		return nil
	})
	return all, err
}

// AddModule keeps a version of a module, and has the planner want it unless it
// is only to be kept. Without a version it is the next one, or the newest if that
// says the same.
func (s *Store) AddModule(ctx context.Context, now time.Time, by muster.Caller, m module.Module, want bool) (v muster.ModuleVersion, err error) {
	err = s.write(ctx, "adding a module", now, by, func(t *tx) error {
		all, err := findModules(t, modulesNamed, m.Name)
		if err != nil {
			return err
		}
		is, found, err := nextVersion(m, all)
		if err != nil {
			return err
		}
		if found != nil {
			v = *found
		} else if v, err = t.putModule(is); err != nil {
			return err
		}
		if want {
			return t.want(&v)
		}
		return nil
	})
	return v, err
}

// nextVersion is the module as the version that it becomes, or the version that
// says the same already.
func nextVersion(m module.Module, all []muster.ModuleVersion) (is module.Module, found *muster.ModuleVersion, err error) {
	newest := int64(0)
	if len(all) > 0 {
		newest = all[0].Version
	}
	for i := range all {
		same := m
		if m.Version == 0 && i == 0 {
			same.Version = newest
		}
		if all[i].Version != same.Version {
			continue
		}
		if all[i].Document.Equal(&same) {
			return m, &all[i], nil
		}
		if m.Version != 0 {
			return m, nil, muster.Problemf(muster.CodeConflict, "version %d of module %s says something else, and what a version says never changes: leave the version out, and it becomes version %d", m.Version, m.Name, newest+1)
		}
	}
	switch {
	case m.Version == 0:
		m.Version = newest + 1
	case m.Version < newest:
		return m, nil, muster.Invalid("version", "module %s is at version %d: a new one has a higher number, or none, and becomes version %d", m.Name, newest, newest+1)
	}
	return m, nil, checkModule(m)
}

// checkModule says everything that is wrong with a module, a secret in it
// included: whoever may read a blueprint could read it.
func checkModule(m module.Module) error {
	errs := m.Check()
	for _, list := range m.Lists() {
		for i := range list {
			if f := list[i].File; f != nil && f.Secret && f.Content != "" {
				errs = append(errs, fmt.Errorf("module %s: resources: file %s holds its secret as it is, and blueprints, which people compare and keep, may hold none: grant the secret to the node, and name it in a template ({{ grant_PROVIDER_password }}); see muster grant --help", m.Name, f.Path))
			}
		}
	}
	if len(errs) == 0 {
		return nil
	}
	p := muster.Problemf(muster.CodeInvalid, "module %s cannot be added", m.Name)
	for _, err := range errs {
		field, message, _ := strings.Cut(strings.TrimPrefix(err.Error(), "module "+m.Name+": "), ": ")
		p.Errors = append(p.Errors, muster.FieldError{Field: field, Message: message})
	}
	return p
}

func (t *tx) putModule(m module.Module) (v muster.ModuleVersion, err error) {
	document, err := json.Marshal(m)
	if err != nil {
		return v, err
	}
	v = muster.ModuleVersion{Name: m.Name, Version: m.Version, Place: m.Place.String(), AddedAt: t.now, AddedBy: t.by.String(), Document: &m}
	if _, err := t.exec(addModule, v.Name, v.Version, string(document), false, micro(t.now), v.AddedBy); err != nil {
		return v, err
	}
	_, err = t.record(ActionAddModule, "module/"+v.Name, detail{"version": v.Version, "place": v.Place, "resources": len(m.Resources)})
	return v, err
}

// want has the planner want this version of a module and no other.
func (t *tx) want(v *muster.ModuleVersion) error {
	all, err := findModules(t, modulesNamed, v.Name)
	if err != nil {
		return err
	}
	from := int64(0)
	for _, o := range all {
		if o.Wanted {
			from = o.Version
		}
	}
	if v.Wanted = true; from == v.Version {
		return nil
	}
	if from != 0 {
		if err := t.change(wantNone, v.Name); err != nil {
			return err
		}
	}
	if err := t.change(wantModule, v.Name, v.Version); err != nil {
		return err
	}
	_, err = t.record(ActionWantModule, "module/"+v.Name, detail{"from": from, "to": v.Version})
	return err
}

// WantModule has the planner want a version that is kept already.
func (s *Store) WantModule(ctx context.Context, now time.Time, by muster.Caller, name string, version int64) (v muster.ModuleVersion, err error) {
	err = s.write(ctx, "wanting a module", now, by, func(t *tx) error {
		all, err := findModules(t, modulesNamed, name)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(o muster.ModuleVersion) bool { return o.Version == version })
		switch {
		case len(all) == 0:
			return noModule(name)
		case i < 0:
			return muster.Problemf(muster.CodeNotFound, "module %s has no version %d: its newest is %d", name, version, all[0].Version)
		}
		v = all[i]
		return t.want(&v)
	})
	return v, err
}

func noModule(name string) error {
	return muster.Problemf(muster.CodeNotFound, "there is no module %.64q", name)
}

// RemoveModule has the planner want no version of a module: its placements leave.
// Its versions are kept.
func (s *Store) RemoveModule(ctx context.Context, now time.Time, by muster.Caller, name string) error {
	return s.write(ctx, "removing a module", now, by, func(t *tx) error {
		all, err := findModules(t, modulesNamed, name)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			return noModule(name)
		}
		i := slices.IndexFunc(all, func(v muster.ModuleVersion) bool { return v.Wanted })
		if i < 0 {
			return nil
		}
		if err := t.change(wantNone, name); err != nil {
			return err
		}
		_, err = t.record(ActionRemoveModule, "module/"+name, detail{"from": all[i].Version})
		return err
	})
}

// Modules are the newest version of each module, or the one that is wanted,
// without their documents.
func (s *Store) Modules(ctx context.Context) (all []muster.ModuleVersion, err error) {
	err = s.read(ctx, "listing modules", func(r *reading) error {
		found, err := findModules(r, modulesAll)
		all = []muster.ModuleVersion{}
		for _, v := range found {
			v.Document = nil
			switch last := len(all) - 1; {
			case last < 0 || all[last].Name != v.Name:
				all = append(all, v)
			case v.Wanted:
				all[last] = v
			}
		}
		return err
	})
	return all, err
}

// Module is every version of one module, the newest first.
func (s *Store) Module(ctx context.Context, name string) (all []muster.ModuleVersion, err error) {
	err = s.read(ctx, "reading a module", func(r *reading) (err error) {
		if all, err = findModules(r, modulesNamed, name); err == nil && len(all) == 0 {
			err = noModule(name)
		}
		return err
	})
	return all, err
}

// WantedModules are what the planner is to see to, by name.
func (s *Store) WantedModules(ctx context.Context) (all []module.Module, err error) {
	err = s.read(ctx, "reading the modules that are wanted", func(r *reading) error {
		found, err := findModules(r, modulesWanted)
		all = make([]module.Module, 0, len(found))
		for _, v := range found {
			all = append(all, *v.Document)
		}
		return err
	})
	return all, err
}
