package kafkaadapter_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os/signal"
	"syscall"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/sqladapter"
)

func newDeduper() *dedup.Deduper {
	d, err := dedup.New(dedup.Memory(1<<20),
		dedup.Config{Namespace: "payments", Window: 8 * 24 * time.Hour, LeaseTTL: 10 * time.Second})
	if err != nil {
		panic(err)
	}
	return d
}

// A consumer that charges every order once, until it is told to end.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	brokers, cfg := []string{"localhost:9092"}, kafkaadapter.SafeConfig(nil)
	client, err := sarama.NewClient(brokers, cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	a, err := kafkaadapter.New(kafkaadapter.Config{
		Deduper:      newDeduper(), // with redisadapter instead of dedup.Memory
		Group:        "payments",
		CommitClient: client,
		Handler: func(ctx context.Context, m *kafkaadapter.Message) error {
			attempt, _ := dedup.FromContext(ctx)
			return charge(ctx, m.Value, attempt.DownstreamKey("charge"))
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := a.CheckConfig(cfg); err != nil {
		log.Fatal(err)
	}
	group, err := sarama.NewConsumerGroup(brokers, "payments", cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = group.Close() }()
	if err := a.Run(ctx, group, []string{"orders"}); err != nil {
		log.Fatal(err)
	}
}

func charge(context.Context, []byte, string) error { return nil }

// Messages that cannot be processed are kept in a table, and the others go on.
func ExampleConfig_park() {
	var db *sql.DB
	_, err := kafkaadapter.New(kafkaadapter.Config{
		Deduper: newDeduper(),
		Group:   "payments",
		Handler: func(context.Context, *kafkaadapter.Message) error {
			return dedup.Permanent(errors.New("no such account"))
		},
		Park: func(ctx context.Context, m *kafkaadapter.Message, reason error) error {
			_, err := db.ExecContext(ctx,
				"INSERT INTO parked (topic, part, pos, id, value, reason) VALUES ($1, $2, $3, $4, $5, $6)",
				m.Topic, m.Partition, m.Offset, m.ID, m.Value, reason.Error())
			return err
		},
	})
	fmt.Println(err)
	// Output: <nil>
}

// Settings under which messages would be lost are refused by name.
func ExampleAdapter_CheckConfig() {
	a, err := kafkaadapter.New(kafkaadapter.Config{
		Deduper: newDeduper(),
		Group:   "payments",
		Handler: func(context.Context, *kafkaadapter.Message) error { return nil },
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(a.CheckConfig(sarama.NewConfig()))
	fmt.Println(a.CheckConfig(kafkaadapter.SafeConfig(nil)))
	// Output:
	// dedup: sarama.Config.Consumer.Offsets.AutoCommit.Enable is on: offsets would be committed by the clock, not after the record
	// <nil>
}

// An id that a library of the house puts into a header of its own.
func ExampleFirstOf() {
	find := kafkaadapter.FirstOf(kafkaadapter.Header("x-event-id"), kafkaadapter.DefaultID())
	m := &sarama.ConsumerMessage{Headers: []*sarama.RecordHeader{
		{Key: []byte("ce_source"), Value: []byte("/shop")},
		{Key: []byte("ce_id"), Value: []byte("42")},
	}}
	fmt.Println(find(m))
	m.Headers = append(m.Headers,
		&sarama.RecordHeader{Key: []byte("X-Event-Id"), Value: []byte("e-7")})
	fmt.Println(find(m))
	// Output:
	// /shop 42 true
	// e-7 true
}

// What cannot be processed goes to a topic of its own.
func ExampleDeadLetters() {
	var brokers []string
	var d *dedup.Deduper
	var handle kafkaadapter.Handler

	cfg := sarama.NewConfig()
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Return.Successes = true
	if err := kafkaadapter.CheckProducer(cfg); err != nil {
		log.Fatal(err)
	}
	producer, err := sarama.NewSyncProducer(brokers, cfg)
	if err != nil {
		log.Fatal(err)
	}
	park, err := kafkaadapter.DeadLetters(kafkaadapter.DeadLetterConfig{
		Producer: producer,
		Topic:    func(m *kafkaadapter.Message) string { return m.Topic + ".dead" },
	})
	if err != nil {
		log.Fatal(err)
	}
	_, err = kafkaadapter.New(kafkaadapter.Config{Deduper: d, Group: "payments", Handler: handle,
		Park: park})
	if err != nil {
		log.Fatal(err)
	}
}

// A consumer of topics whose producers set no ids, whose commits go over a connection of
// their own.
func ExampleNewPositions() {
	cfg := kafkaadapter.SafeConfig(nil)
	admin, err := sarama.NewClusterAdmin([]string{"localhost:9092"}, cfg)
	if err != nil {
		log.Fatal(err)
	}
	client, err := sarama.NewClient([]string{"localhost:9092"}, cfg)
	if err != nil {
		log.Fatal(err)
	}
	exceeded, err := kafkaadapter.CheckWindow(admin, 8*24*time.Hour, "payments", "orders")
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range exceeded {
		log.Print(e)
	}
	positions, err := kafkaadapter.NewPositions(admin, "orders")
	if err != nil {
		log.Fatal(err)
	}
	_, err = kafkaadapter.New(kafkaadapter.Config{
		Deduper: newDeduper(),
		Group:   "payments",
		Handler: func(ctx context.Context, m *kafkaadapter.Message) error {
			return charge(ctx, m.Value, m.ID)
		},
		Positions:    positions,
		CommitClient: client,
	})
	if err != nil {
		log.Fatal(err)
	}
}

// Effect and record in one SQL transaction: level Atomic. No store is needed; what cannot be
// processed is parked.
func ExampleConfig_transaction() {
	var db *sql.DB
	var park func(context.Context, *kafkaadapter.Message, error) error // see DeadLetters
	marks, err := sqladapter.New(sqladapter.Config{Dialect: sqladapter.Postgres,
		Namespace: "payments"})
	if err != nil {
		log.Fatal(err)
	}
	_, err = kafkaadapter.New(kafkaadapter.Config{
		Unclaimed: true,
		Group:     "payments", // for m.Scope
		Handler: func(ctx context.Context, m *kafkaadapter.Message) error {
			_, err := marks.Do(ctx, db, m.ID, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO booking (event) VALUES ($1)", m.Value)
				return err
			}, dedup.WithScope(m.Scope))
			return err
		},
		Park: park,
	})
	fmt.Println(err)
	// Output: <nil>
}

// The same with one transaction for a batch, which is many times faster. A message that
// fails takes its batch back once; then it is alone.
func ExampleAllOrNothing() {
	var db *sql.DB
	marks, err := sqladapter.New(sqladapter.Config{Dialect: sqladapter.Postgres,
		Namespace: "payments"})
	if err != nil {
		log.Fatal(err)
	}
	_, err = kafkaadapter.New(kafkaadapter.Config{
		Unclaimed: true,
		BatchHandler: kafkaadapter.AllOrNothing(func(ctx context.Context,
			ms []*kafkaadapter.Message) error {
			_, err := marks.DoBatch(ctx, db, kafkaadapter.IDs(ms),
				func(ctx context.Context, tx *sql.Tx, first []int) error {
					for _, i := range first {
						if _, err := tx.ExecContext(ctx, "INSERT INTO booking (event) VALUES ($1)",
							ms[i].Value); err != nil {
							return err
						}
					}
					return nil
				})
			return err
		}),
	})
	fmt.Println(err)
	// Output: <nil>
}

// A row for each partition in place of one for each message: effects and fence in one SQL
// transaction. It tells redeliveries; what a producer has sent twice is done twice.
func ExampleRangeHandler() {
	var db *sql.DB
	var positions *kafkaadapter.Positions // see NewPositions
	fence, err := sqladapter.NewFence(sqladapter.FenceConfig{Dialect: sqladapter.Postgres,
		Group: "payments"})
	if err != nil {
		log.Fatal(err)
	}
	_, err = kafkaadapter.New(kafkaadapter.Config{
		Unclaimed: true,
		Order:     kafkaadapter.ByPartition,
		Positions: positions,
		RangeHandler: func(ctx context.Context, r *kafkaadapter.Range) error {
			at := sqladapter.Position{Topic: r.Topic, TopicID: r.TopicID, Partition: r.Partition}
			_, err := fence.Do(ctx, db, at, r.From, r.To,
				func(ctx context.Context, tx *sql.Tx, start int64) error {
					for _, m := range r.Since(start) {
						if _, err := tx.ExecContext(ctx, "INSERT INTO booking (event) VALUES ($1)",
							m.Value); err != nil {
							return err
						}
					}
					return nil
				})
			return err
		},
	})
	fmt.Println(err)
	// Output: dedup: kafkaadapter.Config.Positions is nil; a RangeHandler needs the topics' UUIDs: a topic that is created anew would look done
}
