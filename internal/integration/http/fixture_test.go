// Package http_test runs the middleware for Idempotency-Key over real stores, as a client sees it
// over a connection, and in several server processes that share a store and are killed.
package http_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"maps"
	"strconv"
	"sync"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/httpadapter"
	"github.com/onceward/onceward/redisadapter"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/sqlstore"
)

// settings say where records and effects are. A server process gets them as JSON.
type settings struct {
	Redis       string // host:port
	Driver, DSN string // or a database; neither: in memory
	Dialect     sqladapter.Dialect
	Atomic      bool   // sqladapter's Runner, instead of a Deduper's
	Prefix      string // of every key or table
	Window      time.Duration
	Lease       time.Duration
}

// fixture has the store and the ledger of its settings, opened.
type fixture struct {
	settings
	run    httpadapter.Runner
	ledger ledger
	// raw returns all bytes that are stored for the middleware, by their place.
	raw func(ctx context.Context) (map[string]string, error)
	// expire removes records that are older than the window, in stores that do not do so by
	// themselves.
	expire func(ctx context.Context) error

	store dedup.Store
	marks *sqladapter.Ledger
	db    *sql.DB
	redis *redis.Client
	close []func()
}

// ledger counts effects.
type ledger interface {
	book(ctx context.Context, effect string) error
	counts(ctx context.Context) (map[string]int, error)
}

// open connects. resolve may be nil; it is of no use with Atomic.
func (s settings) open(ctx context.Context,
	resolve func(context.Context, string, dedup.Record) (dedup.Resolution, error)) (*fixture,
	error) {
	p := &fixture{settings: s, expire: func(context.Context) error { return nil }}
	err := p.connect(ctx)
	if err == nil && !s.Atomic {
		var d *dedup.Deduper
		d, err = dedup.New(p.store, dedup.Config{
			Namespace: "http", Window: s.Window, LeaseTTL: s.Lease, Resolve: resolve,
			StoreTimeout: s.Lease * 9 / 10, // long, because the test is not about busy machines
		})
		if err == nil {
			p.close = append(p.close, func() { _ = d.Close(context.Background()) })
			p.run, err = httpadapter.Claimed(d)
		}
	}
	if err != nil {
		p.shut()
		return nil, err
	}
	return p, nil
}

// shut closes what was opened, the last first.
func (p *fixture) shut() {
	for i := len(p.close) - 1; i >= 0; i-- {
		p.close[i]()
	}
}

func (p *fixture) connect(ctx context.Context) error {
	switch {
	case p.Redis != "":
		return p.connectRedis(ctx)
	case p.Driver != "":
		return p.connectSQL()
	default:
		p.store, p.ledger = dedup.Memory(100_000), &inMemory{booked: map[string]int{}}
		return nil
	}
}

func (p *fixture) connectRedis(ctx context.Context) (err error) {
	p.redis = redis.NewClient(&redis.Options{Addr: p.Redis, ReadTimeout: time.Minute,
		WriteTimeout: time.Minute})
	p.close = append(p.close, func() { _ = p.redis.Close() })
	p.ledger = inRedis{p.redis, p.Prefix + "-effects"}
	p.raw = p.rawRedis
	p.store, err = redisadapter.New(ctx, p.redis,
		redisadapter.Options{Prefix: p.Prefix, OnFinding: func(preflight.Finding) {}})
	return err
}

func (p *fixture) connectSQL() (err error) {
	if p.db, err = sql.Open(p.Driver, p.DSN); err != nil {
		return err
	}
	p.close = append(p.close, func() { _ = p.db.Close() })
	p.db.SetMaxOpenConns(16)
	p.db.SetMaxIdleConns(16)
	if p.Dialect == sqladapter.SQLite {
		p.db.SetMaxOpenConns(1) // there is one writer: others would wait by polling
	}
	p.ledger = inSQL{p.db, p.Prefix + "_ledger", p.Dialect}
	p.raw = p.rawSQL
	if !p.Atomic {
		p.store, err = sqlstore.New(p.db,
			sqlstore.Options{Dialect: p.Dialect, Table: p.Prefix + "_store"})
		return err
	}
	p.marks, err = sqladapter.New(sqladapter.Config{Dialect: p.Dialect, Namespace: "http",
		Table: p.Prefix + "_marks", Window: p.Window})
	if err != nil {
		return err
	}
	p.expire = p.deleteExpired
	p.run, err = p.marks.Runner(p.db)
	return err
}

