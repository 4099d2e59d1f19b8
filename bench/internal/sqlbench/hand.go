package sqlbench

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/pgxv5"
)

// A program by hand writes the same columns into the same table, for an insert is dearer
// in a larger one, and does not look at anything that can go wrong.

// handEach is a transaction for every message: what programs have that know no batches.
func (g *ground) handEach(ctx context.Context, _ int, keys []string) {
	insert := g.statement("hand", g.name)
	for _, key := range keys {
		g.inTx(ctx, func(tx *sql.Tx) {
			id := digest(key)
			var column any = id[:]
			if g.server.Dialect == sqladapter.Postgres {
				column = uuid.UUID(id)
			}
			done := must.Get(tx.ExecContext(ctx, insert, column))
			must.True(must.Get(done.RowsAffected()) > 0, "sqlbench: a fresh key is there")
			g.effect.single(ctx, tx, key)
		})
	}
}

func digest(key string) [16]byte {
	sum := sha256.Sum256([]byte(key))
	return [16]byte(sum[:16])
}

// digests are the sorted ids of keys.
func digests(keys []string) (byID map[[16]byte]string, ids [][16]byte) {
	byID, ids = make(map[[16]byte]string, len(keys)), make([][16]byte, len(keys))
	for i, key := range keys {
		ids[i] = digest(key)
		byID[ids[i]] = key
	}
	slices.SortFunc(ids, func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) })
	return byID, ids
}

// handBatch is for PostgreSQL: one INSERT of the records, and one of the effects of the new ones.
func (g *ground) handBatch(ctx context.Context, _ int, keys []string) {
	byID, ids := digests(keys)
	g.inTx(ctx, func(tx *sql.Tx) {
		g.effect.many(ctx, tx, selected(ctx, tx, g.statement("hand batch", g.name), ids,
			func(id sql.RawBytes) string { return byID[[16]byte(id)] }))
	})
}

const (
	nativeEffectSide = "effect alone, batched, pgx itself"
	nativeBothSide   = "record + effect, handler per batch, pgx itself"
	nativeHandSide   = "record + effect, batched, by hand, pgx itself"
)

// native is a ground's tables through a pool of pgx, without database/sql.
type native struct {
	*ground
	pool *pgxpool.Pool
}

func (g *ground) native(ctx context.Context, s *harness.Setup, connections int) *native {
	cfg := must.Get(pgxpool.ParseConfig(g.server.URL))
	cfg.MaxConns = int32(connections) // a handful
	pool := must.Get(pgxpool.NewWithConfig(ctx, cfg))
	s.Defer(func() error { pool.Close(); return nil })
	return &native{g, pool}
}

func (n *native) many(ctx context.Context, tx pgx.Tx, keys []string) error {
	text, args := n.effect.unnested(keys)
	_, err := tx.Exec(ctx, text, args...)
	return err
}

func (n *native) effectAlone(ctx context.Context, _ int, keys []string) {
	must.Do(pgx.BeginFunc(ctx, n.pool, func(tx pgx.Tx) error { return n.many(ctx, tx, keys) }))
}

func (n *native) both(ctx context.Context, _ int, keys []string) {
	must.Get(pgxv5.DoBatch(ctx, n.marks, n.pool, keys,
		func(ctx context.Context, tx pgx.Tx, first []int) error {
			return n.many(ctx, tx, chosen(keys, first))
		}))
}

// handBatch is the batch of [ground.handBatch] in this client.
func (n *native) handBatch(ctx context.Context, _ int, keys []string) {
	byID, ids := digests(keys)
	must.Do(pgx.BeginFunc(ctx, n.pool, func(tx pgx.Tx) (err error) {
		defer must.Catch(&err)
		rows := must.Get(tx.Query(ctx, n.statement("hand batch", n.name), ids))
		return n.many(ctx, tx, must.Get(pgx.CollectRows(rows,
			func(row pgx.CollectableRow) (string, error) {
				var id []byte
				must.Do(row.Scan(&id))
				return byID[[16]byte(id)], nil
			})))
	}))
}

type querier interface {
	sqladapter.Tx
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

// effect is what a message does: one row.
type effect struct {
	dialect sqladapter.Dialect
	table   string
}

var payload = strings.Repeat("0123456789abcdef", 4)

// accounts among which effects are spread.
const accounts = 1000

func (e effect) insert(values string) string {
	return `INSERT INTO ` + e.table + ` (message, account, payload) ` + values
}

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
	switch e.dialect {
	case sqladapter.SQLite:
		one := must.Get(q.PrepareContext(ctx, e.insert(`VALUES (?, ?, ?)`)))
		defer func() { _ = one.Close() }()
		for i, key := range keys {
			must.Get(one.ExecContext(ctx, key, i%accounts, payload))
		}
	case sqladapter.MySQL:
		args := make([]any, 0, 3*len(keys))
		for i, key := range keys {
			args = append(args, key, i%accounts, payload)
		}
		values := strings.TrimSuffix(strings.Repeat("(?,?,?),", len(keys)), ",")
		must.Get(q.ExecContext(ctx, e.insert(`VALUES `+values), args...))
	default:
		text, args := e.unnested(keys)
		must.Get(q.ExecContext(ctx, text, args...))
	}
}

// unnested is the statement of a batch in PostgreSQL.
func (e effect) unnested(keys []string) (text string, args []any) {
	accountsOf, payloads := make([]int32, len(keys)), make([]string, len(keys))
	for i := range keys {
		accountsOf[i], payloads[i] = int32(i%accounts), payload // below 1000
	}
	return e.insert(`SELECT m, a, p FROM unnest($1::text[], $2::int[], $3::text[]) AS b(m, a, p)`),
		[]any{keys, accountsOf, payloads}
}
