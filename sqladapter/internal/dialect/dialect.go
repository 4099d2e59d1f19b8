// Package dialect has what the ledger of package sqladapter and the store of package sqlstore both
// know of databases.
package dialect

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/sqlerr"
	"github.com/onceward/onceward/internal/sqlname"
)

// Dialect is the SQL that a database speaks.
type Dialect uint8

const (
	// Postgres is PostgreSQL 12 or newer.
	Postgres Dialect = iota + 1
	// SQLite is SQLite 3.35 or newer, which has RETURNING.
	SQLite
	// MySQL is MySQL 8.0 or newer, and MariaDB 10.6 or newer, with InnoDB.
	MySQL
	// SQLServer is SQL Server 2016 or newer, and Azure SQL Database; see package
	// sqladapter/sqlserver.
	SQLServer
)

// String returns the name in lower case.
func (d Dialect) String() string {
	switch d {
	case Postgres:
		return "postgres"
	case SQLite:
		return "sqlite"
	case MySQL:
		return "mysql"
	case SQLServer:
		return "sqlserver"
	default:
		return "unknown"
	}
}

// Quote quotes a name that was checked before.
func (d Dialect) Quote(name string) string {
	switch d {
	case MySQL:
		return sqlname.Quote(name, '`')
	case SQLServer:
		return sqlname.Quote(name, '[')
	default:
		return sqlname.Quote(name, '"')
	}
}

// In returns a quoted name, with its schema if there is one.
func (d Dialect) In(schema, name string) string {
	if schema == "" {
		return d.Quote(name)
	}
	return d.Quote(schema) + "." + d.Quote(name)
}

// BeginAt begins a transaction at a level. The caller ends the transaction, and then calls release.
//
// On a connection of MySQL with autocommit off, an earlier statement outside of a transaction may
// have opened one, and the server then refuses to change the level. BeginAt commits that
// transaction, as BEGIN without a level does.
func BeginAt(ctx context.Context, db *sql.DB, level sql.IsolationLevel) (tx *sql.Tx, release func(),
	err error) {
	opts := &sql.TxOptions{Isolation: level}
	tx, err = db.BeginTx(ctx, opts)
	if !sqlerr.LeftOpen(err) {
		return tx, func() {}, err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	if _, err = conn.ExecContext(ctx, `COMMIT`); err == nil {
		tx, err = conn.BeginTx(ctx, opts)
	}
	if err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	return tx, func() { _ = conn.Close() }, nil
}

// AppendUUID appends an id in the form that every version of PostgreSQL reads as a uuid.
func AppendUUID(b []byte, id driver.ID) []byte {
	for i, part := range [][]byte{id[0:4], id[4:6], id[6:8], id[8:10], id[10:16]} {
		if i > 0 {
			b = append(b, '-')
		}
		b = hex.AppendEncode(b, part)
	}
	return b
}

// UUID returns what AppendUUID appends.
func UUID(id driver.ID) string { return string(AppendUUID(make([]byte, 0, 36), id)) }

// Nullable returns NULL for the zero fingerprint, which conflicts with no other.
func Nullable(f driver.Fingerprint) any {
	if f == (driver.Fingerprint{}) {
		return nil
	}
	return f[:]
}

// InputError names the wrong field or argument.
func InputError(field, reason string) error {
	return &driver.InputError{Field: field, Reason: reason}
}

// OtherForm takes the error of a read from a table that has just been made, or existed already, and
// says when the table is not ours. If it were recorded as ours, a migration down would drop it.
func OtherForm(table, of string, err error) error {
	if err == nil || !sqlerr.OtherForm(err) {
		return sqlerr.NeedsRight(err, "SELECT on "+table)
	}
	return fmt.Errorf(
		"table %s is not a table of %s; name another, or drop it and what it has on record: %w",
		table, of, err)
}

// Stem returns the beginning of all names of MySQL's generations of a table. It leaves room for the
// longest suffix, so that the length of the table's own name does not change the order of the
// names.
func Stem(table string) string {
	const longest = "_sealed_results"
	return strings.TrimSuffix(sqlname.Derive(table, longest), longest)
}
