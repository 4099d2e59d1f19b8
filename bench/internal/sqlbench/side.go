package sqlbench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/work"
	"github.com/onceward/onceward/sqladapter"
)

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

// effectAtOnce is the ceiling in one round trip: no handler that runs a second statement
// can do so.
func (g *ground) effectAtOnce(ctx context.Context, _ int, keys []string) {
	g.effect.many(ctx, g.db, keys)
}

// markAlone is the record without an effect.
func (g *ground) markAlone(ctx context.Context, _ int, keys []string) { g.mark(ctx, g.marks, keys) }

// mark marks fresh keys, and has no effect.
func (g *ground) mark(ctx context.Context, m *sqladapter.Marks, keys []string) {
	must.Get(m.DoBatch(ctx, g.db, keys, func(context.Context, *sql.Tx, []int) error { return nil }))
}

// fill marks n fresh keys.
func (g *ground) fill(ctx context.Context, m *sqladapter.Marks, n int) {
	workers := 4
	if g.server.Dialect == sqladapter.SQLite {
		workers = 1
	}
	work.InBatches(workers, typical, func(ctx context.Context, _ int, keys []string) {
		g.mark(ctx, m, keys)
	})(ctx, &harness.Timing{Keys: harness.FreshKeys(n)})
}

// both is a handler per batch.
func (g *ground) both(ctx context.Context, _ int, keys []string) {
	g.doBatch(ctx, keys, func(ctx context.Context, tx *sql.Tx, first []string) {
		g.effect.many(ctx, tx, first)
	})
}

// oneByOne is a handler per message, in the transaction of the batch.
func (g *ground) oneByOne(ctx context.Context, _ int, keys []string) {
	g.doBatch(ctx, keys, func(ctx context.Context, tx *sql.Tx, first []string) {
		for _, key := range first {
			g.effect.single(ctx, tx, key)
		}
	})
}

func (g *ground) doBatch(ctx context.Context, keys []string,
	effect func(ctx context.Context, tx *sql.Tx, first []string)) {
	for _, mark := range must.Get(g.marks.DoBatch(ctx, g.db, keys,
		func(ctx context.Context, tx *sql.Tx, first []int) error {
			return must.Try(func() { effect(ctx, tx, chosen(keys, first)) })
		})) {
		must.Do(mark.Err)
	}
}

// chosen are the keys at these indices.
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
		p := sqladapter.Position{Topic: "bench", TopicID: topic, Partition: int32(worker)} //nolint:gosec // a handful
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
	const chunk = 200
	var done []string
	return func(ctx context.Context, t *harness.Timing) {
		if done == nil {
			done = harness.FreshKeys(pool)
			work.InBatches(1, chunk, g.markAlone)(ctx, &harness.Timing{Keys: done})
		}
		for i := range t.Keys {
			if i%10 != 0 {
				t.Keys[i] = done[(i*7919)%pool]
			}
		}
	}
}
