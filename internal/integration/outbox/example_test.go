package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/sqladapter"
)

// printer is a publisher that needs no broker.
type printer struct{ done func() }

func (p printer) Publish(_ context.Context, messages []outbox.Message) []error {
	for _, m := range messages {
		id := m.Headers[len(m.Headers)-1]
		fmt.Printf("%s: %s, %s %s\n", m.Topic, m.Payload, id.Key, id.Value)
	}
	p.done()
	return nil // all of them are acknowledged
}

// A booking and its message are one transaction. A relay publishes it.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	db, err := sql.Open("sqlite",
		"file:"+filepath.Join(dir, "shop.db")+"?_txlock=immediate&_pragma=busy_timeout(5000)")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	box, err := outbox.New(outbox.Config{Dialect: outbox.SQLite})
	if err != nil {
		log.Fatal(err)
	}
	if err := box.Migrate(ctx, db); err != nil {
		log.Fatal(err)
	}
	if err := bookAndTell(ctx, db, box); err != nil {
		log.Fatal(err)
	}
	relay, err := outbox.NewRelay(outbox.RelayConfig{
		Outbox: box, DB: db, Publisher: printer{done: cancel},
		OnPark: func(_ context.Context, p outbox.Parked) {
			log.Println("not published:", p.ID, p.Reason)
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := relay.Run(ctx); err != nil { // until ctx ends
		log.Fatal(err)
	}
	lag, err := box.Lag(context.Background(), db)
	fmt.Println(lag.Pending, "left", err)
	// Output:
	// bookings: 100 EUR, onceward-id payment-42-booked
	// 0 left <nil>
}

func bookAndTell(ctx context.Context, db *sql.DB, box *outbox.Outbox) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	// after Commit it does nothing
	defer func() { _ = tx.Rollback() }()
	// the effect
	if _, err := tx.ExecContext(ctx, `CREATE TABLE booking (amount INTEGER)`); err != nil {
		return err
	}
	err = box.InsertTx(ctx, tx, outbox.Message{
		ID: "payment-42-booked", Topic: "bookings", Key: []byte("account-7"),
		Payload: []byte("100 EUR"),
	})
	if err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	box.Notify()
	return nil
}

// A delivery comes twice. The mark of its key, its booking and its message are one transaction, so
// the message is inserted once.
func ExampleDo() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	db, err := sqladapter.OpenSQLite("sqlite", "file:"+filepath.Join(dir, "shop.db"))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	ledger, err := sqladapter.New(sqladapter.Config{Dialect: sqladapter.SQLite,
		Namespace: "booking"})
	if err != nil {
		log.Fatal(err)
	}
	box, err := outbox.New(outbox.Config{Dialect: outbox.SQLite})
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(ledger.Migrate(ctx, db), box.Migrate(ctx, db)); err != nil {
		log.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, `CREATE TABLE booking (amount INTEGER)`); err != nil {
		log.Fatal(err)
	}
	for range 2 {
		mark, err := outbox.Do(ctx, box, ledger, db, "payment-42",
			func(ctx context.Context, tx *sql.Tx) ([]outbox.Message, error) {
				_, err := tx.ExecContext(ctx, `INSERT INTO booking VALUES (100)`)
				return []outbox.Message{{ID: "payment-42-booked", Topic: "bookings"}}, err
			})
		if err != nil {
			log.Fatal(err) // receive the message again
		}
		fmt.Println("booked now:", mark.First())
	}
	lag, err := box.Lag(ctx, db)
	fmt.Println(lag.Pending, "to publish", err)
	// Output:
	// booked now: true
	// booked now: false
	// 1 to publish <nil>
}
