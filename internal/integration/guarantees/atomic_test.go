package guarantees_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
	"github.com/onceward/onceward/sqladapter"
)

var atomicRow = row{
	holds: map[string]func(*testing.T){
		"the effect exactly once within the window": func(t *testing.T) {
			t.Run("redis", atomicInRedis)
			t.Run("sql", killedInSQL)
		},
	},
	doubles: map[string]func(*testing.T){
		"never within the window": neverWithin,
		"with SQLite when the pool was opened with `sqladapter.OpenSQLite`, or no effect continues after an error of a statement": endedInSQLite,
	},
}

// till is a Redis with a counter next to each key; the counter is the effect.
type till struct {
	t      testing.TB
	client *redis.Client
	store  *redisadapter.Store
}

func newTill(t testing.TB, client *redis.Client, prefix string) *till {
	t.Helper()
	store, err := redisadapter.New(t.Context(), client, redisadapter.Options{Prefix: prefix})
	require.NoError(t, err)
	return &till{t: t, client: client, store: store}
}

func (s *till) incr(k string) redisadapter.Effect {
	return func(_ redis.Cmdable, write redis.Pipeliner) error {
		write.Incr(context.Background(), "count:"+k)
		write.PExpire(context.Background(), "count:"+k, 2*window)
		return nil
	}
}

func (s *till) of(k string) int {
	n, err := s.client.Get(context.Background(), "count:"+k).Int()
	assert.False(s.t, err != nil && !errors.Is(err, redis.Nil), err)
	return n
}

func (s *till) want(k string, want int, why string) {
	s.t.Helper()
	assert.Equal(s.t, want, s.of(k), "%s: effects, %s", k, why)
}

// atomicInRedis causes a crash, a pause and a lost message at every call, and a storm of them. None
// of them excuses a double.
func atomicInRedis(t *testing.T) {
	subject := func(s *till, lease time.Duration) deduptest.Subject {
		return deduptest.Subject{
			Deliver: func(ctx context.Context, d *dedup.Deduper, message string) error {
				_, err := s.store.DoAtomic(ctx, d, dedup.Request{Key: message}, s.incr(message))
				return err
			},
			Effects: s.of,
			Store:   func(testing.TB) dedup.Store { return s.store },
			Config:  dedup.Config{Namespace: "till", LeaseTTL: lease, Window: window},
			Atomic:  true,
		}
	}
	t.Run("miniredis", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			_, client := redistest.Bubble(t)
			s := newTill(t, client, "")
			report := deduptest.Twice(t, subject(s, lease))
			storm := deduptest.Storm(t, subject(s, lease),
				deduptest.StormConfig{Messages: 60, Rate: 0.1, Seed: 8})
			assert.Zero(t, len(report.Doubled)+len(storm.Doubled), "%+v\n%+v", report,
				storm)
			assert.NotZero(t, report.Faults, "%+v\n%+v", report, storm)
			assert.NotZero(t, storm.Faults, "%+v\n%+v", report, storm)
		})
	})
	t.Run("redis", func(t *testing.T) {
		client := redistest.Patient(t, servertest.Redis(t))
		s := newTill(t, client, servertest.Prefix(t))
		report := deduptest.Twice(t, subject(s, 300*time.Millisecond))
		assert.Empty(t, report.Doubled, "%+v", report)
		assert.NotZero(t, report.Faults, "%+v", report)
	})
}

// neverWithin: an owner that was paused for longer than its lease doubles nothing, and neither does
// one that crashed. After the end of the window the effect runs again.
func neverWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := redistest.Bubble(t)
		s := newTill(t, client, "")
		a, b := newWorker(t, s.store), newWorker(t, s.store)
		do := func(w *worker) (driver.Outcome, error) {
			return s.store.DoAtomic(t.Context(), w.d, dedup.Request{Key: "m"}, s.incr("m"))
		}
		claim, err := a.d.Claim(t.Context(), "m")
		require.NoError(t, err)
		time.Sleep(2 * lease)
		got, err := do(b)
		assert.Equal(t, dedup.Acquired, got, "after the lease")
		assert.NoError(t, err, "after the lease")
		assert.ErrorIs(t,
			s.store.Atomic(t.Context(), a.d, dedup.Completion{Claim: claim},
				s.incr("m")), dedup.ErrLeaseLost, "the late owner")
		s.want("m", 1, "a late owner finds that its claim is no longer on the key")
		time.Sleep(window - time.Minute)
		got, err = do(b)
		assert.Equal(t, dedup.Duplicate, got, "within the window")
		assert.NoError(t, err, "within the window")
		time.Sleep(2 * time.Minute)
		got, err = do(b)
		assert.Equal(t, dedup.Acquired, got, "after the window")
		assert.NoError(t, err, "after the window")
		s.want("m", 2, "the window has ended")
	})
}

