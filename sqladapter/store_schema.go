package sqladapter

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"

	"github.com/onceward/onceward/internal/sqlerr"
	"github.com/onceward/onceward/internal/sqlmigrate"
)

//go:embed schema/store
var storeSchemas embed.FS

// migrationsOf reads the versions of the store's tables.
func migrationsOf(cfg StoreConfig,
	verify func(context.Context, *sql.Tx) error) (*sqlmigrate.Migrations, error) {
	files, err := fs.Sub(storeSchemas, "schema/store")
	if err != nil {
		return nil, err
	}
	return sqlmigrate.New(sqlmigrate.Config{
		Files: files, Component: "store", Dialect: sqlmigrate.Dialect(cfg.Dialect.String()),
		Schema: cfg.Schema, Table: cfg.Table, Verify: verify,
	})
}

// another makes of the error of reading a table that has just been made, or was there already,
// that it is not ours: recorded as ours it would be dropped on the way down.
func another(table, of string, err error) error {
	if err == nil || !sqlerr.OtherForm(err) {
		return sqlerr.NeedsRight(err, "SELECT on "+table)
	}
	return fmt.Errorf("table %s is not a table of %s; name another, or drop it and what it has on record: %w", table, of, err)
}

// Migrate brings the tables to the version that this program needs: it creates them, or
// changes what an older version has made. Several processes may call it at once; once the
// tables are there it costs two round trips and needs no right but to read. A table of another
// form that has their name is refused, and left as it is. It does not
// create StoreConfig.Schema. The version is on record in the table onceward_migrations.
func (s *Store) Migrate(ctx context.Context) error {
	return within(ctx, func() error { return s.migrations.Up(ctx, s.db, s.migrations.Newest()) })
}

// Check reports whether the tables have the version that this program needs. Call it before
// the first message where another tool, or another program, migrates. It changes nothing. Two
// round trips.
func (s *Store) Check(ctx context.Context) error {
	return within(ctx, func() error { return s.migrations.Check(ctx, s.db) })
}

// Drop removes the tables with all claims and records: what was done is done again when it
// comes again. It is for tests and for an end of use.
func (s *Store) Drop(ctx context.Context) error {
	return within(ctx, func() error { return s.migrations.Down(ctx, s.db, 0) })
}

// Migrations of the store's tables; nil when s was not made by NewStore. Their calls take the pool
// that they work on, which need not be the store's.
func (s *Store) Migrations() *Migrations {
	if s == nil || s.migrations == nil {
		return nil
	}
	return &Migrations{s.migrations}
}

// Schema returns the statements that make the tables, for those who keep their schema by
// hand. Each ends with a semicolon at the end of a line.
func (s *Store) Schema() string { return s.migrations.SQL() }

// SchemaFiles returns the migrations, up and down, as golang-migrate names them:
// 0001_name.up.sql and 0001_name.down.sql.
func (s *Store) SchemaFiles() fs.FS { return s.migrations.Files() }

// GooseFiles returns the migrations as goose wants them, in one file for each version.
func (s *Store) GooseFiles() fs.FS { return s.migrations.GooseFiles() }
