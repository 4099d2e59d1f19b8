package sqladapter

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/onceward/onceward/internal/sqlerr"
	"github.com/onceward/onceward/internal/sqlmigrate"
	"github.com/onceward/onceward/sqladapter/migration"
)

//go:embed schema/fence schema/marks schema/generations
var migrationFiles embed.FS

// newMigrations builds the migrations of names that were checked before.
func newMigrations(d Dialect, cfg sqlmigrate.Config) (*migration.Set, error) {
	files, err := fs.Sub(migrationFiles, "schema/"+cfg.Component)
	if err != nil {
		return nil, err
	}
	cfg.Files, cfg.Dialect = files, sqlmigrate.Dialect(d.String())
	versions, err := sqlmigrate.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("sqladapter: %w", err)
	}
	return migration.New(versions), nil
}

// newMigrations returns the versions of the tables. It checks the form of the tables that a version
// has made before the version is recorded.
func (m *Ledger) newMigrations(cfg Config) (*migration.Set, error) {
	component := "marks"
	if m.retention == Generations {
		component = "generations"
	}
	texts := map[string]string{"raise_window": m.dialect.raise, "id_form": m.ids.text()}
	for name, text := range m.dialect.texts {
		texts[name] = text
	}
	return newMigrations(cfg.Dialect, sqlmigrate.Config{
		Component: component, Schema: cfg.Schema, Table: cmp.Or(cfg.Table, defaultTable),
		Texts: texts,
		// No version changes the columns of marks and results.
		Verify: func(ctx context.Context, tx *sql.Tx, _ int) error { return m.checkForm(ctx, tx) },
	})
}

// Migrations returns the versions of the tables; nil when m was not made by New. [Generations] and
// [DeleteRows] have different versions, because their tables differ.
func (m *Ledger) Migrations() *migration.Set {
	if m == nil {
		return nil
	}
	return m.versions
}

// Migrate is [migration.Set.Up], and puts Config.Window on record where it is longer than the
// recorded window. Several processes may call it at once. A table of another form, an older one of
// this package's own included, is refused and left as it is. So is a table that is on record but
// gone: [migration.Set.To] zero undoes what is left of it. It does not create Config.Schema.
//
// With MySQL it refuses a connection that reports found rows instead of changed rows
// (clientFoundRows in the DSN), because a duplicate would look new. It also refuses a table whose
// engine has no transactions; that table then exists, and is empty. With SQL Server it refuses a
// table where the second transaction with a key does not wait for the first.
func (m *Ledger) Migrate(ctx context.Context, db *sql.DB) error {
	if err := m.ready(); err != nil {
		return err
	}
	if db == nil {
		return inputError("db", "is nil")
	}
	if err := m.checkKind(ctx, db); err != nil {
		return fmt.Errorf("sqladapter: migrate: %w", err)
	}
	if err := m.versions.Up(ctx, db); err != nil {
		return m.whyNot(ctx, db, err)
	}
	if err := m.checkForm(ctx, db); err != nil {
		return fmt.Errorf("sqladapter: migrate: %w", err)
	}
	if err := m.alone(ctx, db, func(q Tx) error { return m.checkIDs(ctx, q) }); err != nil {
		return fmt.Errorf("sqladapter: migrate: %w", err)
	}
	if err := m.raiseWindow(ctx, db); err != nil {
		return err
	}
	return m.probe(ctx, db)
}

// whyNot looks for a table of another form when a migration has failed, because the errors of the
// migration's statements do not reveal one. It reports another form only when an error proves it: a
// missing right, a missing table or a server that is gone proves nothing.
func (m *Ledger) whyNot(ctx context.Context, db *sql.DB, err error) error {
	var level *migration.LevelError
	if errors.As(err, &level) {
		return err
	}
	form := m.alone(ctx, db, func(q Tx) error { return scanOne(ctx, q, m.dialect.form) })
	if errors.Is(form, sql.ErrNoRows) || !sqlerr.OtherForm(form) {
		return err
	}
	return fmt.Errorf("sqladapter: migrate: %w", m.otherForm(err))
}

// raiseWindow writes only where it must, so a role that has only the rights to mark can call
// Migrate, too.
func (m *Ledger) raiseWindow(ctx context.Context, db *sql.DB) error {
	if window, err := m.recordedWindow(ctx, db); err == nil && m.longEnough(window) {
		return nil
	}
	if err := m.write(ctx, db, statement{text: m.dialect.raise}); err != nil {
		return fmt.Errorf("sqladapter: migrate: window on record: %w",
			sqlerr.NeedsRight(err, "INSERT and UPDATE on "+m.table.meta))
	}
	return nil
}

func (m *Ledger) longEnough(recorded time.Duration) bool {
	return recorded >= recordedForever || m.window > 0 && recorded >= m.window
}

