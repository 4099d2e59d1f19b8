package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/migration"
	"github.com/onceward/onceward/sqladapter/pgxv5"
)

// till is a fence and a ledger of offsets. The ledger has no unique constraint: a doubled effect
// is two rows.
type till struct {
	*sqladapter.Fence
	t      *testing.T
	db     *sql.DB
	engine engine
	cfg    sqladapter.FenceConfig
	ledger string
	pool   *pgxpool.Pool // of an engine with pgx
}

// do is Fence.Do in the client that the engine has.
func (s *till) do(ctx context.Context, p sqladapter.Position, from, to int64,
	effect func(ctx context.Context, tx execTx, start int64) error) (sqladapter.Advance,
	error) {
	if s.pool != nil {
		return pgxv5.FenceDo(ctx, s.Fence, s.pool, p, from, to,
			func(ctx context.Context, tx pgx.Tx, start int64) error {
				return effect(ctx, pgxv5.Wrap(tx), start)
			})
	}
	return s.Do(ctx, s.db, p, from, to,
		func(ctx context.Context, tx *sql.Tx, start int64) error { return effect(ctx, tx, start) })
}

func newTill(t *testing.T, e engine, edit ...func(*sqladapter.FenceConfig)) *till {
	t.Helper()
	name := servertest.Prefix(t)
	s := &till{t: t, db: e.open(t), engine: e, ledger: name + "_ledger"}
	s.cfg = sqladapter.FenceConfig{Dialect: e.dialect, Group: "it's \"billing\"",
		Table: name + "_fence"}
	for _, f := range edit {
		f(&s.cfg)
	}
	if e.pgx {
		s.pool = openPool(t, postgresURL(t, servertest.Postgres(t), "cache_statement"))
	}
	var err error
	s.Fence, err = sqladapter.NewFence(s.cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		s.exec(`DROP TABLE IF EXISTS ` + s.ledger)
		assert.NoError(t, s.Migrations().To(context.WithoutCancel(t.Context()), s.db, 0))
	})
	require.NoError(t, s.Migrate(t.Context(), s.db))
	s.exec(`CREATE TABLE ` + s.ledger + ` (pos bigint NOT NULL)`)
	return s
}

func (s *till) exec(query string) {
	s.t.Helper()
	_, err := s.db.ExecContext(context.WithoutCancel(s.t.Context()), query)
	assert.NoError(s.t, err, query)
}

// record has the effects of [start, to) in tx.
func (s *till) record(ctx context.Context, tx execTx, start, to int64) error {
	for pos := start; pos < to; pos++ {
		if _, err := tx.ExecContext(ctx,
			fmt.Sprintf(`INSERT INTO %s (pos) VALUES (%d)`, s.ledger, pos)); err != nil {
			return err
		}
	}
	return nil
}

// once has the effects of a batch with Do, as the documentation says.
func (s *till) once(p sqladapter.Position, from, to int64) (sqladapter.Advance, error) {
	return s.do(s.t.Context(), p, from,
		to, func(ctx context.Context, tx execTx, start int64) error {
			return s.record(ctx, tx, start, to)
		})
}

// wantLedger requires every offset of [0, n) once.
func (s *till) wantLedger(n int64) {
	s.t.Helper()
	var all, distinct, highest int64
	query := `SELECT count(*), count(DISTINCT pos), coalesce(max(pos), -1) FROM ` + s.ledger
	err := s.db.QueryRowContext(s.t.Context(), query).Scan(&all, &distinct,
		&highest)
	require.NoError(s.t, err)
	assert.Equal(s.t, n, all)
	assert.Equal(s.t, n, distinct)
	assert.Equal(s.t, n-1, highest)
}

func (s *till) wantNext(p sqladapter.Position, want int64) {
	s.t.Helper()
	next, found, err := s.Lookup(s.t.Context(), s.db, p)
	require.NoError(s.t, err)
	assert.Equal(s.t, want, next)
	assert.Equal(s.t, want > 0, found)
}

func (s *till) begin(level sql.IsolationLevel) *sql.Tx { return begin(s.t, s.db, level) }

func payments(partition int32) sqladapter.Position {
	return sqladapter.Position{Topic: "payments.v1", TopicID: "pXbM4mQvT1iPzC0yRr0nEg",
		Partition: partition}
}

// TestFenceMoves: a redelivered offset has no second effect, and the fence passes over a gap and
// reports it. Both hold in a transaction of Do and in the caller's, which commits in any case.
func TestFenceMoves(t *testing.T) {
	forEachFence(t, func(t *testing.T, e engine) {
		s := newTill(t, e)
		for name, once := range map[string]func(sqladapter.Position,
			int64, int64) (sqladapter.Advance, error){"Do": s.once, "AdvanceTx": s.advance} {
			t.Run(name, func(t *testing.T) {
				s.moves(t, sqladapter.Position{Topic: name, TopicID: "x", Partition: 1}, once)
			})
		}
	})
}

