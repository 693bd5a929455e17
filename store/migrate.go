package store

import (
	"context"
	"database/sql"
	"embed"
	"io/fs"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

// Migrations are forward only: a file that was released is never edited.
//
//go:embed migrations/*.sql
var migrations embed.FS

// migrate brings the schema up to date. On PostgreSQL a session lock keeps two
// control planes that start together from doing it twice.
func migrate(ctx context.Context, db *sql.DB, e engine) error {
	p, err := migrator(db, e)
	if err != nil {
		return err
	}
	_, err = p.Up(ctx)
	return err
}

func migrator(db *sql.DB, e engine) (*goose.Provider, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	// A store of a version between two releases may have run a later file
	// before an earlier one was there, which is then caught up.
	opts := []goose.ProviderOption{goose.WithAllowOutofOrder(true)}
	if e.shared() {
		l, err := lock.NewPostgresSessionLocker()
		if err != nil {
			return nil, err
		}
		opts = append(opts, goose.WithSessionLocker(l))
	}
	return goose.NewProvider(e.dialect(), db, files, opts...)
}
