package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/sqladapter"
)

// TestRunnerKilled: the server ends the session during the effect, several times in a row.
func TestRunnerKilled(t *testing.T) {
	for _, e := range []engine{postgres("cache_statement"), mariadb()} {
		t.Run(e.name, func(t *testing.T) {
			s := newShop(t, e)
			admin := e.open(t)
			runs := 0
			res, err := s.runner(t).Run(t.Context(), "m",
				s.writes("m", "receipt", false, func(ctx context.Context, tx execTx) error {
					if runs++; runs > 2 {
						return nil
					}
					return s.endSession(ctx, t, admin, tx.(*sql.Tx)) //nolint:forcetypeassert // of database/sql
				}))
			require.NoError(t, err)
			assert.Equal(t, dedup.Acquired, res.Outcome)
			assert.Equal(t, "receipt", string(res.Value))
			assert.Equal(t, 3, res.Attempt)
			assert.Equal(t, 3, runs)
			s.wantEffects(t, []string{"m"})
		})
	}
}

// endSession kills the session of a transaction, and returns the error of the next statement.
func (s *shop) endSession(ctx context.Context, t *testing.T, admin *sql.DB, tx *sql.Tx) error {
	var id int
	who := `SELECT pg_backend_pid()`
	if s.dialect == sqladapter.MySQL {
		who = `SELECT connection_id()`
	}
	if err := tx.QueryRowContext(ctx, who).Scan(&id); err != nil {
		return err
	}
	if s.dialect == sqladapter.MySQL {
		_, err := admin.ExecContext(ctx, fmt.Sprintf(`KILL CONNECTION %d`, id))
		assert.NoError(t, err)
	} else {
		terminate(t, admin, id)
	}
	return s.effect(ctx, tx, "after the end")
}

// TestRunnerDeadlock: two effects lock two rows in opposite orders. The Runner runs the
// victim again, even if its effect returns nil or asks for undo: the server has also rolled back
// its mark.
func TestRunnerDeadlock(t *testing.T) {
	for _, e := range []engine{postgres("cache_statement"), pgxEngine(), mariadb(),
		inGenerations(mariadb())} {
		for _, swallow := range []bool{false, true} {
			for _, undo := range []bool{false, true} {
				if swallow && e.dialect == sqladapter.Postgres {
					continue // TestRunnerUndoAfterAnError
				}
				t.Run(fmt.Sprintf("%s/swallow %v/undo %v", e.name, swallow, undo),
					func(t *testing.T) {
						s := newShop(t, e)
						s.runnersDeadlock(t, swallow, undo)
					})
			}
		}
	}
}

func (s *shop) runnersDeadlock(t *testing.T, swallow, undo bool) {
	accounts := s.ledger + "_accounts"
	s.exec(t, `CREATE TABLE `+accounts+` (id int PRIMARY KEY, balance int NOT NULL)`)
	t.Cleanup(func() { s.exec(t, `DROP TABLE `+accounts) })
	s.exec(t, `INSERT INTO `+accounts+` VALUES (1, 0), (2, 0)`)
	r := s.runner(t)
	var runs atomic.Int64
	var both, wg sync.WaitGroup
	both.Add(2)
	transfer := func(key string, from, to int) {
		met := sync.OnceFunc(func() { both.Done(); both.Wait() }) // only in the first run
		res, err := r.Run(t.Context(), key,
			s.writes(key, "receipt of "+key, undo, func(ctx context.Context, tx execTx) error {
				runs.Add(1)
				for i, id := range []int{from, to} {
					_, err := tx.ExecContext(ctx,
						fmt.Sprintf(`UPDATE %s SET balance = balance + 1 WHERE id = %d`,
							accounts, id))
					if err != nil && swallow {
						return nil
					}
					if err != nil {
						return err
					}
					if i == 0 {
						met()
					}
				}
				return nil
			}))
		require.NoError(t, err)
		assert.Equal(t, dedup.Acquired, res.Outcome, key)
		assert.Equal(t, "receipt of "+key, string(res.Value), key)
	}
	wg.Go(func() { transfer("there", 1, 2) })
	wg.Go(func() { transfer("back", 2, 1) })
	wg.Wait()
	var sum, want int
	done := []string{}
	if !undo {
		want, done = 4, []string{"there", "back"}
	}
	require.NoError(t, s.db.QueryRowContext(t.Context(),
		`SELECT sum(balance) FROM `+accounts).Scan(&sum))
	assert.Equal(t, want, sum, "the balances add up")
	// The victim may meet the other transaction again.
	assert.GreaterOrEqual(t, runs.Load(), int64(3))
	s.wantEffects(t, done)
	for _, key := range []string{"there", "back"} {
		mark, _, err := s.marks.Lookup(t.Context(), s.db, key)
		require.NoError(t, err, key)
		assert.Equal(t, "receipt of "+key, string(mark.Result), key)
	}
}

