package torture_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/sqladapter"
)

// batchOf is the largest number of messages that a process puts into one transaction.
const batchOf = 200

// waiting is a delivery that waits for its batch.
type waiting struct {
	m      *delivery
	answer chan error
}

// inBatches is level Atomic with many messages in one transaction, in the order in which they came:
// batches of several processes overlap, and would deadlock if nobody sorted them.
func inBatches(e engine) func(context.Context, *worker) (handle,
	func(context.Context) error, error) {
	return func(ctx context.Context, w *worker) (handle, func(context.Context) error, error) {
		db, err := e.db(w)
		if err != nil {
			return nil, nil, err
		}
		marks, err := sqladapter.New(sqladapter.Config{Dialect: e.dialect, Namespace: namespace,
			Table: w.cfg.Prefix, Window: window})
		if err != nil {
			return nil, nil, err
		}
		b := &batches{w: w, db: db, marks: marks,
			insert: fmt.Sprintf(e.insert, sinkOf(w.cfg.Prefix)), in: make(chan waiting)}
		for range 4 {
			b.going.Go(func() { b.collect(ctx) })
		}
		h := func(_ context.Context, m *delivery) error {
			t := waiting{m, make(chan error, 1)}
			b.in <- t
			return <-t.answer
		}
		return h, func(context.Context) error {
			close(b.in)
			b.going.Wait()
			return db.Close()
		}, nil
	}
}

type batches struct {
	w      *worker
	db     *sql.DB
	marks  *sqladapter.Ledger
	insert string
	in     chan waiting
	going  sync.WaitGroup
}

// collect makes batches of what comes within a few milliseconds.
func (b *batches) collect(ctx context.Context) {
	for first := range b.in {
		all := []waiting{first}
		for limit, more := time.After(5*time.Millisecond), true; more && len(all) < batchOf; {
			select {
			case t, open := <-b.in:
				if more = open; open {
					all = append(all, t)
				}
			case <-limit:
				more = false
			}
		}
		b.handle(ctx, all)
	}
}

func (b *batches) handle(ctx context.Context, all []waiting) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	calls, keys := make([]record, len(all)), make([]string, len(all))
	for i, t := range all {
		calls[i] = record{kind: called, op: opMark, run: b.w.ledger.next(), message: t.m.message,
			delivery: t.m.number}
		keys[i] = t.m.key()
	}
	b.w.ledger.write(calls...)
	marks, err := b.marks.DoBatch(ctx, b.db,
		keys, func(ctx context.Context, tx *sql.Tx, first []int) error {
			for _, i := range first {
				m := all[i].m
				if err := b.w.effect(m, func(run uint64) error {
					_, err := tx.ExecContext(ctx, b.insert, m.message, b.w.cfg.Child, int64(run))
					return err
				}); err != nil {
					return err
				}
			}
			return nil
		})
	for i, t := range all {
		each := err
		calls[i].kind, calls[i].at, calls[i].flags = answered, 0, bit(t.m.ran.Load(), flagRan)
		if err == nil {
			each = marks[i].Err
		}
		switch {
		case each != nil:
			calls[i].code = saidUnknown
		case marks[i].Outcome == dedup.Duplicate:
			calls[i].code = saidDuplicate
		case marks[i].First():
			calls[i].code = saidAcquired
		}
		b.w.ledger.write(calls[i])
		t.answer <- each
	}
}

// deadlocks counts the transactions that a database has aborted because of a deadlock and that
// nobody has repeated.
func deadlocks(*conductor, *servers, int) []*nemesis {
	return []*nemesis{{
		name: "batches", code: strikeFull, whole: true, begin: func(*conductor) {},
		end: func(c *conductor) {
			for why, n := range c.refused {
				if strings.Contains(strings.ToLower(why), "deadlock") {
					c.counted["deadlocks"] += n
				}
			}
		},
	}}
}
