package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/contrib/telemetry"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/redisadapter"
)

// closeTime bounds how long the Deduper drains after the adapter has ended.
const closeTime = 2 * time.Second

// runClaimed consumes with the lease and the record in Redis, and with the effect in the ledger.
func (w *worker) runClaimed(ctx context.Context) error {
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: w.cfg.Redis})
	defer client.Close() //nolint:errcheck // the process ends
	store, err := redisadapter.New(ctx, client, redisadapter.Options{})
	if err != nil {
		return err
	}
	var keys dedup.Store = store
	if w.cfg.Fault == SkipRecord {
		keys = forgetful{store}
	}
	left := func(e dedup.Event) { w.barrier.leave(e.ID, "") }
	d, err := dedup.New(keys, dedup.Config{
		Namespace: w.cfg.Topic, Window: Window, LeaseTTL: w.cfg.Lease,
		Observer: telemetry.Join(w.observer(), dedup.Observer{
			Ended: left,
			LeaseLost: func(e dedup.Event) {
				left(e)
				w.send(Event{Kind: LeaseLost})
			},
			StoreError: func(e dedup.Event) { w.warn(e.Err) },
		}),
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	err = w.consume(ctx, d, w.claimed)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	return errors.Join(err, d.Close(closing))
}

// claimed runs the effect of a claimed message. When it returns nil, the adapter records the
// message. The Deduper tells the barrier when that record is confirmed.
func (w *worker) claimed(ctx context.Context, m *kafkaadapter.Message) error {
	id, err := driver.NewID(w.cfg.Topic, m.Scope, m.ID)
	if err != nil {
		return dedup.Permanent(err)
	}
	victim, err := w.barrier.enter(ctx, id)
	if err != nil {
		return err
	}
	// A canceled insert may still have landed. To record "failed" would then be wrong, and the
	// effect would run again.
	err = w.effect(context.WithoutCancel(ctx), w.ledger, m, victim, nil)
	if err != nil {
		w.barrier.leave(id, victim)
	}
	return err
}

// forgetful is the store of a worker with the fault SkipRecord, which the demo must detect. It
// reports every success as written, but writes none.
type forgetful struct{ dedup.Store }

// Finish implements dedup.Store.
func (f forgetful) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	answers := make([]driver.Answer, len(changes))
	for i, c := range changes {
		answers[i] = driver.Answer{Held: true, Written: true}
		if c.State != driver.StateSucceeded {
			answers[i] = f.Store.Finish(ctx, []driver.Finish{c})[0]
		}
	}
	return answers
}
