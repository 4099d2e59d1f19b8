package worker

import (
	"context"

	"github.com/onceward/onceward/cmd/internal/demo/ledger"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/sqladapter"
)

// runAtomic consumes with record and effect in one transaction.
func (w *worker) runAtomic(ctx context.Context) error {
	marks, err := ledger.Records(w.cfg.Topic)
	if err != nil {
		return err
	}
	return w.consume(ctx, nil, func(ctx context.Context, m *kafkaadapter.Message) error {
		victim, err := w.barrier.enter(ctx, m)
		if err != nil {
			return err
		}
		defer w.barrier.leave(m, victim)
		return w.atomically(ctx, marks, m, victim)
	})
}

// atomically is the handler that a user would write, plus the points where the demo kills it. A
// Ledger of marks has no Observer, so atomically notifies the parent's Observer itself.
func (w *worker) atomically(ctx context.Context, marks *sqladapter.Ledger, m *kafkaadapter.Message,
	victim Point) error {
	tx, err := w.ledger.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after Commit it does nothing; else the handler has failed already

	if w.cfg.Fault != SkipRecord {
		mark, err := marks.MarkTx(ctx, tx, m.ID)
		if err != nil {
			return err
		}
		if !mark.First() {
			cause, err := w.duplicate(ctx, tx, m)
			if err == nil {
				w.notify(HookClaimed,
					dedup.Event{Outcome: dedup.Duplicate, Cause: cause, Age: mark.Age})
			}
			return err
		}
		w.notify(HookClaimed, dedup.Event{Outcome: dedup.Acquired, Attempt: 1})
	}
	return w.effect(ctx, tx, m, victim, func() error {
		err := tx.Commit()
		if err == nil {
			w.notify(HookEnded, dedup.Event{State: driver.StateSucceeded, Attempt: 1})
		}
		return err
	})
}
