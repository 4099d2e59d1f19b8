package sqlbench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/work"
	"github.com/onceward/onceward/sqladapter"
)

// inTx runs work in a transaction of the side's own, as a program without this library does.
func (g *ground) inTx(ctx context.Context, work func(tx *sql.Tx) error) error {
	tx, err := g.db.BeginTx(ctx, &sql.TxOptions{Isolation: g.isolation})
	if err != nil {
		return fmt.Errorf("sqlbench: %w", err)
	}
	if err := work(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// effectAlone is the ceiling: the batch without a record of it.
func (g *ground) effectAlone(ctx context.Context, _ int, keys []string) error {
	return g.inTx(ctx, func(tx *sql.Tx) error { return g.effect.many(ctx, tx, keys) })
}

// effectAtOnce is the ceiling in one round trip: no handler that runs a second statement
// can do so.
func (g *ground) effectAtOnce(ctx context.Context, _ int, keys []string) error {
	return g.effect.many(ctx, g.db, keys)
}

// markAlone is the record without an effect.
func (g *ground) markAlone(ctx context.Context, _ int, keys []string) error {
	return markWith(ctx, g.db, g.marks, keys)
}

// markWith marks fresh keys, and has no effect.
func markWith(ctx context.Context, db *sql.DB, m *sqladapter.Marks, keys []string) error {
	_, err := m.DoBatch(ctx, db, keys, func(context.Context, *sql.Tx, []int) error { return nil })
	return err
}

// both is a handler per batch.
func (g *ground) both(ctx context.Context, _ int, keys []string) error {
	return g.doBatch(ctx, keys, func(ctx context.Context, tx *sql.Tx, first []string) error {
		return g.effect.many(ctx, tx, first)
	})
}

// oneByOne is a handler per message, in the transaction of the batch.
func (g *ground) oneByOne(ctx context.Context, _ int, keys []string) error {
	return g.doBatch(ctx, keys, func(ctx context.Context, tx *sql.Tx, first []string) error {
		for _, key := range first {
			if err := g.effect.single(ctx, tx, key); err != nil {
				return err
			}
		}
		return nil
	})
}

func (g *ground) doBatch(ctx context.Context, keys []string,
	effect func(ctx context.Context, tx *sql.Tx, first []string) error) error {
	marks, err := g.marks.DoBatch(ctx, g.db,
		keys, func(ctx context.Context, tx *sql.Tx, first []int) error {
			fresh := make([]string, len(first))
			for i, at := range first {
				fresh[i] = keys[at]
			}
			return effect(ctx, tx, fresh)
		})
	if err != nil {
		return err
	}
	for _, mark := range marks {
		if mark.Err != nil {
			return mark.Err
		}
	}
	return nil
}

// doEach is Do: a transaction for every message.
func (g *ground) doEach(ctx context.Context, _ int, keys []string) error {
	for _, key := range keys {
		_, err := g.marks.Do(ctx, g.db, key, func(ctx context.Context, tx *sql.Tx) error {
			return g.effect.single(ctx, tx, key)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// fenced moves the offset of the worker's own partition with every batch.
func (g *ground) fenced(workers int) work.Batch {
	next := make([]int64, workers)
	topic := harness.FreshKeys(1)[0]
	return func(ctx context.Context, worker int, keys []string) error {
		p := sqladapter.Position{Topic: "bench", TopicID: topic, Partition: int32(worker)} //nolint:gosec // a handful
		from := next[worker]
		next[worker] += int64(len(keys))
		_, err := g.fence.Do(ctx, g.db, p, from, next[worker],
			func(ctx context.Context, tx *sql.Tx, start int64) error {
				if start != from {
					return fmt.Errorf("sqlbench: the fence of %v is at %d, not %d", p, start, from)
				}
				return g.effect.many(ctx, tx, keys)
			})
		return err
	}
}

// duplicates replaces nine keys of ten by keys that are done: those of a pool that is marked
// when it is first needed.
func (g *ground) duplicates(pool int) harness.Run {
	const chunk = 200
	var done []string
	return func(ctx context.Context, t *harness.Timing) error {
		if done == nil {
			done = harness.FreshKeys(pool)
			for at := 0; at < pool; at += chunk {
				if err := g.markAlone(ctx, 0, done[at:at+chunk]); err != nil {
					return err
				}
			}
		}
		for i := range t.Keys {
			if i%10 != 0 {
				t.Keys[i] = done[(i*7919)%pool]
			}
		}
		return nil
	}
}
