package sqladapter_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/onceward/onceward/sqladapter"
)

// ledger opens the database that these examples book in, and the marks in it. Your program imports
// a driver, such as modernc.org/sqlite.
func ledger(ctx context.Context) (*sql.DB, *sqladapter.Ledger) {
	dir, err := os.MkdirTemp("", "ledger")
	if err != nil {
		panic(err)
	}
	db, err := sqladapter.OpenSQLite("sqlite", "file:"+filepath.Join(dir, "ledger.db"))
	if err != nil {
		panic(err)
	}
	marks, err := sqladapter.New(sqladapter.Config{Dialect: sqladapter.SQLite, Namespace: "booking",
		Window: 8 * 24 * time.Hour})
	if err != nil {
		panic(err)
	}
	if err := marks.Migrate(ctx, db); err != nil {
		panic(err)
	}
	if _, err := db.ExecContext(ctx, `CREATE TABLE booking (amount INTEGER NOT NULL)`); err != nil {
		panic(err)
	}
	return db, marks
}

func total(ctx context.Context, db *sql.DB) (sum int) {
	if err := db.QueryRowContext(ctx,
		`SELECT coalesce(sum(amount), 0) FROM booking`).Scan(&sum); err != nil {
		panic(err)
	}
	return sum
}

// A message arrives three times. Its booking and its mark are one transaction, so it is booked
// once.
func ExampleLedger_Do() {
	ctx := context.Background()
	db, marks := ledger(ctx)
	defer func() { _ = db.Close() }()
	for range 3 {
		mark, err := marks.Do(ctx, db, "order-7", func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO booking VALUES (?)`, 100)
			return err
		})
		if err != nil {
			log.Fatal(err) // nothing is booked: receive the message again
		}
		fmt.Println("booked now:", mark.First())
	}
	fmt.Println("total:", total(ctx, db))
	// It prints:
	// booked now: true
	// booked now: false
	// booked now: false
	// total: 100
}

// A batch of messages is one transaction. The effect gets the positions of those that are new.
func ExampleLedger_DoBatch() {
	ctx := context.Background()
	db, marks := ledger(ctx)
	defer func() { _ = db.Close() }()
	amounts := []int{10, 20, 30}
	book := func(keys ...string) {
		_, err := marks.DoBatch(ctx, db, keys,
			func(ctx context.Context, tx *sql.Tx, first []int) error {
				for _, i := range first {
					if _, err := tx.ExecContext(ctx, `INSERT INTO booking VALUES (?)`,
						amounts[i]); err != nil {
						return err
					}
				}
				return nil
			})
		if err != nil {
			log.Fatal(err)
		}
	}
	book("order-1", "order-2")
	book("order-1", "order-2", "order-3") // two of them again
	fmt.Println("total:", total(ctx, db))
	// It prints:
	// total: 60
}

// In your own transaction MarkTx says whether to run the effect. SaveResultTx keeps what duplicates
// get.
func ExampleLedger_MarkTx() {
	ctx := context.Background()
	db, marks := ledger(ctx)
	defer func() { _ = db.Close() }()
	pay := func() (receipt string, err error) {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return "", err
		}
		defer func() { _ = tx.Rollback() }() // does nothing after Commit
		mark, err := marks.MarkTx(ctx, tx, "order-7")
		if err != nil {
			return "", err // sqladapter.Retryable says whether to begin again
		}
		if !mark.First() {
			return string(mark.Result), nil
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO booking VALUES (?)`, 100); err != nil {
			return "", err
		}
		if err := marks.SaveResultTx(ctx, tx, "order-7", []byte("R-1")); err != nil {
			return "", err
		}
		return "R-1", tx.Commit()
	}
	for range 2 {
		receipt, err := pay()
		fmt.Println(receipt, err)
	}
	fmt.Println("total:", total(ctx, db))
	// It prints:
	// R-1 <nil>
	// R-1 <nil>
	// total: 100
}

// Marks are kept for the window, and removed in batches after it.
func ExampleLedger_DeleteExpired() {
	ctx := context.Background()
	db, marks := ledger(ctx)
	defer func() { _ = db.Close() }()
	for {
		n, err := marks.DeleteExpired(ctx, db, 1000)
		if err != nil {
			log.Fatal(err)
		}
		if n < 1000 {
			break // call it again in a minute or so
		}
	}
	fmt.Println("done")
	// It prints:
	// done
}
