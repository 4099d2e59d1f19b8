package outbox

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"

	"github.com/onceward/onceward/internal/sqlmigrate"
)

//go:embed migrations
var migrationFiles embed.FS

// newMigrations are the versions of this outbox's tables.
func newMigrations(cfg Config) (*sqlmigrate.Migrations, error) {
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	m, err := sqlmigrate.New(sqlmigrate.Config{
		Files: files, Component: "outbox", Dialect: sqlmigrate.Dialect(cfg.Dialect.String()), Schema: cfg.Schema, Table: cfg.Table,
	})
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	return m, nil
}

// Migrate brings the tables to this program's version: that of the messages, "<table>_parked"
// for those the broker refuses and, but for PostgreSQL, "<table>_shards" for relays to take
// turns by. Versions are recorded in onceward_migrations. Several processes may call it at once;
// tables that have the version cost two round trips. It does not create Config.Schema.
func (o *Outbox) Migrate(ctx context.Context, db *sql.DB) error {
	if err := o.checkDB(db); err != nil {
		return err
	}
	return prefixed(o.migrations.Up(ctx, db, o.migrations.Newest()))
}

// MigrateDown brings them back to an earlier version, with what is in them: 0 drops all messages,
// published or not.
func (o *Outbox) MigrateDown(ctx context.Context, db *sql.DB, to int) error {
	if err := o.checkDB(db); err != nil {
		return err
	}
	return prefixed(o.migrations.Down(ctx, db, to))
}

// Check reports tables of another version than this program's. It changes nothing and takes two
// round trips. [Relay.Run] begins with it.
func (o *Outbox) Check(ctx context.Context, db *sql.DB) error {
	if err := o.checkDB(db); err != nil {
		return err
	}
	return prefixed(o.migrations.Check(ctx, db))
}

// Schema returns the newest tables as one text of SQL, for those who keep their schema by hand.
// Each statement ends with a semicolon at the end of a line.
func (o *Outbox) Schema() string {
	if o.ready() != nil {
		return ""
	}
	return o.migrations.SQL()
}

// Migrations returns the versions as files for golang-migrate, 0001_name.up.sql and
// 0001_name.down.sql, which record themselves where Check looks. With MySQL the tool's connection
// must allow several statements at once. Nil if New has not made o.
func (o *Outbox) Migrations() fs.FS {
	if o.ready() != nil {
		return nil
	}
	return o.migrations.Files()
}

// GooseMigrations returns the same for goose, 0001_name.sql.
func (o *Outbox) GooseMigrations() fs.FS {
	if o.ready() != nil {
		return nil
	}
	return o.migrations.GooseFiles()
}

func (o *Outbox) checkDB(db *sql.DB) error {
	if err := o.ready(); err != nil {
		return err
	}
	if db == nil {
		return inputError("db", "is nil")
	}
	return nil
}

func prefixed(err error) error {
	if err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	return nil
}
