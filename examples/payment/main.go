// Payment is an API whose payments happen once, however often a client retries:
//
//	go run ./examples/payment
//	PAYMENT_SEAL_KEY=$SEAL_KEY go run ./examples/payment -dsn postgres://shop@127.0.0.1/shop
//
// Booking, record and response are one transaction of PostgreSQL, or of SQLite in a temporary file
// if there is no -dsn. The key that encrypts stored responses must outlive the process: make it
// once, with openssl rand -hex 32, and keep it. A client that has missed a response asks again with
// the same Idempotency-Key, and gets it.
package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"
	_ "modernc.org/sqlite"             // driver "sqlite"

	"github.com/onceward/onceward/sqladapter"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "address to listen on")
	dsn := flag.String("dsn", "", "PostgreSQL, as a URL; none: SQLite in a temporary file")
	flag.Parse()
	if err := run(*listen, *dsn, os.Getenv("PAYMENT_SEAL_KEY")); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(listen, dsn, sealKey string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	seal, err := readSealKey(sealKey, dsn != "")
	if err != nil {
		return err
	}
	db, dialect, closeDB, err := open(dsn)
	if err != nil {
		return err
	}
	defer closeDB()
	api, err := newAPI(ctx, db, dialect, seal)
	if err != nil {
		return err
	}
	server := &http.Server{
		Addr: listen, Handler: api, ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout: 10 * time.Second,
		// WriteTimeout is longer than a handler may take.
		WriteTimeout: 90 * time.Second, IdleTimeout: 2 * time.Minute,
	}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		// Shutdown lets clients whose payment is under way get an answer.
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		stopped <- server.Shutdown(grace)
	}()
	log.Printf("listening on http://%s with %v; try:\n"+
		"  curl -i -H 'Authorization: Bearer alice' -H 'Idempotency-Key: \"1\"' -d '{\"to\":\"bob\",\"amount\":100}' http://%[1]s/payments", listen, dialect)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}

// open returns the database, and a function that closes it and removes temporary files.
func open(dsn string) (db *sql.DB, dialect sqladapter.Dialect, done func(), err error) {
	if dsn != "" {
		db, err := sql.Open("pgx", dsn)
		if err != nil {
			return nil, 0, nil, err
		}
		return db, sqladapter.Postgres, func() { _ = db.Close() }, nil
	}
	dir, err := os.MkdirTemp("", "payment")
	if err != nil {
		return nil, 0, nil, err
	}
	// IMMEDIATE is needed because a transaction that reads first and writes later could otherwise
	// not wait for its turn. OpenSQLite instead of sql.Open: SQLite can end a transaction after a
	// failed statement, and later statements would then commit one by one.
	db, err = sqladapter.OpenSQLite("sqlite",
		"file:"+filepath.Join(dir, "shop.db")+
			"?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)")
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, 0, nil, err
	}
	return db, sqladapter.SQLite, func() { _, _ = db.Close(), os.RemoveAll(dir) }, nil
}

// readSealKey returns the key that encrypts stored responses. The key must live as long as the
// responses, because without it a retry after a restart could not be answered.
func readSealKey(text string, required bool) ([]byte, error) {
	if text == "" && !required {
		key := make([]byte, 32)
		_, _ = rand.Read(key)
		return key, nil
	}
	key, err := hex.DecodeString(text)
	if err != nil || len(key) != 32 {
		return nil, fmt.Errorf(
			"PAYMENT_SEAL_KEY must be 64 hexadecimal digits: openssl rand -hex 32")
	}
	return key, nil
}
