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
	d, err := dedup.New(w.broken(store), dedup.Config{
		Namespace: w.cfg.Namespace,
		Window:    w.cfg.Window,
		LeaseTTL:  w.cfg.Lease,
		Observer: telemetry.Join(w.observer(), dedup.Observer{
			Ended:      func(e dedup.Event) { w.barrier.leave(barrierKey(e.ID)) },
			LeaseLost:  w.leaseLost,
			StoreError: func(e dedup.Event) { w.send(Event{Kind: Warning, Text: e.Err.Error()}) },
		}),
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	cfg := w.adapterConfig(w.claimed)
	cfg.Deduper = d
	err = w.consume(ctx, cfg)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	return errors.Join(err, d.Close(closing))
}

// claimed runs the effect of a claimed message. When it returns nil, the adapter records the
// message. The Deduper tells the barrier when that record is confirmed.
func (w *worker) claimed(ctx context.Context, m *kafkaadapter.Message) error {
	id, err := driver.NewID(w.cfg.Namespace, m.Scope, m.ID)
	if err != nil {
		return dedup.Permanent(err)
	}
	key := barrierKey(id)
	victim, err := w.barrier.enter(ctx, key)
	if err != nil {
		return err
	}
	w.stand(victim, BeforeEffect, m.ID)
	if !w.faulty() {
		// A canceled insert may still have landed. To record "failed" would then be wrong, and the
		// effect would run again.
		err := w.ledger.Append(context.WithoutCancel(ctx), w.ledger.DB, string(Claimed),
			w.row(m, m.ID))
		if err != nil {
			w.barrier.failed(key, victim)
			return err
		}
	}
	w.send(Event{Kind: Effected, ID: m.ID})
	w.stand(victim, AfterEffect, m.ID)
	return nil
}

func (w *worker) leaseLost(e dedup.Event) {
	w.barrier.leave(barrierKey(e.ID))
	w.send(Event{Kind: LeaseLost})
}

func barrierKey(id driver.ID) string { return string(id[:]) }

// broken wraps the store of a worker with a fault, which the demo must detect. With SkipRecord, the
// store reports every success as written, but writes none.
func (w *worker) broken(s dedup.Store) dedup.Store {
	if w.cfg.Fault != SkipRecord {
		return s
	}
	return forgetful{s}
}

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
