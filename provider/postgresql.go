package provider

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// postgresql makes login roles that are members of a role. Its own credential
// needs CREATEROLE, membership WITH ADMIN OPTION of what it grants, and
// pg_signal_backend.
type postgresql struct{ url string }

const (
	connectWithin = 5 * time.Second
	endTries      = 20 // looks for connections of a role that ended
	endPause      = 100 * time.Millisecond
)

func (p postgresql) connect(ctx context.Context) (*pgx.Conn, error) {
	conf, err := pgx.ParseConfig(p.url)
	if err != nil {
		return nil, errors.New("the provider's URL cannot be read") // and is not repeated
	}
	conf.ConnectTimeout = connectWithin
	return pgx.ConnectConfig(ctx, conf)
}

// alone waits until nobody else is at the role, up to the end of the transaction.
// An end that comes later finds what was made; of one that came before, the store
// knows.
func alone(ctx context.Context, t pgx.Tx, role string) error {
	_, err := t.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", "muster grant "+role)
	return err
}

// there tells whether a role is.
func there(ctx context.Context, t pgx.Tx, role string) (is bool, err error) {
	err = t.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = $1)", role).Scan(&is)
	return is, err
}

// Make gives the role its password by the verifier alone, which is what
// PostgreSQL keeps, too.
func (p postgresql) Make(ctx context.Context, r Role, still func(context.Context) error) error {
	c, err := p.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	verifier, err := scram(r.Password)
	if err != nil {
		return err
	}
	name, of := pgx.Identifier{r.Name}.Sanitize(), pgx.Identifier{r.MemberOf}.Sanitize()
	return pgx.BeginFunc(ctx, c, func(t pgx.Tx) error {
		if err := alone(ctx, t, r.Name); err != nil {
			return err
		}
		if err := still(ctx); err != nil {
			return err
		}
		is, err := there(ctx, t, r.Name)
		if err != nil {
			return err
		}
		do := "CREATE"
		if is {
			do = "ALTER"
		}
		// Neither takes parameters. A verifier has letters, digits and $ : + / = alone.
		if _, err := t.Exec(ctx, fmt.Sprintf("%s ROLE %s WITH LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD '%s'", do, name, verifier)); err != nil {
			return err
		}
		_, err = t.Exec(ctx, fmt.Sprintf("GRANT %s TO %s", of, name))
		return err
	})
}

// End takes the role its login, its rights and its connections, and drops it.
// One that owns something stays, and can do nothing.
func (p postgresql) End(ctx context.Context, r Role) error {
	c, err := p.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	name, of := pgx.Identifier{r.Name}.Sanitize(), pgx.Identifier{r.MemberOf}.Sanitize()
	is := false
	if err := pgx.BeginFunc(ctx, c, func(t pgx.Tx) (err error) {
		if err := alone(ctx, t, r.Name); err != nil {
			return err
		}
		if is, err = there(ctx, t, r.Name); err != nil || !is {
			return err
		}
		_, err = t.Exec(ctx, "ALTER ROLE "+name+" WITH NOLOGIN PASSWORD NULL")
		return err
	}); err != nil || !is {
		return err
	}
	if _, err := c.Exec(ctx, fmt.Sprintf("REVOKE %s FROM %s", of, name)); err != nil && !missing(err) {
		return err
	}
	if err := disconnect(ctx, c, r.Name); err != nil {
		return err
	}
	if _, err := c.Exec(ctx, "DROP ROLE "+name); err != nil && !owns(err) && !missing(err) {
		return err
	}
	return nil
}

// disconnect ends a role's connections, until none is left: one may have been
// let in just before the login was taken.
func disconnect(ctx context.Context, c *pgx.Conn, role string) error {
	for range endTries {
		left := 0
		if err := c.QueryRow(ctx, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = $1", role).Scan(&left); err != nil {
			return err
		}
		if left == 0 {
			return nil
		}
		select {
		case <-time.After(endPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return fmt.Errorf("role %s cannot log in any more, and a connection of it does not end", role)
}

// missing tells that the role, or the one that it was a member of, is not there.
func missing(err error) bool { return code(err) == "42704" }

// owns tells that something in the database depends on the role (PostgreSQL,
// Appendix A: dependent_objects_still_exist).
func owns(err error) bool { return code(err) == "2BP01" }

func code(err error) string {
	var p *pgconn.PgError
	if errors.As(err, &p) {
		return p.Code
	}
	return ""
}

// scram is what PostgreSQL keeps of a password (RFC 5803): so the password is in
// no statement, and in no log of one. Ours are letters and digits, which
// SASLprep (RFC 4013) leaves as they are.
func scram(password string) (string, error) {
	const rounds = 4096
	salt := make([]byte, 16)
	rand.Read(salt)
	salted, err := pbkdf2.Key(sha256.New, password, salt, rounds, sha256.Size)
	if err != nil {
		return "", err
	}
	mac := func(text string) []byte {
		m := hmac.New(sha256.New, salted)
		m.Write([]byte(text))
		return m.Sum(nil)
	}
	stored := sha256.Sum256(mac("Client Key"))
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", rounds, b64(salt), b64(stored[:]), b64(mac("Server Key"))), nil
}
