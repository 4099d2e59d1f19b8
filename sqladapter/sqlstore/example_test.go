package sqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/sqladapter/sqlstore"
)

// A mail goes out once although its event arrives twice. Claims and records are in a table. Your
// program imports a driver, such as modernc.org/sqlite.
func Example() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", "file:mail.db?_txlock=immediate&_pragma=busy_timeout(5000)")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	store, err := sqlstore.New(db, sqlstore.Options{Dialect: sqlstore.SQLite})
	if err != nil {
		log.Fatal(err)
	}
	if err := store.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	mails, err := dedup.New(store, dedup.Config{
		Namespace: "mails", Window: 72 * time.Hour, LeaseTTL: 30 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = mails.Close(ctx) }()

	for range 2 {
		_, err := dedup.Do(ctx, mails, "order-7", func(context.Context) (struct{}, error) {
			fmt.Println("sending")
			return struct{}{}, nil
		})
		fmt.Println("done:", dedup.CanAck(err))
	}
	// In a service: go store.RunSweeper(ctx, sqlstore.SweeperConfig{})
	swept, err := store.Sweep(ctx, sqlstore.DefaultSweepLimit)
	fmt.Println("expired:", swept.Removed, err)
	// It prints:
	// sending
	// done: true
	// done: true
	// expired: 0 <nil>
}
