package sql_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/sqlstore"
)

// claimsDB is a store in a database of its own.
func claimsDB(ctx context.Context) (*sqlstore.Store, func()) {
	db, err := sql.Open("sqlite", "file::memory:")
	if err != nil {
		panic(err)
	}
	db.SetMaxOpenConns(1) // of SQLite: there is one writer, and one memory
	store, err := sqlstore.New(db, sqlstore.Options{Dialect: sqladapter.SQLite})
	if err != nil {
		panic(err)
	}
	if err := store.Migrate(ctx); err != nil { // or by your own tool: see Store.Migrations
		panic(err)
	}
	return store, func() { _ = db.Close() }
}

// The record is in a database, and the effect is not: a request to a gateway, a mail. Every
// process that has the table shares its claims.
func Example_sqlstore() {
	ctx := context.Background()
	store, done := claimsDB(ctx)
	defer done()
	payments, err := dedup.New(store,
		dedup.Config{Namespace: "payments", Window: 72 * time.Hour, LeaseTTL: 30 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		res, err := dedup.DoResult(ctx, payments, "order 4711",
			func(context.Context) (string, error) {
				fmt.Println("charging")
				return "receipt 1", nil
			})
		fmt.Println(res.Value, res.Outcome, err)
	}
	swept, err := store.Sweep(ctx, 500) // or RunSweeper, in a goroutine of yours
	fmt.Println(swept, err)
	// Output:
	// charging
	// receipt 1 acquired <nil>
	// receipt 1 duplicate <nil>
	// {0 0 0} <nil>
}
