package pgxv5_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/pgxv5"
)

// A message arrives twice. Its booking and its mark are one transaction of pgx, so it is booked
// once.
func ExampleDo() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	ledger, err := sqladapter.New(sqladapter.Config{Dialect: sqladapter.Postgres,
		Namespace: "booking"})
	if err != nil {
		log.Fatal(err)
	}
	db := stdlib.OpenDBFromPool(pool) // Migrate takes a *sql.DB
	defer func() { _ = db.Close() }()
	if err := ledger.Migrate(ctx, db); err != nil {
		log.Fatal(err)
	}
	if _, err := pool.Exec(ctx, `CREATE TABLE booking (amount bigint NOT NULL)`); err != nil {
		log.Fatal(err)
	}
	for range 2 {
		mark, err := pgxv5.Do(ctx, ledger, pool, "order-7",
			func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, `INSERT INTO booking VALUES ($1)`, 100)
				return err
			})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("booked now:", mark.First())
	}
	var total int
	if err := pool.QueryRow(ctx, `SELECT sum(amount) FROM booking`).Scan(&total); err != nil {
		log.Fatal(err)
	}
	fmt.Println("total:", total)
	// It prints:
	// booked now: true
	// booked now: false
	// total: 100
}
