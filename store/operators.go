package store

import (
	"context"
	"sync"
	"time"

	"golang.org/x/crypto/bcrypt"

	"muster.internal"
)

var (
	addOperator = define("operators/add", `
INSERT INTO operators (name, role, password_hash, created_at) VALUES ($1, $2, $3, $4)`)
	operatorByName = define("operators/get", `
SELECT name, role, password_hash, created_at, last_login FROM operators WHERE name = $1`)
	operatorsAll = define("operators/list", `
SELECT name, role, password_hash, created_at, last_login FROM operators ORDER BY name`)
	operatorCount = define("operators/count", `SELECT count(*) FROM operators`)
	operatorLogin = define("operators/login", `UPDATE operators SET last_login = $2 WHERE name = $1`)

	addToken = define("tokens/add", `
INSERT INTO tokens (id, operator, secret_hash, created_at, expires_at) VALUES ($1, $2, $3, $4, $5)`)
	tokenByID = define("tokens/get", `
SELECT t.secret_hash, t.expires_at, o.name, o.role FROM tokens t JOIN operators o ON o.name = t.operator WHERE t.id = $1`)
	dropOldTokens = define("tokens/drop-old", `DELETE FROM tokens WHERE expires_at <= $1`)
)

// tokenLife is how long an operator's token lasts.
const tokenLife = 12 * time.Hour

// passwordCost makes one guess cost about a twentieth of a second.
const passwordCost = 10

// nobodysPassword is compared with when there is no such operator, so that the
// answer takes as long.
var nobodysPassword = sync.OnceValue(func() string {
	h, err := bcrypt.GenerateFromPassword([]byte("nobody"), passwordCost)
	if err != nil {
		panic(err) // a constant cost that bcrypt refuses is a mistake in this file
	}
	return string(h)
})

// FirstOperator makes an admin when there is no operator yet, once in the life
// of a store.
func (s *Store) FirstOperator(ctx context.Context, now time.Time, name, password string) (made bool, err error) {
	n := muster.NewOperator{Name: name, Role: muster.Admin, Password: password}
	hash, err := checkOperator(n)
	if err != nil {
		return false, err
	}
	err = s.write(ctx, "making the first operator", now, muster.Clock, func(t *tx) error {
		var count int64
		if _, err := t.get(operatorCount, nil, &count); err != nil {
			return err
		}
		if made = count == 0; !made {
			return nil
		}
		return t.addOperator(n, hash)
	})
	return made && err == nil, err
}

// CreateOperator makes a named person.
func (s *Store) CreateOperator(ctx context.Context, now time.Time, by muster.Caller, n muster.NewOperator) (muster.Operator, error) {
	hash, err := checkOperator(n)
	if err != nil {
		return muster.Operator{}, err
	}
	var o muster.Operator
	err = s.write(ctx, "creating an operator", now, by, func(t *tx) error {
		o = muster.Operator{Name: n.Name, Role: n.Role, CreatedAt: t.now}
		if _, _, found, err := findOperator(t, n.Name); err != nil {
			return err
		} else if found {
			return muster.Problemf(muster.CodeConflict, "there is an operator %s already: choose another name", n.Name)
		}
		return t.addOperator(n, hash)
	})
	return o, err
}

func checkOperator(n muster.NewOperator) ([]byte, error) {
	if !muster.ValidStamp(n.Name) {
		return nil, muster.Invalid("name", "a name is 1 to 64 letters, digits, dots, hyphens or underscores")
	}
	if n.Role != muster.Admin && n.Role != muster.Viewer {
		return nil, muster.Invalid("role", "%q is neither admin nor viewer", n.Role)
	}
	if len(n.Password) < 12 || len(n.Password) > 72 {
		return nil, muster.Invalid("password", "a password has 12 to 72 bytes")
	}
	return bcrypt.GenerateFromPassword([]byte(n.Password), passwordCost)
}

func (t *tx) addOperator(n muster.NewOperator, hash []byte) error {
	if _, err := t.exec(addOperator, n.Name, string(n.Role), string(hash), micro(t.now)); err != nil {
		return err
	}
	_, err := t.record("create_operator", "operator/"+n.Name, detail{"role": n.Role})
	return err
}

// Operators lists everybody by name.
func (s *Store) Operators(ctx context.Context) ([]muster.Operator, error) {
	os := []muster.Operator{}
	err := s.read(ctx, "listing operators", func(r *reading) error {
		os = os[:0]
		return r.each(operatorsAll, nil, func(scan func(...any) error) error {
			o, _, err := scanOperator(scan)
			os = append(os, o)
			return err
		})
	})
	return os, err
}

func scanOperator(scan func(...any) error) (o muster.Operator, hash string, err error) {
	var created int64
	var login *int64
	err = scan(&o.Name, &o.Role, &hash, &created, &login)
	o.CreatedAt, o.LastLogin = fromMicro(created), fromMicroPtr(login)
	return o, hash, err
}

func findOperator(r source, name string) (o muster.Operator, hash string, found bool, err error) {
	err = r.each(operatorByName, []any{name}, func(scan func(...any) error) error {
		found = true
		o, hash, err = scanOperator(scan)
		return err
	})
	return o, hash, found, err
}

// Login exchanges a password for a token. A wrong name and a wrong password
// get the same answer after the same time.
func (s *Store) Login(ctx context.Context, now time.Time, source string, l muster.Login) (muster.Token, error) {
	var o muster.Operator
	hash := nobodysPassword()
	err := s.read(ctx, "logging in", func(r *reading) error {
		found, h, ok, err := findOperator(r, l.Name)
		if ok {
			o, hash = found, h
		}
		return err
	})
	if err != nil {
		return muster.Token{}, err
	}
	wrong := bcrypt.CompareHashAndPassword([]byte(hash), []byte(l.Password)) != nil
	if wrong || o.Name == "" {
		return muster.Token{}, muster.Problemf(muster.CodeUnauthenticated, "name or password is wrong")
	}
	by := muster.Caller{Operator: o.Name, Role: o.Role, Source: source}
	var tok muster.Token
	err = s.write(ctx, "logging in", now, by, func(t *tx) error {
		id, err := s.newID()
		if err != nil {
			return err
		}
		secret, hash, err := s.newSecret(tokenPrefix, id)
		if err != nil {
			return err
		}
		tok = muster.Token{Token: secret, Operator: o.Name, Role: o.Role, ExpiresAt: t.now.Add(tokenLife)}
		if _, err := t.exec(dropOldTokens, micro(t.now)); err != nil {
			return err
		}
		if _, err := t.exec(addToken, id, o.Name, hash, micro(t.now), micro(tok.ExpiresAt)); err != nil {
			return err
		}
		if _, err := t.exec(operatorLogin, o.Name, micro(t.now)); err != nil {
			return err
		}
		_, err = t.record("login", "operator/"+o.Name, detail{"token": id, "expires_at": tok.ExpiresAt})
		return err
	})
	return tok, err
}

func (s *Store) authenticateToken(ctx context.Context, now time.Time, id, secret, source string) (c muster.Caller, until *time.Time, err error) {
	err = s.read(ctx, "authenticating", func(r *reading) error {
		var hash []byte
		var expires int64
		who := muster.Caller{Source: source}
		found, err := r.get(tokenByID, []any{id}, &hash, &expires, &who.Operator, &who.Role)
		if err != nil {
			return err
		}
		at := fromMicro(expires)
		if !equal(hash, hashed(secret)) || !found || !now.Before(at) {
			return unauthenticated()
		}
		c, until = who, &at
		return nil
	})
	return c, until, err
}
