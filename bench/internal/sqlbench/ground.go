package sqlbench

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/bench/internal/work"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/pgxv5"
)

// ground is what the sides of a workload share: a pool, and new tables with their own names.
type ground struct {
	server    *server.Database
	db        *sql.DB
	isolation sql.IsolationLevel
	name      string // the names of the tables begin with it
	effect    effect
	marks     *sqladapter.Ledger
	fence     *sqladapter.Fence
}

// window is the window of the marks. The sweeper measures its round trips in steps of 1024 ms.
const window = time.Hour

// open creates the tables until the setup ends. In MySQL it uses the lowest isolation level that is
// correct, as the documentation says; elsewhere the default.
func open(ctx context.Context, setup *harness.Setup, s *server.Database, connections int) *ground {
	name := "bench" + harness.Fresh()[:8]
	g := &ground{server: s, db: s.Pool(connections), name: name,
		effect: effect{s.Dialect, name + "_effect"}}
	setup.DeferCtx(g.close)
	if s.Dialect == sqladapter.MySQL {
		g.isolation = sql.LevelReadCommitted
	}
	must.Get(g.db.ExecContext(ctx, g.statement("effect", g.effect.table)))
	g.marks = g.newMarks(ctx, g.name)
	g.fence = must.Get(sqladapter.NewFence(sqladapter.FenceConfig{Dialect: s.Dialect,
		Group: "bench", Table: g.name + "_fence", Isolation: g.isolation}))
	must.Do(g.fence.Migrate(ctx, g.db))
	return g
}

//go:embed statements.tmpl
var statements string

var parsed = template.Must(template.New("").Parse(statements))

// statement returns the named statement for a table, in the dialect of the server.
func (g *ground) statement(name, table string) string {
	var text strings.Builder
	must.Do(parsed.ExecuteTemplate(&text, g.server.Dialect.String()+" "+name, table))
	return text.String()
}

func (g *ground) newMarks(ctx context.Context, table string,
	change ...func(*sqladapter.Config)) *sqladapter.Ledger {
	cfg := sqladapter.Config{Dialect: g.server.Dialect, Namespace: "bench", Table: table,
		Window: window, Isolation: g.isolation}
	for _, change := range change {
		change(&cfg)
	}
	m := must.Get(sqladapter.New(cfg))
	must.Do(m.Migrate(ctx, g.db))
	return m
}

// close drops the tables by their names, which it reads from the database: only the generations
// know all of their tables.
func (g *ground) close(ctx context.Context) (err error) {
	cascade := "" // drops the view of generations, too
	if g.server.Dialect == sqladapter.Postgres {
		cascade = " CASCADE"
	}
	defer func() { err = errors.Join(err, g.db.Close()) }()
	defer must.Catch(&err)
	if g.fence != nil {
		must.Do(g.fence.Migrations().To(ctx, g.db, 0))
	}
	for _, table := range g.tables(ctx) {
		must.Get(g.db.ExecContext(ctx, `DROP TABLE `+table+cascade))
	}
	return nil
}

func (g *ground) tables(ctx context.Context) []string {
	return selected(ctx, g.db, g.statement("tables", g.name), g.name+"%",
		func(b sql.RawBytes) string { return string(b) })
}

// selected returns the values of a query's only column.
func selected(ctx context.Context, q querier, query string, arg any,
	of func(sql.RawBytes) string) (all []string) {
	all = make([]string, 0, typical)
	server.Scan(ctx, q, func(rows *sql.Rows) error {
		var value sql.RawBytes
		must.Do(rows.Scan(&value))
		all = append(all, of(value))
		return nil
	}, query, arg)
	return all
}

// inTx runs work in a transaction of its own, as a program without this library does.
func (g *ground) inTx(ctx context.Context, work func(tx *sql.Tx)) {
	tx := must.Get(g.db.BeginTx(ctx, &sql.TxOptions{Isolation: g.isolation}))
	defer func() { _ = tx.Rollback() }() // it does nothing after Commit
	work(tx)
	must.Do(tx.Commit())
}

// effectAlone is the upper limit: the batch without its record.
func (g *ground) effectAlone(ctx context.Context, _ int, keys []string) {
	g.inTx(ctx, func(tx *sql.Tx) { g.effect.many(ctx, tx, keys) })
}

// effectAtOnce is the upper limit with one round trip. A handler that runs a second statement
// cannot reach it.
func (g *ground) effectAtOnce(ctx context.Context, _ int, keys []string) {
	g.effect.many(ctx, g.db, keys)
}

// rising gives a timing keys whose ids begin with their time. The order of the keys helps no index
// of the effect's table.
func rising(_ context.Context, t *harness.Timing) {
	for i := range t.Keys {
		t.Keys[i] = must.Get(uuid.NewV7()).String()
	}
}

// marking writes records without an effect.
func (g *ground) marking(m *sqladapter.Ledger) work.Batch {
	return func(ctx context.Context, _ int, keys []string) {
		must.Get(m.DoBatch(ctx, g.db, keys,
			func(context.Context, *sql.Tx, []int) error { return nil }))
	}
}

