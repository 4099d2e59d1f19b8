package sqlbench

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"text/template"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/bench/internal/work"
	"github.com/onceward/onceward/sqladapter"
)

// ground is what the sides of a workload share: a pool, and new tables with names of their own.
type ground struct {
	server    *server.Database
	db        *sql.DB
	isolation sql.IsolationLevel
	name      string // that tables begin with
	effect    effect
	marks     *sqladapter.Ledger
	fence     *sqladapter.Fence
}

// window of the marks. A round trip of the sweeper counts in steps of 1024 ms.
const window = time.Hour

// open makes the tables for the time of a setup. Of MySQL the least level is taken that is right,
// as its documentation says; elsewhere it is the default.
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

// statement is that of a name, for a table, in the dialect of the server.
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

// close drops what is there by name: generations have tables that only they know.
func (g *ground) close(ctx context.Context) (err error) {
	cascade := "" // to the view that generations have
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

// selected are the values of a query's only column.
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

func (e *env) size(all *harness.Groups, s *server.Database) {
	title, n, goal := s.Name+", bytes per key", e.fill/4, harness.Goal("")
	if s.Dialect == sqladapter.Postgres {
		n, goal = e.fill, "<= 101 B (stretch 80 B)"
	}
	all.Add("bytes per key", n, title, func(ctx context.Context, setup *harness.Setup) {
		g := open(ctx, setup, s, 4)
		bytes := func() (total float64) {
			must.Do(g.db.QueryRowContext(ctx, g.statement("size", g.name)).Scan(&total))
			return total
		}
		before := bytes()
		g.fill(ctx, g.marks, n)
		setup.Figure(fmt.Sprintf("%s, table and indexes, %d keys in batches of %d", title, n,
			typical), s.Name, (bytes()-before)/float64(n), "B/key").Wants(goal)
	})
}

// inTx runs work in a transaction of the side's own, as a program without this library does.
func (g *ground) inTx(ctx context.Context, work func(tx *sql.Tx)) {
	tx := must.Get(g.db.BeginTx(ctx, &sql.TxOptions{Isolation: g.isolation}))
	if err := must.Try(func() { work(tx) }); err != nil {
		must.Do(errors.Join(err, tx.Rollback()))
	}
	must.Do(tx.Commit())
}

// effectAlone is the ceiling: the batch without a record of it.
func (g *ground) effectAlone(ctx context.Context, _ int, keys []string) {
	g.inTx(ctx, func(tx *sql.Tx) { g.effect.many(ctx, tx, keys) })
}

// effectAtOnce is the ceiling in one round trip: no handler that runs a second statement can do so.
func (g *ground) effectAtOnce(ctx context.Context, _ int, keys []string) {
	g.effect.many(ctx, g.db, keys)
}

// marking is the record without an effect.
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
	work.InBatches(workers, typical, g.marking(m))(ctx,
		&harness.Timing{Keys: harness.FreshKeys(n)})
}

// both is a handler per batch.
func (g *ground) both() work.Batch { return g.inBatch(g.effect.many) }

// oneByOne is a handler per message, in the transaction of the batch.
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

// doEach is Do: a transaction for every message.
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
		partition := int32(worker) // a handful
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

// duplicates replaces nine keys of ten by keys that are done: those of a pool that is marked
// when it is first needed.
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
