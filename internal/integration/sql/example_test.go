package sql_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/onceward/onceward/sqladapter"
)

// shopDB is a database with a table of marks and one of bookings.
func shopDB(ctx context.Context) (*sql.DB, *sqladapter.Ledger, func()) {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	db, err := sql.Open("sqlite",
		"file:"+filepath.Join(dir, "shop.db")+"?_txlock=immediate&_pragma=busy_timeout(5000)")
	if err != nil {
		panic(err)
	}
	marks, err := sqladapter.New(sqladapter.Config{Dialect: sqladapter.SQLite,
		Namespace: "payments"})
	if err != nil {
		panic(err)
	}
	if err := marks.Migrate(ctx, db); err != nil {
		panic(err)
	}
	if _, err := db.ExecContext(ctx, `CREATE TABLE booking (amount INTEGER)`); err != nil {
		panic(err)
	}
	return db, marks, func() { _ = db.Close(); _ = os.RemoveAll(dir) }
}

func printTotal(ctx context.Context, db *sql.DB) {
	var total int
	if err := db.QueryRowContext(ctx, `SELECT sum(amount) FROM booking`).Scan(&total); err != nil {
		panic(err)
	}
	fmt.Println("total:", total)
}

// A payment arrives three times and is booked once: the mark and the booking are one
// transaction, which is the caller's own.
func Example() {
	ctx := context.Background()
	db, marks, done := shopDB(ctx)
	defer done()
	for range 3 {
		first, err := book(ctx, db, marks, "evt_1", 100)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("booked now:", first)
	}
	printTotal(ctx, db)
	// Output:
	// booked now: true
	// booked now: false
	// booked now: false
	// total: 100
}

// The same with a transaction that is begun, repeated when it must be, and committed by Do.
func Example_do() {
	ctx := context.Background()
	db, marks, done := shopDB(ctx)
	defer done()
	for range 3 {
		mark, err := marks.Do(ctx, db, "evt_1", func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO booking (amount) VALUES (100)`)
			return err
		})
		if err != nil {
			log.Fatal(err) // do not acknowledge
		}
		fmt.Println(mark.Outcome)
	}
	printTotal(ctx, db)
	// Output:
	// acquired
	// duplicate
	// duplicate
	// total: 100
}

// A batch is one transaction. It leaves out each key that cannot be marked, and the mark says so.
func Example_doBatch() {
	ctx := context.Background()
	db, marks, done := shopDB(ctx)
	defer done()
	ids, amounts := []string{"evt_1", "evt_2", "evt_1", ""}, []int{100, 20, 100, 3}
	result, err := marks.DoBatch(ctx, db,
		ids, func(ctx context.Context, tx *sql.Tx, first []int) error {
			for _, i := range first {
				if _, err := tx.ExecContext(ctx, `INSERT INTO booking (amount) VALUES (?)`,
					amounts[i]); err != nil {
					return err
				}
			}
			return nil
		})
	if err != nil {
		log.Fatal(err) // acknowledge none of them
	}
	for _, mark := range result {
		fmt.Println(mark.Outcome, mark.Err)
	}
	printTotal(ctx, db)
	// Output:
	// acquired <nil>
	// acquired <nil>
	// duplicate <nil>
	// unknown sqladapter: dedup: key is empty
	// total: 120
}

// book is to be called again when sqladapter.Retryable(err). Only a nil error may be
// acknowledged.
func book(ctx context.Context, db *sql.DB, marks *sqladapter.Ledger, event string,
	amount int) (bool, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	mark, err := marks.MarkTx(ctx, tx, event)
	if err != nil {
		return false, err
	}
	if mark.First() {
		if _, err := tx.ExecContext(ctx, `INSERT INTO booking (amount) VALUES (?)`,
			amount); err != nil {
			return false, err
		}
	}
	return mark.First(), tx.Commit()
}
