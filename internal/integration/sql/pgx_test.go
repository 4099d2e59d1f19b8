package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/integration/internal/commitcut"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/pgxv5"
)

// pgxShop is a shop whose transactions are pgx's own.
type pgxShop struct {
	*shop
	pool *pgxpool.Pool
}

// forEachMode runs a test with a pool in every query mode of pgx.
func forEachMode(t *testing.T, test func(t *testing.T, s *pgxShop, mode string),
	edit ...func(*sqladapter.Config)) {
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec",
		"simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, postgres("cache_statement"), edit...)
			test(t, &pgxShop{s, openPool(t, postgresURL(t, servertest.Postgres(t), mode))}, mode)
		})
	}
}

func openPool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func (s *pgxShop) pgxEffect(ctx context.Context, tx pgx.Tx, message string) error {
	_, err := tx.Exec(ctx, `INSERT INTO `+s.ledger+` (message) VALUES ($1)`, message)
	return err
}

func (s *pgxShop) pgxDo(ctx context.Context, message string,
	after ...func(tx pgx.Tx) error) (sqladapter.Mark, error) {
	return pgxv5.Do(ctx, s.marks, s.pool, message, func(ctx context.Context, tx pgx.Tx) error {
		err := s.pgxEffect(ctx, tx, message)
		for _, f := range after {
			err = errors.Join(err, f(tx))
		}
		return err
	})
}

func (s *pgxShop) pgxDoBatch(ctx context.Context, batch []string) ([]sqladapter.Mark, error) {
	return pgxv5.DoBatch(ctx, s.marks, s.pool, batch,
		func(ctx context.Context, tx pgx.Tx, first []int) error {
			for _, i := range first {
				if err := s.pgxEffect(ctx, tx, batch[i]); err != nil {
					return err
				}
			}
			return nil
		})
}

// TestPgxCommitCut: Do and DoBatch over a pool, whose COMMIT travels with a savepoint, under every
// cut of [TestCommitCut].
func TestPgxCommitCut(t *testing.T) {
	for _, mode := range pgxModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, postgres(mode))
			c, url := commitcut.Postgres(t, servertest.Postgres(t))
			p := &pgxShop{s, openPool(t, postgresURL(t, url, mode))}
			for _, w := range []method{
				{"Do", 1, func(_ *shop, ctx context.Context, batch []string) (bool, error) {
					mark, err := p.pgxDo(ctx, batch[0])
					return mark.First(), err
				}},
				{"DoBatch", 3, func(_ *shop, ctx context.Context, batch []string) (bool, error) {
					marks, err := p.pgxDoBatch(ctx, batch)
					if err != nil {
						return false, err
					}
					return marks[0].First(), nil
				}},
			} {
				t.Run(w.name, func(t *testing.T) { s.underCuts(t, c, w) })
			}
		})
	}
}

