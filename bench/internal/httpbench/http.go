// Package httpbench times requests with an Idempotency-Key over real loopback connections. The
// sides are a handler behind the middleware of httpadapter, the bare handler, the bare handler with
// the round trips that every middleware needs, and other middlewares.
package httpbench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize/english"
	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/idempotency"
	fiberredis "github.com/gofiber/storage/redis/v3"
	"github.com/valyala/fasthttp"

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

// Suite measures requests.
var Suite = harness.Suite{
	Area: "http", About: "requests through httpadapter next to their limits and peers",
	Full:  harness.Scale{Rounds: 7, Keys: 50_000, Budget: 300 * time.Millisecond},
	Quick: harness.Scale{Rounds: 3, Keys: 50_000, Budget: 50 * time.Millisecond},
	Open: func(ctx context.Context, o harness.Options, b *harness.Bench) {
		b.LeaveOut("github.com/repenguin22/idemlease, which the Go module proxy does not have")
		b.Modules = []string{"go-redis", "pgx", "fiber-v3", "fiber-storage-redis", "fasthttp"}
		e := &env{redis: server.Open(ctx, b, o.Redis)}
		b.Between = e.redis.Clear
		e.postgres = server.OpenDatabase(ctx, b, sqladapter.Postgres, o.Postgres)
		b.Groups = e.groups()
	},
}

type env struct {
	redis    *server.Redis
	postgres *server.Database // nil: left out
}

// Families of rows.
const (
	New    = "new request"
	Replay = "replay"
)

// fiberGoal is for a middleware on net/http next to one on fasthttp. The rows of the raw round
// trips next to fiber show what net/http leaves of it.
const fiberGoal = "<= 1.2x (stretch 1x)"

// family lists the sides of each workload, and the side that each is compared with. A row without a
// comparison is only for information.
var family = map[string][]harness.Pair{
	New: {
		{Side: bareSide},
		{Side: rawTwo, Against: bareSide},
		{Side: rawTwo, Against: fiberRedis},
		{Side: oursMemory, Against: bareSide, Goal: "<= 2x"},
		{Side: oursRedis, Against: rawTwo, Goal: "<= 1.5x"},
		{Side: oursRedis, Against: fiberRedis, Goal: fiberGoal},
		{Side: byHandSide},
		{Side: oursSQL, Against: byHandSide, Goal: "<= 1.5x"},
		{Side: fiberBare},
		{Side: fiberMemory, Against: fiberBare},
		{Side: fiberRedis, Against: fiberBare},
	},
	Replay: {
		{Side: bareSide},
		{Side: rawOne, Against: bareSide},
		{Side: rawOne, Against: fiberRedis},
		{Side: oursMemory, Against: bareSide, Goal: "<= 2x"},
		{Side: oursRedis, Against: rawOne, Goal: "<= 1.5x"},
		{Side: oursRedis, Against: fiberRedis, Goal: fiberGoal},
		{Side: fiberBare},
		{Side: fiberMemory, Against: fiberBare},
		{Side: fiberRedis, Against: fiberBare},
	},
}

// needsSQL are the sides that are left out if there is no PostgreSQL.
var needsSQL = []string{byHandSide, oursSQL}

func (e *env) groups() (all harness.Groups) {
	for _, name := range []string{New, Replay} {
		for _, callers := range []int{1, 16} {
			title := name + ", " + english.Plural(callers, "connection", "")
			all.Add(name, callers, title, func(ctx context.Context, s *harness.Setup) {
				s.Multiple = callers
				for _, p := range family[name] {
					if e.postgres != nil || !slices.Contains(needsSQL, p.Side) {
						e.compare(ctx, s, p, name == Replay)
					}
				}
				for _, p := range s.Pairs { // the 99th percentiles come last
					if p.Against != "" {
						s.Compare(p.Side, p.Against).In(harness.P99)
					}
				}
			})
		}
	}
	return all
}

// compare adds a row of medians, and the side if it is new.
func (e *env) compare(ctx context.Context, s *harness.Setup, p harness.Pair, replay bool) {
	s.Compare(p.Side, p.Against).In(harness.P50).Wants(p.Goal)
	if !slices.ContainsFunc(s.Sides, func(has harness.Side) bool { return has.Name == p.Side }) {
		again := replay && p.Side != bareSide && p.Side != fiberBare
		s.Sides = append(s.Sides, e.newParty(ctx, s, p.Side, again).side())
	}
}

// party is one side: a site, and Multiple connections to it.
type party struct {
	*harness.Setup
	*env

	name  string
	addr  string       // of the site
	runs  atomic.Int64 // of the handler
	conns []*conn
	again bool // every key is sent before the timing, and replayed in it
	// known prepares the replay for the sites without a middleware, which measure the limits.
	known harness.Run
}

