package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/contrib/telemetry/kafkatrace"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/redisadapter"
)

// tracedMember is a member of a group that passes its spans to tell. It runs in a process of its
// own or in that of the test.
type tracedMember struct {
	workerConfig
	tell   func(spanSeen)
	handle kafkaadapter.Handler
	batch  kafkaadapter.BatchHandler // instead of handle
	failed func(err error)           // gets the errors of commits
	// sends no heartbeat during the test, so that a commit tells it that it is fenced
	unheard bool
	// called before anything is put on record
	finishes func()
}

// tracedSession is long: no story needs a session that ends, and none must end because the machine
// is slow.
const tracedSession = 30 * time.Second

// workTraced runs a member in a process of its own. With cfg.Hold it waits between an effect and
// its record, to be killed there.
func workTraced(ctx context.Context, cfg workerConfig) error {
	m := &tracedMember{workerConfig: cfg, tell: saySpan,
		handle: func(context.Context, *kafkaadapter.Message) error { return nil }}
	if cfg.Hold {
		m.finishes = func() {
			fmt.Println("HOLDING before the record")
			<-make(chan struct{})
		}
	}
	return m.run(ctx)
}

// finishing is a store that calls a hook before each Finish.
type finishing struct {
	dedup.Store
	before func()
}

func (f finishing) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	f.before()
	return f.Store.Finish(ctx, changes)
}

func (m *tracedMember) run(ctx context.Context) error {
	client := redis.NewClient(&redis.Options{Addr: m.Redis})
	defer func() { _ = client.Close() }()
	records, err := redisadapter.New(ctx, client, redisadapter.Options{Prefix: m.Prefix})
	if err != nil {
		return err
	}
	cfg := dedup.Config{Namespace: "t", Window: time.Hour, LeaseTTL: 30 * time.Second,
		Hold: 10 * time.Minute, Labels: true}
	var store dedup.Store = records
	if m.finishes != nil {
		// the next process waits for this lease
		store, cfg.LeaseTTL = finishing{store, m.finishes}, 2*time.Second
	}
	d, err := dedup.New(store, cfg)
	if err != nil {
		return err
	}
	tracer, err := kafkatrace.New(spanForwarder{m.By, m.tell}.provider(),
		kafkatrace.Config{Name: "payments", Group: m.Group})
	if err != nil {
		return err
	}
	at := m.membership()
	at.name, at.instance, at.eager = m.By, m.Instance, m.Instance != ""
	at.session, at.rebalance, at.heartbeat = m.session(), tracedSession, m.heartbeat()
	err = at.consume(ctx, m.Client, tracer.Trace(m.config(d)))
	return errors.Join(err, d.Close(context.WithoutCancel(ctx)))
}

// heartbeat returns the interval of heartbeats. A member with unheard sends its first one after the
// test. If a heartbeat told franz-go that it is fenced, it would join again and drop the offsets
// that it had to commit, and no commit would be refused.
func (m *tracedMember) heartbeat() time.Duration {
	if m.unheard {
		return 4 * tracedSession
	}
	return 100 * time.Millisecond
}

func (m *tracedMember) session() time.Duration {
	if m.unheard {
		return 5 * tracedSession
	}
	return tracedSession
}

func (m *tracedMember) config(d *dedup.Deduper) kafkaadapter.Config {
	cfg := kafkaadapter.Config{
		Deduper: d, Handler: m.handle, BatchHandler: m.batch,
		Attempts: kafkaadapter.Attempts{RetryBase: 20 * time.Millisecond,
			RetryMax: 100 * time.Millisecond},
		Tuning: kafkaadapter.Tuning{Drain: 200 * time.Millisecond,
			CommitEvery: 50 * time.Millisecond},
	}
	if m.batch != nil {
		cfg.Handler = nil
	}
	if m.failed != nil {
		cfg.Observer.CommitFailed = func(_ string, _ int32, err error) { m.failed(err) }
	}
	return cfg
}