// TestPgxArrays: pgx writes marks in binary form, and database/sql writes them as text. Each reads
// the marks of the other, with fingerprints and without, in every mode.
func TestPgxArrays(t *testing.T) {
	reqs := []dedup.Request{{Key: "plain"}, {Key: "bound"}, {Key: "zero"}}
	reqs[1].Fingerprint = driver.FingerprintOf([]byte("10 EUR"))
	changed := slices.Clone(reqs)
	changed[0].Fingerprint = driver.FingerprintOf([]byte("10 EUR")) // one side has none
	changed[1].Fingerprint = driver.FingerprintOf([]byte("99 EUR"))
	want := []driver.Outcome{dedup.Duplicate, dedup.Mismatch, dedup.Duplicate}
	outcomes := func(marks []sqladapter.Mark) (all []driver.Outcome) {
		for _, m := range marks {
			all = append(all, m.Outcome)
		}
		return all
	}
	forEachMode(t, func(t *testing.T, s *pgxShop, _ string) {
		overPgx := func(reqs []dedup.Request) (marks []sqladapter.Mark) {
			require.NoError(t, pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) (err error) {
				marks, err = s.marks.MarkBatchTx(t.Context(), pgxv5.Wrap(tx), reqs)
				return err
			}))
			return marks
		}
		overSQL := func(reqs []dedup.Request) []sqladapter.Mark {
			tx := begin(t, s.db, sql.LevelDefault)
			marks, err := s.marks.MarkBatchTx(t.Context(), tx, reqs)
			require.NoError(t, err)
			require.NoError(t, tx.Commit())
			return marks
		}
		for i, methods := range [][2]func([]dedup.Request) []sqladapter.Mark{{overPgx, overSQL},
			{overSQL, overPgx}, {overPgx, overPgx}} {
			mine, theirs := slices.Clone(reqs), slices.Clone(changed)
			for n := range mine {
				mine[n].Scope = fmt.Sprint(i)
				theirs[n].Scope = fmt.Sprint(i)
			}
			for _, m := range methods[0](mine) {
				assert.True(t, m.First())
			}
			assert.Equal(t, want, outcomes(methods[1](theirs)))
			mark, found, err := s.marks.Lookup(t.Context(), s.db, "bound",
				dedup.WithScope(fmt.Sprint(i)))
			require.NoError(t, err)
			require.True(t, found)
			assert.Equal(t, reqs[1].Fingerprint, mark.Fingerprint)
		}
	})
}

// TestPgx: first, duplicate with its result, mismatch, failure, and the caller's own
// transaction with a savepoint.
func TestPgx(t *testing.T) {
	forEachMode(t, func(t *testing.T, s *pgxShop, _ string) {
		mark, err := s.pgxDo(t.Context(), "m", func(tx pgx.Tx) error {
			return s.marks.SaveResultTx(t.Context(), pgxv5.Wrap(tx), "m", []byte{0, '\'', 0xff})
		})
		require.NoError(t, err)
		require.True(t, mark.First(), "first: %v", mark.Outcome)
		mark, err = s.pgxDo(t.Context(), "m")
		require.NoError(t, err)
		assert.Equal(t, dedup.Duplicate, mark.Outcome, "duplicate")
		assert.Equal(t, "\x00'\xff", string(mark.Result), "duplicate")
		_, err = s.pgxDo(t.Context(), "bad", func(pgx.Tx) error {
			return errDomain
		})
		assert.ErrorIs(t, err, errDomain, "failure")
		err = pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
			mark := func(tx pgx.Tx, want driver.Outcome, payload string) {
				got, err := s.marks.MarkTx(t.Context(), pgxv5.Wrap(tx), "own",
					dedup.WithFingerprint([]byte(payload)))
				assert.Equal(t, want, got.Outcome, "own transaction")
				assert.Equal(t, want == dedup.Mismatch, err != nil, "own transaction")
			}
			mark(tx, dedup.Acquired, "10 EUR")
			inner, err := tx.Begin(t.Context()) // a savepoint
			if err != nil {
				return err
			}
			mark(inner, dedup.Duplicate, "10 EUR")
			mark(inner, dedup.Mismatch, "99 EUR")
			return errors.Join(inner.Rollback(t.Context()), s.pgxEffect(t.Context(), tx, "own"))
		})
		require.NoError(t, err)
		s.wantMark(t, "own", true)
		s.wantMark(t, "bad", false)
		s.wantEffects(t, []string{"m", "own"})
		assert.Zero(t, s.pool.Stat().AcquiredConns(), "connections are still in a transaction")
	})
}

// TestPgxOverlappingBatches: 8 at a time, in different orders, at the strictest level too.
func TestPgxOverlappingBatches(t *testing.T) {
	forEachMode(t, func(t *testing.T, s *pgxShop, _ string) {
		all := messages(200)
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				mine := slices.Clone(all)
				rng := rand.New(rand.NewPCG(5, uint64(w)))
				rng.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
				_, err := s.pgxDoBatch(t.Context(), mine)
				assert.NoError(t, err, "batch")
			})
		}
		wg.Wait()
		s.wantEffects(t, all)
	})
}

