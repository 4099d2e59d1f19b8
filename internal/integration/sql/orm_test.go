package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/jmoiron/sqlx"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"gorm.io/gorm"
	gormtests "gorm.io/gorm/utils/tests"
)

// Booking is a row as the libraries map it.
type Booking struct {
	bun.BaseModel `bun:"table:booking" gorm:"-"`
	Amount        int
}

// TableName is for gorm.
func (Booking) TableName() string { return "booking" }

var errDeclined = errors.New("declined")

// deliverThrice delivers a payment three times. The first time it is declined after it was
// written: the library's row goes with the mark, because both are in one transaction.
func deliverThrice(ctx context.Context, db *sql.DB,
	deliver func(decline bool) (first bool, err error)) {
	for i := range 3 {
		first, err := deliver(i == 0)
		if err != nil && !errors.Is(err, errDeclined) {
			fmt.Println("failed:", err)
			return
		}
		fmt.Println("booked now:", first, err)
	}
	printTotal(ctx, db)
}

func declined(decline bool) error {
	if decline {
		return errDeclined
	}
	return nil
}

// MarkTx takes a transaction of sqlx.
func Example_sqlx() {
	ctx := context.Background()
	db, marks, done := shopDB(ctx)
	defer done()
	x := sqlx.NewDb(db, "sqlite")
	deliverThrice(ctx, db, func(decline bool) (bool, error) {
		tx, err := x.BeginTxx(ctx, nil)
		if err != nil {
			return false, err
		}
		defer func() { _ = tx.Rollback() }()
		mark, err := marks.MarkTx(ctx, tx, "evt_1")
		if err != nil || !mark.First() {
			return false, err
		}
		if _, err := tx.NamedExecContext(ctx, `INSERT INTO booking (amount) VALUES (:amount)`,
			Booking{Amount: 100}); err != nil {
			return false, err
		}
		if err := declined(decline); err != nil {
			return false, err
		}
		return true, tx.Commit()
	})
	// Output:
	// booked now: false declined
	// booked now: true <nil>
	// booked now: false <nil>
	// total: 100
}

// MarkTx takes the *sql.Tx inside a transaction of bun. bun.Tx itself has the method, but replaces
// placeholders on its own, and fails.
func Example_bun() {
	ctx := context.Background()
	db, marks, done := shopDB(ctx)
	defer done()
	b := bun.NewDB(db, sqlitedialect.New())
	deliverThrice(ctx, db, func(decline bool) (first bool, err error) {
		err = b.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
			mark, err := marks.MarkTx(ctx, tx.Tx, "evt_1")
			if err != nil || !mark.First() {
				return err
			}
			if _, err := tx.NewInsert().Model(&Booking{Amount: 100}).Exec(ctx); err != nil {
				return err
			}
			first = !decline
			return declined(decline)
		})
		return first, err
	})
	// Output:
	// booked now: false declined
	// booked now: true <nil>
	// booked now: false <nil>
	// total: 100
}

// MarkTx takes the ConnPool of a transaction of gorm. Its dialect here is that of gorm's own tests,
// so that no other driver is needed.
func Example_gorm() {
	ctx := context.Background()
	db, marks, done := shopDB(ctx)
	defer done()
	g, err := gorm.Open(gormtests.DummyDialector{}, &gorm.Config{ConnPool: db})
	if err != nil {
		log.Fatal(err)
	}
	deliverThrice(ctx, db, func(decline bool) (first bool, err error) {
		err = g.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			mark, err := marks.MarkTx(ctx, tx.Statement.ConnPool, "evt_1")
			if err != nil || !mark.First() {
				return err
			}
			if err := tx.Create(&Booking{Amount: 100}).Error; err != nil {
				return err
			}
			first = !decline
			return declined(decline)
		})
		return first, err
	})
	// Output:
	// booked now: false declined
	// booked now: true <nil>
	// booked now: false <nil>
	// total: 100
}

// ent's driver takes the transaction that Do has begun; make a generated client with
// ent.NewClient(ent.Driver(driver)). The other libraries can also use this transaction.
func Example_ent() {
	ctx := context.Background()
	db, marks, done := shopDB(ctx)
	defer done()
	deliverThrice(ctx, db, func(decline bool) (bool, error) {
		mark, err := marks.Do(ctx, db, "evt_1", func(ctx context.Context, tx *sql.Tx) error {
			driver := entsql.NewDriver(dialect.SQLite, entsql.Conn{ExecQuerier: tx})
			query, args := entsql.Dialect(dialect.SQLite).Insert("booking").Columns(
				"amount").Values(100).Query()
			if err := driver.Exec(ctx, query, args, nil); err != nil {
				return err
			}
			return declined(decline)
		})
		return mark.First(), err
	})
	// Output:
	// booked now: false declined
	// booked now: true <nil>
	// booked now: false <nil>
	// total: 100
}

// sqlx, bun and gorm get the transaction that Do has begun: all write in this one transaction.
func Example_handedOut() {
	ctx := context.Background()
	db, marks, done := shopDB(ctx)
	defer done()
	b := bun.NewDB(db, sqlitedialect.New())
	g, err := gorm.Open(gormtests.DummyDialector{},
		&gorm.Config{ConnPool: db, SkipDefaultTransaction: true})
	if err != nil {
		log.Fatal(err)
	}
	deliverThrice(ctx, db, func(decline bool) (bool, error) {
		mark, err := marks.Do(ctx, db, "evt_1", func(ctx context.Context, tx *sql.Tx) error {
			x := &sqlx.Tx{Tx: tx, Mapper: sqlx.NewDb(db, "sqlite").Mapper}
			if _, err := x.NamedExecContext(ctx, `INSERT INTO booking (amount) VALUES (:amount)`,
				Booking{Amount: 1}); err != nil {
				return err
			}
			if _, err := b.NewInsert().Conn(tx).Model(&Booking{Amount: 20}).Exec(ctx); err != nil {
				return err
			}
			session := g.Session(&gorm.Session{NewDB: true, Context: ctx})
			session.Statement.ConnPool = tx
			if err := session.Create(&Booking{Amount: 300}).Error; err != nil {
				return err
			}
			return declined(decline)
		})
		return mark.First(), err
	})
	// Output:
	// booked now: false declined
	// booked now: true <nil>
	// booked now: false <nil>
	// total: 321
}
