package pgxlisten_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/outbox/pgxlisten"
)

// printer stands for the publisher of a broker, such as that of outbox/franzpub.
type printer chan outbox.Message

func (p printer) Publish(_ context.Context, messages []outbox.Message) []error {
	for _, m := range messages {
		p <- m
	}
	return nil // all are acknowledged
}

// One process inserts messages, and another one publishes them without waiting for its next poll.
// Here both are one. Your program imports github.com/jackc/pgx/v5/stdlib, the driver "pgx".
func ExampleNew() {
	ctx, stop := context.WithCancel(context.Background())
	dsn := os.Getenv("DATABASE_URL")
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	box, err := outbox.New(outbox.Config{Dialect: outbox.Postgres})
	if err != nil {
		log.Fatal(err)
	}
	if err := box.Migrate(ctx, db); err != nil {
		log.Fatal(err)
	}
	var running sync.WaitGroup

	// The process that publishes.
	listener, err := pgxlisten.New(pgxlisten.Config{Outbox: box,
		Connect: func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, dsn) }})
	if err != nil {
		log.Fatal(err)
	}
	broker := make(printer)
	relay, err := outbox.NewRelay(outbox.RelayConfig{Outbox: box, DB: db, Publisher: broker,
		OnPark: func(_ context.Context, p outbox.Parked) { log.Print(p.ID, p.Reason) }})
	if err != nil {
		log.Fatal(err)
	}
	running.Go(func() { _ = listener.Run(ctx) })
	running.Go(func() { _ = relay.Run(ctx) })

	// The process that inserts.
	notifier, err := outbox.NewNotifier(outbox.NotifierConfig{Outbox: box, DB: db})
	if err != nil {
		log.Fatal(err)
	}
	running.Go(func() { _ = notifier.Run(ctx) })
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	err = box.InsertTx(ctx, tx, outbox.Message{ID: "booked:order-7", Topic: "bookings"})
	if err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}
	box.Notify()

	m := <-broker
	fmt.Println(m.ID, m.Topic)
	stop()
	running.Wait()
	// It prints:
	// booked:order-7 bookings
}
