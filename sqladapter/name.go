package sqladapter

import (
	"strings"

	"github.com/onceward/onceward/internal/sqlname"
)

// tableName holds names that are checked and quoted, ready to be put into a statement.
type tableName struct {
	full  string // with the schema, when there is one
	bare  string // the table alone
	index string // of the retention index, as CREATE INDEX wants it
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
	name := tableName{full: quote(table), bare: quote(table), index: quote(sqlname.Derive(table, "_created_at"))}
	if schema == "" {
		return name, nil
	}
	name.full = quote(schema) + "." + name.bare
	if d == SQLite {
		// SQLite wants the schema on the index and not on its table; PostgreSQL puts an
		// index where its table is.
		name.index = quote(schema) + "." + name.index
	}
	return name, nil
}

func quote(name string) string { return sqlname.Quote(name, '"') }