func (s *till) moves(t *testing.T, p sqladapter.Position,
	once func(p sqladapter.Position, from, to int64) (sqladapter.Advance, error)) {
	t.Helper()
	type advance = sqladapter.Advance
	for _, step := range []struct {
		name     string
		from, to int64
		want     advance
		next     int64
	}{
		{"the first batch", 0, 10, advance{Start: 0, New: true}, 10},
		{"the next", 10, 20, advance{Start: 10}, 20},
		{"again", 10, 20, advance{Start: 20}, 20},
		{"a zombie's, long done", 3, 7, advance{Start: 7}, 20},
		{"that once more", 3, 7, advance{Start: 7}, 20},
		{"half of it done", 15, 30, advance{Start: 20}, 30},
		{"all of it done, and more", 0, 30, advance{Start: 30}, 30},
		{"behind a gap", 40, 50, advance{Start: 40, Gap: 10}, 50},
		{"what lay in the gap", 30, 35, advance{Start: 35}, 50},
	} {
		got, err := once(p, step.from, step.to)
		require.NoError(t, err, step.name)
		assert.Equal(t, step.want, got, step.name)
		s.wantNext(p, step.next)
	}
	p.Partition = 2
	s.wantNext(p, 0)
	got, err := once(p, 40, 45)
	require.NoError(t, err)
	assert.Equal(t, advance{Start: 40, New: true}, got, "another partition")
}

// advance is a transaction of the caller's own.
func (s *till) advance(p sqladapter.Position, from, to int64) (sqladapter.Advance, error) {
	tx := s.begin(sql.LevelDefault)
	got, err := s.AdvanceTx(s.t.Context(), tx, p, from, to)
	if err != nil {
		return got, err
	}
	return got, tx.Commit()
}

// TestFenceApart: a recreated topic, another group, and a name that is the same only to a collation
// each have their own position.
func TestFenceApart(t *testing.T) {
	forEachDeleting(t, func(t *testing.T, e engine) {
		s := newTill(t, e)
		_, err := s.once(payments(1), 0, 10)
		require.NoError(t, err)
		for name, p := range map[string]sqladapter.Position{
			"created anew": {Topic: "payments.v1", TopicID: "qXbM4mQvT1iPzC0yRr0nEg", Partition: 1},
			"case of id":   {Topic: "payments.v1", TopicID: "PXbM4mQvT1iPzC0yRr0nEg", Partition: 1},
			"case of name": {Topic: "Payments.v1", TopicID: "pXbM4mQvT1iPzC0yRr0nEg", Partition: 1},
			"NULL":         {Topic: "NULL", TopicID: "NULL", Partition: 1},
		} {
			got, err := s.once(p, 0, 10)
			require.NoError(t, err, name)
			assert.True(t, got.New, name)
		}
		for _, group := range []string{"IT'S \"BILLING\"", "it's \"billing\" ", "日本"} {
			cfg := s.cfg
			cfg.Group = group
			other, err := sqladapter.NewFence(cfg)
			require.NoError(t, err)
			tx := s.begin(sql.LevelDefault)
			got, err := other.AdvanceTx(t.Context(), tx, payments(1), 0, 10)
			require.NoError(t, err, "group %q", group)
			assert.True(t, got.New, "group %q", group)
			_ = tx.Rollback()
		}
		tx := s.begin(sql.LevelDefault)
		require.NoError(t, s.Forget(t.Context(), tx, payments(1)))
		require.NoError(t, tx.Commit())
		s.wantNext(payments(1), 0)
	})
}

// TestFenceZombies: a partition has four owners at the same time, and each believes that it is
// the only one. They begin at the same offset, use batches of different sizes, die in the middle
// of a batch, and begin again behind the committed offset.
func TestFenceZombies(t *testing.T) {
	forEachFence(t, func(t *testing.T, e engine) {
		const n, owners = 400, 4
		s := newTill(t, e)
		crash := errors.New("the owner dies")
		var skipped, crashed atomic.Int64
		var wg sync.WaitGroup
		for owner := range owners {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(7, uint64(owner)))
				for from := int64(0); from < n; {
					to := min(from+1+rng.Int64N(25), n)
					dies := rng.IntN(3) == 0 || crashed.Load() == 0
					got, err := s.do(t.Context(), payments(1), from, to,
						func(ctx context.Context, tx execTx, start int64) error {
							if err := s.record(ctx, tx, start, to); err != nil {
								return err
							}
							if dies {
								return crash
							}
							return nil
						})
					switch {
					case errors.Is(err, crash): // its successor begins at an earlier offset
						crashed.Add(1)
						from = max(0, from-rng.Int64N(30))
					case err != nil && !sqladapter.Retryable(err):
						t.Error(err)
						return
					case err == nil:
						assert.Zero(t, got.Gap, "[%d, %d) found a gap", from, to)
						if got.Start > from {
							skipped.Add(1)
						}
						from = to
					}
				}
			})
		}
		wg.Wait()
		s.wantLedger(n)
		s.wantNext(payments(1), n)
		assert.NotZero(t, skipped.Load())
		assert.NotZero(t, crashed.Load())
	})
}

