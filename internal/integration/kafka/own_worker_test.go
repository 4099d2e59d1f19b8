package kafka_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/contrib/owned"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/franz"
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
	opts.Observer.Filtered = func(e dedup.Event) { w.say("verdict", e.FilterAnswer) }
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
	run := w.sarama
	if cfg.Client == "franz" {
		run = w.franz
	}
	err = run(ctx)
	over := context.WithoutCancel(ctx)
	return errors.Join(err, w.dedup.Close(over), w.store.Close(over))
}

// say appends a line at once: a process that is killed afterwards has said it.
func (w *ownedWorker) say(what, of string) {
	if _, err := fmt.Fprintf(w.lines, "%s %s %d\n", what, of, os.Getpid()); err != nil {
		panic(err)
	}
}

// own is what a Config.Own is made of.
func (w *ownedWorker) own(ctx context.Context, group, topic string, number, count,
	generation int32) (*owned.Ownership, error) {
	return w.store.Acquire(ctx, owned.Partition{
		Source: group + "/" + topic, Number: number, Count: count, Mapping: "murmur2",
		Generation: generation,
	})
}

func (w *ownedWorker) sarama(ctx context.Context) error {
	client := clientConfig()
	commits, err := sarama.NewClient(w.cfg.Brokers, clientConfig())
	if err != nil {
		return err
	}
	defer func() { _ = commits.Close() }()
	a, err := kafkaadapter.New(kafkaadapter.Config{
		Deduper: w.dedup, Group: w.cfg.Group, CommitClient: commits,
		Partitioner: kafkaadapter.Murmur2,
		Own: func(ctx context.Context, at kafkaadapter.Assigned) (kafkaadapter.Ownership, error) {
			return w.own(ctx, at.Group, at.Topic, at.Partition, at.Count, at.Generation)
		},
		Handler: func(ctx context.Context, m *kafkaadapter.Message) error {
			return w.handle(ctx, m.ID)
		},
		Workers: 8, Drain: time.Second, CommitEvery: 100 * time.Millisecond,
		RetryBase: 20 * time.Millisecond, RetryMax: time.Second,
		Observer: kafkaadapter.Observer{Delivered: func(m *sarama.ConsumerMessage) {
			fmt.Printf("DELIVERED %d %d\n", m.Partition, m.Offset)
		}},
	})
	if err != nil {
		return err
	}
	if err := a.CheckConfig(client); err != nil {
		return err
	}
	group, err := sarama.NewConsumerGroup(w.cfg.Brokers, w.cfg.Group, client)
	if err != nil {
		return err
	}
	return errors.Join(a.Run(ctx, group, []string{w.cfg.Topic}), group.Close())
}

func (w *ownedWorker) franz(ctx context.Context) error {
	c, err := franz.New(franz.Config{
		Deduper: w.dedup, Partitioner: franz.Murmur2,
		Own: func(ctx context.Context, at franz.Assigned) (franz.Ownership, error) {
			return w.own(ctx, at.Group, at.Topic, at.Partition, at.Count, at.Generation)
		},
		Handler: func(ctx context.Context, m *franz.Message) error { return w.handle(ctx, m.ID) },
		Workers: 8, Drain: time.Second, CommitEvery: 100 * time.Millisecond,
		RetryBase: 20 * time.Millisecond, RetryMax: time.Second,
		Observer: franz.Observer{Delivered: func(r *kgo.Record) {
			fmt.Printf("DELIVERED %d %d\n", r.Partition, r.Offset)
		}},
	})
	if err != nil {
		return err
	}
	return c.Run(ctx, kgo.SeedBrokers(w.cfg.Brokers...), kgo.ConsumerGroup(w.cfg.Group),
		kgo.ConsumeTopics(w.cfg.Topic),
		kgo.Balancers(kgo.CooperativeStickyBalancer()), kgo.FetchMaxWait(100*time.Millisecond),
		kgo.HeartbeatInterval(250*time.Millisecond), kgo.SessionTimeout(1500*time.Millisecond),
		kgo.RebalanceTimeout(6*time.Second))
}

// handle has the effect of a message. The process that is to be killed has one, and does not
// return: it is neither on record nor to be.
func (w *ownedWorker) handle(ctx context.Context, id string) error {
	w.mu.Lock()
	w.done++
	hold := w.cfg.Hold && !w.held && w.done > 30
	w.held = w.held || hold
	w.mu.Unlock()
	if err := backoff.Sleep(ctx, 5*time.Millisecond); err != nil {
		return err
	}
	w.say("effect", id)
	if hold {
		fmt.Println("HOLDING", id)
		<-make(chan struct{})
	}
	return nil
}
