package sqladapter

import (
	"strings"

	"github.com/onceward/onceward/internal/sqlname"
)

// tableName holds names that are checked and quoted, ready to be put into a statement.
type tableName struct {
	schema  string // bare, and empty for the connection's own
	name    string // of the table, bare
	full    string // with the schema, when there is one
	bare    string // the table alone
	index   string // the retention index, as CREATE INDEX wants it
	results string // the table of results
	meta    string // the table whose one row has the window
	state   string // the table whose one row has the generation

	quote  func(suffix string) string // the name with a suffix, quoted
	derive func(suffix string) string // the same with the schema, when there is one
}

// all are the tables that a migration makes and that statements name. The generations of PostgreSQL
// are not among them: their statements begin with the state.
func (t tableName) all() []string {
	c := newNameCycle(t)
	return []string{t.full, t.results, t.meta, t.state, c.open.marks, c.open.results,
		c.sealed.marks, c.sealed.results}
}

func newTableName(d Dialect, schema, table string) (tableName, error) {
	if table == "" {
		table = defaultTable
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
			return d.Quote(name)
		}
		return d.Quote(schema) + "." + d.Quote(name)
	}
	index := sqlname.Derive(table, "_expiry")
	quote := func(suffix string) string { return d.Quote(sqlname.Derive(table, suffix)) }
	derive := func(suffix string) string { return in(sqlname.Derive(table, suffix)) }
	name := tableName{
		schema: schema, name: table, full: in(table), bare: d.Quote(table), index: d.Quote(index),
		results: derive("_results"), meta: derive("_meta"),
		state: derive("_generation"), quote: quote, derive: derive,
	}
	if d == SQLite {
		// SQLite wants the schema on the index and not on its table; PostgreSQL puts an
		// index where its table is.
		name.index = in(index)
	}
	return name, nil
}
