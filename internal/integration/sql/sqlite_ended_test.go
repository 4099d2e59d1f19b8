package sql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	lite "modernc.org/sqlite"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/sqladapter"
)

// reached has functions by name that a statement of SQLite calls while it runs.
var reached sync.Map

func init() {
	lite.MustRegisterScalarFunction("onceward_reached",
		1, func(_ *lite.FunctionContext, args []driver.Value) (driver.Value, error) {
			if f, ok := reached.Load(args[0]); ok {
				f.(func())() //nolint:forcetypeassert // see above
			}
			return "half", nil
		})
}

// ended has the ways in which SQLite ends a transaction by itself. Each is a statement of an effect
// that fails.
var ended = map[string]func(s *shop, ctx context.Context, tx *sql.Tx) error{
	// The context of the statement ends, and the effect's context continues.
	"interrupted": func(s *shop, ctx context.Context, tx *sql.Tx) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		reached.Store(s.ledger, func() { cancel() })
		defer reached.Delete(s.ledger)
		_, err := tx.ExecContext(ctx,
			`INSERT INTO `+s.ledger+
				` WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)`+
				` SELECT onceward_reached('`+s.ledger+`') FROM n`)
		return err
	},
	"full": func(s *shop, ctx context.Context, tx *sql.Tx) error {
		// SQLite then sets the limit to the present size
		if _, err := tx.ExecContext(ctx, `PRAGMA max_page_count = 1`); err != nil {
			return nil //nolint:nilerr // the test sees that nothing has ended
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO `+s.ledger+` VALUES (zeroblob(10000000))`)
		_, _ = tx.ExecContext(ctx, `PRAGMA max_page_count = 1000000000`)
		return err
	},
	"on conflict rollback": func(s *shop, ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT OR ROLLBACK INTO `+s.ledger+`_unique VALUES (1), (1)`)
		return err
	},
}

// after has the next steps of an effect that ignores the error.
var after = map[string]func(s *shop, ctx context.Context, tx *sql.Tx) error{
	"writes": func(s *shop, ctx context.Context, tx *sql.Tx) error {
		return s.effect(ctx, tx, "after")
	},
	// The savepoint begins a transaction, in which COMMIT finds something to commit.
	"savepoint": func(s *shop, ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `SAVEPOINT mine`); err != nil {
			return err
		}
		return s.effect(ctx, tx, "after")
	},
	"prepared": func(s *shop, ctx context.Context, tx *sql.Tx) error {
		stmt, err := tx.PrepareContext(ctx, `INSERT INTO `+s.ledger+` (message) VALUES (?)`)
		if err != nil {
			return err
		}
		defer func() { _ = stmt.Close() }()
		_, err = stmt.ExecContext(ctx, "after")
		return err
	},
	"returning": func(s *shop, ctx context.Context, tx *sql.Tx) error {
		var message string
		return tx.QueryRowContext(ctx,
			`INSERT INTO `+s.ledger+` (message) VALUES ('after') RETURNING message`).Scan(&message)
	},
}

// endedShop returns a shop in SQLite. open opens its pool.
func endedShop(t *testing.T, open func(driver, dsn string) (*sql.DB, error)) *shop {
	t.Helper()
	s := newShop(t, engine{name: "sqlite", dialect: sqladapter.SQLite,
		open: func(t *testing.T) *sql.DB {
			db, err := open("sqlite",
				sqliteDSN(filepath.Join(t.TempDir(), "marks.db"), "immediate")+
					"&_pragma=synchronous(OFF)")
			require.NoError(t, err)
			t.Cleanup(func() { _ = db.Close() })
			return db
		}})
	s.exec(t, `CREATE TABLE `+s.ledger+`_unique (id int PRIMARY KEY)`)
	return s
}

// deaf is an effect that continues although its transaction has ended by itself. This happens in
// its first runs.
func (s *shop) deaf(t *testing.T, end, then func(*shop, context.Context, *sql.Tx) error, times int,
	refused *error) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		if err := s.effect(ctx, tx, "m"); err != nil {
			return err
		}
		if times--; times < 0 {
			return nil
		}
		assert.Error(t, end(s, ctx, tx), "nothing has ended the transaction")
		*refused = then(s, ctx, tx)
		return nil
	}
}

