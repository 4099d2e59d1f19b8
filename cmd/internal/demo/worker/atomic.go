package worker

import (
	"context"
	"fmt"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/sqladapter"
)

// runAtomic consumes with record and effect in one transaction.
func (w *worker) runAtomic(ctx context.Context) error {
	marks, err := w.ledger.Marks(w.cfg.Namespace)
	if err != nil {
		return err
	}
	cfg := w.adapterConfig(func(ctx context.Context, m *kafkaadapter.Message) error {
		key := fmt.Sprintf("%d/%d", m.Partition, m.Offset)
		victim, err := w.barrier.enter(ctx, key)
		if err != nil {
			return err
		}
		defer w.barrier.leave(key)
		first, err := w.atomically(ctx, marks, m, victim)
		if victim != "" { // a victim that is still alive had a duplicate, or failed
			w.barrier.failed(key, victim)
		}
		if err == nil && first {
			w.send(Event{Kind: Effected, ID: m.ID})
		}
		return err
	})
	cfg.Unclaimed = true
	return w.consume(ctx, cfg)
}

// atomically is the handler that a user would write, plus the points where the demo kills it. A
// Ledger of marks has no Observer, so atomically notifies the parent's Observer itself. It reports
// whether the message was the first of its id.
func (w *worker) atomically(ctx context.Context, marks *sqladapter.Ledger, m *kafkaadapter.Message,
	victim Point) (bool, error) {
	tx, err := w.ledger.DB.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback() //nolint:errcheck // after Commit it does nothing; else the handler has failed already

	if w.cfg.Fault != SkipRecord {
		mark, err := marks.MarkTx(ctx, tx, m.ID)
		if err != nil {
			return false, err
		}
		if !mark.First() {
			cause, err := w.whyDuplicate(ctx, tx, m, m.ID)
			if err != nil {
				return false, err
			}
			w.send(Event{Kind: Skipped, ID: m.ID, Cause: cause})
			w.notify(HookClaimed,
				dedup.Event{Outcome: dedup.Duplicate, Cause: cause, Age: mark.Age})
			return false, nil
		}
		w.notify(HookClaimed, dedup.Event{Outcome: dedup.Acquired, Attempt: 1})
	}
	w.stand(victim, BeforeEffect, m.ID)
	if !w.faulty() {
		if err := w.ledger.Append(ctx, tx, string(Atomic),
			w.row(m, m.ID)); err != nil {
			return false, err
		}
	}
	if err := tx.Commit(); err != nil {
		return false, err
	}
	w.notify(HookEnded, dedup.Event{State: driver.StateSucceeded, Attempt: 1})
	w.stand(victim, AfterEffect, m.ID)
	return true, nil
}
