package sql_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/pgxv5"
)

// endings has the statements that an effect must not send.
var endings = []string{`ROLLBACK`, `COMMIT`, `ROLLBACK AND CHAIN`, `COMMIT AND CHAIN`}

// wantEnded checks the error of an effect that has ended its own transaction. Do must not run it
// again: its later writes may be committed each time.
func wantEnded(t *testing.T, runs int, err error) {
	t.Helper()
	assert.Equal(t, 1, runs, "runs of the effect")
	require.Error(t, err)
	assert.ErrorContains(t, err, "ended its transaction")
	assert.True(t, dedup.IsPermanent(err), "%v", err)
	assert.False(t, sqladapter.Retryable(err), "%v", err)
}

// Prevents: Do returns nil for an effect that sends ROLLBACK or COMMIT as text. Then nothing is
// marked, or only half of the effect is in the transaction of the mark. Its later statements commit
// alone, and the next delivery runs all of it again.
func TestPostgresEffectEndsItsTransaction(t *testing.T) {
	for _, e := range []engine{postgres("cache_statement"), postgres("simple_protocol"),
		inGenerations(postgres("exec"))} {
		t.Run(e.name, func(t *testing.T) {
			s := newShop(t, e)
			runner, fence := s.runner(t), newTill(t, e)
			for _, text := range endings {
				runs := 0
				ends := func(ctx context.Context, tx *sql.Tx) error {
					runs++
					_, err := tx.ExecContext(ctx, text)
					assert.NoError(t, err)
					return s.effect(ctx, tx, text)
				}
				_, err := s.marks.Do(t.Context(), s.db, "do "+text, ends)
				wantEnded(t, runs, err)
				runs = 0
				_, err = s.marks.DoBatch(t.Context(), s.db,
					[]string{"batch " + text, "batch2 " + text},
					func(ctx context.Context, tx *sql.Tx, _ []int) error { return ends(ctx, tx) })
				wantEnded(t, runs, err)
				runs = 0
				_, err = runner.Run(t.Context(), "run "+text,
					func(ctx context.Context) ([]byte, bool, error) {
						tx, _ := sqladapter.TxFrom(ctx)
						return nil, false, ends(ctx, tx)
					})
				wantEnded(t, runs, err)
				runs = 0
				_, err = fence.Do(t.Context(), fence.db,
					sqladapter.Position{Topic: "t", TopicID: text[:4], Partition: int32(len(text))},
					0, 1,
					func(ctx context.Context, tx *sql.Tx, _ int64) error { return ends(ctx, tx) })
				wantEnded(t, runs, err)
			}
		})
	}
	t.Run("pgx", func(t *testing.T) {
		s := newShop(t, postgres("cache_statement"))
		for _, mode := range []string{"cache_statement", "exec", "simple_protocol"} {
			pool := openPool(t, postgresURL(t, servertest.Postgres(t), mode))
			for _, text := range endings {
				runs := 0
				ends := func(ctx context.Context, tx pgx.Tx) error {
					runs++
					_, err := tx.Exec(ctx, text)
					assert.NoError(t, err)
					_, err = tx.Exec(ctx, `INSERT INTO `+s.ledger+` (message) VALUES ($1)`, text)
					return err
				}
				_, err := pgxv5.Do(t.Context(), s.marks, pool, mode+text, ends)
				wantEnded(t, runs, err)
				runs = 0
				_, err = pgxv5.DoBatch(t.Context(), s.marks, pool, []string{mode + "batch" + text},
					func(ctx context.Context, tx pgx.Tx, _ []int) error { return ends(ctx, tx) })
				wantEnded(t, runs, err)
			}
		}
	})
}