// TestPgxSerializable: the level of Config.Isolation reaches the server, and Do runs the loser of a
// race again.
func TestPgxSerializable(t *testing.T) {
	serializable := func(c *sqladapter.Config) { c.Isolation = sql.LevelSerializable }
	forEachMode(t, func(t *testing.T, s *pgxShop, _ string) {
		runs := 0
		mark, err := s.pgxDo(t.Context(), "m", func(tx pgx.Tx) error {
			var level string
			err := tx.QueryRow(t.Context(),
				`SHOW transaction_isolation`).Scan(&level)
			require.NoError(t, err)
			assert.Equal(t, "serializable", level)
			if runs++; runs > 1 {
				return nil
			}
			_, err = tx.Exec(t.Context(),
				`DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '40001'; END $$`)
			return err
		})
		require.NoError(t, err)
		assert.True(t, mark.First(), "Do = %v", mark.Outcome)
		assert.Equal(t, 2, runs, "Do = %v", mark.Outcome)
		s.wantEffects(t, []string{"m"})
	}, serializable)
}

// TestPgxKilledBackend: the server ends the session between effect and commit.
func TestPgxKilledBackend(t *testing.T) {
	forEachMode(t, func(t *testing.T, s *pgxShop, _ string) {
		runs := 0
		mark, err := s.pgxDo(t.Context(), "m", func(tx pgx.Tx) error {
			if runs++; runs == 1 {
				terminate(t, s.db, int(tx.Conn().PgConn().PID()))
			}
			return nil
		})
		require.NoError(t, err)
		assert.True(t, mark.First(), "Do = %v", mark.Outcome)
		assert.Equal(t, 2, runs, "Do = %v", mark.Outcome)
		s.wantEffects(t, []string{"m"})
	})
}

// TestPgxLostCommit: COMMIT is cut in each way. Do finds out by itself. A caller that commits alone
// asks Confirm, and Confirm agrees with the database.
func TestPgxLostCommit(t *testing.T) {
	forEachMode(t, func(t *testing.T, s *pgxShop, mode string) {
		cutter, url := commitcut.Postgres(t, servertest.Postgres(t))
		through := &pgxShop{s.shop, openPool(t, postgresURL(t, url, mode))}
		var all []string
		for _, how := range []commitcut.How{commitcut.Lost, commitcut.Torn, commitcut.Late,
			commitcut.Undelivered} {
			done := fmt.Sprintf("do, %v", how)
			cutter.Arm(commitcut.Cut{How: how, Bytes: 3})
			mark, err := through.pgxDo(t.Context(), done)
			require.NoError(t, err, "%s: %v", done, mark.Outcome)
			assert.Equal(t, how == commitcut.Undelivered, mark.First(), "%s: %v", done,
				mark.Outcome)
			alone := fmt.Sprintf("alone, %v", how)
			mark = through.lose(t, alone, func() { cutter.Arm(commitcut.Cut{How: how, Bytes: 3}) })
			want := sqladapter.Committed
			if how == commitcut.Undelivered {
				want = sqladapter.NotCommitted
			}
			got, err := pgxv5.Confirm(t.Context(), s.marks, s.pool, alone, mark)
			require.NoError(t, err, "%s: Confirm", alone)
			assert.Equal(t, want, got, "%s: Confirm", alone)
			s.wantMark(t, alone, how != commitcut.Undelivered)
			if all = append(all, done); how != commitcut.Undelivered {
				all = append(all, alone)
			}
		}
		s.wantEffects(t, all)
	})
}

// lose marks in a transaction whose COMMIT gets no answer.
func (s *pgxShop) lose(t *testing.T, message string, arm func()) sqladapter.Mark {
	t.Helper()
	tx, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	mark, err := s.marks.MarkTx(t.Context(), pgxv5.Wrap(tx), message)
	if err == nil {
		err = s.pgxEffect(t.Context(), tx, message)
	}
	require.NoError(t, err)
	arm()
	err = tx.Commit(t.Context())
	assert.True(t, sqladapter.Retryable(err), "%s: COMMIT = %v, want it to be lost", message, err)
	return mark
}
