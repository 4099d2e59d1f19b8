package sql_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/outbox/pgxlisten"
	"github.com/onceward/onceward/sqladapter/sqlstore"
)

// wakingStore is the store of one more process, with a connection that listens.
func wakingStore(t testing.TB, e storeEngine, dsn, table string) *sqlstore.Store {
	t.Helper()
	db := openDB(t, e.driver, dsn)
	var connected atomic.Bool
	waker, err := pgxlisten.NewWaker(pgxlisten.WakerConfig{
		DB: db, Channel: table, Silence: 100 * time.Millisecond,
		Connect: func(ctx context.Context) (*pgx.Conn, error) {
			cfg, err := pgx.ParseConfig(dsn)
			if err != nil {
				return nil, err
			}
			cfg.RuntimeParams["application_name"] = table
			return pgx.ConnectConfig(ctx, cfg)
		},
		OnError: func(err error) { t.Logf("waker: %v", err) },
	})
	require.NoError(t, err)
	// Everybody is woken when the connection listens.
	stop, err := waker.Listen(t.Context(), driver.ID{0xff}, func() { connected.Store(true) })
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- waker.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	require.Eventually(t, connected.Load, 20*time.Second, time.Millisecond)
	stop()
	store, err := sqlstore.New(db,
		sqlstore.Options{Dialect: e.dialect, Table: table, Waker: waker})
	require.NoError(t, err)
	return store
}

// TestStoreWakes: a Wake reaches other processes, and there only the listeners of its key, also
// after the connection was cut. When it is back all listeners are woken, because they may have
// missed something.
func TestStoreWakes(t *testing.T) {
	e := storePostgres("postgres", nil)
	_, db, table := openStore(t, e)
	dsn := e.dsn(t)
	here, there := wakingStore(t, e, dsn, table), wakingStore(t, e, dsn, table)
	var heard, other atomic.Int64
	stop, err := here.Listen(t.Context(), driver.ID{1}, func() { heard.Add(1) })
	require.NoError(t, err)
	stopOther, err := here.Listen(t.Context(), driver.ID{2}, func() { other.Add(1) })
	require.NoError(t, err)
	wake := func(ids ...driver.ID) {
		t.Helper()
		require.NoError(t, there.Wake(t.Context(), ids))
	}
	hears := func(n int64) {
		t.Helper()
		require.Eventually(t, func() bool { return heard.Load() >= n }, 20*time.Second,
			time.Millisecond)
	}
	many := make([]driver.ID, 300)
	for i := range many {
		many[i] = driver.ID{9, byte(i), byte(i >> 8)}
	}
	wake(append(many, driver.ID{1})...)
	hears(1)
	assert.Zero(t, other.Load(), "of another key")

	_, err = db.ExecContext(t.Context(),
		`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1`, table)
	require.NoError(t, err)
	hears(2) // nobody has called Wake: the listener may have missed something
	before := heard.Load()
	require.Eventually(t, func() bool {
		wake(driver.ID{1})
		return heard.Load() > before
	}, 20*time.Second, 10*time.Millisecond)
	stop()
	stopOther()
	var last atomic.Int64
	stop, err = here.Listen(t.Context(), driver.ID{3}, func() { last.Add(1) })
	require.NoError(t, err)
	defer stop()
	before = heard.Load()
	wake(driver.ID{1}, driver.ID{3})
	require.Eventually(t, func() bool { return last.Load() > 0 }, 20*time.Second, time.Millisecond)
	assert.Equal(t, before, heard.Load(), "after stop")
}

// TestStoreWithoutWaker polls.
func TestStoreWithoutWaker(t *testing.T) {
	store, _, _ := openStore(t, storeSQLite)
	assert.ErrorIs(t, store.Wake(t.Context(), []driver.ID{{1}}), errors.ErrUnsupported)
	_, err := store.Listen(t.Context(), driver.ID{1}, func() {})
	assert.ErrorIs(t, err, errors.ErrUnsupported)
}

// BenchmarkStoreWaiter measures how long after a completion a waiter of another process is
// answered.
func BenchmarkStoreWaiter(b *testing.B) {
	e := storePostgres("postgres", nil)
	plain, _, table := openStore(b, e)
	dsn := e.dsn(b)
	for name, open := range map[string]func(b *testing.B) dedup.Store{
		"waker":   func(b *testing.B) dedup.Store { return wakingStore(b, e, dsn, table) },
		"polling": func(*testing.B) dedup.Store { return plain },
	} {
		b.Run(name, func(b *testing.B) {
			cfg := dedup.Config{Namespace: "bench", Window: time.Hour, LeaseTTL: 30 * time.Second,
				Wait: 20 * time.Second}
			owner, err := dedup.New(open(b), cfg)
			require.NoError(b, err)
			other, err := dedup.New(open(b), cfg)
			require.NoError(b, err)
			var late []time.Duration
			for b.Loop() {
				key := fmt.Sprint(name, len(late))
				c, err := owner.Claim(b.Context(), key)
				require.NoError(b, err)
				answered := make(chan time.Time, 1)
				go func() {
					_, err := other.Claim(b.Context(), key)
					assert.NoError(b, err)
					answered <- time.Now()
				}()
				// the handler's work
				<-time.After(900*time.Millisecond + rand.N(200*time.Millisecond))
				require.NoError(b, c.Complete(b.Context(), nil))
				ended := time.Now()
				late = append(late, max(0, (<-answered).Sub(ended)))
			}
			slices.Sort(late)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(late[len(late)/2].Microseconds()), "median-us")
			b.ReportMetric(float64(late[len(late)-1].Microseconds()), "worst-us")
		})
	}
}
