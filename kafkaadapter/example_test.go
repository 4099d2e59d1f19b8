package kafkaadapter_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/sqladapter"
)

// run stands for the Consume of a driver, such as kafkasarama.Consume.
func run(kafkaadapter.Config) {}

// An id that a library of the house puts into a header of its own.
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

// Messages that cannot be processed go to a topic of their own.
func ExampleDeadLetters() {
	var d *dedup.Deduper
	var handle kafkaadapter.Handler
	var producer kafkaadapter.Producer // of a driver, such as kafkasarama.Producer
	park, err := kafkaadapter.DeadLetters(kafkaadapter.DeadLetterConfig{
		Producer: producer,
		Topic:    func(m *kafkaadapter.Message) string { return m.Topic + ".dead" },
	})
	if err != nil {
		log.Fatal(err)
	}
	run(kafkaadapter.Config{Deduper: d, Handler: handle, Park: park})
}

// Effect and record in one SQL transaction: mode Atomic. No store is needed. Messages that
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

// The same with one transaction for a batch, which is many times faster. A message that
// fails takes its batch back once; then it is alone.
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
				})
			return err
		}),
	})
}

// A row for each partition instead of one for each message: effects and fence in one SQL
// transaction. It finds redeliveries; a message that a producer has sent twice is done twice.
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
