package store

import (
	"context"
	"time"

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