// Prevents: an effect that calls Commit or Rollback of its transaction is delivered again and
// again, or its COMMIT is said to be in doubt.
func TestEffectEndsItsTransactionByMethod(t *testing.T) {
	methods := map[string]func(*sql.Tx) error{"Commit": (*sql.Tx).Commit,
		"Rollback": (*sql.Tx).Rollback}
	for _, e := range []engine{postgres("cache_statement"), mariadb(), sqlite()} {
		t.Run(e.name, func(t *testing.T) {
			s := newShop(t, e)
			runner, fence := s.runner(t), newTill(t, e)
			for name, end := range methods {
				runs := 0
				ends := func(tx *sql.Tx) error { runs++; return end(tx) }
				_, err := s.marks.Do(t.Context(), s.db, "do "+name,
					func(_ context.Context, tx *sql.Tx) error { return ends(tx) })
				wantEnded(t, runs, err)
				runs = 0
				_, err = s.marks.Do(t.Context(), s.db, "old "+name,
					func(context.Context, *sql.Tx) error { return nil })
				require.NoError(t, err)
				_, err = s.marks.DoBatch(t.Context(), s.db,
					[]string{"batch " + name, "old " + name},
					func(_ context.Context, tx *sql.Tx, _ []int) error { return ends(tx) })
				wantEnded(t, runs, err)
				runs = 0
				_, err = runner.Run(t.Context(), "run "+name,
					func(ctx context.Context) ([]byte, bool, error) {
						tx, _ := sqladapter.TxFrom(ctx)
						return nil, false, ends(tx)
					})
				wantEnded(t, runs, err)
				runs = 0
				_, err = fence.Do(t.Context(), fence.db,
					sqladapter.Position{Topic: name, TopicID: "id"}, 0, 1,
					func(_ context.Context, tx *sql.Tx, _ int64) error { return ends(tx) })
				wantEnded(t, runs, err)
			}
		})
	}
	t.Run("pgx", func(t *testing.T) {
		s := newShop(t, postgres("cache_statement"))
		pool := openPool(t, postgresURL(t, servertest.Postgres(t), "cache_statement"))
		runner, err := pgxv5.Runner(s.marks, pool)
		require.NoError(t, err)
		for name, end := range map[string]func(pgx.Tx, context.Context) error{
			"Commit": pgx.Tx.Commit, "Rollback": pgx.Tx.Rollback,
		} {
			runs := 0
			_, err := pgxv5.Do(t.Context(), s.marks, pool, name,
				func(ctx context.Context, tx pgx.Tx) error { runs++; return end(tx, ctx) })
			wantEnded(t, runs, err)
			runs = 0
			_, err = runner.Run(t.Context(), "run "+name,
				func(ctx context.Context) ([]byte, bool, error) {
					runs++
					tx, _ := pgxv5.TxFrom(ctx)
					return nil, false, end(tx, ctx)
				})
			wantEnded(t, runs, err)
		}
	})
}

// Do recognizes COMMIT as text by the mark that it leaves. A ROLLBACK as text looks like a rollback
// by the database, after which Do runs everything again.
func TestEffectEndsItsTransactionByText(t *testing.T) {
	for name, s := range map[string]*shop{"mariadb": newShop(t, mariadb()),
		"OpenSQLite": endedShop(t, sqladapter.OpenSQLite)} {
		t.Run(name, func(t *testing.T) {
			for _, text := range []string{`COMMIT`, `ROLLBACK`} {
				runs := 0
				_, err := s.marks.Do(t.Context(), s.db, text,
					func(ctx context.Context, tx *sql.Tx) error {
						runs++
						_, err := tx.ExecContext(ctx, text)
						return err
					})
				assert.Equal(t, text == `COMMIT`, dedup.IsPermanent(err), "%s: %v", text, err)
				assert.Equal(t, text == `ROLLBACK`, sqladapter.Retryable(err), "%s: %v", text, err)
				assert.Equal(t, map[string]int{`COMMIT`: 1, `ROLLBACK`: 5}[text], runs, text)
			}
		})
	}
}