// endedWays has every call that has an effect once for a key.
func endedWays(t *testing.T, s *shop) map[string]func(ctx context.Context,
	effect func(context.Context, *sql.Tx) error) error {
	t.Helper()
	fence, err := sqladapter.NewFence(sqladapter.FenceConfig{Dialect: sqladapter.SQLite, Group: "g",
		Table: s.table + "_fence"})
	require.NoError(t, err)
	require.NoError(t, fence.Migrate(t.Context(), s.db))
	run := func(undo bool) func(ctx context.Context,
		effect func(context.Context, *sql.Tx) error) error {
		return func(ctx context.Context, effect func(context.Context, *sql.Tx) error) error {
			_, err := s.runner(t).Run(ctx, "m", func(ctx context.Context) ([]byte, bool, error) {
				tx, _ := sqladapter.TxFrom(ctx)
				return []byte("receipt"), undo, effect(ctx, tx)
			})
			return err
		}
	}
	return map[string]func(ctx context.Context, effect func(context.Context, *sql.Tx) error) error{
		"Do": func(ctx context.Context, effect func(context.Context, *sql.Tx) error) error {
			_, err := s.marks.Do(ctx, s.db, "m", effect)
			return err
		},
		"DoBatch": func(ctx context.Context, effect func(context.Context, *sql.Tx) error) error {
			_, err := s.marks.DoBatch(ctx, s.db, []string{"m", "n"},
				func(ctx context.Context, tx *sql.Tx, _ []int) error { return effect(ctx, tx) })
			return err
		},
		"Fence.Do": func(ctx context.Context, effect func(context.Context, *sql.Tx) error) error {
			_, err := fence.Do(ctx, s.db, sqladapter.Position{Topic: "t", TopicID: "uuid"}, 0,
				10, func(ctx context.Context, tx *sql.Tx, _ int64) error { return effect(ctx, tx) })
			return err
		},
		"Runner": run(false), "Runner, undo": run(true),
	}
}

// forEachEnd runs a test of every call, every end and every next step.
func forEachEnd(t *testing.T, open func(driver, dsn string) (*sql.DB, error),
	test func(t *testing.T, s *shop, way, then string,
		do func(context.Context, func(context.Context, *sql.Tx) error) error,
		end func(*shop, context.Context, *sql.Tx) error),
) {
	for _, way := range []string{"Do", "DoBatch", "Fence.Do", "Runner", "Runner, undo"} {
		for how, end := range ended {
			for then := range after {
				if way != "Do" && then != "writes" && then != "savepoint" {
					continue // it is the same connection
				}
				t.Run(fmt.Sprintf("%s/%s/%s", way, how, then), func(t *testing.T) {
					s := endedShop(t, open)
					test(t, s, way, then, endedWays(t, s)[way], end)
				})
			}
		}
	}
}

// TestEndedEarly: an effect continues after SQLite has ended its transaction. SQLite commits its
// later writes, unless it has begun another transaction. But Do does not report the effect as
// done, records nothing, and does not run it again by itself.
func TestEndedEarly(t *testing.T) {
	forEachEnd(t, sql.Open, func(t *testing.T, s *shop, _, then string,
		do func(context.Context, func(context.Context, *sql.Tx) error) error,
		end func(*shop, context.Context, *sql.Tx) error,
	) {
		var refused error
		err := do(t.Context(), s.deaf(t, end, after[then], 1, &refused))
		require.NoError(t, refused)
		assert.ErrorContains(t, err, "the transaction has ended before its effect",
			"the effect went")
		assert.False(t, sqladapter.Retryable(err), "the effect went")
		assert.False(t, dedup.IsPermanent(err), "the effect went")
		s.wantMark(t, "m", false)
		want := map[string]int{"after": 1}
		if then == "savepoint" {
			want = nil
		}
		got := s.effects(t)
		assert.Len(t, got, len(want), "rows of the ledger")
		assert.Equal(t, want["after"], got["after"], "rows of the ledger")
	})
}

// TestOpenSQLite: statements after the end of a transaction are refused, and Do runs the whole
// again.
func TestOpenSQLite(t *testing.T) {
	forEachEnd(t, sqladapter.OpenSQLite,
		func(t *testing.T, s *shop, way, then string,
			do func(context.Context, func(context.Context, *sql.Tx) error) error,
			end func(*shop, context.Context, *sql.Tx) error,
		) {
			var refused error
			require.NoError(t, do(t.Context(), s.deaf(t, end, after[then], 1, &refused)))
			assert.True(t, sqladapter.Retryable(refused), "the effect went")
			want := []string{"m"}
			if way == "Runner, undo" {
				want = nil
			}
			s.wantEffects(t, want)
			if way != "Fence.Do" {
				s.wantMark(t, "m", true)
			}
		})
}

