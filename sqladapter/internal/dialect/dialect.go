// Package dialect has what the ledger of package sqladapter and the store of package sqlstore
// know of databases alike.
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

// Quote quotes a name that has been checked.
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

// In quotes a name with its schema, if there is one.
func (d Dialect) In(schema, name string) string {
	if schema == "" {
		return d.Quote(name)
	}
	return d.Quote(schema) + "." + d.Quote(name)
}

// BeginAt begins a transaction at a level. The caller ends the transaction, and then calls release.
//
// On a connection of MySQL with autocommit off, a statement outside of a transaction has left one
// open, in which no level can be chosen. BeginAt commits that one, as BEGIN without a level does.
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

// UUID is the text of AppendUUID.
func UUID(id driver.ID) string { return string(AppendUUID(make([]byte, 0, 36), id)) }

// Nullable is NULL for the zero fingerprint, which compares with nothing.
func Nullable(f driver.Fingerprint) any {
	if f == (driver.Fingerprint{}) {
		return nil
	}
	return f[:]
}

// InputError names the field or the argument that is wrong.
func InputError(field, reason string) error {
	return &driver.InputError{Field: field, Reason: reason}
}

// OtherForm makes of the error of reading a table that has just been made, or was there already,
// that it is not ours: recorded as ours, it would be dropped on the way down.
func OtherForm(table, of string, err error) error {
	if err == nil || !sqlerr.OtherForm(err) {
		return sqlerr.NeedsRight(err, "SELECT on "+table)
	}
	return fmt.Errorf(
		"table %s is not a table of %s; name another, or drop it and what it has on record: %w",
		table, of, err)
}

// Stem is what all names of MySQL's generations of a table begin with. It leaves room for the
// longest of their ends, so that the length of the table's own name does not change their order.
func Stem(table string) string {
	const longest = "_sealed_results"
	return strings.TrimSuffix(sqlname.Derive(table, longest), longest)
}
