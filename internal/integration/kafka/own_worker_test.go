package kafka_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/contrib/owned"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/redisadapter"
)

const (
	ownedLease = 6 * time.Second
	ownedHold  = 10 * time.Minute
)

// ownedWorker is a process that owns its partitions. Its effects, and what is on record of them,
// are lines of a file that all processes append to.
type ownedWorker struct {
	cfg   workerConfig
	store *owned.Store
	dedup *dedup.Deduper
	lines *os.File

	mu   sync.Mutex
	done int
	held bool
}

func ownedOptions(prefix string) owned.Options {
	return owned.Options{
		Prefix: prefix + "own", Secret: []byte("a secret of the test"), Window: time.Hour,
		Hold: ownedHold, Lease: ownedLease, ExpectedKeys: 10_000,
	}
}

func workOwned(ctx context.Context, cfg workerConfig) (err error) {
	w := &ownedWorker{cfg: cfg}
	if w.lines, err = os.OpenFile(cfg.Effects, os.O_APPEND|os.O_WRONLY|os.O_CREATE,
		0o600); err != nil {
		return err
	}
	defer func() { _ = w.lines.Close() }()
	client := redis.NewClient(&redis.Options{Addr: cfg.Redis})
	defer func() { _ = client.Close() }()
	inner, err := redisadapter.New(ctx, client,
		redisadapter.Options{Prefix: cfg.Prefix + "in", WrappedBy: owned.Name})
	if err != nil {
		return err
	}
	opts := ownedOptions(cfg.Prefix)
	opts.Observer.Filtered = func(e dedup.Event) { w.say("filter", e.FilterAnswer) }
	if w.store, err = owned.New(ctx, client, inner, opts); err != nil {
		return err
	}
	w.dedup, err = dedup.New(w.store, dedup.Config{
		Namespace: "t", Window: time.Hour, LeaseTTL: 2 * time.Second, Hold: ownedHold,
		SeenOnly: true,
		Observer: dedup.Observer{Ended: func(e dedup.Event) {
			if e.State == driver.StateSucceeded {
				w.say("marked", hex.EncodeToString(e.ID[:]))
			}
		}},
	})
	if err != nil {
		return err
	}
	m := cfg.membership()
	m.rebalance = 6 * time.Second // it includes the time to give up what is owned
	err = m.consume(ctx, cfg.Client, w.config())
	over := context.WithoutCancel(ctx)
	return errors.Join(err, w.dedup.Close(over), w.store.Close(over))
}

// say appends a line at once, so that it stays when the process is killed afterwards.
func (w *ownedWorker) say(what, of string) {
	if _, err := fmt.Fprintf(w.lines, "%s %s %d\n", what, of, os.Getpid()); err != nil {
		panic(err)
	}
}

func (w *ownedWorker) config() kafkaadapter.Config {
	return kafkaadapter.Config{
		Deduper: w.dedup, Handler: w.handle,
		Own:      &kafkaadapter.Owning{Acquire: w.acquire, Partitioner: kafkaadapter.Murmur2},
		Attempts: kafkaadapter.Attempts{RetryBase: 20 * time.Millisecond, RetryMax: time.Second},
		Tuning: kafkaadapter.Tuning{Workers: 8, Drain: time.Second,
			CommitEvery: 100 * time.Millisecond},
		Observer: kafkaadapter.Observer{Delivered: sayDelivered},
	}
}

func (w *ownedWorker) acquire(ctx context.Context,
	at kafkaadapter.Assigned) (kafkaadapter.Ownership, error) {
	return w.store.Acquire(ctx, owned.Partition{
		Source: at.Group + "/" + at.Topic, Number: at.Partition, Count: at.Count,
		Mapping: "murmur2", Generation: at.Generation,
	})
}

// handle has the effect of a message. In the process that is to be killed, one handler does not
// return after its effect, so this effect never gets on record.
func (w *ownedWorker) handle(ctx context.Context, m *kafkaadapter.Message) error {
	w.mu.Lock()
	w.done++
	hold := w.cfg.Hold && !w.held && w.done > 30
	w.held = w.held || hold
	w.mu.Unlock()
	if err := backoff.Sleep(ctx, 5*time.Millisecond); err != nil {
		return err
	}
	w.say("effect", m.ID)
	if hold {
		fmt.Println("HOLDING", m.ID)
		<-make(chan struct{})
	}
	return nil
}
