package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
)

var errDomain = errors.New("no such account")

// do delivers a message with Do. The other steps of the transaction come after the effect.
func (s *shop) do(ctx context.Context, message string,
	after ...func(tx *sql.Tx) error) (sqladapter.Mark, error) {
	return s.marks.Do(ctx, s.db, message, func(ctx context.Context, tx *sql.Tx) error {
		if err := s.effect(ctx, tx, message); err != nil {
			return err
		}
		for _, f := range after {
			if err := f(tx); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *shop) wantDone(t *testing.T, message string) {
	t.Helper()
	mark, err := s.do(t.Context(), message)
	require.NoError(t, err)
	assert.Equal(t, dedup.Duplicate, mark.Outcome, message)
}

// TestDoOnce: first, duplicate, failure and panic, on every engine.
func TestDoOnce(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		mark, err := s.do(t.Context(), "m")
		require.NoError(t, err)
		require.True(t, mark.First(), "first: %v", mark.Outcome)
		s.wantDone(t, "m")
		_, err = s.do(t.Context(), "bad", func(*sql.Tx) error {
			return errDomain
		})
		assert.ErrorIs(t, err, errDomain, "failure")
		func() {
			defer func() {
				v := recover()
				assert.Equal(t, "boom", v)
			}()
			_, err := s.do(t.Context(), "bad", func(*sql.Tx) error { panic("boom") })
			t.Errorf("panic: %v", err)
		}()
		s.wantMark(t, "bad", false)
		s.wantEffects(t, []string{"m"})
		assert.Zero(t, s.db.Stats().InUse, "connections are still in a transaction")
	})
}

// TestDoCancelled: the end of the context rolls back what is not committed.
func TestDoCancelled(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		why := errors.New("the partition is gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		_, err := s.do(ctx, "m", func(*sql.Tx) error {
			cancel(why)
			return nil
		})
		assert.ErrorIs(t, err, why)
		s.wantMark(t, "m", false)
		s.wantEffects(t, nil)
		mark, err := s.do(t.Context(), "m")
		require.NoError(t, err)
		assert.True(t, mark.First(), "redelivery: %v", mark.Outcome)
		s.wantEffects(t, []string{"m"})
	})
}

// TestDoConcurrently: 16 callers deliver the same messages at once; each is first once.
func TestDoConcurrently(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		for _, level := range []sql.IsolationLevel{sql.LevelDefault, sql.LevelSerializable} {
			if e.dialect == sqladapter.SQLite && level != sql.LevelDefault {
				continue
			}
			t.Run(level.String(), func(t *testing.T) {
				s := newShop(t, e, func(c *sqladapter.Config) { c.Isolation = level })
				all := messages(10)
				var firsts atomic.Int64
				var wg sync.WaitGroup
				for range workers {
					wg.Go(func() {
						for _, message := range all {
							if s.doRepeatedly(t, message).First() {
								firsts.Add(1)
							}
						}
					})
				}
				wg.Wait()
				assert.Equal(t, int64(len(all)), firsts.Load(), "%d firsts for %d messages",
					firsts.Load(), len(all))
				s.wantEffects(t, all)
			})
		}
	})
}

// doRepeatedly delivers as a broker would: when 16 callers compete at SERIALIZABLE, one of them
// may use up its attempts.
func (s *shop) doRepeatedly(t *testing.T, message string) sqladapter.Mark {
	for range maxDeliveries {
		mark, err := s.do(t.Context(), message)
		if err == nil {
			return mark
		}
		if !assert.True(t, sqladapter.Retryable(err), "%q: %v is not retryable", message, err) {
			return mark
		}
	}
	t.Errorf("%q: no delivery of %d succeeded", message, maxDeliveries)
	return sqladapter.Mark{}
}

// TestDoRepeatsAfterTheCrashOfItsSession: the server ends the session between effect and
// commit. Do begins again by itself, and the effect happens once.
func TestDoRepeatsAfterTheCrashOfItsSession(t *testing.T) {
	forEachPostgres(t, func(t *testing.T, e engine) {
		admin := e.open(t)
		s := newShop(t, e)
		var kills int
		mark, err := s.do(t.Context(), "m", func(tx *sql.Tx) error {
			if kills++; kills > 1 {
				return nil
			}
			var pid int
			if err := tx.QueryRowContext(t.Context(),
				`SELECT pg_backend_pid()`).Scan(&pid); err != nil {
				return err
			}
			terminate(t, admin, pid)
			return nil
		})
		require.NoError(t, err)
		assert.True(t, mark.First(), "Do = %v", mark.Outcome)
		assert.Equal(t, 2, kills, "Do = %v", mark.Outcome)
		s.wantEffects(t, []string{"m"})
	})
}

