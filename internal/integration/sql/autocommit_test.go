package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/sqlpreflight"
)

// TestMariaDBAutocommitOff: Preflight advises pools whose connections have autocommit off. A
// statement outside of a transaction opens one there. Nobody commits it, and it is still open when
// the connection returns to the pool. So no call that takes a pool may leave one open: the next
// call cannot begin a transaction at its own level (error 1568), and reads from an old snapshot.
func TestMariaDBAutocommitOff(t *testing.T) {
	s := newShop(t, mariadb(), func(c *sqladapter.Config) { c.Window = time.Minute })
	off := openDB(t, "mysql", mariadbDSN(t, servertest.MariaDB(t), func(c *mysql.Config) {
		c.Params["autocommit"] = "0"
	}))
	off.SetMaxOpenConns(1)
	marks := func(window time.Duration) *sqladapter.Ledger {
		m, err := sqladapter.New(sqladapter.Config{
			Dialect: sqladapter.MySQL, Namespace: "shop", Table: s.table, Window: window,
			Isolation: sql.LevelReadCommitted,
		})
		require.NoError(t, err)
		return m
	}
	fence, err := sqladapter.NewFence(sqladapter.FenceConfig{Dialect: sqladapter.MySQL, Group: "g",
		Table: s.table + "_fence"})
	require.NoError(t, err)
	defer func() { s.exec(t, `DROP TABLE IF EXISTS `+s.table+`_fence`) }()
	for _, call := range []struct {
		name string
		do   func(ctx context.Context) error
		want time.Duration // the window that is on record afterwards
	}{
		{"Migrate, as it is", func(ctx context.Context) error {
			return marks(time.Minute).Migrate(ctx, off)
		}, time.Minute},
		{"Migrate, a longer window", func(ctx context.Context) error {
			return marks(time.Hour).Migrate(ctx, off)
		}, time.Hour},
		{"Check", func(ctx context.Context) error {
			return marks(time.Hour).Check(ctx, off)
		}, time.Hour},
		{"SetWindow", func(ctx context.Context) error {
			return marks(time.Minute).SetWindow(ctx, off)
		}, time.Minute},
		{"Do", func(ctx context.Context) error {
			_, err := marks(time.Minute).Do(ctx, off, "m", func(context.Context, *sql.Tx) error {
				return nil
			})
			return err
		}, time.Minute},
		{"Lookup", func(ctx context.Context) error {
			_, _, err := marks(time.Minute).Lookup(ctx, off, "m")
			return err
		}, time.Minute},
		{"DeleteExpired", func(ctx context.Context) error {
			_, err := marks(time.Minute).DeleteExpired(ctx, off, 10)
			return err
		}, time.Minute},
		{"Preflight", func(ctx context.Context) error {
			_, err := sqlpreflight.Run(ctx, off,
				sqlpreflight.Config{Dialect: sqladapter.MySQL, Tables: []string{s.table}})
			return err
		}, time.Minute},
		{"Fence.Migrate", func(ctx context.Context) error {
			return fence.Migrate(ctx, off)
		}, time.Minute},
		{"Fence.Lookup", func(ctx context.Context) error {
			_, _, err := fence.Lookup(ctx, off, sqladapter.Position{Topic: "t", TopicID: "i"})
			return err
		}, time.Minute},
	} {
		t.Run(call.name, func(t *testing.T) {
			require.NoError(t, call.do(t.Context()))
			tx, err := off.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelSerializable})
			if err != nil {
				_, _ = off.ExecContext(t.Context(), `ROLLBACK`)
				t.Errorf("a transaction was left open: %v", err)
			} else {
				assert.NoError(t, tx.Rollback())
			}
			var millis int64
			err = s.db.QueryRowContext(t.Context(),
				`SELECT window_ms FROM `+s.table+`_meta`).Scan(&millis)
			require.NoError(t, err)
			assert.Equal(t, call.want.Milliseconds(), millis, "window on record")
		})
	}
}