// Check returns an error unless the tables exist, in the version that this program needs (otherwise
// a [*migration.LevelError]), in this package's form and with a window that is long enough. It also
// refuses what [Ledger.Migrate] refuses. Call it at start if you migrate with your own tool. With
// [Generations] on PostgreSQL it also reports what would prevent the owner of the tables from
// rotating. It leaves nothing behind. It takes four round trips; six with PostgreSQL, seven with
// Generations, with MySQL some twenty, with SQL Server twelve on two sessions.
func (m *Ledger) Check(ctx context.Context, db *sql.DB) error {
	if err := m.ready(); err != nil {
		return err
	}
	if db == nil {
		return inputError("db", "is nil")
	}
	if err := m.checkKind(ctx, db); err != nil {
		return fmt.Errorf("sqladapter: check: %w", err)
	}
	if err := m.versions.Check(ctx, db); err != nil {
		return err
	}
	if err := m.checkForm(ctx, db); err != nil {
		return fmt.Errorf("sqladapter: check: %w", err)
	}
	if err := m.alone(ctx, db, func(q Tx) error { return m.checkIDs(ctx, q) }); err != nil {
		return fmt.Errorf("sqladapter: check: %w", err)
	}
	window, err := m.recordedWindow(ctx, db)
	if err != nil {
		return err
	}
	if !m.longEnough(window) {
		return inputError("Window", fmt.Sprintf("is %v, and on record for %s is %v; call Migrate",
			m.window, m.table.full, window))
	}
	if err := m.checkRotation(ctx, db); err != nil {
		return err
	}
	return m.probe(ctx, db)
}

// checkIDs refuses a table whose ids have another form than those of m, because a key that one
// program has marked would be new to the other. After one right answer it does not ask again,
// because a table never changes its form.
//
// It reads after the marks. On MySQL a read without locks takes the transaction's snapshot, which
// must not be older than the marks (see lateResults), and a read with locks would block retention.
// The marks of a refused transaction are rolled back.
func (m *Ledger) checkIDs(ctx context.Context, tx Tx) error {
	if m.previous != nil {
		if err := m.previous.checkIDs(ctx, tx); err != nil {
			return err
		}
	}
	if m.dialect.ids == "" || m.idsKnown.Load() {
		return nil
	}
	form, err := m.recordedIDs(ctx, tx)
	if err != nil {
		return err
	}
	if form != m.ids.text() {
		return inputError("IDTime", fmt.Sprintf("makes ids of the form %q, and table %s has been made for %q; "+
			"name another table, and let the Ledger of this one be its Previous", m.ids.text(),
			m.table.full, form))
	}
	m.idsKnown.Store(true)
	return nil
}

// recordedIDs returns the form of the table's ids, as text.
func (m *Ledger) recordedIDs(ctx context.Context, q Tx) (string, error) {
	var form sql.NullString
	err := scanOne(ctx, q, m.dialect.ids, &form)
	switch {
	case errors.Is(err, sql.ErrNoRows), err == nil && !form.Valid, sqlerr.OtherForm(err):
		return "", fmt.Errorf("the form of the ids of %s is not on record; call Migrate: %w",
			m.table.full, cmp.Or(err, sql.ErrNoRows))
	case err != nil:
		return "", fmt.Errorf("form of the ids: %w",
			sqlerr.NeedsRight(err, "SELECT on "+m.table.meta))
	}
	return form.String, nil
}

// checkForm reads a mark that cannot exist.
func (m *Ledger) checkForm(ctx context.Context, tx Tx) error {
	err := m.alone(ctx, tx, func(q Tx) error {
		_, err := queryRows(ctx, q, m.dialect.peek(make([]entry, 1)), 1, (*columns).loaded)
		return err
	})
	if err != nil {
		return m.otherForm(err)
	}
	return nil
}

// otherForm adds to the error what an operator can do. Nothing recreates tables that are gone: a
// restore may not have reached them yet, and everything that is delivered meanwhile would run
// again.
func (m *Ledger) otherForm(err error) error {
	if sqlerr.NoTable(err) {
		return fmt.Errorf("a table of %s is gone, while %s has it on record: somebody has dropped or not restored it; "+
			"to begin with empty ones undo the rest with Migrations().To(ctx, db, 0), and call Migrate: %w", m.table.full, sqlmigrate.Table, err)
	}
	if !sqlerr.OtherForm(err) {
		return sqlerr.NeedsRight(err, "SELECT on "+m.table.full+" and "+m.table.results)
	}
	return fmt.Errorf("table %s is not a table of marks, or one of an older form; name another, or drop it: "+
		"without the marks in it everything that is delivered again runs again: %w",
		m.table.full, err)
}
