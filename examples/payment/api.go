package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/onceward/onceward/httpadapter"
	"github.com/onceward/onceward/sqladapter"
)

// schema works on PostgreSQL and SQLite. Two customers start with some money.
var schema = []string{
	`CREATE TABLE IF NOT EXISTS account (id text PRIMARY KEY, balance bigint NOT NULL CHECK (balance >= 0), note text NOT NULL, version bigint NOT NULL)`,
	`CREATE TABLE IF NOT EXISTS payment (id text PRIMARY KEY, sender text NOT NULL, receiver text NOT NULL, amount bigint NOT NULL)`,
	`INSERT INTO account VALUES ('alice', 1000, '', 1), ('bob', 1000, '', 1) ON CONFLICT DO NOTHING`,
}

// tokens stand for your authentication. They show which customer has sent a request.
var tokens = map[string]string{"Bearer alice": "alice", "Bearer bob": "bob"}

type api struct{ db *sql.DB }

func newAPI(ctx context.Context, db *sql.DB, dialect sqladapter.Dialect,
	seal []byte) (http.Handler, error) {
	for _, ddl := range schema {
		if _, err := db.ExecContext(ctx, ddl); err != nil {
			return nil, err
		}
	}
	marks, err := sqladapter.New(sqladapter.Config{
		Dialect: dialect, Namespace: "payments",
		Window: 72 * time.Hour, // longer than any client retries; then run marks.DeleteExpired
	})
	if err != nil {
		return nil, err
	}
	if err := marks.Migrate(ctx, db); err != nil {
		return nil, err
	}
	runner, err := marks.Runner(db)
	if err != nil {
		return nil, err
	}
	once, err := httpadapter.New(runner, customer, httpadapter.Config{
		MaxInFlight: 16, // of one customer
		Seal:        [][]byte{seal},
		Logger:      slog.Default(),
	})
	if err != nil {
		return nil, err
	}
	updates, err := httpadapter.New(runner, customer, httpadapter.Config{
		Methods:  []string{http.MethodPut},
		Optional: true, // If-Match alone updates once; the key gets a retry its answer
		// An update with the same key but another condition is another update. It gets 422, and
		// never the answer to the first condition.
		FingerprintHeaders: []string{"If-Match"},
		Seal:               [][]byte{seal},
		Logger:             slog.Default(),
	})
	if err != nil {
		return nil, err
	}
	a := &api{db: db}
	mux := http.NewServeMux()
	mux.Handle("POST /payments", once.Handler(http.HandlerFunc(a.pay)))
	mux.HandleFunc("GET /account", a.read)
	mux.Handle("PUT /account/note", updates.Handler(http.HandlerFunc(a.write)))
	return mux, nil
}

// customer returns the scope of a key: the same key from two customers makes two requests. It comes
// from authentication, never from what a client can choose. An empty one gets 401.
func customer(r *http.Request) (string, error) { return tokens[r.Header.Get("Authorization")], nil }

