package store

import (
	"context"
	"time"

	"golang.org/x/crypto/bcrypt"

	"muster.internal"
)

var (
	setPassword  = define("operators/password", `UPDATE operators SET password_hash = $2 WHERE name = $1`)
	dropTokensOf = define("tokens/drop-of", `DELETE FROM tokens WHERE operator = $1`)
)

// ResetPassword gives an operator another password. The tokens that the old
// one gave are dead.
func (s *Store) ResetPassword(ctx context.Context, now time.Time, by muster.Caller, name, password string) error {
	hash, err := checkOperator(muster.NewOperator{Name: name, Role: muster.Viewer, Password: password})
	if err != nil {
		return err
	}
	return s.write(ctx, "resetting a password", now, by, func(t *tx) error {
		if _, _, found, err := findOperator(t, name); err != nil {
			return err
		} else if !found {
			return muster.Problemf(muster.CodeNotFound, "there is no operator %s", name)
		}
		if err := t.change(setPassword, name, string(hash)); err != nil {
			return err
		}
		if _, err := t.exec(dropTokensOf, name); err != nil {
			return err
		}
		_, err := t.record("reset_password", "operator/"+name, nil)
		return err
	})
}

var (
	setOperator  = define("operators/set", `UPDATE operators SET role = $2, password_hash = $3 WHERE name = $1 AND role = $4 AND password_hash = $5`)
	dropOperator = define("operators/drop", `DELETE FROM operators WHERE name = $1`)
	otherAdmins  = define("operators/other-admins", `SELECT count(*) FROM operators WHERE role = 'admin' AND name <> $1`)
)

func (t *tx) operator(name string) (muster.Operator, string, error) {
	o, hash, found, err := findOperator(t, name)
	if err == nil && !found {
		err = muster.Problemf(muster.CodeNotFound, "there is no operator %.64q", name)
	}
	return o, hash, err
}

// lastAdmin refuses what would leave nobody who can manage the others.
func (t *tx) lastAdmin(o muster.Operator, what string) error {
	var others int64
	if o.Role != muster.Admin {
		return nil
	}
	if _, err := t.get(otherAdmins, []any{o.Name}, &others); err != nil || others > 0 {
		return err
	}
	return muster.Problemf(muster.CodeConflict, "operator %s cannot be %s: nobody else is an admin; make another admin first", o.Name, what)
}

// ChangeOperator changes somebody's role or password. Their tokens are dead
// with the old password; with the old role, they speak with the new one.
func (s *Store) ChangeOperator(ctx context.Context, now time.Time, by muster.Caller, name string, c muster.OperatorChange) (muster.Operator, error) {
	var o muster.Operator
	if c.Role == "" && c.Password == "" {
		return o, muster.Invalid("role", "nothing is to be changed: a role or a password is needed")
	}
	check := muster.NewOperator{Name: name, Role: c.Role, Password: c.Password}
	if c.Role == "" {
		check.Role = muster.Viewer
	}
	if c.Password == "" {
		check.Password = "not changed at all"
	}
	fresh, err := checkOperator(check)
	if err != nil {
		return o, err
	}
	err = s.write(ctx, "changing an operator", now, by, func(t *tx) error {
		was, hash, err := t.operator(name)
		if err != nil {
			return err
		}
		o = was
		next := hash
		if c.Role != "" {
			o.Role = c.Role
		}
		if c.Password != "" {
			next = string(fresh)
		}
		if o.Role == was.Role && next == hash {
			return nil
		}
		if o.Role != was.Role {
			if err := t.lastAdmin(was, "made a viewer"); err != nil {
				return err
			}
		}
		if err := t.change(setOperator, name, string(o.Role), next, string(was.Role), hash); err != nil {
			return err
		}
		if next != hash {
			if _, err := t.exec(dropTokensOf, name); err != nil {
				return err
			}
		}
		d := detail{"password": next != hash}
		if o.Role != was.Role {
			d["from"], d["to"] = was.Role, o.Role
		}
		_, err = t.record("change_operator", "operator/"+name, d)
		return err
	})
	return o, err
}

// RemoveOperator ends somebody's access: their tokens are dead at once.
func (s *Store) RemoveOperator(ctx context.Context, now time.Time, by muster.Caller, name string) error {
	return s.write(ctx, "removing an operator", now, by, func(t *tx) error {
		o, _, err := t.operator(name)
		if err != nil {
			return err
		}
		if err := t.lastAdmin(o, "removed"); err != nil {
			return err
		}
		if _, err := t.exec(dropTokensOf, name); err != nil {
			return err
		}
		if err := t.change(dropOperator, name); err != nil {
			return err
		}
		_, err = t.record("remove_operator", "operator/"+name, detail{"role": o.Role})
		return err
	})
}

// ChangePassword is for operators themselves: who knows the old one may set a
// new one. Every token of theirs is dead.
func (s *Store) ChangePassword(ctx context.Context, now time.Time, by muster.Caller, c muster.PasswordChange) error {
	fresh, err := checkOperator(muster.NewOperator{Name: by.Operator, Role: muster.Viewer, Password: c.New})
	if muster.IsCode(err, muster.CodeInvalid) {
		return muster.Invalid("new", "a password has 12 to 72 bytes")
	}
	if err != nil {
		return err
	}
	var old string
	if err := s.read(ctx, "changing a password", func(r *reading) error {
		_, old, _, err = findOperator(r, by.Operator)
		return err
	}); err != nil {
		return err
	}
	if bcrypt.CompareHashAndPassword([]byte(old), []byte(c.Old)) != nil {
		return muster.Problemf(muster.CodeForbidden, "the old password is wrong; nothing was changed")
	}
	return s.write(ctx, "changing a password", now, by, func(t *tx) error {
		o, hash, err := t.operator(by.Operator)
		if err != nil {
			return err
		}
		if hash != old {
			return muster.Problemf(muster.CodeConflict, "the password of %s was changed meanwhile: log in again", o.Name)
		}
		if err := t.change(setOperator, o.Name, string(o.Role), string(fresh), string(o.Role), hash); err != nil {
			return err
		}
		if _, err := t.exec(dropTokensOf, o.Name); err != nil {
			return err
		}
		_, err = t.record("change_password", "operator/"+o.Name, nil)
		return err
	})
}