func (e *env) newParty(ctx context.Context, s *harness.Setup, name string, again bool) *party {
	p := &party{Setup: s, env: e, name: name, again: again}
	openers[name](ctx, p)
	for range p.Multiple {
		c := &conn{&fasthttp.HostClient{Addr: p.addr, MaxConns: 1, MaxIdleConnDuration: time.Hour,
			ReadTimeout: timeout, WriteTimeout: timeout}, &fasthttp.Request{}, &fasthttp.Response{}}
		c.req.SetRequestURI("http://" + p.addr + "/charges")
		c.req.Header.SetMethod(http.MethodPost)
		c.req.Header.SetContentType("application/json")
		c.req.SetBodyString(
			`{"account":"acct-4711","amount":4200,"currency":"eur","reference":"order-815"}`)
		p.Defer(func() error { c.client.CloseIdleConnections(); return nil })
		p.conns = append(p.conns, c)
	}
	return p
}

// conn is one connection of a client that does not allocate for a request, so that only the
// server's allocations count. Only one goroutine may use it.
type conn struct {
	client *fasthttp.HostClient
	req    *fasthttp.Request
	resp   *fasthttp.Response
}

func (c *conn) post(key string) {
	c.req.Header.Set("Idempotency-Key", key)
	must.Do(c.client.Do(c.req, c.resp))
	if c.resp.StatusCode() != http.StatusCreated || string(c.resp.Body()) != receipt {
		must.Do(fmt.Errorf("httpbench: status %d: %.200s", c.resp.StatusCode(), c.resp.Body()))
	}
}

func (p *party) side() harness.Side {
	s := harness.Side{Name: p.name, Prepare: p.known, Run: p.send(true)}
	if p.again && p.known == nil {
		s.Prepare, s.Run = p.send(true), p.send(false)
	}
	return s
}

// send posts every key once, over all connections. With runs, it fails unless the handler runs for
// each of them; otherwise it fails if the handler runs at all. So the timed work is the work that
// the row names.
func (p *party) send(runs bool) harness.Run {
	return func(ctx context.Context, t *harness.Timing) {
		before, want := p.runs.Load(), int64(0)
		if runs {
			want = int64(len(t.Keys))
		}
		work.Each(len(p.conns), func(ctx context.Context, caller int, key string) {
			must.Do(ctx.Err())
			p.conns[caller].post(key)
		})(ctx, t)
		ran := p.runs.Load() - before
		must.True(ran == want, "httpbench: the handler ran %d times, want %d", ran, want)
	}
}

const receipt = `{"id":"ch_3PqXk2eZvKYlo2C1","object":"charge","account":"acct-4711",` +
	`"amount":4200,"currency":"eur","status":"succeeded"}`