func (g *ground) fill(ctx context.Context, m *sqladapter.Ledger, n int) {
	workers := 4
	if g.server.Dialect == sqladapter.SQLite {
		workers = 1
	}
	work.InBatches(workers, typical, g.marking(m))(ctx, &harness.Timing{Keys: harness.FreshKeys(n)})
}

// both returns work that calls the handler once for each batch.
func (g *ground) both() work.Batch { return g.inBatch(g.effect.many) }

// oneByOne returns work that calls the handler once for each message, in the transaction of the
// batch.
func (g *ground) oneByOne() work.Batch {
	return g.inBatch(func(ctx context.Context, q querier, first []string) {
		for _, key := range first {
			g.effect.single(ctx, q, key)
		}
	})
}

func (g *ground) inBatch(effect func(context.Context, querier, []string)) work.Batch {
	return func(ctx context.Context, _ int, keys []string) {
		for _, mark := range must.Get(g.marks.DoBatch(ctx, g.db, keys,
			func(ctx context.Context, tx *sql.Tx, first []int) error {
				return must.Try(func() { effect(ctx, tx, chosen(keys, first)) })
			})) {
			must.Do(mark.Err)
		}
	}
}

func chosen(keys []string, at []int) []string {
	some := make([]string, len(at))
	for i, n := range at {
		some[i] = keys[n]
	}
	return some
}

func (g *ground) doEach(ctx context.Context, _ int, keys []string) {
	for _, key := range keys {
		must.Get(g.marks.Do(ctx, g.db, key, func(ctx context.Context, tx *sql.Tx) error {
			return must.Try(func() { g.effect.single(ctx, tx, key) })
		}))
	}
}

// fenced moves the offset of the worker's own partition with every batch.
func (g *ground) fenced(workers int) work.Batch {
	next := make([]int64, workers)
	topic := harness.Fresh()
	return func(ctx context.Context, worker int, keys []string) {
		partition := int32(worker) // there are few
		p := sqladapter.Position{Topic: "bench", TopicID: topic, Partition: partition}
		from := next[worker]
		next[worker] += int64(len(keys))
		must.Get(g.fence.Do(ctx, g.db, p, from, next[worker],
			func(ctx context.Context, tx *sql.Tx, start int64) error {
				if start != from {
					return fmt.Errorf("sqlbench: the fence of %v is at %d, not %d", p, start, from)
				}
				return must.Try(func() { g.effect.many(ctx, tx, keys) })
			}))
	}
}

// duplicates replaces nine of ten keys by keys that are done. It takes them from a pool of keys,
// which it marks when it first needs them.
func (g *ground) duplicates(pool int) harness.Run {
	var done []string
	return func(ctx context.Context, t *harness.Timing) {
		if done == nil {
			done = harness.FreshKeys(pool)
			work.InBatches(1, 200, g.marking(g.marks))(ctx, &harness.Timing{Keys: done})
		}
		for i := range t.Keys {
			if i%10 != 0 {
				t.Keys[i] = done[(i*7919)%pool]
			}
		}
	}
}

// The programs written by hand write the same columns into the same table, because an insert costs
// more in a larger table. They check nothing that can go wrong.

// handEach is a transaction for every message, as in programs without batches.
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

// digests returns the sorted ids of keys.
func digests(keys []string) (byID map[[16]byte]string, ids [][16]byte) {
	byID, ids = make(map[[16]byte]string, len(keys)), make([][16]byte, len(keys))
	for i, key := range keys {
		ids[i] = digest(key)
		byID[ids[i]] = key
	}
	slices.SortFunc(ids, func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) })
	return byID, ids
}

// handBatch is for PostgreSQL: one INSERT for the records, and one for the effects of the new ones.
func (g *ground) handBatch(ctx context.Context, _ int, keys []string) {
	byID, ids := digests(keys)
	g.inTx(ctx, func(tx *sql.Tx) {
		g.effect.many(ctx, tx, selected(ctx, tx, g.statement("hand batch", g.name), ids,
			func(id sql.RawBytes) string { return byID[[16]byte(id)] }))
	})
}

// native accesses the tables of a ground through a pool of pgx, without database/sql.
type native struct {
	*ground
	pool *pgxpool.Pool
}

func (g *ground) native(ctx context.Context, s *harness.Setup, connections int) *native {
	cfg := must.Get(pgxpool.ParseConfig(g.server.URL))
	cfg.MaxConns = int32(connections) // there are few
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

// handBatch is [ground.handBatch] with this client.
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

// effect is the effect of a message: one row.
type effect struct {
	dialect sqladapter.Dialect
	table   string
}

var payload = strings.Repeat("0123456789abcdef", 4)

// accounts is the number of accounts over which effects are spread.
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

// many inserts the rows of a batch, in the fastest way of each engine. SQLite runs a prepared
// statement for every message: without a network, that is faster than one statement with many rows.
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

// unnested returns the statement for a batch in PostgreSQL.
func (e effect) unnested(keys []string) (text string, args []any) {
	accountsOf, payloads := make([]int32, len(keys)), make([]string, len(keys))
	for i := range keys {
		accountsOf[i], payloads[i] = int32(i%accounts), payload // below 1000
	}
	return e.insert(`SELECT m, a, p FROM unnest($1::text[], $2::int[], $3::text[]) AS b(m, a, p)`),
		[]any{keys, accountsOf, payloads}
}
