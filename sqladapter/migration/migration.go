// Package migration has the numbered versions of the tables of packages sqladapter and sqlstore.
//
// A program that migrates by itself calls Migrate of its ledger, store or fence, and needs nothing
// of this package. For a tool of your own, their method Migrations returns a [Set].
package migration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"

	"github.com/onceward/onceward/internal/sqlmigrate"
	"github.com/onceward/onceward/sqladapter/internal/dialect"
)

// Set has the numbered versions of one component's tables, from 1, with the names from its
// configuration. Applied versions are recorded in the table onceward_migrations, in the same
// schema. A Set is safe for concurrent use.
//
// If you migrate with a tool, export the versions: [Set.Files] for golang-migrate, [Set.GooseFiles]
// for goose, [Set.SQL] to apply by hand. Exported files also record what they do, so that
// [Set.Check] works with all of them.
type Set struct{ versions *sqlmigrate.Migrations }

// LevelError says that tables have another version than the program needs. If it is lower, migrate
// the tables; if it is higher, the program is older than its tables.
type LevelError struct {
	// Component says what the tables are for, such as "fence".
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

// New is only for the packages of this module, which define the versions.
func New(versions *sqlmigrate.Migrations) *Set { return &Set{versions} }

// Newest returns the version that this program needs.
func (s *Set) Newest() int { return s.versions.Newest() }

// Version reads the version that is recorded, zero for none. Two round trips, no lock, and only the
// right to read.
func (s *Set) Version(ctx context.Context, db *sql.DB) (int, error) {
	if db == nil {
		return 0, dialect.InputError("db", "is nil")
	}
	has, err := s.versions.Version(ctx, db)
	return has, public(err)
}

// Check returns a [*LevelError] unless the tables have the newest version. Call it at the start
// of a program that does not migrate by itself. Two round trips.
func (s *Set) Check(ctx context.Context, db *sql.DB) error {
	if db == nil {
		return dialect.InputError("db", "is nil")
	}
	return public(s.versions.Check(ctx, db))
}

// Up applies every version that is missing. Several processes may call it at once: one applies
// them, the others wait and find them applied. Where nothing is missing it costs two round trips
// and takes no lock. It does not create the schema. A version is one transaction. In MySQL each
// statement commits by itself, so the next call begins an interrupted version again. The same is
// true of a version that drops an index of a table in use, which PostgreSQL does outside of a
// transaction. Tables that are newer than this program are a [*LevelError].
func (s *Set) Up(ctx context.Context, db *sql.DB) error { return s.To(ctx, db, s.Newest()) }

// UpTo applies what is missing up to a version. Unlike [Set.To] it undoes nothing: it leaves tables
// with a higher version as they are. Otherwise it is [Set.Up].
func (s *Set) UpTo(ctx context.Context, db *sql.DB, version int) error {
	switch {
	case db == nil:
		return dialect.InputError("db", "is nil")
	case version < 1 || version > s.Newest():
		return dialect.InputError("version",
			fmt.Sprintf("is %d; there are 1 to %d", version, s.Newest()))
	}
	return public(s.versions.Up(ctx, db, version))
}

// To applies or undoes versions until the tables have exactly this one. Undoing a version
// deletes what its tables and columns hold; zero undoes all, and keeps onceward_migrations.
// Otherwise it is [Set.Up].
func (s *Set) To(ctx context.Context, db *sql.DB, version int) error {
	switch {
	case db == nil:
		return dialect.InputError("db", "is nil")
	case version < 0 || version > s.Newest():
		return dialect.InputError("version",
			fmt.Sprintf("is %d; there are 0 to %d", version, s.Newest()))
	}
	if version < s.Newest() {
		if err := s.versions.Down(ctx, db, version); err != nil {
			return public(err)
		}
	}
	if version == 0 {
		return nil
	}
	return public(s.versions.Up(ctx, db, version))
}

// Files returns the versions for golang-migrate: 0001_name.up.sql and 0001_name.down.sql. Give each
// component its own directory, and its own table for the tool's versions. With MySQL the tool's
// connection must allow several statements at once; with PostgreSQL it must send them one by one
// (x-multi-statement=true), because one of them runs in no transaction.
func (s *Set) Files() fs.FS { return s.versions.Files() }

// GooseFiles returns the versions for goose: 0001_name.sql, both directions in one file. Give
// each component a table for goose's own versions.
func (s *Set) GooseFiles() fs.FS { return s.versions.GooseFiles() }

// SQL returns all statements that make the newest version from nothing, each ended by a semicolon
// at the end of a line.
func (s *Set) SQL() string { return s.versions.SQL() }

func public(err error) error {
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
