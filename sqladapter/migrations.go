package sqladapter

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/onceward/onceward/internal/sqlmigrate"
)

//go:embed schema/fence schema/marks schema/generations
var migrationFiles embed.FS

// Migrations are the numbered versions of one component's tables, from 1, under the names that
// its configuration gives them. What has been applied is recorded in the table
// onceward_migrations, in the same schema. They are safe for concurrent use.
//
// Who leaves them to a tool exports them: [Migrations.Files] for golang-migrate,
// [Migrations.GooseFiles] for goose, [Migrations.SQL] for a hand. Exported files record what
// they do, too, so that [Migrations.Check] holds for all of them.
type Migrations struct{ versions *sqlmigrate.Migrations }

// LevelError says that tables have another version than the program needs: less, and they are
// to be migrated; more, and the program is older than its tables.
type LevelError struct {
	// Component is what the tables are for: "fence".
	Component string
	// Table is the name of the first of them.
	Table string
	// Has is the version that is recorded, zero for none.
	Has int
	// Needs is the version that the program knows.
	Needs int
}

// Error implements error.
func (e *LevelError) Error() string {
	return "sqladapter: " + (&sqlmigrate.LevelError{Component: e.Component, Table: e.Table,
		Has: e.Has, Needs: e.Needs}).Error()
}

// newMigrations takes names that have been checked.
func newMigrations(d Dialect, cfg sqlmigrate.Config) (*Migrations, error) {
	files, err := fs.Sub(migrationFiles, "schema/"+cfg.Component)
	if err != nil {
		return nil, err
	}
	cfg.Files, cfg.Dialect = files, sqlmigrate.Dialect(d.String())
	versions, err := sqlmigrate.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("sqladapter: %w", err)
	}
	return &Migrations{versions}, nil
}

// Newest is the version that this program needs.
func (m *Migrations) Newest() int { return m.versions.Newest() }

// Version reads the version that is recorded, zero for none. Two round trips, no lock, and no
// right but to read.
func (m *Migrations) Version(ctx context.Context, db *sql.DB) (int, error) {
	if db == nil {
		return 0, inputError("db", "is nil")
	}
	has, err := m.versions.Version(ctx, db)
	return has, migrationError(err)
}

// Check returns a [*LevelError] unless the tables have the newest version. Call it at the start
// of a program that does not migrate by itself. Two round trips.
func (m *Migrations) Check(ctx context.Context, db *sql.DB) error {
	if db == nil {
		return inputError("db", "is nil")
	}
	return migrationError(m.versions.Check(ctx, db))
}

// Up applies every version that is missing. Several processes may call it at once: one applies
// them, the others wait and find them applied. Where nothing is missing it costs two round
// trips and takes no lock. It does not create the schema. A version is one transaction; in
// MySQL, where each statement commits by itself, one that was cut off is begun again by the
// next call. Tables that are newer than this program are a [*LevelError].
func (m *Migrations) Up(ctx context.Context, db *sql.DB) error { return m.To(ctx, db, m.Newest()) }

// UpTo applies what is missing up to a version. Unlike [Migrations.To] it undoes nothing: tables
// that have more are left as they are. Otherwise it is [Migrations.Up].
func (m *Migrations) UpTo(ctx context.Context, db *sql.DB, version int) error {
	switch {
	case db == nil:
		return inputError("db", "is nil")
	case version < 1 || version > m.Newest():
		return inputError("version", fmt.Sprintf("is %d; there are 1 to %d", version, m.Newest()))
	}
	return migrationError(m.versions.Up(ctx, db, version))
}

// To applies or undoes versions until the tables have exactly this one. Undoing a version
// deletes what its tables and columns hold; zero undoes all, and keeps onceward_migrations.
// Otherwise it is [Migrations.Up].
func (m *Migrations) To(ctx context.Context, db *sql.DB, version int) error {
	switch {
	case db == nil:
		return inputError("db", "is nil")
	case version < 0 || version > m.Newest():
		return inputError("version", fmt.Sprintf("is %d; there are 0 to %d", version, m.Newest()))
	}
	if version < m.Newest() {
		if err := m.versions.Down(ctx, db, version); err != nil {
			return migrationError(err)
		}
	}
	if version == 0 {
		return nil
	}
	return migrationError(m.versions.Up(ctx, db, version))
}

// Files returns the versions for golang-migrate: 0001_name.up.sql and 0001_name.down.sql. Give
// each component a directory, and a table for the tool's own versions, of its own. With MySQL
// the tool's connection must allow several statements at once.
func (m *Migrations) Files() fs.FS { return m.versions.Files() }

// GooseFiles returns the versions for goose: 0001_name.sql, both directions in one file. Give
// each component a table for goose's own versions.
func (m *Migrations) GooseFiles() fs.FS { return m.versions.GooseFiles() }

// SQL returns everything that makes the newest version from nothing, each statement ended by a
// semicolon at the end of a line.
func (m *Migrations) SQL() string { return m.versions.SQL() }

func migrationError(err error) error {
	var level *sqlmigrate.LevelError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &level):
		return &LevelError{Component: level.Component, Table: level.Table, Has: level.Has,
			Needs: level.Needs}
	}
	return fmt.Errorf("sqladapter: %w", err)
}
