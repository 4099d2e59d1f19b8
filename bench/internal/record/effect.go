package record

import (
	"context"
	"database/sql"
	"strings"

	"github.com/onceward/onceward/sqladapter"
)

// querier is a transaction, or a pool.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// effect is what a message does: one row with three columns, in a table without any index
// but that of its counter. It is little on purpose: the less the effect costs, the more of
// the time is the record's.
type effect struct {
	table  string
	create string
	one    string // for a message: id, account, payload
	many   func(ctx context.Context, q querier, keys []string) error
	batch  func(keys []string) (text string, args []any) // PostgreSQL: what many runs
}

// payload of a message, 64 bytes.
var payload = strings.Repeat("0123456789abcdef", 4)

// accounts among which effects are spread.
const accounts = 1000

const effectColumns = ` (message, account, payload) `

var effects = map[sqladapter.Dialect]func(table string) effect{
	sqladapter.Postgres: postgresEffect, sqladapter.MySQL: mysqlEffect, sqladapter.SQLite: sqliteEffect,
}

func postgresEffect(table string) effect {
	insert := `INSERT INTO ` + table + effectColumns + `SELECT m, a, p FROM unnest($1::text[], $2::int[], $3::text[]) AS b(m, a, p)`
	batch := func(keys []string) (string, []any) {
		accountsOf, payloads := make([]int32, len(keys)), make([]string, len(keys))
		for i := range keys {
			accountsOf[i], payloads[i] = int32(i%accounts), payload //nolint:gosec // below 1000
		}
		return insert, []any{keys, accountsOf, payloads}
	}
	return effect{
		table:  table,
		batch:  batch,
		create: `CREATE TABLE ` + table + ` (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, message text NOT NULL, account int NOT NULL, payload text NOT NULL)`,
		one:    `INSERT INTO ` + table + effectColumns + `VALUES ($1, $2, $3)`,
		many: func(ctx context.Context, q querier, keys []string) error {
			text, args := batch(keys)
			_, err := q.ExecContext(ctx, text, args...)
			return err
		},
	}
}

func mysqlEffect(table string) effect {
	insert := `INSERT INTO ` + table + effectColumns + `VALUES `
	return effect{
		table:  table,
		create: `CREATE TABLE ` + table + ` (id bigint AUTO_INCREMENT PRIMARY KEY, message varchar(64) NOT NULL, account int NOT NULL, payload varchar(64) NOT NULL) ENGINE=InnoDB`,
		one:    insert + `(?, ?, ?)`,
		many: func(ctx context.Context, q querier, keys []string) error {
			args := make([]any, 0, 3*len(keys))
			for i, key := range keys {
				args = append(args, key, i%accounts, payload)
			}
			_, err := q.ExecContext(ctx, insert+strings.TrimSuffix(strings.Repeat("(?,?,?),", len(keys)), ","), args...)
			return err
		},
	}
}

// sqliteEffect runs a prepared statement for every message: in one's own process that is
// faster than a statement with many rows.
func sqliteEffect(table string) effect {
	insert := `INSERT INTO ` + table + effectColumns + `VALUES (?, ?, ?)`
	return effect{
		table:  table,
		create: `CREATE TABLE ` + table + ` (id INTEGER PRIMARY KEY, message TEXT NOT NULL, account INTEGER NOT NULL, payload TEXT NOT NULL)`,
		one:    insert,
		many: func(ctx context.Context, q querier, keys []string) error {
			//nolint:errcheck,forcetypeassert // pools and transactions both have it
			one, err := q.(interface {
				PrepareContext(context.Context, string) (*sql.Stmt, error)
			}).PrepareContext(ctx, insert)
			if err != nil {
				return err
			}
			defer func() { _ = one.Close() }()
			for i, key := range keys {
				if _, err := one.ExecContext(ctx, key, i%accounts, payload); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// single has the effect of one message.
func (e effect) single(ctx context.Context, q querier, key string) error {
	_, err := q.ExecContext(ctx, e.one, key, len(key)%accounts, payload)
	return err
}
