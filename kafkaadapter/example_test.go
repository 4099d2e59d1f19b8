package kafkaadapter_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/sqladapter"
)

// run stands for the Consume of a driver, such as kafkasarama.Consume.
func run(kafkaadapter.Config) {}

// A library of your company sets the id in a header of its own.
func ExampleFirstOf() {
	find := kafkaadapter.FirstOf(kafkaadapter.FromHeader("x-event-id"), kafkaadapter.DefaultID())
	var m kafkaadapter.Message
	m.SetHeaders(kafkaadapter.Headers{{"ce_source", []byte("/shop")}, {"ce_id", []byte("42")}})
	fmt.Println(find(&m))
	m.SetHeaders(append(m.Headers(), kafkaadapter.Header{Key: "X-Event-Id", Value: []byte("e-7")}))
	fmt.Println(find(&m))
	// Output:
	// /shop 42 true
	// e-7 true
}

// Messages that cannot be processed are kept in a table, and the others go on.
func ExampleConfig_park() {
	var d *dedup.Deduper
	var db *sql.DB
	run(kafkaadapter.Config{
		Deduper: d,
		Handler: func(context.Context, *kafkaadapter.Message) error {
			return dedup.Permanent(errors.New("no such account"))
		},
		Park: func(ctx context.Context, m *kafkaadapter.Message, reason error) error {
			_, err := db.ExecContext(ctx, `INSERT INTO parked (topic, part, pos, id, value, reason)
				VALUES ($1, $2, $3, $4, $5, $6)`,
				m.Topic, m.Partition, m.Offset, m.ID, m.Value, reason.Error())
			return err
		},
	})
}

// printer stands for the producer of a driver, such as that of kafkasarama.Producer.
type printer struct{}

func (printer) Send(_ context.Context, m *kafkaadapter.Message) error {
	fmt.Println("sent to", m.Topic, "because of:", m.Header(kafkaadapter.HeaderError))
	return nil
}

// Messages that cannot be processed go to a topic of their own.
func ExampleDeadLetters() {
	park, err := kafkaadapter.DeadLetters(kafkaadapter.DeadLetterConfig{
		Producer: printer{},
		Topic:    func(m *kafkaadapter.Message) string { return m.Topic + ".dead" },
	})
	if err != nil {
		log.Fatal(err)
	}
	var d *dedup.Deduper
	var handle kafkaadapter.Handler
	run(kafkaadapter.Config{Deduper: d, Handler: handle, Park: park})

	// The consumer calls it so:
	m := &kafkaadapter.Message{ID: "order-7", Topic: "orders", Partition: 3, Offset: 42}
	fmt.Println(park(context.Background(), m, errors.New("no such account")))
	// Output:
	// sent to orders.dead because of: no such account
	// <nil>
}

// Letters go back to their topic when the cause is gone. The message of a letter has failed for
// good, so it would be skipped without Replay.
func ExampleReplay() {
	ctx := context.Background()
	d, err := dedup.New(dedup.Memory(1000), dedup.Config{
		Namespace: "payments", Window: 8 * 24 * time.Hour, LeaseTTL: 30 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	letter := deadLetter(ctx, d) // received from the topic orders.dead

	again, err := kafkaadapter.Replay(ctx, d, letter)
	switch {
	case errors.Is(err, kafkaadapter.ErrSettled):
		fmt.Println("processed since")
	case err != nil:
		log.Fatal(err)
	default:
		fmt.Printf("send %s to %s\n", again.Value, again.Topic)
	}
	// Output:
	// send {"amount":100} to orders
}

// deadLetter makes the letter of a message that a consumer could not process.
func deadLetter(ctx context.Context, d *dedup.Deduper) *kafkaadapter.Message {
	m := &kafkaadapter.Message{ID: "order-7", Scope: kafkaadapter.ScopeOf("billing", "orders"),
		Topic: "orders", Value: []byte(`{"amount":100}`)}
	reason := dedup.Permanent(errors.New("no such account"))
	if _, err := dedup.Do(ctx, d, m.ID, func(context.Context) (struct{}, error) {
		return struct{}{}, reason
	}, dedup.WithScope(m.Scope)); !dedup.IsPermanent(err) {
		panic(err)
	}
	return kafkaadapter.DeadLetter("orders.dead", m, reason)
}

// Effect and record in one SQL transaction: level Atomic. No store is needed. Messages that
// cannot be processed are parked.
func ExampleConfig_transaction() {
	var db *sql.DB
	var park func(context.Context, *kafkaadapter.Message, error) error // see DeadLetters
	marks, err := sqladapter.New(sqladapter.Config{Dialect: sqladapter.Postgres,
		Namespace: "payments"})
	if err != nil {
		log.Fatal(err)
	}
	run(kafkaadapter.Config{
		Unclaimed: true,
		Handler: func(ctx context.Context, m *kafkaadapter.Message) error {
			_, err := marks.Do(ctx, db, m.ID, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO booking (event) VALUES ($1)", m.Value)
				return err
			}, dedup.WithScope(m.Scope))
			return err
		},
		Park: park,
	})
}

// The same with one transaction for a batch, which is many times faster. If a message fails, its
// batch is rolled back once. Then the message runs alone.
func ExampleAllOrNothing() {
	var db *sql.DB
	marks, err := sqladapter.New(sqladapter.Config{Dialect: sqladapter.Postgres,
		Namespace: "payments"})
	if err != nil {
		log.Fatal(err)
	}
	run(kafkaadapter.Config{
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
				}, dedup.WithScope(ms[0].Scope)) // one for all, but for letters of RetryTopics
			return err
		}),
	})
}

// A row for each partition instead of one for each message: effects and fence are in one SQL
// transaction. It detects redeliveries, but not a message that a producer has sent twice.
func ExampleRangeHandler() {
	var db *sql.DB
	fence, err := sqladapter.NewFence(sqladapter.FenceConfig{Dialect: sqladapter.Postgres,
		Group: "payments"})
	if err != nil {
		log.Fatal(err)
	}
	run(kafkaadapter.Config{
		Unclaimed: true,
		Order:     kafkaadapter.ByPartition,
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
}