// TestFenceWaits: a second owner waits until the first transaction has ended, and then gets the
// right answer.
func TestFenceWaits(t *testing.T) {
	forEachDeleting(t, func(t *testing.T, e engine) {
		if e.dialect == sqladapter.SQLite {
			return // the second waits to begin
		}
		for name, end := range map[string]struct {
			how   func(*sql.Tx) error
			start int64
		}{"commit": {(*sql.Tx).Commit, 15}, "rollback": {(*sql.Tx).Rollback, 10}} {
			t.Run(name, func(t *testing.T) {
				s := newTill(t, e)
				_, err := s.once(payments(1), 0, 10)
				require.NoError(t, err)
				first, second := s.begin(sql.LevelReadCommitted), s.begin(sql.LevelReadCommitted)
				_, err = s.AdvanceTx(t.Context(), first, payments(1), 10, 15)
				require.NoError(t, err)
				answer := make(chan sqladapter.Advance, 1)
				go func() {
					got, err := s.AdvanceTx(t.Context(), second, payments(1), 10, 20)
					assert.NoError(t, err)
					answer <- got
				}()
				s.waitForOwner()
				select {
				case got := <-answer:
					t.Fatalf("answered before the first has ended: %+v", got)
				default:
				}
				require.NoError(t, end.how(first))
				assert.Equal(t, end.start, (<-answer).Start)
			})
		}
	})
}

// waitForOwner returns when a session waits for a lock on the till's table.
func (s *till) waitForOwner() {
	s.t.Helper()
	if s.engine.dialect == sqladapter.Postgres {
		waitForLock(s.t, s.db, s.cfg.Table)
		return
	}
	// InnoDB renews its tables of locks only when nobody has read them for 100 ms.
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	poll(s.t, "a second owner", func() bool {
		<-tick.C
		var n int
		query := `SELECT count(*) FROM /*M! information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT' AND trx_query */` +
			` /*!80000 performance_schema.data_lock_waits JOIN performance_schema.threads` +
			` ON thread_id = requesting_thread_id WHERE processlist_info */ LIKE '%` + s.cfg.Table + `%'`
		require.NoError(s.t, s.db.QueryRowContext(s.t.Context(), query).Scan(&n))
		return n > 0
	})
}

// Prevents: Do of a position inside of its own effect waits for the outer transaction, which waits
// for it.
func TestFenceInsideItsEffect(t *testing.T) {
	for _, e := range []engine{postgres("cache_statement"), pgxEngine(), mariadb(), sqlite()} {
		t.Run(e.name, func(t *testing.T) {
			s := newTill(t, e)
			p := sqladapter.Position{Topic: "t", TopicID: "i"}
			none := func(context.Context, execTx, int64) error {
				t.Error("ran inside of itself")
				return nil
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, err := s.do(ctx, p, 0, 10,
				func(ctx context.Context, _ execTx, _ int64) error {
					_, err := s.do(ctx, p, 0, 10, none)
					return err
				})
			require.ErrorIs(t, err, dedup.ErrInFlight)
			if e.dialect == sqladapter.SQLite {
				return // it has one writer, for all positions
			}
			_, err = s.do(t.Context(), p, 0, 10,
				func(ctx context.Context, _ execTx, _ int64) error {
					other := sqladapter.Position{Topic: "t", TopicID: "i", Partition: 1}
					_, err := s.do(ctx, other, 0, 10,
						func(context.Context, execTx, int64) error { return nil })
					return err
				})
			require.NoError(t, err)
		})
	}
}

// TestFenceLevels: at every isolation level a second owner reads the committed offset, or gets a
// retryable error.
func TestFenceLevels(t *testing.T) {
	forEachDeleting(t, func(t *testing.T, e engine) {
		if e.dialect == sqladapter.SQLite {
			return // it has one
		}
		for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead,
			sql.LevelSerializable} {
			t.Run(level.String(), func(t *testing.T) {
				s := newTill(t, e, func(c *sqladapter.FenceConfig) { c.Isolation = level })
				_, err := s.once(payments(1), 0, 10)
				require.NoError(t, err)
				aside := s.ledger + "_aside" // at SERIALIZABLE, InnoDB locks the rows that it reads
				s.exec(`CREATE TABLE ` + aside + ` (pos bigint NOT NULL)`)
				defer s.exec(`DROP TABLE ` + aside)
				late := s.begin(level)
				// its snapshot
				_, err = late.ExecContext(t.Context(),
					`SELECT count(*) FROM `+aside)
				require.NoError(t, err)
				for range 2 { // the second time the row is not changed
					_, err := s.once(payments(1), 10, 20)
					require.NoError(t, err)
				}
				got, err := s.AdvanceTx(t.Context(), late, payments(1), 10, 15)
				assert.False(t, err == nil && got.Start != 15, "%+v", got)
				assert.False(t, err != nil && !sqladapter.Retryable(err), "%+v", got)
				_ = late.Rollback()
				got, err = s.once(payments(1), 10, 15)
				require.NoError(t, err)
				assert.EqualValues(t, 15, got.Start, "run again")
				s.wantLedger(20)
			})
		}
	})
}

