package serve

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/idempotency"
	fiberredis "github.com/gofiber/storage/redis/v3"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/resp"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
	"github.com/onceward/onceward/redisadapter"
	"github.com/onceward/onceward/sqladapter"
)

// Names of the sides.
const (
	Bare        = "bare handler"
	RawTwo      = "bare handler + two raw Redis round trips"
	RawOne      = "bare handler + one raw Redis round trip"
	ByHand      = "bare handler + effect and record by hand"
	OursMemory  = "onceward, memory"
	OursRedis   = "onceward, Redis"
	OursSQL     = "onceward, PostgreSQL, Atomic"
	FiberBare   = "fiber, bare handler"
	FiberMemory = "fiber idempotency, memory"
	FiberRedis  = "fiber idempotency, Redis"
)

const (
	// lease and window of all sides; the window is fiber's Lifetime.
	lease  = 30 * time.Second
	window = 30 * time.Minute
	// capacity of the memory store: more than a run makes keys.
	capacity = 1 << 22
)

// opener makes the site of a party, and what it needs.
type opener func(ctx context.Context, e *Env, p *party, callers int) error

var openers = map[string]opener{
	Bare: func(ctx context.Context, _ *Env, p *party, _ int) (err error) {
		p.site, err = nethttp(ctx, nil, nil)
		return err
	},
	RawTwo: raw, RawOne: raw, ByHand: byHand,
	OursMemory: func(ctx context.Context, _ *Env, p *party, _ int) error {
		return p.claimed(ctx, dedup.Memory(capacity))
	},
	OursRedis: oursRedis, OursSQL: oursSQL,
	FiberBare: func(ctx context.Context, _ *Env, p *party, _ int) (err error) {
		p.site, err = fiberApp(ctx, nil)
		return err
	},
	FiberMemory: func(ctx context.Context, _ *Env, p *party, _ int) (err error) {
		p.site, err = fiberApp(ctx, idempotency.New(fiberConfig()))
		return err
	},
	FiberRedis: fiberRedis,
}

// account is the principal of every request.
func account(*http.Request) (string, error) { return "acct-4711", nil }

// claimed serves behind the middleware over a store.
func (p *party) claimed(ctx context.Context, store dedup.Store) error {
	d, err := dedup.New(store, dedup.Config{Namespace: "bench-http", Window: window, LeaseTTL: lease})
	if err != nil {
		return err
	}
	p.close = append([]func() error{func() error {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		return d.Close(ctx)
	}}, p.close...)
	run, err := httpadapter.Claimed(d)
	if err != nil {
		return err
	}
	return p.behind(ctx, run, nil)
}

// behind serves behind the middleware with a runner.
func (p *party) behind(ctx context.Context, run httpadapter.Runner, effect func(*http.Request) error) error {
	m, err := httpadapter.New(run, account, httpadapter.Config{})
	if err != nil {
		return err
	}
	p.site, err = nethttp(ctx, effect, m.Handler)
	return err
}

func oursRedis(ctx context.Context, e *Env, p *party, _ int) error {
	client := server.NewClient(e.Redis.Addr, 0, 0)
	p.close = append(p.close, client.Close)
	store, err := redisadapter.New(ctx, client, redisadapter.Options{Prefix: "bench" + harness.FreshKeys(1)[0][:8]})
	if err != nil {
		return err
	}
	return p.claimed(ctx, store)
}

func fiberConfig() idempotency.Config {
	return idempotency.Config{KeyHeader: "Idempotency-Key", Lifetime: window}
}

// fiberRedis has the storage of fiber's own, and the lock that is its default: of this process.
func fiberRedis(ctx context.Context, e *Env, p *party, _ int) (err error) {
	client := server.NewClient(e.Redis.Addr, 1, 0)
	p.close = append(p.close, client.Close)
	cfg := fiberConfig()
	cfg.Storage = fiberStorage{fiberredis.NewFromConnection(client)}
	p.site, err = fiberApp(ctx, idempotency.New(cfg))
	return err
}

// fiberStorage says that the storage is one of fiber's: a mistake shows here.
type fiberStorage struct{ *fiberredis.Storage }

var _ fiber.Storage = fiberStorage{}

// raw is what no middleware over Redis can do without: a claim and the record, or the look at the record.
func raw(ctx context.Context, e *Env, p *party, callers int) (err error) {
	pool := make(chan *resp.Conn, callers)
	for range callers {
		c, err := resp.Dial(ctx, e.Redis.Addr)
		if err != nil {
			return err
		}
		p.close = append(p.close, c.Close)
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
	p.site, err = nethttp(ctx, func(r *http.Request) error {
		c := <-pool
		defer func() { pool <- c }()
		keys := []string{r.Header.Get("Idempotency-Key")}
		if p.again {
			return c.ClaimKnown(r.Context(), keys, token, lease)
		}
		return once(r.Context(), c, keys)
	}, nil)
	return err
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
func (p *party) database(ctx context.Context, e *Env, callers int) (*sql.DB, error) {
	db, err := e.Postgres.Pool(callers)
	if err != nil {
		return nil, err
	}
	p.close = append(p.close, db.Close)
	for _, table := range []string{
		`bench_http_charges (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key text NOT NULL, account text NOT NULL, amount bigint NOT NULL)`,
		`bench_http_records (key text PRIMARY KEY, answer text NOT NULL, made timestamptz NOT NULL DEFAULT now())`,
	} {
		if _, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS `+table); err != nil {
			return nil, fmt.Errorf("serve: %w", err)
		}
	}
	return db, nil
}

func oursSQL(ctx context.Context, e *Env, p *party, callers int) error {
	db, err := p.database(ctx, e, callers)
	if err != nil {
		return err
	}
	marks, err := sqladapter.New(sqladapter.Config{Dialect: sqladapter.Postgres, Namespace: "bench-http", Window: window, Table: "bench_http_marks"})
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
			return errors.New("serve: no transaction")
		}
		return insert(r, tx)
	})
}

// byHand is the transaction that people write: a record with a unique key, the effect, COMMIT.
func byHand(ctx context.Context, e *Env, p *party, callers int) error {
	db, err := p.database(ctx, e, callers)
	if err != nil {
		return err
	}
	p.site, err = nethttp(ctx, func(r *http.Request) (err error) {
		tx, err := db.BeginTx(r.Context(), nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // does nothing after Commit
		if _, err := tx.ExecContext(r.Context(), `INSERT INTO bench_http_records (key, answer) VALUES ($1, $2)`, r.Header.Get("Idempotency-Key"), receipt); err != nil {
			return err
		}
		if err := insert(r, tx); err != nil {
			return err
		}
		return tx.Commit()
	}, nil)
	return err
}
