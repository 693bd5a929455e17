package store

import (
	"context"
	"slices"
	"time"

	"muster.internal"
	"muster.internal/inventory"
)

var (
	sharedAll  = define("shared/list", `SELECT kind, value, vendor, comment, added_by, added_at FROM shared_identities ORDER BY kind, value`)
	sharedAdd  = define("shared/add", `INSERT INTO shared_identities (kind, value, vendor, comment, added_by, added_at) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`)
	sharedDrop = define("shared/drop", `DELETE FROM shared_identities WHERE kind = $1 AND value = $2`)
)

var timeZero time.Time

func sharedRows(from source) ([]muster.SharedIdentity, error) {
	var rows []muster.SharedIdentity
	err := from.each(sharedAll, nil, func(scan func(...any) error) error {
		var r muster.SharedIdentity
		var at int64
		err := scan(&r.Kind, &r.Value, &r.Vendor, &r.Comment, &r.AddedBy, &at)
		added := fromMicro(at)
		r.AddedAt = &added
		rows = append(rows, r)
		return err
	})
	return rows, err
}

// shared is everything that is no evidence, as it stands in the open
// transaction.
func (t *tx) shared() (*inventory.Shared, error) {
	rows, err := sharedRows(t)
	return inventory.BuiltinShared().With(rows), err
}

// SharedIdentities lists values that are no evidence.
func (s *Store) SharedIdentities(ctx context.Context) ([]muster.SharedIdentity, error) {
	all := inventory.BuiltinShared().Rows()
	err := s.read(ctx, "listing shared identities", func(r *reading) error {
		rows, err := sharedRows(r)
		all = append(inventory.BuiltinShared().Rows(), rows...)
		return err
	})
	return all, err
}

// sharedValue is a value as it is kept; what is wrong names its field.
func sharedValue(kind muster.SharedKind, value string) (string, error) {
	if !slices.Contains(muster.SharedKinds, kind) {
		return "", muster.Invalid("kind", "%.20q is none of %s", kind, join(muster.SharedKinds))
	}
	v, err := inventory.CanonicalShared(kind, value)
	if err != nil {
		return "", muster.Invalid("value", "%v", err)
	}
	return v, nil
}

// AddSharedIdentity says that a value is no evidence. Repeating it succeeds.
func (s *Store) AddSharedIdentity(ctx context.Context, now time.Time, by muster.Caller, a muster.SharedIdentity) (muster.SharedIdentity, error) {
	value, err := sharedValue(a.Kind, a.Value)
	if err != nil {
		return a, err
	}
	if err := checkLines("value", value, "vendor", a.Vendor, "comment", a.Comment); err != nil {
		return a, err
	}
	a.Value, a.Builtin, a.AddedBy, a.AddedAt = value, false, by.String(), &now
	err = s.write(ctx, "adding a shared identity", now, by, func(t *tx) error {
		if n, err := t.exec(sharedAdd, string(a.Kind), a.Value, a.Vendor, a.Comment, a.AddedBy, micro(now)); err != nil || n == 0 {
			return err
		}
		_, err := t.record("share", "shared-identity/"+string(a.Kind)+"/"+a.Value, detail{"vendor": a.Vendor, "comment": a.Comment})
		return err
	})
	return a, err
}

// RemoveSharedIdentity makes a value evidence again; those that come with
// muster stay.
func (s *Store) RemoveSharedIdentity(ctx context.Context, now time.Time, by muster.Caller, kind muster.SharedKind, value string) error {
	v, err := sharedValue(kind, value)
	if err != nil {
		return err
	}
	return s.write(ctx, "removing a shared identity", now, by, func(t *tx) error {
		n, err := t.exec(sharedDrop, string(kind), v)
		if err != nil {
			return err
		}
		if n == 0 {
			for _, r := range inventory.BuiltinShared().Rows() {
				if r.Kind == kind && r.Value == v {
					return muster.Problemf(muster.CodeConflict, "%s %s comes with muster and stays", kind, v)
				}
			}
			return nil
		}
		_, err = t.record("unshare", "shared-identity/"+string(kind)+"/"+v, detail{})
		return err
	})
}