// TestFenceBatch: batches that have their partitions in opposite orders wait for each other and do
// not deadlock. Batches that lock one partition after the other would.
func TestFenceBatch(t *testing.T) {
	forEachDeleting(t, func(t *testing.T, e engine) {
		const partitions, rounds = 20, 15
		s := newTill(t, e)
		var wg sync.WaitGroup
		for owner := range 4 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(3, uint64(owner)))
				for round := int64(0); round < rounds; {
					spans := make([]sqladapter.Span, partitions)
					for i, p := range rng.Perm(partitions) {
						spans[i] = sqladapter.Span{Position: payments(int32(p)), From: round * 10,
							To: round*10 + 10}
					}
					tx, err := s.db.BeginTx(t.Context(), nil)
					if !assert.NoError(t, err) {
						return
					}
					found, err := s.AdvanceBatchTx(t.Context(), tx, spans)
					for i := range found {
						if found[i].Start != spans[i].To && err == nil {
							err = s.record(t.Context(), tx, int64(spans[i].Partition)*rounds+round,
								int64(spans[i].Partition)*rounds+round+1)
						}
					}
					if err == nil {
						err = tx.Commit()
					}
					_ = tx.Rollback()
					// InnoDB may deadlock over rows that do not exist yet
					refused := err != nil && (round > 0 || !sqladapter.Retryable(err))
					if !assert.False(t, refused, "%v", err) {
						return
					}
					if err == nil {
						round++
					}
				}
			})
		}
		wg.Wait()
		s.wantLedger(partitions * rounds)
	})
}

// TestFenceBusy: a lock timeout has its own error.
func TestFenceBusy(t *testing.T) {
	forEachDeleting(t, func(t *testing.T, e engine) {
		if e.dialect == sqladapter.SQLite {
			return
		}
		s := newTill(t, e)
		first, second := s.begin(sql.LevelDefault), s.begin(sql.LevelDefault)
		timeout := `SET LOCAL lock_timeout = '50ms'`
		if e.dialect == sqladapter.MySQL {
			timeout = `SET innodb_lock_wait_timeout = 1`
		}
		_, err := second.ExecContext(t.Context(), timeout)
		require.NoError(t, err)
		_, err = s.AdvanceTx(t.Context(), first, payments(1), 0, 10)
		require.NoError(t, err)
		got, err := s.AdvanceTx(t.Context(), second, payments(1), 0, 10)
		assert.ErrorIs(t, err, dedup.ErrInFlight, "%+v", got)
	})
}

// TestFenceClosed: in MySQL the fence refuses a transaction that has ended.
func TestFenceClosed(t *testing.T) {
	s := newTill(t, mariadb())
	tx := s.begin(sql.LevelDefault)
	_, err := tx.ExecContext(t.Context(), `ROLLBACK`)
	require.NoError(t, err)
	var input *dedup.InputError
	_, err = s.AdvanceTx(t.Context(), tx, payments(1), 0, 10)
	require.ErrorAs(t, err, &input)
	assert.Equal(t, "tx", input.Field)
	s.wantNext(payments(1), 0)
}

// TestFenceCheck: Check reports a table with another version before the first batch fails.
func TestFenceCheck(t *testing.T) {
	forEachDeleting(t, func(t *testing.T, e engine) {
		s := newTill(t, e)
		assert.NoError(t, s.Migrations().Check(t.Context(), s.db))
		require.NoError(t, s.Migrations().To(t.Context(), s.db, 0))
		var level *migration.LevelError
		require.ErrorAs(t, s.Migrations().Check(t.Context(), s.db), &level)
		assert.Equal(t, "fence", level.Component)
		assert.Zero(t, level.Has)
		assert.Equal(t, 1, level.Needs)
		_, err := s.once(payments(1), 0, 10)
		assert.Error(t, err, "there is no table, and the fence has moved")
	})
}
