package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/onceward/onceward/cmd/internal/demo/ledger"
)

// reachTime bounds how long a real server may take to answer the first question.
const reachTime = 5 * time.Second

// backends are the servers of a run, embedded or real.
type backends struct {
	kafka   []string
	redis   []string
	place   ledger.Place
	session time.Duration // of the consumer group
	run     string        // names what this run makes
	// kafkaName, redisName and ledgerName are for people.
	kafkaName, redisName, ledgerName string

	closers []func()
}

// openBackends asks the real servers whether they are there, and only then starts the
// embedded ones.
func openBackends(ctx context.Context, o Options) (*backends, error) {
	if err := reach(ctx, o); err != nil {
		return nil, err
	}
	b := &backends{run: strings.ToLower(rand.Text()[:8])}
	steps := []func(Options) error{b.openKafka, b.openRedis, b.openLedger}
	for _, step := range steps {
		if err := step(o); err != nil {
			b.close()
			return nil, err
		}
	}
	return b, nil
}

func (b *backends) close() {
	for i := len(b.closers) - 1; i >= 0; i-- {
		b.closers[i]()
	}
}

func (b *backends) openKafka(o Options) error {
	if o.Kafka != nil {
		// 6 s is the least that a broker takes unless it is configured otherwise.
		b.kafka, b.kafkaName, b.session = o.Kafka, strings.Join(o.Kafka, ","), 6*time.Second
		return nil
	}
	c, err := kfake.NewCluster(kfake.NumBrokers(3),
		kfake.GroupMinSessionTimeout(200*time.Millisecond))
	if err != nil {
		return fmt.Errorf("start the embedded broker: %w", err)
	}
	b.closers = append(b.closers, c.Close)
	b.kafka, b.kafkaName, b.session = c.ListenAddrs(), "embedded (kfake, 3 brokers)", time.Second
	return nil
}

func (b *backends) openRedis(o Options) error {
	if o.Redis != nil {
		b.redis, b.redisName = o.Redis, strings.Join(o.Redis, ",")
		return nil
	}
	m := miniredis.NewMiniRedis()
	if err := m.StartAddr("127.0.0.1:0"); err != nil {
		return fmt.Errorf("start the embedded Redis: %w", err)
	}
	// miniredis has no clock of its own: somebody has to let its keys age.
	ticker, stop := time.NewTicker(10*time.Millisecond), make(chan struct{})
	go func() {
		last := time.Now()
		for {
			select {
			case now := <-ticker.C:
				m.FastForward(now.Sub(last))
				last = now
			case <-stop:
				return
			}
		}
	}()
	b.closers = append(b.closers, func() { ticker.Stop(); close(stop); m.Close() })
	b.redis, b.redisName = []string{m.Addr()}, "embedded (miniredis)"
	return nil
}

func (b *backends) openLedger(o Options) error {
	b.place = ledger.Place{Postgres: o.Postgres, Table: "onceward_demo_" + b.run}
	if o.Postgres != "" {
		b.ledgerName = "PostgreSQL, table " + b.place.Table
		return nil
	}
	dir, err := os.MkdirTemp("", "onceward-demo-")
	if err != nil {
		return fmt.Errorf("make room for the ledger: %w", err)
	}
	if !o.Keep {
		b.closers = append(b.closers, func() { _ = os.RemoveAll(dir) })
	}
	b.place.File = filepath.Join(dir, "ledger.db")
	b.ledgerName = "embedded (SQLite)"
	return nil
}

// reach makes sure that every named server answers. The error is one line and names it.
func reach(ctx context.Context, o Options) error {
	ctx, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	if o.Kafka != nil {
		if err := reachKafka(o.Kafka); err != nil {
			return fmt.Errorf("--kafka %s: %w", strings.Join(o.Kafka, ","), err)
		}
	}
	if o.Redis != nil {
		if err := reachRedis(ctx, o.Redis); err != nil {
			return fmt.Errorf("--redis %s: %w", strings.Join(o.Redis, ","), err)
		}
	}
	if o.Postgres != "" {
		if err := reachPostgres(ctx, o.Postgres); err != nil {
			return fmt.Errorf("--postgres: %s", strings.ReplaceAll(err.Error(), "\n", " "))
		}
	}
	return nil
}

func reachKafka(addrs []string) error {
	c := sarama.NewConfig()
	c.Net.DialTimeout, c.Net.ReadTimeout = reachTime, reachTime
	c.Metadata.Retry.Max = 0
	client, err := sarama.NewClient(addrs, c)
	if errors.Is(err, sarama.ErrOutOfBrokers) {
		return fmt.Errorf("no Kafka broker answers: %w", errors.Unwrap(err))
	}
	if err != nil {
		return err
	}
	return client.Close()
}

func reachRedis(ctx context.Context, addrs []string) error {
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addrs, MaxRetries: -1,
		DialerRetries: 1})
	defer client.Close() //nolint:errcheck // it only asked
	return client.Ping(ctx).Err()
}

func reachPostgres(ctx context.Context, address string) error {
	l, err := ledger.Open(ledger.Place{Postgres: address})
	if err != nil {
		return err
	}
	return errors.Join(l.DB.PingContext(ctx), l.Close())
}