func (p *party) listen(ctx context.Context) net.Listener {
	l := must.Get((&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0"))
	p.addr = l.Addr().String()
	return l
}

// nethttp serves the handler with its effect, behind middleware, with net/http.
func (p *party) nethttp(ctx context.Context, effect func(*http.Request) error,
	middleware ...func(http.Handler) http.Handler) {
	l := p.listen(ctx)
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.runs.Add(1)
		_, err := io.Copy(io.Discard, r.Body)
		if err = errors.Join(err, effect(r)); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Location", "/charges/ch_3PqXk2eZvKYlo2C1")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, receipt)
	})
	for _, wrap := range middleware {
		h = wrap(h)
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: timeout}
	p.serve(srv.Close, func() error {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
}

func (p *party) serve(stop, serve func() error) {
	done := make(chan error, 1)
	go func() { done <- serve() }()
	p.Defer(func() error { return errors.Join(stop(), <-done) })
}

// fiber serves the same handler with fiber.
func (p *party) fiber(ctx context.Context, middleware ...any) {
	l, app := p.listen(ctx), fiber.New()
	if len(middleware) > 0 {
		app.Use(middleware...)
	}
	app.Post("/charges", func(c fiber.Ctx) error {
		p.runs.Add(1)
		c.Set("Content-Type", "application/json")
		c.Set("Location", "/charges/ch_3PqXk2eZvKYlo2C1")
		return c.Status(http.StatusCreated).SendString(receipt)
	})
	p.serve(func() error { return app.ShutdownWithTimeout(5 * time.Second) }, func() error {
		return app.Listener(l, fiber.ListenConfig{DisableStartupMessage: true})
	})
}

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

// The window of all sides is the Lifetime of fiber. No request takes as long as the timeout.
const lease, window, timeout = 30 * time.Second, 30 * time.Minute, 30 * time.Second

// openers open the site of a party, and its database or store.
var openers = map[string]func(ctx context.Context, p *party){
	bareSide: func(ctx context.Context, p *party) { p.nethttp(ctx, nothing) },
	rawTwo:   raw, rawOne: raw, byHandSide: byHand, oursSQL: atomicSQL,
	oursMemory: func(ctx context.Context, p *party) {
		p.claimed(ctx, dedup.Memory(1<<22)) // more than a run has keys
	},
	oursRedis: func(ctx context.Context, p *party) {
		p.claimed(ctx, must.Get(redisadapter.New(ctx, server.NewClient(p.Setup, p.redis.Addr, 0, 0),
			redisadapter.Options{Prefix: "bench" + harness.Fresh()[:8]})))
	},
	fiberBare: func(ctx context.Context, p *party) { p.fiber(ctx) },
	fiberMemory: func(ctx context.Context, p *party) {
		p.fiber(ctx, idempotency.New(fiberConfig()))
	},
	// The storage is fiber's own. The lock is fiber's default, which works only within one process.
	fiberRedis: func(ctx context.Context, p *party) {
		cfg := fiberConfig()
		cfg.Storage = fiberredis.NewFromConnection(server.NewClient(p.Setup, p.redis.Addr, 1, 0))
		p.fiber(ctx, idempotency.New(cfg))
	},
}

func fiberConfig() idempotency.Config {
	return idempotency.Config{KeyHeader: "Idempotency-Key", Lifetime: window}
}

func account(*http.Request) (string, error) { return "acct-4711", nil }

func nothing(*http.Request) error { return nil }

func (p *party) claimed(ctx context.Context, store dedup.Store) {
	d := work.Open(p.Setup, store,
		dedup.Config{Namespace: "bench-http", Window: window, LeaseTTL: lease})
	p.behind(ctx, must.Get(httpadapter.Claimed(d.Deduper)), nothing)
}

func (p *party) behind(ctx context.Context, run httpadapter.Runner,
	effect func(*http.Request) error) {
	p.nethttp(ctx, effect, must.Get(httpadapter.New(run, account, httpadapter.Config{})).Handler)
}

// raw does only the round trips that every middleware over Redis needs: claim and record or, for a
// replay, a lookup of the record.
func raw(ctx context.Context, p *party) {
	pool := make(chan *resp.Conn, p.Multiple)
	for _, c := range work.DialRaw(ctx, p.Setup, p.redis.Addr, p.Multiple) {
		pool <- c
	}
	const token = "0123456789abcdef0123456789ab"
	ask := func(ctx context.Context, keys []string, known bool) {
		c := <-pool
		defer func() { pool <- c }()
		if known {
			c.ClaimKnown(ctx, keys, token, lease)
			return
		}
		c.ClaimNew(ctx, keys, token, lease)
		c.Complete(ctx, keys, token, receipt, window)
	}
	if p.again {
		p.known = func(ctx context.Context, t *harness.Timing) { ask(ctx, t.Keys, false) }
	}
	p.nethttp(ctx, func(r *http.Request) (err error) {
		defer must.Catch(&err)
		ask(r.Context(), []string{r.Header.Get("Idempotency-Key")}, p.again)
		return nil
	})
}

// insert is the effect of a charge.
func insert(r *http.Request, tx *sql.Tx) error {
	_, err := tx.ExecContext(r.Context(),
		`INSERT INTO bench_http_charges (key, account, amount) VALUES ($1, $2, $3)`,
		r.Header.Get("Idempotency-Key"), "acct-4711", 4200)
	return err
}

func (p *party) database(ctx context.Context) *sql.DB {
	db := p.postgres.Pool(p.Multiple)
	p.Defer(db.Close)
	must.Get(db.ExecContext(ctx, `
		CREATE TABLE IF NOT EXISTS bench_http_charges (id bigint GENERATED ALWAYS AS IDENTITY
			PRIMARY KEY, key text NOT NULL, account text NOT NULL, amount bigint NOT NULL);
		CREATE TABLE IF NOT EXISTS bench_http_records (key text PRIMARY KEY, answer text NOT NULL,
			made timestamptz NOT NULL DEFAULT now())`))
	return db
}

func atomicSQL(ctx context.Context, p *party) {
	db := p.database(ctx)
	marks := must.Get(sqladapter.New(sqladapter.Config{Dialect: sqladapter.Postgres,
		Namespace: "bench-http", Window: window, Table: "bench_http_marks"}))
	must.Do(marks.Migrate(ctx, db))
	p.behind(ctx, must.Get(marks.Runner(db)), func(r *http.Request) error {
		tx, ok := sqladapter.TxFrom(r.Context())
		if !ok {
			return errors.New("httpbench: no transaction")
		}
		return insert(r, tx)
	})
}

// byHand is the transaction that people write themselves: a record with a unique key, the effect,
// and COMMIT.
func byHand(ctx context.Context, p *party) {
	db := p.database(ctx)
	p.nethttp(ctx, func(r *http.Request) (err error) {
		defer must.Catch(&err)
		tx := must.Get(db.BeginTx(r.Context(), nil))
		defer func() { _ = tx.Rollback() }() // it does nothing after Commit
		must.Get(tx.ExecContext(r.Context(),
			`INSERT INTO bench_http_records (key, answer) VALUES ($1, $2)`,
			r.Header.Get("Idempotency-Key"), receipt))
		must.Do(insert(r, tx))
		return tx.Commit()
	})
}