// deleteExpired makes a new mark as well: ages are counted from the newest.
func (p *fixture) deleteExpired(ctx context.Context) error {
	nothing := func(context.Context) ([]byte, bool, error) { return []byte("x"), false, nil }
	if _, err := p.run.Run(ctx, rand.Text(), nothing); err != nil {
		return err
	}
	_, err := p.marks.DeleteExpired(ctx, p.db, 1000)
	return err
}

// inMemory is the ledger of one process.
type inMemory struct {
	mu     sync.Mutex
	booked map[string]int
}

func (l *inMemory) book(_ context.Context, effect string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.booked[effect]++
	return nil
}

func (l *inMemory) counts(context.Context) (map[string]int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.booked), nil
}

// inRedis is a hash in the Redis of the store.
type inRedis struct {
	client *redis.Client
	name   string
}

func (l inRedis) book(ctx context.Context, effect string) error {
	return l.client.HIncrBy(ctx, l.name, effect, 1).Err()
}

func (l inRedis) counts(ctx context.Context) (map[string]int, error) {
	fields, err := l.client.HGetAll(ctx, l.name).Result()
	all := map[string]int{}
	for effect, n := range fields {
		if all[effect], err = strconv.Atoi(n); err != nil {
			return nil, err
		}
	}
	return all, err
}

// inSQL is a table without a unique constraint: a doubled effect is two rows. It is written in the
// transaction of the request if there is one, and by itself otherwise.
type inSQL struct {
	db      *sql.DB
	table   string
	dialect sqladapter.Dialect
}

func (l inSQL) book(ctx context.Context, effect string) error {
	exec := l.db.ExecContext
	if tx, ok := sqladapter.TxFrom(ctx); ok {
		exec = tx.ExecContext
	}
	value := "?"
	if l.dialect == sqladapter.Postgres {
		value = "$1"
	}
	_, err := exec(ctx, `INSERT INTO `+l.table+` (effect) VALUES (`+value+`)`, effect)
	return err
}

func (l inSQL) counts(ctx context.Context) (map[string]int, error) {
	rows, err := l.db.QueryContext(ctx, `SELECT effect, count(*) FROM `+l.table+` GROUP BY effect`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	all := map[string]int{}
	for rows.Next() {
		var effect string
		var n int
		if err := rows.Scan(&effect, &n); err != nil {
			return nil, err
		}
		all[effect] = n
	}
	return all, rows.Err()
}

// setUp makes the tables.
func (p *fixture) setUp(ctx context.Context) error {
	if p.db == nil {
		return nil
	}
	migrate := func() error { return p.store.(*sqlstore.Store).Migrate(ctx) }
	if p.Atomic {
		migrate = func() error { return p.marks.Migrate(ctx, p.db) }
	}
	if err := migrate(); err != nil {
		return err
	}
	_, err := p.db.ExecContext(ctx,
		`CREATE TABLE `+p.Prefix+`_ledger (effect varchar(200) NOT NULL)`)
	return err
}

// tearDown leaves nothing behind on a shared server.
func (p *fixture) tearDown(ctx context.Context) error {
	if p.redis != nil {
		names, err := p.names(ctx)
		if err != nil || len(names) == 0 {
			return err
		}
		return p.redis.Del(ctx, append(names, p.Prefix+"-effects")...).Err()
	}
	if p.db == nil {
		return nil
	}
	if _, err := p.db.ExecContext(ctx, `DROP TABLE `+p.Prefix+`_ledger`); err != nil {
		return err
	}
	if p.Atomic {
		return p.marks.Migrations().To(ctx, p.db, 0)
	}
	return p.store.(*sqlstore.Store).Drop(ctx)
}

// names are all keys of the store.
func (p *fixture) names(ctx context.Context) (names []string, err error) {
	scan := p.redis.Scan(ctx, 0, p.Prefix+":*", 1000).Iterator()
	for scan.Next(ctx) {
		names = append(names, scan.Val())
	}
	return names, scan.Err()
}
