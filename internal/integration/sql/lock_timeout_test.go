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
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/pgxv5"
)

// TestLockTimeoutOfDo: a transaction that hangs holds a key. Do and DoBatch do not wait for it for
// longer than Config.LockTimeout. The effect, and whatever uses the connection next, have the
// timeout that they had.
func TestLockTimeoutOfDo(t *testing.T) {
	forEachClient(t, func(t *testing.T, e engine) {
		if e.dialect == sqladapter.SQLite {
			return // its busy_timeout is of the connection
		}
		s := newShop(t, e,
			func(c *sqladapter.Config) { c.LockTimeout = 50 * time.Millisecond })
		holder := begin(t, s.db, sql.LevelDefault)
		_, err := s.marks.MarkTx(t.Context(), holder, "held")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()

		mark, err := s.effectOnce(ctx, "held", nil)
		require.ErrorIs(t, err, dedup.ErrInFlight)
		assert.Equal(t, dedup.InFlight, mark.Outcome)
		_, err = s.effectsOnce(ctx, []string{"other", "held"})
		require.ErrorIs(t, err, dedup.ErrInFlight)
		s.wantEffects(t, nil)

		own := *s
		own.db = e.open(t)
		own.db.SetMaxOpenConns(1)
		before := waits(t, s, own.db)
		if s.pool == nil {
			_, err = own.effectOnce(ctx, "m", func(tx execTx) {
				assert.Equal(t, before, waits(t, s, tx.(*sql.Tx)), "in the effect") //nolint:forcetypeassert // without pgx
			})
		} else {
			_, err = own.effectOnce(ctx, "m", nil)
		}
		require.NoError(t, err)
		assert.Equal(t, before, waits(t, s, own.db), "after it")

		require.NoError(t, holder.Rollback())
		marks, err := s.effectsOnce(ctx, []string{"held", "m"})
		require.NoError(t, err)
		assert.True(t, marks[0].First())
		assert.Equal(t, dedup.Duplicate, marks[1].Outcome)
		s.wantEffects(t, []string{"m", "held"})
	})
}

// effectOnce is Ledger.Do in the client that the engine has; look, if set, is called in the effect.
func (s *shop) effectOnce(ctx context.Context, key string,
	look func(tx execTx)) (sqladapter.Mark, error) {
	effect := func(ctx context.Context, tx execTx) error {
		if look != nil {
			look(tx)
		}
		return s.effect(ctx, tx, key)
	}
	if s.pool != nil {
		return pgxv5.Do(ctx, s.marks, s.pool, key,
			func(ctx context.Context, tx pgx.Tx) error { return effect(ctx, pgxv5.Wrap(tx)) })
	}
	return s.marks.Do(ctx, s.db, key,
		func(ctx context.Context, tx *sql.Tx) error { return effect(ctx, tx) })
}

// effectsOnce is Ledger.DoBatch in the client that the engine has.
func (s *shop) effectsOnce(ctx context.Context, keys []string) ([]sqladapter.Mark, error) {
	effects := func(ctx context.Context, tx execTx, first []int) error {
		for _, i := range first {
			if err := s.effect(ctx, tx, keys[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if s.pool != nil {
		return pgxv5.DoBatch(ctx, s.marks, s.pool, keys,
			func(ctx context.Context, tx pgx.Tx, first []int) error {
				return effects(ctx, pgxv5.Wrap(tx), first)
			})
	}
	return s.marks.DoBatch(ctx, s.db, keys,
		func(ctx context.Context, tx *sql.Tx, first []int) error { return effects(ctx, tx, first) })
}