// An effect may use savepoints. In one of them it may move the fence once more.
func TestPostgresEffectWithSavepoints(t *testing.T) {
	s := newShop(t, postgres("cache_statement"))
	fence, p := newTill(t, postgres("cache_statement")),
		sqladapter.Position{Topic: "t", TopicID: "id"}
	effect := func(ctx context.Context, tx *sql.Tx) error {
		for _, text := range []string{`SAVEPOINT a`,
			`INSERT INTO ` + s.ledger + ` VALUES ('undone')`, `ROLLBACK TO a`, `SAVEPOINT b`} {
			if _, err := tx.ExecContext(ctx, text); err != nil {
				return err
			}
		}
		if err := s.effect(ctx, tx, "m"); err != nil {
			return err
		}
		if _, err := fence.AdvanceTx(ctx, tx, p, 1, 2); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `RELEASE b`)
		return err
	}
	_, err := s.marks.Do(t.Context(), s.db, "m", effect)
	require.NoError(t, err)
	s.wantEffects(t, []string{"m"})
	_, err = fence.Do(t.Context(), fence.db, p, 2, 3,
		func(ctx context.Context, tx *sql.Tx, _ int64) error {
			_, err := tx.ExecContext(ctx, `SAVEPOINT c`)
			require.NoError(t, err)
			_, err = fence.AdvanceTx(ctx, tx, p, 3, 4)
			return err
		})
	require.NoError(t, err)
}

// Prevents: a mark on a *sql.Conn on which nobody has begun a transaction is committed at once,
// before the effect, and a crash between the two loses the message.
func TestMarkTxOnAConnectionWithoutTransaction(t *testing.T) {
	forEachDeleting(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		conn, err := s.db.Conn(t.Context())
		require.NoError(t, err)
		defer func() { assert.NoError(t, conn.Close()) }()
		_, err = s.marks.MarkTx(t.Context(), conn, "m")
		var input *dedup.InputError
		require.ErrorAs(t, err, &input)
		assert.Equal(t, "tx", input.Field)
		_, err = s.marks.MarkBatchTx(t.Context(), conn, requests([]string{"m"}))
		require.ErrorAs(t, err, &input)
		s.wantMark(t, "m", false)

		for _, end := range []string{`ROLLBACK`, `COMMIT`} {
			_, err = conn.ExecContext(t.Context(), `BEGIN`)
			require.NoError(t, err)
			mark, err := s.marks.MarkTx(t.Context(), conn, "m")
			require.NoError(t, err)
			assert.True(t, mark.First())
			_, err = conn.ExecContext(t.Context(), end)
			require.NoError(t, err)
			s.wantMark(t, "m", end == `COMMIT`)
		}
	})
}

