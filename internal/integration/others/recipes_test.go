package others_test

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/internal/redisproxy"
)

const (
	goRedis   = "github.com/redis/go-redis/v9"
	pgxModule = "github.com/jackc/pgx/v5"
)

// client is go-redis with its defaults: three retries of a command whose reply did not arrive.
func (w *worker) client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: w.cfg.Redis})
}

// setNX is the second recipe of "Idempotency: The Property Your Retries Depend On" (Jeff Straney),
// with go-redis. A caller whose SET NX is refused returns, which acknowledges the message.
func setNX(_ context.Context, w *worker) (handle, func() error, error) {
	client := w.client()
	return func(ctx context.Context, m uint32) error {
		acquired, err := client.SetNX(ctx, w.key(m), "in-progress", lease).Result()
		if err != nil || !acquired {
			return err
		}
		return runThenSet(ctx, client, w, m)
	}, client.Close, nil
}

// runThenSet is the recipe's try and catch.
func runThenSet(ctx context.Context, client *redis.Client, w *worker, m uint32) error {
	err := w.effect(m, nothing)
	if err == nil {
		err = client.Set(ctx, w.key(m), "sent", window).Err()
	}
	if err != nil {
		_ = client.Del(ctx, w.key(m)).Err()
	}
	return err
}

// setNXGet is the same recipe, but it knows that "in progress" is not "done".
func setNXGet(_ context.Context, w *worker) (handle, func() error, error) {
	client := w.client()
	return func(ctx context.Context, m uint32) error {
		acquired, err := client.SetNX(ctx, w.key(m), "in-progress", lease).Result()
		if err != nil {
			return err
		}
		if acquired {
			return runThenSet(ctx, client, w, m)
		}
		switch state, err := client.Get(ctx, w.key(m)).Result(); {
		case err != nil && !errors.Is(err, redis.Nil):
			return err
		case state == "sent":
			return nil
		}
		return errBusy
	}, client.Close, nil
}

// checkThenSet is the first recipe of the same page, which then warns of it.
func checkThenSet(_ context.Context, w *worker) (handle, func() error, error) {
	client := w.client()
	return func(ctx context.Context, m uint32) error {
		_, err := client.Get(ctx, w.key(m)).Result()
		if err == nil {
			return nil
		}
		if !errors.Is(err, redis.Nil) {
			return err
		}
		if err := w.effect(m, nothing); err != nil {
			return err
		}
		return client.Set(ctx, w.key(m), "sent", window).Err()
	}, client.Close, nil
}

// isSetNX reports whether the proxy takes a command for a claim.
func isSetNX(r redisproxy.Request) bool {
	if r.Name() != "SET" && r.Name() != "SETNX" {
		return false
	}
	for _, arg := range r.Args[2:] {
		if strings.EqualFold(string(arg), "nx") {
			return true
		}
	}
	return r.Name() == "SETNX"
}

// isPlainSet reports whether a command is the mark of a rival that claims nothing.
func isPlainSet(r redisproxy.Request) bool { return r.Name() == "SET" && !isSetNX(r) }

// isScriptOf reports whether a command is a script with one key and that number of arguments.
func isScriptOf(arguments int) func(redisproxy.Request) bool {
	return func(r redisproxy.Request) bool {
		return (r.Name() == "EVALSHA" || r.Name() == "EVAL") && len(r.Args) == 4+arguments
	}
}

// cte is the recipe of "Idempotency keys (the Stripe pattern)", statement by statement. The recipe
// does not say what a failed handler does, so its row stays as it is.
func cte(_ context.Context, w *worker) (handle, func() error, error) {
	db, err := w.postgres('B')
	if err != nil {
		return nil, nil, err
	}
	table := w.cfg.Prefix + "_idempotency"
	claim := `WITH ins AS (INSERT INTO ` + table + ` (key, status, created_at) VALUES ($1, 'in_progress', now())
		ON CONFLICT (key) DO NOTHING RETURNING key)
		SELECT (SELECT key FROM ins) AS new_key, response_status FROM ` + table + ` WHERE key = $1`
	mark := `UPDATE ` + table +
		` SET status = 'completed', response_status = $2, response_body = $3 WHERE key = $1`
	return func(ctx context.Context, m uint32) error {
		if w.cfg.Fate == replyLost && w.fated(m) {
			w.cut.Store(true)
		}
		var created sql.NullString
		var status sql.NullInt64
		err := db.QueryRowContext(ctx, claim, w.key(m)).Scan(&created, &status)
		switch cached := !errors.Is(err, sql.ErrNoRows); {
		case cached && err != nil:
			return err
		case cached && !created.Valid && !status.Valid:
			return errBusy
		case cached && !created.Valid:
			return nil
		}
		if err := w.effect(m, nothing); err != nil {
			return err
		}
		_, err = db.ExecContext(ctx, mark, w.key(m), 200, "{}")
		return err
	}, db.Close, nil
}

// postgres opens a pool whose connections can lose a reply. Once cut is set, they lose the reply to
// the first message of this kind: B for a prepared statement, Q for a simple query such as COMMIT.
func (w *worker) postgres(statement byte) (*sql.DB, error) {
	cfg, err := pgx.ParseConfig(w.cfg.Postgres)
	if err != nil {
		return nil, err
	}
	dial := cfg.DialFunc
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &cutConn{Conn: c, w: w, statement: statement}, nil
	}
	return stdlib.OpenDB(*cfg), nil
}

// cutConn loses a reply: the statement is executed, and its client gets a reset.
type cutConn struct {
	net.Conn
	w         *worker
	statement byte
	doomed    atomic.Bool
}

// Write implements net.Conn.
func (c *cutConn) Write(b []byte) (int, error) {
	ends := c.statement != 'Q' || strings.Contains(strings.ToLower(string(b)), "commit")
	if len(b) > 0 && b[0] == c.statement && ends && c.w.cut.CompareAndSwap(true, false) {
		c.doomed.Store(true)
	}
	return c.Conn.Write(b)
}

// Read implements net.Conn.
func (c *cutConn) Read(b []byte) (int, error) {
	if !c.doomed.Load() {
		return c.Conn.Read(b)
	}
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	_, _ = c.Conn.Read(b) // the server has executed it
	_ = c.Close()
	return 0, syscall.ECONNRESET
}
