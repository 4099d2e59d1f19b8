package sqlpreflight_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/sqlpreflight"
)

// A program looks for settings that lose records, before its first message. It imports a driver,
// such as modernc.org/sqlite.
func ExampleRun() {
	db, err := sql.Open("sqlite", "file:shop.db") // without _txlock and busy_timeout
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	findings, err := sqlpreflight.Run(context.Background(), db,
		sqlpreflight.Config{Dialect: sqladapter.SQLite})
	if err != nil {
		log.Fatal(err) // findings has what was found before
	}
	for _, f := range findings { // the worst is the first
		fmt.Println(f.Severity, f.Code)
	}
	// It prints:
	// warning busy_timeout
	// warning txlock
}