// TestRunnerUndoAfterAnError: PostgreSQL has aborted the transaction. The Runner can still
// record a refusal, but not a success.
func TestRunnerUndoAfterAnError(t *testing.T) {
	forEachPostgres(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		r := s.runner(t)
		breaks := func(ctx context.Context, tx execTx) error {
			_, err := tx.ExecContext(ctx, `SELECT 1/0`)
			assert.Error(t, err, "1/0 is not an error")
			return nil
		}
		res, err := r.Run(t.Context(), "m", s.writes("m", "paid", false, breaks))
		assert.Error(t, err, "a success that is not one: %v", res.Outcome)
		assert.Nil(t, res.Value, "a success that is not one: %v", res.Outcome)
		s.wantMark(t, "m", false)
		for _, want := range []driver.Outcome{dedup.Acquired, dedup.Duplicate} {
			res, err := r.Run(t.Context(), "m", s.writes("m", "refused", true, breaks))
			wantRun(t, res, err, want, "refused")
		}
		s.wantEffects(t, nil)
	})
}

// TestRunnerCommittedByItself: MySQL commits what is open before it obeys TRUNCATE. The result is
// not saved with a mark that others see already, and the error is permanent.
func TestRunnerCommittedByItself(t *testing.T) {
	for _, undo := range []bool{false, true} {
		t.Run(fmt.Sprint("undo ", undo), func(t *testing.T) {
			s := newShop(t, mariadb())
			empty := s.ledger + "_empty"
			s.exec(t, `CREATE TABLE `+empty+` (id int)`)
			t.Cleanup(func() { s.exec(t, `DROP TABLE `+empty) })
			runs := 0
			_, err := s.runner(t).Run(t.Context(), "m",
				s.writes("m", "receipt", undo, func(ctx context.Context, tx execTx) error {
					runs++
					if _, err := tx.ExecContext(ctx, `TRUNCATE TABLE `+empty); err != nil {
						return err
					}
					return s.effect(ctx, tx, "after")
				}))
			assert.True(t, dedup.IsPermanent(err), "%v", err)
			assert.ErrorContains(t, err, "committed by itself")
			assert.Equal(t, 1, runs)
			s.wantEffects(t, []string{"m"})
		})
	}
}

// TestRunnerCommitCut: COMMIT or its answer is lost. The next call with the same key finds one
// effect and the bytes that belong to it.
func TestRunnerCommitCut(t *testing.T) {
	for _, e := range cuttables([]string{"cache_statement", "exec"}) {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, e.engine)
			c, db := e.through(t)
			through := *s
			through.db = db
			r := through.runner(t)
			var all []string
			for round := range 18 {
				key := fmt.Sprint("key ", round)
				all = append(all, key)
				c.Arm(cutIn(round))
				var answers []string
				effect := func(ctx context.Context) ([]byte, bool, error) {
					answers = append(answers, fmt.Sprintf("%s, run %d", key, len(answers)))
					return s.writes(key, answers[len(answers)-1], false)(ctx)
				}
				s.asked(t, r, key, effect, &answers)
			}
			c.WantCuts(t, 18)
			s.wantEffects(t, all)
		})
	}
}

// asked repeats a call as a client does, and requires the answer of the last run.
func (s *shop) asked(t *testing.T, r *sqladapter.Runner, key string,
	effect func(context.Context) ([]byte, bool, error), answers *[]string) {
	t.Helper()
	for range maxDeliveries {
		res, err := r.Run(t.Context(), key, effect)
		if err == nil {
			assert.Equal(t, (*answers)[len(*answers)-1], string(res.Value), "%s: %v", key,
				res.Outcome)
			return
		}
		assert.False(t, !errors.Is(err, dedup.ErrInFlight) && !dedup.OutcomeUnknown(err), "%s: %v",
			key, err)
	}
	t.Errorf("%s: no end", key)
}