// pay runs once for a key. It may run again after its transaction was rolled back, so it has no
// effect outside tx.
func (a *api) pay(w http.ResponseWriter, r *http.Request) {
	// ctx is not canceled when the client leaves, because the client's retry gets the answer
	ctx := r.Context()
	from, _ := customer(r)          // never empty here: that would have been a 401
	tx, _ := sqladapter.TxFrom(ctx) // never a.db: that would be another transaction, and stay
	var in struct {
		To     string
		Amount int64
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Amount <= 0 || in.To == from {
		http.Error(w, "want another customer and a positive amount", http.StatusUnprocessableEntity)
		return
	}
	// Accounts are locked in one order: otherwise two payments between the same two accounts, in
	// opposite directions, would deadlock. (That would cost a 503, not money: the client asks
	// again.)
	move := map[string]int64{from: -in.Amount, in.To: in.Amount}
	for _, id := range ordered(from, in.To) {
		res, err := tx.ExecContext(ctx,
			`UPDATE account SET balance = balance + $1, version = version + 1 WHERE id = $2 AND balance + $1 >= 0`, move[id], id)
		if err != nil {
			unavailable(w, err)
			return
		}
		n, err := res.RowsAffected()
		if err != nil {
			unavailable(w, err)
			return
		}
		if n == 0 {
			// A 402 is final: it is stored. Everything written is rolled back, including the change
			// of the other account.
			http.Error(w, "no such account, or not enough in it", http.StatusPaymentRequired)
			return
		}
	}
	id := rand.Text()
	if _, err := tx.ExecContext(ctx, `INSERT INTO payment VALUES ($1, $2, $3, $4)`, id, from,
		in.To, in.Amount); err != nil {
		unavailable(w, err)
		return
	}
	answer(w, http.StatusCreated, map[string]any{"id": id, "to": in.To, "amount": in.Amount})
}

// unavailable ends an attempt. A 5xx is not stored: the transaction is rolled back, and the key is
// free.
func unavailable(w http.ResponseWriter, err error) {
	slog.Warn("nothing is written", "error", err)
	http.Error(w, "try again", http.StatusServiceUnavailable)
}

// read returns an account, with its version for write.
func (a *api) read(w http.ResponseWriter, r *http.Request) {
	id, _ := customer(r)
	var balance, version int64
	var note string
	err := a.db.QueryRowContext(r.Context(),
		`SELECT balance, note, version FROM account WHERE id = $1`, id).Scan(&balance,
		&note, &version)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		http.Error(w, "who are you?", http.StatusUnauthorized)
	case err != nil:
		unavailable(w, err)
	default:
		w.Header().Set("ETag", etag(version))
		answer(w, http.StatusOK, map[string]any{"id": id, "balance": balance, "note": note})
	}
}

// write changes the version that its client has read, and no newer one (If-Match, RFC 9110 section
// 13.1.1). Of two updates of the same version, one succeeds, and the other gets 412. An update that
// is sent twice writes once. But without a key, a client that has lost the answer and asks again
// gets 412 as well, and cannot know whose change the account has. With a key it gets its 204, even
// if others have written since, because the key is looked up before write compares. That section
// allows this.
func (a *api) write(w http.ResponseWriter, r *http.Request) {
	id, _ := customer(r)
	if id == "" { // the middleware has checked only requests with a key
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	condition := strings.Join(r.Header.Values("If-Match"), ",")
	// "*" matches any version: that would overwrite a note that the client has not read
	if condition == "" || condition == "*" {
		http.Error(w, "If-Match must be the ETag of GET /account", http.StatusPreconditionRequired)
		return
	}
	var in struct{ Note string }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10)).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	switch version, err := a.update(r.Context(), id, condition, in.Note); {
	case err != nil:
		unavailable(w, err)
	case version == 0:
		// This answer is final, because a version never comes back. A client that reads again makes
		// another update, with a new key.
		http.Error(w, "it has changed: read it again", http.StatusPreconditionFailed)
	default:
		w.Header().Set("ETag", etag(version)) // the version after this update, in a replay as well
		w.WriteHeader(http.StatusNoContent)
	}
}

// update writes a note if the condition holds, and returns the new version, or 0.
func (a *api) update(ctx context.Context, id, condition, note string) (int64, error) {
	var db interface {
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
		QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	} = a.db
	if tx, ok := sqladapter.TxFrom(ctx); ok { // with a key: update, record and answer are one
		db = tx
	}
	var version int64
	if err := db.QueryRowContext(ctx, `SELECT version FROM account WHERE id = $1`,
		id).Scan(&version); err != nil || !matches(condition, etag(version)) {
		return 0, err
	}
	// Somebody may have written since the read, so one statement compares and writes.
	res, err := db.ExecContext(ctx,
		`UPDATE account SET note = $1, version = version + 1 WHERE id = $2 AND version = $3`,
		note, id, version)
	if err != nil {
		return 0, err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return 0, err
	}
	return version + 1, nil
}

// matches reports whether a list of ETags contains this one. A weak one (W/"2") never matches.
func matches(list, etag string) bool {
	for one := range strings.SplitSeq(list, ",") {
		if strings.Trim(one, " \t") == etag {
			return true
		}
	}
	return false
}

func etag(version int64) string { return fmt.Sprintf("%q", fmt.Sprint(version)) }

func ordered(a, b string) []string {
	if strings.Compare(a, b) > 0 {
		a, b = b, a
	}
	return []string{a, b}
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // into memory: it is sent after it is recorded
}
