package outbox

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/onceward/onceward/internal/sqlerr"
	"github.com/onceward/onceward/internal/sqlmigrate"
)

//go:embed migrations
var migrationFiles embed.FS

// newMigrations are the versions of this outbox's tables. A table of another form is not recorded
// as ours: a migration down would drop it.
func newMigrations(cfg Config, d *dialect, table string) (*sqlmigrate.Migrations, error) {
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	m, err := sqlmigrate.New(sqlmigrate.Config{
		Files: files, Component: "outbox", Dialect: sqlmigrate.Dialect(cfg.Dialect.String()),
		Schema: cfg.Schema, Table: cfg.Table,
		Verify: func(ctx context.Context, tx *sql.Tx, version int) error {
			if version == 1 {
				return checkForm(ctx, tx, table, d.form, d.formParked)
			}
			return checkForm(ctx, tx, table, d.form, d.formParked, d.formScheduled,
				d.formPublished)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	return m, nil
}

// checkForm runs statements that read every column and no row.
func checkForm(ctx context.Context, tx *sql.Tx, table string, forms ...string) error {
	for _, text := range forms {
		err := tx.QueryRowContext(ctx, text).Scan()
		switch {
		case errors.Is(err, sql.ErrNoRows):
		case !sqlerr.OtherForm(err):
			return sqlerr.NeedsRight(err, "SELECT on "+table+" and the tables next to it")
		default:
			return fmt.Errorf("table %s is not a table of an outbox; name another, or drop it with the messages in it: %w", table, err)
		}
	}
	return nil
}

// Migrate brings the tables to this program's version. Besides the table of messages there are
// "<table>_parked" (refused by the broker), "<table>_scheduled" (with a Message.NotBefore) and
// "<table>_published" (for Config.History). MySQL and SQLite also have "<table>_shards", with which
// relays take turns. PostgreSQL has the functions "<table>_insert", "_shard" and "_headers", see
// docs/reference/outbox-rows.md. Versions are recorded in onceward_migrations. A role that is not
// the owner needs rights on new tables. Several processes may call it at once; when the tables have
// the version already it costs two round trips. It refuses a table of another form with one of
// these names, and leaves it as it is. It does not create Config.Schema.
func (o *Outbox) Migrate(ctx context.Context, db *sql.DB) error {
	if err := o.checkDB(db); err != nil {
		return err
	}
	return prefixed(o.migrations.Up(ctx, db, o.migrations.Newest()))
}

// MigrateUp is [Outbox.Migrate] up to a version, 1 to [Outbox.Newest]. It undoes nothing: it leaves
// tables with a higher version as they are.
func (o *Outbox) MigrateUp(ctx context.Context, db *sql.DB, to int) error {
	if err := o.checkDB(db); err != nil {
		return err
	}
	return prefixed(o.migrations.Up(ctx, db, to))
}

// MigrateDown brings the tables back to an earlier version, and deletes what that version has no
// room for: 0 drops all messages, published or not.
func (o *Outbox) MigrateDown(ctx context.Context, db *sql.DB, to int) error {
	if err := o.checkDB(db); err != nil {
		return err
	}
	return prefixed(o.migrations.Down(ctx, db, to))
}

// Newest is the version that this program needs; zero when New has not made o.
func (o *Outbox) Newest() int {
	if o.ready() != nil {
		return 0
	}
	return o.migrations.Newest()
}

// Version reads the recorded version, zero for none. Two round trips (MySQL: four), no lock, and
// only the right to read.
func (o *Outbox) Version(ctx context.Context, db *sql.DB) (int, error) {
	if err := o.checkDB(db); err != nil {
		return 0, err
	}
	has, err := o.migrations.Version(ctx, db)
	return has, prefixed(err)
}

// Check returns an error for tables of another version than this program's. It changes nothing and
// takes two round trips. [Relay.Run] begins with it.
func (o *Outbox) Check(ctx context.Context, db *sql.DB) error {
	if err := o.checkDB(db); err != nil {
		return err
	}
	return prefixed(o.migrations.Check(ctx, db))
}

// Schema returns the newest tables as one text of SQL, for schemas that are kept by hand. Each
// statement ends with a semicolon at the end of a line.
func (o *Outbox) Schema() string {
	if o.ready() != nil {
		return ""
	}
	return o.migrations.SQL()
}

// Migrations returns the versions as files for golang-migrate, 0001_name.up.sql and
// 0001_name.down.sql. They also record the version where Check reads it. With MySQL the tool's
// connection must allow several statements at once. Nil if New has not made o.
func (o *Outbox) Migrations() fs.FS {
	if o.ready() != nil {
		return nil
	}
	return o.migrations.Files()
}

// GooseMigrations returns the files of [Outbox.Migrations] for goose, 0001_name.sql.
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
