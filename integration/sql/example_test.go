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

// A payment arrives three times and is booked once: the mark and the booking are one
// transaction.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db")+"?_txlock=immediate&_pragma=busy_timeout(5000)")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = db.Close() }()

	marks, err := sqladapter.New(sqladapter.Config{Dialect: sqladapter.SQLite, Namespace: "payments"})
	if err != nil {
		log.Fatal(err)
	}
	if err := marks.Migrate(ctx, db); err != nil {
		log.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, `CREATE TABLE booking (amount INTEGER)`); err != nil {
		log.Fatal(err)
	}

	for range 3 {
		first, err := book(ctx, db, marks, "evt_1", 100)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("booked now:", first)
	}
	var total int
	if err := db.QueryRowContext(ctx, `SELECT sum(amount) FROM booking`).Scan(&total); err != nil {
		log.Fatal(err)
	}
	fmt.Println("total:", total)
	// Output:
	// booked now: true
	// booked now: false
	// booked now: false
	// total: 100
}

// book is to be called again when sqladapter.Retryable(err). Only a nil error may be
// acknowledged.
func book(ctx context.Context, db *sql.DB, marks *sqladapter.Marks, event string, amount int) (bool, error) {
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
		if _, err := tx.ExecContext(ctx, `INSERT INTO booking (amount) VALUES (?)`, amount); err != nil {
			return false, err
		}
	}
	return mark.First(), tx.Commit()
}
