package sql_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/onceward/onceward/httpadapter"
	"github.com/onceward/onceward/sqladapter"
)

// A payment over HTTP: the booking, the record of the key and the response are one transaction. The
// client asks again, and gets the response that it has missed.
func ExampleLedger_Runner() {
	ctx := context.Background()
	db, marks, done := shopDB(ctx)
	defer done()
	run, err := marks.Runner(db)
	if err != nil {
		log.Fatal(err)
	}
	once, err := httpadapter.New(run, httpadapter.Unscoped, httpadapter.Config{})
	if err != nil {
		log.Fatal(err)
	}
	pay := once.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tx, _ := sqladapter.TxFrom(r.Context()) // not db: that would be another transaction
		if _, err := tx.ExecContext(r.Context(),
			`INSERT INTO booking (amount) VALUES (100)`); err != nil {
			// is rolled back, and not kept
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprint(w, "receipt 4711")
	}))
	for range 2 {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/payments", nil)
		r.Header.Set("Idempotency-Key", `"8e03978e"`)
		w := httptest.NewRecorder()
		pay.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Body, "replayed:", w.Header().Get("Idempotent-Replayed") == "true")
	}
	printTotal(ctx, db)
	// Output:
	// 201 receipt 4711 replayed: false
	// 201 receipt 4711 replayed: true
	// total: 100
}
