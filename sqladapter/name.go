package sqladapter

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// maxName is where PostgreSQL cuts identifiers, in bytes. A longer name would be cut in
// silence, and two names with the same beginning would be one table.
const maxName = 63

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// tableName holds names that are checked and quoted, ready to be put into a statement.
// They are the only text that ever is; everything else is a parameter.
type tableName struct {
	full  string // with the schema, when there is one
	bare  string // the table alone
	index string // of the retention index, as CREATE INDEX wants it
}

func newTableName(d Dialect, schema, table string) (tableName, error) {
	if table == "" {
		table = DefaultTable
	}
	const form = "must match [A-Za-z_][A-Za-z0-9_]{0,62}"
	if !identifier.MatchString(table) {
		return tableName{}, inputError("Table", form)
	}
	if schema != "" && !identifier.MatchString(schema) {
		return tableName{}, inputError("Schema", form)
	}
	if d == SQLite && strings.HasPrefix(strings.ToLower(table), "sqlite_") {
		return tableName{}, inputError("Table", "begins with sqlite_, which SQLite reserves")
	}
	name := tableName{full: quote(table), bare: quote(table), index: quote(indexName(table))}
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

// indexName appends a suffix that survives the cut at maxName: cut to the table's own
// name, CREATE INDEX IF NOT EXISTS would find that name taken and create nothing.
func indexName(table string) string {
	const suffix = "_created_at"
	if len(table)+len(suffix) <= maxName {
		return table + suffix
	}
	sum := sha256.Sum256([]byte(table))
	tail := "_" + hex.EncodeToString(sum[:4]) + suffix
	return table[:maxName-len(tail)] + tail
}

func quote(identifier string) string { return `"` + identifier + `"` }