// shop is a table of marks, and one of effects.
type shop struct {
	t      *testing.T
	db     *sql.DB
	marks  *sqladapter.Ledger
	ledger string
}

func newShop(t *testing.T, db *sql.DB, dialect sqladapter.Dialect, table string) *shop {
	t.Helper()
	marks, err := sqladapter.New(sqladapter.Config{Dialect: dialect, Namespace: "shop",
		Table: table})
	require.NoError(t, err)
	return &shop{t: t, db: db, marks: marks, ledger: table + "_effects"}
}

func (s *shop) migrate() {
	s.t.Helper()
	require.NoError(s.t, s.marks.Migrate(s.t.Context(), s.db))
	s.exec(`CREATE TABLE ` + s.ledger + ` (message varchar(100) NOT NULL)`)
	s.t.Cleanup(func() {
		ctx := context.WithoutCancel(s.t.Context())
		_, err := s.db.ExecContext(ctx, `DROP TABLE `+s.ledger)
		assert.NoError(s.t, err)
		assert.NoError(s.t, s.marks.Migrations().To(ctx, s.db, 0))
	})
}

func (s *shop) exec(query string) {
	s.t.Helper()
	_, err := s.db.ExecContext(s.t.Context(), query)
	require.NoError(s.t, err)
}

func (s *shop) effect(ctx context.Context, tx *sql.Tx, k string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO `+s.ledger+` (message) VALUES ('`+k+`')`)
	return err
}

func (s *shop) deliver(k string) error {
	_, err := s.marks.Do(s.t.Context(), s.db, k, func(ctx context.Context, tx *sql.Tx) error {
		return s.effect(ctx, tx, k)
	})
	return err
}

func (s *shop) want(k string, want int, why string) {
	s.t.Helper()
	var got int
	require.NoError(s.t, s.db.QueryRowContext(s.t.Context(),
		`SELECT count(*) FROM `+s.ledger+` WHERE message = '`+k+`'`).Scan(&got))
	assert.Equal(s.t, want, got, "%s: effects, %s", k, why)
}

// engine is a database of the SQL tests.
type engine struct {
	Driver, DSN string
	Dialect     sqladapter.Dialect
}

var engines = map[string]func(t *testing.T) engine{
	"sqlite": func(t *testing.T) engine {
		return engine{"sqlite", sqliteDSN(t), sqladapter.SQLite}
	},
	"postgres": func(t *testing.T) engine {
		return engine{"pgx", servertest.Postgres(t), sqladapter.Postgres}
	},
	"mariadb": func(t *testing.T) engine {
		return engine{"mysql", servertest.MariaDB(t), sqladapter.MySQL}
	},
}

func sqliteDSN(t *testing.T) string {
	return "file:" + filepath.Join(t.TempDir(), "shop.db") +
		"?_txlock=immediate&_pragma=busy_timeout(60000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"
}

func (e engine) open(t *testing.T) *sql.DB {
	t.Helper()
	open := sql.Open
	if e.Dialect == sqladapter.SQLite {
		open = sqladapter.OpenSQLite
	}
	db, err := open(e.Driver, e.DSN)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// killedInSQL kills a process with SIGKILL at each point of a transaction, and then has several
// processes deliver its message at once.
func killedInSQL(t *testing.T) {
	for name, start := range engines {
		t.Run(name, func(t *testing.T) {
			j := job{engine: start(t), Table: servertest.Prefix(t)}
			s := newShop(t, j.open(t), j.Dialect, j.Table)
			s.migrate()
			for i, point := range points {
				t.Run(point, func(t *testing.T) {
					j.Key, j.Point = fmt.Sprint("m", i), point
					j.killThere(t)
					s.want(j.Key, map[bool]int{true: 1}[point == afterCommit],
						"the process died at this point")
					var all sync.WaitGroup
					for range 4 {
						all.Go(func() {
							assert.NoError(t, s.deliver(j.Key))
						})
					}
					all.Wait()
					s.want(j.Key, 1, "mark and effect are one commit")
				})
			}
		})
	}
}
