package sqladapter

import (
	"strings"

	"github.com/onceward/onceward/internal/sqlname"
)

// tableName holds names that are checked and quoted, ready to be put into a statement.
type tableName struct {
	full    string // with the schema, when there is one
	bare    string // the table alone
	index   string // of the retention index, as CREATE INDEX wants it
	results string // the table of results
	meta    string // the table of one row that has the window
}

func newTableName(d Dialect, schema, table string) (tableName, error) {
	if table == "" {
		table = DefaultTable
	}
	if !sqlname.Valid(table) {
		return tableName{}, inputError("Table", sqlname.Form)
	}
	if schema != "" && !sqlname.Valid(schema) {
		return tableName{}, inputError("Schema", sqlname.Form)
	}
	if d == SQLite && strings.HasPrefix(strings.ToLower(table), "sqlite_") {
		return tableName{}, inputError("Table", "begins with sqlite_, which SQLite reserves")
	}
	in := func(name string) string {
		if schema == "" {
			return d.quote(name)
		}
		return d.quote(schema) + "." + d.quote(name)
	}
	index := sqlname.Derive(table, "_expiry")
	name := tableName{full: in(table), bare: d.quote(table), index: d.quote(index), results: in(sqlname.Derive(table, "_results")), meta: in(sqlname.Derive(table, "_meta"))}
	if d == SQLite {
		// SQLite wants the schema on the index and not on its table; PostgreSQL puts an
		// index where its table is.
		name.index = in(index)
	}
	return name, nil
}

func (d Dialect) quote(name string) string {
	if d == MySQL {
		return sqlname.Quote(name, '`')
	}
	return sqlname.Quote(name, '"')
}
