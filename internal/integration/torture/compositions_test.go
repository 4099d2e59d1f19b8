package torture_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/layered"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/redisadapter"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/sqlstore"
)

// composition is a way to have effects once. Another library would be one more composition.
type composition struct {
	level string // of DESIGN.md, in small letters
	store string
	needs need
	// atomic says that the effect is a row, written with its record.
	atomic bool
	open   func(ctx context.Context, w *worker) (handle, func(context.Context) error, error)
}

// need says which servers a composition has.
type need uint8

const (
	needRedis need = 1 << iota
	needPostgres
	needMariaDB
	needCluster
)

var compositions map[string]composition

func init() { // the table refers to functions that refer to it
	compositions = map[string]composition{
		"full": {level: "claimed", store: "redis, full", needs: needRedis,
			open: overRedis(redisadapter.Full, false)},
		"seen": {level: "claimed", store: "redis, full, seen only", needs: needRedis,
			open: overRedis(redisadapter.Full, true)},
		"compact": {level: "claimed", store: "redis, compact", needs: needRedis,
			open: overRedis(redisadapter.Compact, true)},
		"waited": {level: "claimed", store: "redis, full, WAIT 1", needs: needRedis, open: waited},
		"cluster": {level: "claimed", store: "redis cluster, full", needs: needCluster,
			open: overRedis(redisadapter.Full, false)},
		"asked": {level: "asked", store: "redis, full", needs: needRedis, open: asked},
		"layered": {level: "claimed", store: "leases in redis, records in postgres",
			needs: needRedis | needPostgres, open: twoLayers},
		"postgres": {
			level: "atomic", store: "postgres", needs: needPostgres, atomic: true,
			open: inTransaction(onPostgres),
		},
		"postgres batches": {
			level: "atomic", store: "postgres, batches", needs: needPostgres, atomic: true,
			open: inBatches(onPostgres),
		},
		"mariadb batches": {
			level: "atomic", store: "mariadb, batches", needs: needMariaDB, atomic: true,
			open: inBatches(onMariaDB),
		},
		"postgres simple":   overPostgres(pgx.QueryExecModeSimpleProtocol),
		"postgres exec":     overPostgres(pgx.QueryExecModeExec),
		"postgres describe": overPostgres(pgx.QueryExecModeCacheDescribe),
		"postgres uncached": overPostgres(pgx.QueryExecModeDescribeExec),
		"mariadb": {
			level: "atomic", store: "mariadb", needs: needMariaDB, atomic: true,
			open: inTransaction(onMariaDB),
		},
	}
}

// client is a Redis client as the documentation advises, but with shorter timeouts.
func (w *worker) client() redis.UniversalClient {
	if addrs := strings.Split(w.cfg.Redis, ","); len(addrs) > 1 {
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: addrs, ClusterStateReloadInterval: time.Second,
			ReadTimeout: w.cfg.Timeout, WriteTimeout: w.cfg.Timeout, DialTimeout: w.cfg.Timeout,
			DialerRetries: 1,
		})
	}
	return redis.NewClient(&redis.Options{
		Addr: w.cfg.Redis, ReadTimeout: w.cfg.Timeout, WriteTimeout: w.cfg.Timeout,
		DialTimeout: w.cfg.Timeout, DialerRetries: 1,
	})
}

// redisStore opens the store of a layout.
func (w *worker) redisStore(ctx context.Context, client redis.UniversalClient,
	layout redisadapter.Layout) (*redisadapter.Store, error) {
	// A worker may start while its server evicts.
	o := redisadapter.Options{Prefix: w.cfg.Prefix, Layout: layout, AllowEviction: true,
		OnFinding: func(preflight.Finding) {}}
	if layout == redisadapter.Compact {
		o.Secret, o.Window, o.ExpectedKeys = []byte("a secret of these tests"), window, 20_000
	}
	return redisadapter.New(ctx, client, o)
}

// config is that of a Deduper.
func (w *worker) config() dedup.Config {
	return dedup.Config{Namespace: namespace, Window: window, LeaseTTL: w.cfg.Lease, Hold: hold,
		StoreTimeout: w.cfg.Lease / 3}
}

// overPostgres is level Atomic in another of pgx's ways to execute a statement.
func overPostgres(mode pgx.QueryExecMode) composition {
	e := onPostgres
	e.db = func(w *worker) (*sql.DB, error) { return openPostgresIn(w, mode) }
	return composition{level: "atomic", store: "postgres, pgx mode " + mode.String(),
		needs: needPostgres, atomic: true, open: inTransaction(e)}
}

// waited makes each write wait for the replica.
func waited(ctx context.Context, w *worker) (handle, func(context.Context) error, error) {
	client := w.client()
	store, err := redisadapter.New(ctx, client, redisadapter.Options{
		Prefix: w.cfg.Prefix, OnFinding: func(preflight.Finding) {},
		Durability: redisadapter.Durability{Replicas: 1, Timeout: w.cfg.Timeout / 2},
	})
	if err != nil {
		return nil, nil, err
	}
	d, err := dedup.New(&recorder{Store: store, w: w}, w.config())
	if err != nil {
		return nil, nil, err
	}
	return w.claimedBy(d), ended(d, client), nil
}

