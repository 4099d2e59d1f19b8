// Command atomic writes record and effect in one transaction of SQLite.
package main

import (
	"context"
	"database/sql"
	"log"
	"net/http"
	"os"
	"time"

	_ "modernc.org/sqlite"

	"github.com/onceward/onceward/httpadapter"
	"github.com/onceward/onceward/sqladapter"
)

func main() {
	db, err := sql.Open("sqlite", "file:"+os.Getenv("TEST_DB")+
		"?_txlock=immediate&_pragma=busy_timeout(30000)&_pragma=journal_mode(WAL)")
	check(err)
	ledger, err := sqladapter.New(sqladapter.Config{Dialect: sqladapter.SQLite,
		Namespace: "payments", Window: time.Hour})
	check(err)
	check(ledger.Migrate(context.Background(), db))
	_, err = db.Exec(`CREATE TABLE IF NOT EXISTS payments (id TEXT, amount INTEGER)`)
	check(err)
	run, err := ledger.Runner(db)
	check(err)
	m, err := httpadapter.New(run, httpadapter.Unscoped, httpadapter.Config{})
	check(err)
	pay := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tx, _ := sqladapter.TxFrom(r.Context())
		if _, err := tx.ExecContext(r.Context(), `INSERT INTO payments VALUES (?, 100)`,
			r.Header.Get("Idempotency-Key")); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
	})
	check(http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), m.Handler(pay)))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
