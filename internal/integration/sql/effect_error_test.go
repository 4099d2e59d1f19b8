package sql_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/pgxv5"
)

// ownErrors are errors of effects that have nothing to do with their transaction.
func ownErrors() map[string]error {
	return map[string]error{
		"an empty body": json.NewDecoder(strings.NewReader("")).Decode(new(int)), // io.EOF
		"a body cut off": json.NewDecoder(strings.NewReader(`{"a":`)).Decode(
			new(map[string]int)),
		"another host":       &net.OpError{Op: "dial", Err: fmt.Errorf("connection refused")},
		"wrapped and joined": fmt.Errorf("read the order: %w", io.EOF),
	}
}

// wantOnce checks that an effect with an error of its own ran once, and that Do returned the error.
func wantOnce(t *testing.T, runs int, err, own error) {
	t.Helper()
	assert.Equal(t, 1, runs, "runs of the effect")
	assert.ErrorIs(t, err, own)
	assert.False(t, sqladapter.Retryable(err), "%v is to be run again", err)
}

// Prevents: a payload that is cut off, or another system that cannot be reached, counts as a lost
// connection to the database, and the effect that meets it runs five times.
func TestAnEffectsOwnErrorIsNoLostConnection(t *testing.T) {
	for _, e := range []engine{postgres("cache_statement"), mariadb(), sqlite()} {
		t.Run(e.name, func(t *testing.T) {
			s := newShop(t, e)
			runner, fence := s.runner(t), newTill(t, e)
			for name, own := range ownErrors() {
				runs := 0
				_, err := s.marks.Do(t.Context(), s.db,
					name, func(ctx context.Context, tx *sql.Tx) error {
						runs++
						assert.NoError(t, s.effect(ctx, tx, name))
						return own
					})
				wantOnce(t, runs, err, own)
				runs = 0
				_, err = s.marks.DoBatch(t.Context(), s.db, []string{name, name + "2"},
					func(context.Context, *sql.Tx, []int) error { runs++; return own })
				wantOnce(t, runs, err, own)
				runs = 0
				_, err = runner.Run(t.Context(), name, func(context.Context) ([]byte, bool, error) {
					runs++
					return nil, false, own
				})
				wantOnce(t, runs, err, own)
				runs = 0
				_, err = fence.Do(t.Context(), fence.db,
					sqladapter.Position{Topic: "t", TopicID: "id"}, 0, 1,
					func(context.Context, *sql.Tx, int64) error { runs++; return own })
				wantOnce(t, runs, err, own)
				s.wantMark(t, name, false)
			}
			s.wantEffects(t, nil)
		})
	}
	t.Run("pgx", func(t *testing.T) {
		s := newShop(t, postgres("cache_statement"))
		pool := openPool(t, servertest.Postgres(t))
		for name, own := range ownErrors() {
			runs := 0
			_, err := pgxv5.Do(t.Context(), s.marks, pool,
				name, func(context.Context, pgx.Tx) error { runs++; return own })
			wantOnce(t, runs, err, own)
			runs = 0
			_, err = pgxv5.DoBatch(t.Context(), s.marks, pool, []string{name},
				func(context.Context, pgx.Tx, []int) error { runs++; return own })
			wantOnce(t, runs, err, own)
		}
	})
}

// Prevents: Do takes such an error for the effect's own although the transaction has lost its
// connection, and does not run the effect again. The effect returns the error of a layer of its
// own.
func TestAnEffectWhoseConnectionIsLostRunsAgain(t *testing.T) {
	kill := map[string]string{
		"postgres/cache_statement": `SELECT pg_terminate_backend(pg_backend_pid())`,
		"mariadb":                  `KILL CONNECTION_ID()`,
	}
	for _, e := range []engine{postgres("cache_statement"), mariadb()} {
		t.Run(e.name, func(t *testing.T) {
			s := newShop(t, e)
			runs := 0
			mark, err := s.marks.Do(t.Context(), s.db,
				"m", func(ctx context.Context, tx *sql.Tx) error {
					if runs++; runs == 1 {
						_, err := tx.ExecContext(ctx, kill[e.name])
						assert.Error(t, err)
						return fmt.Errorf("store the order: %w", io.ErrUnexpectedEOF)
					}
					return s.effect(ctx, tx, "m")
				})
			require.NoError(t, err)
			assert.True(t, mark.First())
			assert.Equal(t, 2, runs)
			s.wantEffects(t, []string{"m"})
		})
	}
	t.Run("pgx", func(t *testing.T) {
		s := newShop(t, postgres("cache_statement"))
		runs := 0
		_, err := pgxv5.Do(t.Context(), s.marks, openPool(t, servertest.Postgres(t)), "m",
			func(ctx context.Context, tx pgx.Tx) error {
				if runs++; runs == 1 {
					_, err := tx.Exec(ctx, kill["postgres/cache_statement"])
					assert.Error(t, err)
					return fmt.Errorf("store the order: %w", io.ErrUnexpectedEOF)
				}
				return nil
			})
		require.NoError(t, err)
		assert.Equal(t, 2, runs)
	})
}
