package httpbench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v3/middleware/idempotency"
	fiberredis "github.com/gofiber/storage/redis/v3"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/resp"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/bench/internal/work"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
	"github.com/onceward/onceward/redisadapter"
	"github.com/onceward/onceward/sqladapter"
)

// Names of the sides.
const (
	bareSide    = "bare handler"
	rawTwo      = "bare handler + two raw Redis round trips"
	rawOne      = "bare handler + one raw Redis round trip"
	byHandSide  = "bare handler + effect and record by hand"
	oursMemory  = "onceward, memory"
	oursRedis   = "onceward, Redis"
	oursSQL     = "onceward, PostgreSQL, Atomic"
	fiberBare   = "fiber, bare handler"
	fiberMemory = "fiber idempotency, memory"
	fiberRedis  = "fiber idempotency, Redis"
)

const (
	// lease and window of all sides; the window is fiber's Lifetime.
	lease  = 30 * time.Second
	window = 30 * time.Minute
	// capacity of the memory store: more than a run makes keys.
	capacity = 1 << 22
)

// opener makes the site of a party, and what it needs.
type opener func(ctx context.Context, e *env, p *party, callers int) error

var openers = map[string]opener{
	bareSide: func(ctx context.Context, _ *env, p *party, _ int) error {
		return p.nethttp(ctx, nil, nil)
	},
	rawTwo: raw, rawOne: raw, byHandSide: byHand,
	oursMemory: func(ctx context.Context, _ *env, p *party, _ int) error {
		return p.claimed(ctx, dedup.Memory(capacity))
	},
	oursRedis: func(ctx context.Context, e *env, p *party, _ int) error {
		client := server.NewClient(e.redis.Addr, 0, 0)
		p.Defer(client.Close)
		store, err := redisadapter.New(ctx,
			client, redisadapter.Options{Prefix: "bench" + harness.Fresh()[:8]})
		if err != nil {
			return err
		}
		return p.claimed(ctx, store)
	},
	oursSQL: atomicSQL,
	fiberBare: func(ctx context.Context, _ *env, p *party, _ int) error {
		return p.fiber(ctx, nil)
	},
	fiberMemory: func(ctx context.Context, _ *env, p *party, _ int) error {
		return p.fiber(ctx, idempotency.New(fiberConfig()))
	},
	// The storage is fiber's own, and the lock its default: of this process.
	fiberRedis: func(ctx context.Context, e *env, p *party, _ int) error {
		client := server.NewClient(e.redis.Addr, 1, 0)
		p.Defer(client.Close)
		cfg := fiberConfig()
		cfg.Storage = fiberredis.NewFromConnection(client)
		return p.fiber(ctx, idempotency.New(cfg))
	},
}

func fiberConfig() idempotency.Config {
	return idempotency.Config{KeyHeader: "Idempotency-Key", Lifetime: window}
}

// account is the principal of every request.
func account(*http.Request) (string, error) { return "acct-4711", nil }

// claimed serves behind the middleware over a store.
func (p *party) claimed(ctx context.Context, store dedup.Store) error {
	d, err := dedup.New(store,
		dedup.Config{Namespace: "bench-http", Window: window, LeaseTTL: lease})
	if err != nil {
		return err
	}
	p.Defer(func() error { return work.Close(d) })
	run, err := httpadapter.Claimed(d)
	if err != nil {
		return err
	}
	return p.behind(ctx, run, nil)
}

// behind serves behind the middleware with a runner.
func (p *party) behind(ctx context.Context, run httpadapter.Runner,
	effect func(*http.Request) error) error {
	m, err := httpadapter.New(run, account, httpadapter.Config{})
	if err != nil {
		return err
	}
	return p.nethttp(ctx, effect, m.Handler)
}

// raw is what no middleware over Redis can do without: a claim and the record, or the look at the
// record.
func raw(ctx context.Context, e *env, p *party, callers int) error {
	conns, err := work.DialRaw(ctx, &p.Setup, e.redis.Addr, callers)
	if err != nil {
		return err
	}
	pool := make(chan *resp.Conn, callers)
	for _, c := range conns {
		pool <- c
	}
	const token = "0123456789abcdef0123456789ab"
	once := func(ctx context.Context, c *resp.Conn, keys []string) error {
		if err := c.ClaimNew(ctx, keys, token, lease); err != nil {
			return err
		}
		return c.Complete(ctx, keys, token, receipt, window)
	}
	if p.again {
		p.known = func(ctx context.Context, keys []string) error {
			c := <-pool
			defer func() { pool <- c }()
			return once(ctx, c, keys)
		}
	}
	return p.nethttp(ctx, func(r *http.Request) error {
		c := <-pool
		defer func() { pool <- c }()
		keys := []string{r.Header.Get("Idempotency-Key")}
		if p.again {
			return c.ClaimKnown(r.Context(), keys, token, lease)
		}
		return once(r.Context(), c, keys)
	}, nil)
}

const effect = `INSERT INTO bench_http_charges (key, account, amount) VALUES ($1, $2, $3)`

// querier is a transaction.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func insert(r *http.Request, q querier) error {
	_, err := q.ExecContext(r.Context(), effect, r.Header.Get("Idempotency-Key"), "acct-4711", 4200)
	return err
}

// database opens a pool for the callers, and makes the tables.
func (p *party) database(ctx context.Context, e *env, callers int) (*sql.DB, error) {
	db, err := e.postgres.Pool(callers)
	if err != nil {
		return nil, err
	}
	p.Defer(db.Close)
	for _, table := range []string{
		`bench_http_charges (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key text NOT NULL, account text NOT NULL, amount bigint NOT NULL)`,
		`bench_http_records (key text PRIMARY KEY, answer text NOT NULL, made timestamptz NOT NULL DEFAULT now())`,
	} {
		if _, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS `+table); err != nil {
			return nil, fmt.Errorf("httpbench: %w", err)
		}
	}
	return db, nil
}

func atomicSQL(ctx context.Context, e *env, p *party, callers int) error {
	db, err := p.database(ctx, e, callers)
	if err != nil {
		return err
	}
	marks, err := sqladapter.New(sqladapter.Config{Dialect: sqladapter.Postgres,
		Namespace: "bench-http", Window: window, Table: "bench_http_marks"})
	if err != nil {
		return err
	}
	if err := marks.Migrate(ctx, db); err != nil {
		return err
	}
	run, err := marks.Runner(db, sqladapter.RunnerConfig{})
	if err != nil {
		return err
	}
	return p.behind(ctx, run, func(r *http.Request) error {
		tx, ok := sqladapter.TxFrom(r.Context())
		if !ok {
			return errors.New("httpbench: no transaction")
		}
		return insert(r, tx)
	})
}

// byHand is the transaction that people write: a record with a unique key, the effect, COMMIT.
func byHand(ctx context.Context, e *env, p *party, callers int) error {
	db, err := p.database(ctx, e, callers)
	if err != nil {
		return err
	}
	return p.nethttp(ctx, func(r *http.Request) (err error) {
		tx, err := db.BeginTx(r.Context(), nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // does nothing after Commit
		if _, err := tx.ExecContext(r.Context(),
			`INSERT INTO bench_http_records (key, answer) VALUES ($1, $2)`,
			r.Header.Get("Idempotency-Key"), receipt); err != nil {
			return err
		}
		if err := insert(r, tx); err != nil {
			return err
		}
		return tx.Commit()
	}, nil)
}