// TestOpenSQLiteForEver: Do gives up an effect whose transaction always ends, and leaves nothing.
func TestOpenSQLiteForEver(t *testing.T) {
	s := endedShop(t, sqladapter.OpenSQLite)
	var refused error
	_, err := s.marks.Do(t.Context(), s.db,
		"m", s.deaf(t, ended["on conflict rollback"], after["writes"], 100, &refused))
	assert.True(t, sqladapter.Retryable(err), "%v", err)
	assert.ErrorContains(t, err, "tried 5 times")
	s.wantMark(t, "m", false)
	s.wantEffects(t, nil)
}

// TestOpenSQLiteByHand: in the caller's own transaction, with statements that were prepared before
// it, and when the caller itself ends the next transaction.
func TestOpenSQLiteByHand(t *testing.T) {
	for how, end := range ended {
		t.Run(how, func(t *testing.T) {
			s := endedShop(t, sqladapter.OpenSQLite)
			prepared, err := s.db.PrepareContext(t.Context(),
				`INSERT INTO `+s.ledger+` (message) VALUES (?)`)
			require.NoError(t, err)
			defer func() { _ = prepared.Close() }()
			tx := begin(t, s.db, sql.LevelDefault)
			mark, err := s.marks.MarkTx(t.Context(), tx, "m")
			require.NoError(t, err)
			require.True(t, mark.First(), "%v", mark.Outcome)
			require.Error(t, end(s, t.Context(), tx), "nothing has ended the transaction")
			stmt := tx.StmtContext(t.Context(), prepared)
			defer func() { _ = stmt.Close() }()
			_, err = stmt.ExecContext(t.Context(), "after")
			assert.True(t, sqladapter.Retryable(err), "a statement that was prepared before: %v",
				err)
			_, err = s.marks.MarkTx(t.Context(), tx, "n")
			assert.True(t, sqladapter.Retryable(err), "MarkTx: %v", err)
			err = tx.Commit()
			assert.True(t, sqladapter.Retryable(err), "COMMIT: %v", err)
			s.wantEffects(t, nil)
			s.wantMark(t, "m", false)
			s.wantMark(t, "n", false)
			// The connection is as good as new.
			first, err := s.deliver(t.Context(), "m", nil)
			require.NoError(t, err)
			assert.True(t, first, "%v", first)
			s.wantEffects(t, []string{"m"})
		})
	}
}

// TestOpenSQLiteRaw: the driver's own connection is still within reach.
func TestOpenSQLiteRaw(t *testing.T) {
	conn, err := endedShop(t, sqladapter.OpenSQLite).db.Conn(t.Context())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	err = conn.Raw(func(c any) error {
		if _, ok := c.(interface{ Unwrap() driver.Conn }).Unwrap().(interface { //nolint:forcetypeassert // documented
			NewBackup(uri string) (*lite.Backup, error)
		}); !ok {
			return errors.New("no way to the driver's connection")
		}
		return nil
	})
	assert.NoError(t, err)
}

// TestMarkTxEndedEarly: a mark in a transaction that has ended would be committed alone, before its
// effect. The same holds for a mark on a connection without a transaction.
func TestMarkTxEndedEarly(t *testing.T) {
	for how, end := range ended {
		t.Run(how, func(t *testing.T) {
			s := endedShop(t, sql.Open)
			tx := begin(t, s.db, sql.LevelDefault)
			require.Error(t, end(s, t.Context(), tx), "nothing has ended the transaction")
			var input *dedup.InputError
			_, err := s.marks.MarkTx(t.Context(), tx, "m")
			require.ErrorAs(t, err, &input)
			assert.Equal(t, "tx", input.Field)
			_, err = s.marks.MarkBatchTx(t.Context(),
				tx, []dedup.Request{{Key: "m"}})
			require.ErrorAs(t, err, &input)
			assert.Equal(t, "tx", input.Field)
			_ = tx.Rollback() // there is nothing to roll back, which modernc calls an error
			s.wantMark(t, "m", false)
		})
	}
	s := endedShop(t, sql.Open)
	conn, err := s.db.Conn(t.Context())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = s.marks.MarkTx(t.Context(), conn, "m")
	assert.Error(t, err, "MarkTx on a connection without a transaction")
	_, err = conn.ExecContext(t.Context(), `BEGIN`)
	assert.NoError(t, err)
	mark, err := s.marks.MarkTx(t.Context(), conn, "m")
	require.NoError(t, err)
	assert.True(t, mark.First(), "%v", mark.Outcome)
	_, err = conn.ExecContext(t.Context(), `COMMIT`)
	assert.NoError(t, err)
	s.wantMark(t, "m", true)
}
