package sqlstore

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"

	"github.com/onceward/onceward/internal/sqlmigrate"
	"github.com/onceward/onceward/sqladapter/migration"
)

//go:embed schema
var schemas embed.FS

// migrationsOf reads the versions of the store's tables.
func migrationsOf(cfg Options,
	verify func(context.Context, *sql.Tx, int) error) (*migration.Set, error) {
	files, err := fs.Sub(schemas, "schema")
	if err != nil {
		return nil, err
	}
	versions, err := sqlmigrate.New(sqlmigrate.Config{
		Files: files, Component: "store", Dialect: sqlmigrate.Dialect(cfg.Dialect.String()),
		Schema: cfg.Schema, Table: cfg.Table, Verify: verify,
	})
	if err != nil {
		return nil, fmt.Errorf("sqlstore: %w", err)
	}
	return migration.New(versions), nil
}

// Migrate brings the tables to the version that this program needs: it creates them, or changes
// what an older version has made. Several processes may call it at once. When the tables are there
// it costs two round trips and needs only the right to read. It refuses a table of another form
// with the same name, and leaves it as it is. It does not create Options.Schema. The version is on
// record in the table onceward_migrations.
func (s *Store) Migrate(ctx context.Context) error {
	return s.migrating(ctx, s.migrations.Up)
}

// Check reports whether the tables have the version that this program needs. Call it before the
// first message when another tool or program migrates. It changes nothing. Two round trips.
func (s *Store) Check(ctx context.Context) error {
	return s.migrating(ctx, s.migrations.Check)
}

// Drop removes the tables with all claims and records: everything that was done runs again when it
// is redelivered. It is for tests, and for when you stop using the store.
func (s *Store) Drop(ctx context.Context) error {
	return s.migrating(ctx, func(ctx context.Context, db *sql.DB) error {
		return s.migrations.To(ctx, db, 0)
	})
}

func (s *Store) migrating(ctx context.Context,
	work func(ctx context.Context, db *sql.DB) error) error {
	return within(ctx, func() error {
		db, done := s.db.open()
		defer done()
		return work(ctx, db)
	})
}

// Migrations of the store's tables; nil when s was not made by New. Its methods take the pool to
// work on, which need not be the store's.
func (s *Store) Migrations() *migration.Set {
	if s == nil {
		return nil
	}
	return s.migrations
}
