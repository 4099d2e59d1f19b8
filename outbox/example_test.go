package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"github.com/onceward/onceward/outbox"
)

// printer stands for a broker. The publishers of outbox/franzpub and outbox/saramapub send to
// Kafka.
type printer chan outbox.Message

func (p printer) Publish(_ context.Context, messages []outbox.Message) []error {
	for _, m := range messages {
		p <- m
	}
	return nil // all are acknowledged
}

// The message is inserted in the transaction of the booking that it is about, and a relay publishes
// it.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	// Two connections write, this one's and the relay's: with a busy_timeout one waits for the
	// other.
	db, err := sql.Open("sqlite", "file:shop.db?_pragma=busy_timeout(5000)")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	box, err := outbox.New(outbox.Config{Dialect: outbox.SQLite})
	if err != nil {
		log.Fatal(err)
	}
	if err := box.Migrate(ctx, db); err != nil {
		log.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, `CREATE TABLE booking (amount INTEGER NOT NULL)`); err != nil {
		log.Fatal(err)
	}

	broker := make(printer)
	relay, err := outbox.NewRelay(outbox.RelayConfig{Outbox: box, DB: db, Publisher: broker,
		OnPark: func(_ context.Context, p outbox.Parked) {
			log.Print("refused for good: ", p.ID, p.Reason) // an alarm: it waits for a person
		}})
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }() // in this process or in another

	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if _, err := tx.ExecContext(ctx, `INSERT INTO booking VALUES (100)`); err != nil {
		log.Fatal(err)
	}
	err = box.InsertTx(ctx, tx, outbox.Message{ID: "booked:order-7", Topic: "bookings",
		Key: []byte("account-1"), Payload: []byte("100")})
	if err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}
	box.Notify() // the relay of this process need not wait for its next poll

	m := <-broker
	fmt.Println(m.ID, m.Topic, string(m.Payload))
	stop()
	fmt.Println(<-ended)
	// It prints:
	// booked:order-7 bookings 100
	// <nil>
}
