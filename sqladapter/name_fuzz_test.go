package sqladapter

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/sqladapter/internal/dialect"
)

// FuzzTableName: all names that are made from a schema and a table are different, and none of them
// ends its quotes, in any dialect.
func FuzzTableName(f *testing.F) {
	f.Add("", "onceward_marks")
	f.Add("Shop", "claims")
	f.Add("s", strings.Repeat("a", 63))
	f.Add("sqlite_x", "SQLITE_marks")
	f.Add("a]b", "m")
	f.Add("", "m`; DROP TABLE x --")
	f.Add("a\"", "m\n")
	f.Fuzz(func(t *testing.T, schema, table string) {
		for d, marks := range map[Dialect]string{Postgres: `""`, MySQL: "``", SQLite: `""`,
			dialect.SQLServer: "[]"} {
			n, err := newTableName(d, schema, table)
			if err != nil {
				continue
			}
			seen := map[string]bool{}
			for what, name := range map[string]string{
				"table": n.full, "results": n.results, "meta": n.meta, "generation": n.state,
				"open": n.derive("_open"), "sealed": n.derive("_sealed"),
			} {
				assert.False(t, seen[name], "%v: %q.%q: the %s has the name %s of another", d,
					schema, table, what, name)
				seen[name] = true
				for part := range strings.SplitSeq(name, ".") {
					require.GreaterOrEqual(t, len(part), 3, "%v: %q.%q became %s", d, schema, table,
						name)
					require.LessOrEqual(t, len(part), 65, "%v: %q.%q became %s", d, schema, table,
						name)
					require.Equal(t, marks[0], part[0], "%v: %q.%q became %s", d, schema, table,
						name)
					require.Equal(t, marks[1], part[len(part)-1], "%v: %q.%q became %s", d, schema,
						table, name)
					assert.False(t, strings.ContainsAny(part[1:len(part)-1], "\"`[]; \n\x00"),
						"%v: %q.%q became %s", d, schema, table, name)
				}
			}
		}
	})
}