// TestMariaDBEffectCommits: some statements of MySQL commit the open transaction (TRUNCATE, most
// DDL). Then the mark is committed, and the later writes of the effect are not. Do must return an
// error, and must not take the key for a duplicate of itself.
func TestMariaDBEffectCommits(t *testing.T) {
	s := newShop(t, mariadb())
	staging := s.table + "_staging"
	s.exec(t, `CREATE TABLE `+staging+` (x INT)`)
	t.Cleanup(func() { s.exec(t, `DROP TABLE `+staging) })
	effect := func(ctx context.Context, tx *sql.Tx, message string) error {
		if err := s.effect(ctx, tx, message+", first half"); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `TRUNCATE TABLE `+staging); err != nil {
			return err
		}
		return s.effect(ctx, tx, message+", second half")
	}
	_, err := s.marks.Do(t.Context(), s.db, "m", func(ctx context.Context, tx *sql.Tx) error {
		return effect(ctx, tx, "m")
	})
	assert.True(t, dedup.IsPermanent(err), "%v", err)
	assert.ErrorContains(t, err, "committed by itself")
	_, err = s.marks.DoBatch(t.Context(), s.db, []string{"a", "b"},
		func(ctx context.Context, tx *sql.Tx, _ []int) error { return effect(ctx, tx, "batch") })
	assert.True(t, dedup.IsPermanent(err), "%v", err)
	assert.ErrorContains(t, err, "committed by itself")
	// Afterwards the effect also returns an error that can be retried.
	_, err = s.marks.Do(t.Context(), s.db, "deadlock", func(ctx context.Context, tx *sql.Tx) error {
		return errors.Join(effect(ctx, tx, "deadlock"), &mysql.MySQLError{Number: 1213})
	})
	assert.True(t, dedup.IsPermanent(err), "%v", err)
	assert.ErrorContains(t, err, "committed by itself")
	fence, err := sqladapter.NewFence(sqladapter.FenceConfig{Dialect: sqladapter.MySQL, Group: "g",
		Table: s.table + "_fence"})
	require.NoError(t, err)
	require.NoError(t, fence.Migrate(t.Context(), s.db))
	t.Cleanup(func() { s.exec(t, `DROP TABLE `+s.table+`_fence`) })
	position := sqladapter.Position{Topic: "t", TopicID: "i"}
	_, err = fence.Do(t.Context(), s.db, position, 0,
		9, func(ctx context.Context, tx *sql.Tx, _ int64) error { return effect(ctx, tx, "span") })
	assert.ErrorContains(t, err, "committed by itself")
}

// TestMariaDBLeftOpen: on a connection with autocommit off, a query outside of a transaction leaves
// one open, and MariaDB then refuses to choose an isolation level (1568). The next call begins its
// transaction anyway, as it would without a level.
func TestMariaDBLeftOpen(t *testing.T) {
	s := newShop(t, mariadb(), func(c *sqladapter.Config) {
		c.Window, c.Isolation = time.Minute, sql.LevelReadCommitted
	})
	off := openDB(t, "mysql", mariadbDSN(t, servertest.MariaDB(t), func(c *mysql.Config) {
		c.Params["autocommit"] = "0"
	}))
	off.SetMaxOpenConns(1)
	fence, err := sqladapter.NewFence(sqladapter.FenceConfig{
		Dialect: sqladapter.MySQL, Group: "g", Table: s.table + "_fence",
		Isolation: sql.LevelReadCommitted,
	})
	require.NoError(t, err)
	store := newStore(t, off, sqladapter.MySQL, s.table+"_claims")
	err = errors.Join(fence.Migrate(t.Context(), s.db),
		store.Migrate(t.Context()))
	require.NoError(t, err)
	t.Cleanup(func() {
		s.exec(t, `DROP TABLE `+s.table+`_fence`)
		assert.NoError(t, store.Drop(context.WithoutCancel(t.Context())))
	})
	for name, call := range map[string]func(ctx context.Context) error{
		"Do": func(ctx context.Context) error {
			_, err := s.marks.Do(ctx, off, "m", func(ctx context.Context, tx *sql.Tx) error {
				return s.effect(ctx, tx, "m")
			})
			return err
		},
		"Fence.Do": func(ctx context.Context) error {
			_, err := fence.Do(ctx, off, sqladapter.Position{Topic: "t", TopicID: "i"}, 0,
				1, func(context.Context, *sql.Tx, int64) error { return nil })
			return err
		},
		"DeleteExpired": func(ctx context.Context) error {
			_, err := s.marks.DeleteExpired(ctx, off, 10)
			return err
		},
		"Store.Claim": func(ctx context.Context) error {
			return store.Claim(ctx,
				[]driver.ClaimRequest{{ID: driver.ID{1}, Token: driver.Token{1},
					Lease: time.Minute}})[0].Err
		},
		"Store.Lookup": func(ctx context.Context) error {
			return store.Lookup(ctx, []driver.ID{{1}})[0].Err
		},
		"Store.Sweep": func(ctx context.Context) error {
			_, err := store.Sweep(ctx, 10)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := off.ExecContext(t.Context(),
				`SELECT count(*) FROM `+s.ledger)
			require.NoError(t, err)
			assert.NoError(t, call(t.Context()))
		})
	}
	s.wantEffects(t, []string{"m"})
}
