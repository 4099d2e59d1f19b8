package sqlbench

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/sqladapter"
)

// querier is a transaction, or a pool.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

// effect is what a message does: one row with three columns, in a table without any index
// but that of its counter. It is little on purpose: the less the effect costs, the more of
// the time is the record's.
type effect struct {
	dialect sqladapter.Dialect
	table   string
}

// payload of a message, 64 bytes.
var payload = strings.Repeat("0123456789abcdef", 4)

// accounts among which effects are spread.
const accounts = 1000

// create is the statement that makes the table.
func (e effect) create() string {
	columns := map[sqladapter.Dialect]string{
		sqladapter.Postgres: `(id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, ` +
			`message text NOT NULL, account int NOT NULL, payload text NOT NULL)`,
		sqladapter.MySQL: `(id bigint AUTO_INCREMENT PRIMARY KEY, message varchar(64) NOT NULL, ` +
			`account int NOT NULL, payload varchar(64) NOT NULL) ENGINE=InnoDB`,
		sqladapter.SQLite: `(id INTEGER PRIMARY KEY, message TEXT NOT NULL, ` +
			`account INTEGER NOT NULL, payload TEXT NOT NULL)`,
	}
	return fmt.Sprintf(`CREATE TABLE %s %s`, e.table, columns[e.dialect])
}

// insert is the statement that has these values.
func (e effect) insert(values string) string {
	return `INSERT INTO ` + e.table + ` (message, account, payload) ` + values
}

// single has the effect of one message.
func (e effect) single(ctx context.Context, q querier, key string) {
	values := `VALUES (?, ?, ?)`
	if e.dialect == sqladapter.Postgres {
		values = `VALUES ($1, $2, $3)`
	}
	must.Get(q.ExecContext(ctx, e.insert(values), key, len(key)%accounts, payload))
}

// many has those of a batch, in the way that is the fastest in each engine. SQLite runs a prepared
// statement for every message: in one's own process that is faster than a statement with many rows.
func (e effect) many(ctx context.Context, q querier, keys []string) {
	var text string
	var args []any
	switch e.dialect {
	case sqladapter.SQLite:
		one := must.Get(q.PrepareContext(ctx, e.insert(`VALUES (?, ?, ?)`)))
		defer func() { _ = one.Close() }()
		for i, key := range keys {
			must.Get(one.ExecContext(ctx, key, i%accounts, payload))
		}
		return
	case sqladapter.MySQL:
		args = make([]any, 0, 3*len(keys))
		for i, key := range keys {
			args = append(args, key, i%accounts, payload)
		}
		text = e.insert(`VALUES ` + strings.TrimSuffix(strings.Repeat("(?,?,?),", len(keys)), ","))
	default:
		text, args = e.unnested(keys)
	}
	must.Get(q.ExecContext(ctx, text, args...))
}

// unnested is the statement of a batch in PostgreSQL.
func (e effect) unnested(keys []string) (text string, args []any) {
	accountsOf, payloads := make([]int32, len(keys)), make([]string, len(keys))
	for i := range keys {
		accountsOf[i], payloads[i] = int32(i%accounts), payload //nolint:gosec // below 1000
	}
	return e.insert(`SELECT m, a, p FROM unnest($1::text[], $2::int[], $3::text[]) AS b(m, a, p)`),
		[]any{keys, accountsOf, payloads}
}
