package httpbench

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v3/middleware/idempotency"
	fiberredis "github.com/gofiber/storage/redis/v3"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
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
type opener func(ctx context.Context, e *env, p *party, callers int)

var openers = map[string]opener{
	bareSide: func(ctx context.Context, _ *env, p *party, _ int) { p.nethttp(ctx, nil, nil) },
	rawTwo:   raw, rawOne: raw, byHandSide: byHand,
	oursMemory: func(ctx context.Context, _ *env, p *party, _ int) {
		p.claimed(ctx, dedup.Memory(capacity))
	},
	oursRedis: func(ctx context.Context, e *env, p *party, _ int) {
		p.claimed(ctx, must.Get(redisadapter.New(ctx, server.NewClient(p.Setup, e.redis.Addr, 0, 0),
			redisadapter.Options{Prefix: "bench" + harness.Fresh()[:8]})))
	},
	oursSQL:   atomicSQL,
	fiberBare: func(ctx context.Context, _ *env, p *party, _ int) { p.fiber(ctx, nil) },
	fiberMemory: func(ctx context.Context, _ *env, p *party, _ int) {
		p.fiber(ctx, idempotency.New(fiberConfig()))
	},
	// The storage is fiber's own, and the lock its default: of this process.
	fiberRedis: func(ctx context.Context, e *env, p *party, _ int) {
		cfg := fiberConfig()
		cfg.Storage = fiberredis.NewFromConnection(server.NewClient(p.Setup, e.redis.Addr, 1, 0))
		p.fiber(ctx, idempotency.New(cfg))
	},
}

func fiberConfig() idempotency.Config {
	return idempotency.Config{KeyHeader: "Idempotency-Key", Lifetime: window}
}

// account is the principal of every request.
func account(*http.Request) (string, error) { return "acct-4711", nil }

// claimed serves behind the middleware over a store.
func (p *party) claimed(ctx context.Context, store dedup.Store) {
	d := work.Open(p.Setup, store,
		dedup.Config{Namespace: "bench-http", Window: window, LeaseTTL: lease})
	p.behind(ctx, must.Get(httpadapter.Claimed(d.Deduper)), nil)
}

// behind serves behind the middleware with a runner.
func (p *party) behind(ctx context.Context, run httpadapter.Runner,
	effect func(*http.Request) error) {
	p.nethttp(ctx, effect, must.Get(httpadapter.New(run, account, httpadapter.Config{})).Handler)
}

// raw is what no middleware over Redis can do without: a claim and the record, or the look at the
// record.
func raw(ctx context.Context, e *env, p *party, callers int) {
	pool := make(chan *resp.Conn, callers)
	for _, c := range work.DialRaw(ctx, p.Setup, e.redis.Addr, callers) {
		pool <- c
	}
	const token = "0123456789abcdef0123456789ab"
	once := func(ctx context.Context, c *resp.Conn, keys []string) {
		c.ClaimNew(ctx, keys, token, lease)
		c.Complete(ctx, keys, token, receipt, window)
	}
	if p.again {
		p.known = func(ctx context.Context, keys []string) {
			c := <-pool
			defer func() { pool <- c }()
			once(ctx, c, keys)
		}
	}
	p.nethttp(ctx, func(r *http.Request) (err error) {
		defer must.Catch(&err)
		c := <-pool
		defer func() { pool <- c }()
		keys := []string{r.Header.Get("Idempotency-Key")}
		if p.again {
			c.ClaimKnown(r.Context(), keys, token, lease)
		} else {
			once(r.Context(), c, keys)
		}
		return nil
	}, nil)
}

// insert is the effect of a charge.
func insert(r *http.Request, tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}) error {
	_, err := tx.ExecContext(r.Context(),
		`INSERT INTO bench_http_charges (key, account, amount) VALUES ($1, $2, $3)`,
		r.Header.Get("Idempotency-Key"), "acct-4711", 4200)
	return err
}

// database opens a pool for the callers, and makes the tables.
func (p *party) database(ctx context.Context, e *env, callers int) *sql.DB {
	db := e.postgres.Pool(callers)
	p.Defer(db.Close)
	for _, table := range []string{
		`bench_http_charges (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, ` +
			`key text NOT NULL, account text NOT NULL, amount bigint NOT NULL)`,
		`bench_http_records (key text PRIMARY KEY, answer text NOT NULL, ` +
			`made timestamptz NOT NULL DEFAULT now())`,
	} {
		must.Get(db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS `+table))
	}
	return db
}

func atomicSQL(ctx context.Context, e *env, p *party, callers int) {
	db := p.database(ctx, e, callers)
	marks := must.Get(sqladapter.New(sqladapter.Config{Dialect: sqladapter.Postgres,
		Namespace: "bench-http", Window: window, Table: "bench_http_marks"}))
	must.Do(marks.Migrate(ctx, db))
	p.behind(ctx, must.Get(marks.Runner(db, sqladapter.RunnerConfig{})),
		func(r *http.Request) error {
			tx, ok := sqladapter.TxFrom(r.Context())
			if !ok {
				return errors.New("httpbench: no transaction")
			}
			return insert(r, tx)
		})
}

// byHand is the transaction that people write: a record with a unique key, the effect, COMMIT.
func byHand(ctx context.Context, e *env, p *party, callers int) {
	db := p.database(ctx, e, callers)
	p.nethttp(ctx, func(r *http.Request) error {
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