// Prevents: Do of the same key inside of its own effect waits for the outer transaction, which
// waits for it, until the context ends: the database sees one wait and no deadlock.
func TestTheSameKeyInsideItsEffect(t *testing.T) {
	for _, e := range []engine{postgres("cache_statement"), mariadb(), sqlite()} {
		t.Run(e.name, func(t *testing.T) {
			s := newShop(t, e)
			runner := s.runner(t)
			inner := func(context.Context, *sql.Tx) error {
				t.Error("ran inside of itself")
				return nil
			}
			refused := func(what string, err error) {
				t.Helper()
				assert.ErrorIs(t, err, dedup.ErrInFlight, what)
			}
			inside := func(ctx context.Context, _ *sql.Tx) error {
				mark, err := s.marks.Do(ctx, s.db, "m", inner)
				refused("Do", err)
				assert.Equal(t, dedup.InFlight, mark.Outcome)
				_, err = s.marks.DoBatch(ctx, s.db, []string{"m", "n"},
					func(ctx context.Context, tx *sql.Tx, _ []int) error { return inner(ctx, tx) })
				refused("DoBatch", err)
				_, err = runner.Run(ctx, "m", func(ctx context.Context) ([]byte, bool, error) {
					return nil, false, inner(ctx, nil)
				})
				refused("Runner", err)
				return err
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, err := s.marks.Do(ctx, s.db, "m", inside)
			refused("the effect's error", err)
			_, err = s.marks.DoBatch(ctx, s.db, []string{"l", "m"},
				func(ctx context.Context, tx *sql.Tx, _ []int) error { return inside(ctx, tx) })
			refused("the batch's error", err)
			if e.dialect == sqladapter.SQLite {
				return // it has one writer, for all keys
			}
			_, err = s.marks.Do(t.Context(), s.db, "m", func(ctx context.Context, _ *sql.Tx) error {
				_, err := s.marks.Do(ctx, s.db, "another", func(context.Context, *sql.Tx) error {
					return nil
				})
				return err
			})
			require.NoError(t, err)
		})
	}
	t.Run("pgx", func(t *testing.T) {
		s := newShop(t, postgres("cache_statement"))
		pool := openPool(t, servertest.Postgres(t))
		_, err := pgxv5.Do(t.Context(), s.marks, pool,
			"m", func(ctx context.Context, _ pgx.Tx) error {
				_, err := pgxv5.Do(ctx, s.marks, pool, "m", func(context.Context, pgx.Tx) error {
					return nil
				})
				return err
			})
		assert.ErrorIs(t, err, dedup.ErrInFlight)
	})
	// the same key in two databases: a transfer between them
	t.Run("another database", func(t *testing.T) {
		one, two := newShop(t, sqlite()), newShop(t, sqlite())
		_, err := one.marks.Do(t.Context(), one.db, "m",
			func(ctx context.Context, _ *sql.Tx) error {
				_, err := one.marks.Do(ctx, two.db, "m", func(context.Context, *sql.Tx) error {
					return nil
				})
				// the table of two has another name: the error shows that Do has asked the database
				assert.ErrorContains(t, err, "no such table")
				_, err = two.marks.Do(ctx, two.db, "m", func(context.Context, *sql.Tx) error {
					return nil
				})
				return err
			})
		require.NoError(t, err)
	})
}

// Prevents: after a failover without a loss of connections the pool hands out connections of a
// server that takes no writes, until somebody restarts the program. Here
// the old sessions are read-only, as those of a demoted primary, and new sessions are not.
func TestReadOnlyConnectionsAreDropped(t *testing.T) {
	for _, e := range []engine{postgres("cache_statement"), mariadb()} {
		t.Run(e.name, func(t *testing.T) {
			s := newShop(t, e)
			set := `SET default_transaction_read_only = on`
			if e.dialect == sqladapter.MySQL {
				set = `SET SESSION TRANSACTION READ ONLY`
			}
			var conns []*sql.Conn
			for range 8 {
				conn, err := s.db.Conn(t.Context())
				require.NoError(t, err)
				_, err = conn.ExecContext(t.Context(), set)
				require.NoError(t, err)
				conns = append(conns, conn)
			}
			for _, conn := range conns {
				require.NoError(t, conn.Close())
			}
			for _, message := range []string{"m", "n"} {
				mark, err := s.marks.Do(t.Context(), s.db, message,
					func(ctx context.Context, tx *sql.Tx) error {
						return s.effect(ctx, tx, message)
					})
				require.NoError(t, err)
				assert.True(t, mark.First())
			}
			s.wantEffects(t, []string{"m", "n"})
		})
	}
	t.Run("pgx", func(t *testing.T) {
		s := newShop(t, postgres("cache_statement"))
		pool := openPool(t, servertest.Postgres(t))
		for _, c := range pool.AcquireAllIdle(t.Context()) {
			c.Release()
		}
		conn, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), `SET default_transaction_read_only = on`)
		require.NoError(t, err)
		conn.Release()
		_, err = pgxv5.Do(t.Context(), s.marks, pool, "m", func(context.Context, pgx.Tx) error {
			return nil
		})
		require.NoError(t, err)
	})
}