// overRedis is level Claimed: the effect is elsewhere.
func overRedis(layout redisadapter.Layout, seenOnly bool) func(context.Context, *worker) (handle,
	func(context.Context) error, error) {
	return func(ctx context.Context, w *worker) (handle, func(context.Context) error, error) {
		client := w.client()
		store, err := w.redisStore(ctx, client, layout)
		if err != nil {
			return nil, nil, err
		}
		cfg := w.config()
		cfg.SeenOnly = seenOnly
		d, err := dedup.New(&recorder{Store: store, w: w}, cfg)
		if err != nil {
			return nil, nil, err
		}
		return w.claimedBy(d), ended(d, client), nil
	}
}

func ended(d *dedup.Deduper, client redis.UniversalClient) func(context.Context) error {
	return func(ctx context.Context) error { return errors.Join(d.Close(ctx), client.Close()) }
}

// claimedBy handles deliveries with Do.
func (w *worker) claimedBy(d *dedup.Deduper) handle {
	if d.Config().SeenOnly {
		return func(ctx context.Context, m *delivery) error {
			_, err := dedup.Do(ctx, d, m.key(), func(context.Context) (struct{}, error) {
				w.leave(m)
				return struct{}{}, w.effect(m, func(uint64) error { return nil })
			})
			return err
		}
	}
	return func(ctx context.Context, m *delivery) error {
		_, err := dedup.Do(ctx, d, m.key(), func(context.Context) ([]byte, error) {
			w.leave(m)
			return w.result(m), w.effect(m, func(uint64) error { return nil })
		})
		return err
	}
}

// result is small, except where the process is to die while a large one is written.
func (w *worker) result(m *delivery) []byte {
	if m.fate == markTorn {
		return make([]byte, 64<<10)
	}
	return []byte("receipt")
}

// asked calls MarkIrreversible before the effect, and has a downstream that can be asked.
func asked(ctx context.Context, w *worker) (handle, func(context.Context) error, error) {
	client := w.client()
	store, err := w.redisStore(ctx, client, redisadapter.Full)
	if err != nil {
		return nil, nil, err
	}
	cfg := w.config()
	cfg.Resolve = func(_ context.Context, key string, _ dedup.Record) (dedup.Resolution, error) {
		had, err := w.had(key)
		switch {
		case err != nil:
			return dedup.Resolution{}, err
		case had:
			return dedup.Happened([]byte("receipt")), nil
		}
		return dedup.DidNotHappen(), nil
	}
	d, err := dedup.New(&recorder{Store: store, w: w}, cfg)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, m *delivery) error {
		_, err := dedup.Do(ctx, d, m.key(), func(ctx context.Context) ([]byte, error) {
			w.leave(m)
			if err := dedup.MarkIrreversible(ctx); err != nil {
				return nil, dedup.NotStarted(err)
			}
			return w.result(m), w.effect(m, func(uint64) error { return nil })
		})
		return err
	}, ended(d, client), nil
}

// had answers for the downstream whether the effect of a key has ended, in any process.
func (w *worker) had(key string) (had bool, err error) {
	var message uint32
	err = readLedgers(w.cfg.Dir, func(_ int, r record) {
		if r.kind == effectEnded && keyOf(r.message) == key {
			had, message = true, r.message
		}
	})
	if err == nil {
		w.ledger.write(record{kind: oracled, message: message, code: bit(had, 1)})
	}
	return had, err
}

// twoLayers has leases in Redis in front of records in PostgreSQL.
func twoLayers(ctx context.Context, w *worker) (handle, func(context.Context) error, error) {
	client := w.client()
	leases, err := w.redisStore(ctx, client, redisadapter.Full)
	if err != nil {
		return nil, nil, err
	}
	db, err := onPostgres.db(w)
	if err != nil {
		return nil, nil, err
	}
	records, err := sqlstore.New(db,
		sqlstore.Options{Dialect: sqladapter.Postgres, Table: w.cfg.Prefix + "_claims"})
	if err != nil {
		return nil, nil, err
	}
	cfg := w.config()
	cfg.StoreTimeout = w.cfg.Lease * 2 / 3
	store, err := layered.New(&recorder{Store: leases, w: w},
		&recorder{Store: records, w: w, behind: true},
		layered.Config{HotWindow: 10 * time.Minute, LeaseTTL: cfg.LeaseTTL})
	if err != nil {
		return nil, nil, err
	}
	d, err := dedup.New(store, cfg)
	if err != nil {
		return nil, nil, err
	}
	return w.claimedBy(d), func(ctx context.Context) error {
		return errors.Join(ended(d, client)(ctx), db.Close())
	}, nil
}