// TestDoRepeatsADeadlock: two effects lock two rows in opposite orders. The one that the
// server kills is run again, and both are done.
func TestDoRepeatsADeadlock(t *testing.T) {
	forEachPostgres(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		accounts := servertest.Prefix(t) + "_accounts"
		s.exec(t, `CREATE TABLE `+accounts+` (id int PRIMARY KEY, balance int NOT NULL)`)
		t.Cleanup(func() { s.exec(t, `DROP TABLE `+accounts) })
		s.exec(t, `INSERT INTO `+accounts+` VALUES (1, 0), (2, 0)`)
		var runs atomic.Int64
		var both, wg sync.WaitGroup
		both.Add(2)
		transfer := func(message string, from, to int) {
			met := sync.OnceFunc(func() { both.Done(); both.Wait() }) // only in the first run
			mark, err := s.do(t.Context(), message, func(tx *sql.Tx) error {
				runs.Add(1)
				add := func(id int) error {
					_, err := tx.ExecContext(t.Context(),
						`UPDATE `+accounts+` SET balance = balance + 1 WHERE id = $1::int`, id)
					return err
				}
				if err := add(from); err != nil {
					return err
				}
				met()
				return add(to)
			})
			require.NoError(t, err)
			assert.True(t, mark.First(), "%s: %v", message, mark.Outcome)
		}
		wg.Go(func() { transfer("there", 1, 2) })
		wg.Go(func() { transfer("back", 2, 1) })
		wg.Wait()
		assert.False(t, runs.Load() < 3, "%d runs: there was no deadlock", runs.Load())
		var sum int
		err := s.db.QueryRowContext(t.Context(),
			`SELECT sum(balance) FROM `+accounts).Scan(&sum)
		require.NoError(t, err)
		assert.Equal(t, 4, sum, "the balances add up")
		s.wantEffects(t, []string{"there", "back"})
	})
}

// TestDoInFlight: a wait that the database's lock timeout cuts short is not repeated, and
// not acknowledged.
func TestDoInFlight(t *testing.T) {
	s := newShop(t, postgres("cache_statement"))
	holder := begin(t, s.db, sql.LevelDefault)
	_, err := s.marks.MarkTx(t.Context(), holder, "m")
	require.NoError(t, err)
	url := postgresURL(t, servertest.Postgres(t), "exec")
	impatient := &shop{db: openDB(t, "pgx", url+"&lock_timeout=50ms"), marks: s.marks,
		dialect: s.dialect, ledger: s.ledger}
	mark, err := impatient.do(t.Context(), "m")
	assert.ErrorIs(t, err, dedup.ErrInFlight)
	assert.Equal(t, dedup.InFlight, mark.Outcome)
	s.wantEffects(t, nil)
}

// TestDoSwallowedError: PostgreSQL has aborted the transaction, and the effect returns nil.
// Do must not report an effect as done that was not committed.
func TestDoSwallowedError(t *testing.T) {
	forEachPostgres(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		_, err := s.do(t.Context(), "m", func(tx *sql.Tx) error {
			_, _ = tx.ExecContext(t.Context(), `SELECT 1/0`)
			return nil
		})
		assert.Error(t, err)
		s.wantMark(t, "m", false)
		s.wantEffects(t, nil)
	})
}

// TestDoBesideAWriter: SQLite has one writer. If another writer keeps the file for longer than
// the busy timeout, Do returns an error that is retryable.
func TestDoBesideAWriter(t *testing.T) {
	file := filepath.Join(t.TempDir(), "marks.db")
	s := newShop(t, engine{name: "sqlite/impatient", dialect: sqladapter.SQLite,
		open: func(t *testing.T) *sql.DB {
			return openDB(t, "sqlite",
				"file:"+file+"?_txlock=deferred&_pragma=busy_timeout(1)&_pragma=journal_mode(WAL)")
		}})
	locked, free := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := s.do(t.Context(), "other", func(*sql.Tx) error {
			close(locked)
			<-free
			return nil
		})
		assert.NoError(t, err, "the other writer")
	})
	<-locked
	_, err := s.do(t.Context(), "m")
	assert.True(t, sqladapter.Retryable(err), "Do next to a writer = %v, want a retryable error",
		err)
	close(free)
	wg.Wait()
	mark, err := s.do(t.Context(), "m")
	require.NoError(t, err)
	assert.True(t, mark.First(), "Do = %v", mark.Outcome)
	s.wantEffects(t, []string{"m", "other"})
}

// doBatch delivers messages with DoBatch. The message "poison" fails its batch.
func (s *shop) doBatch(ctx context.Context, batch []string) ([]sqladapter.Mark, error) {
	return s.marks.DoBatch(ctx, s.db, batch,
		func(ctx context.Context, tx *sql.Tx, first []int) error {
			for _, i := range first {
				if err := s.effect(ctx, tx, batch[i]); err != nil {
					return err
				}
				if batch[i] == "poison" {
					return errDomain
				}
			}
			return nil
		})
}

// TestDoBatchOutcomes: bad keys are left out, aliases and duplicates do not run, and one failure
// rolls back the whole batch.
func TestDoBatchOutcomes(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		keys := []string{"a", "", "b", "a", "c\x00"}
		for round, want := range [][]driver.Outcome{
			{dedup.Acquired, dedup.Unknown, dedup.Acquired, dedup.Duplicate, dedup.Unknown},
			{dedup.Duplicate, dedup.Unknown, dedup.Duplicate, dedup.Duplicate, dedup.Unknown},
		} {
			marks, err := s.doBatch(t.Context(), keys)
			require.NoError(t, err)
			for i, mark := range marks {
				require.Equal(t, want[i], mark.Outcome, "round %d, item %d", round, i)
				assert.Equal(t, want[i] == dedup.Unknown, mark.Err != nil, "round %d, item %d",
					round, i)
			}
		}
		marks, err := s.doBatch(t.Context(), []string{"a", "d", "poison", "e"})
		assert.Nil(t, marks, "a batch with poison")
		assert.ErrorIs(t, err, errDomain, "a batch with poison")
		s.wantEffects(t, []string{"a", "b"})
		for _, message := range []string{"d", "poison", "e"} {
			s.wantMark(t, message, false)
		}
	})
}
