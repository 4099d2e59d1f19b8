package sql_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/sqladapter"
)

// saves returns an effect that saves this result for a message.
func (s *shop) saves(ctx context.Context, message string, result []byte) (sqladapter.Mark, error) {
	return s.marks.Do(ctx, s.db, message, func(ctx context.Context, tx *sql.Tx) error {
		if err := s.effect(ctx, tx, message); err != nil {
			return err
		}
		return s.marks.SaveResultTx(ctx, tx, message, result)
	})
}

// TestResults: a duplicate gets the result of the first, byte for byte, also in a batch. It gets
// nothing if the first saved nothing.
func TestResults(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		results := map[string][]byte{
			"text": []byte("receipt 4711"), "empty": {},
			"binary": {0, 0xff, '\'', '\\', '"', '\n', 0x1a},
			"large":  bytes.Repeat([]byte{0xa5, 0}, 128<<10),
		}
		for message, result := range results {
			mark, err := s.saves(t.Context(), message, result)
			require.NoError(t, err, "%s: %v", message, mark.Outcome)
			require.True(t, mark.First(), "%s: %v", message, mark.Outcome)
			require.Nil(t, mark.Result, "%s: %v", message, mark.Outcome)
		}
		_, err := s.do(t.Context(), "nothing")
		require.NoError(t, err)
		keys := []string{"text", "empty", "binary", "large", "nothing", "new"}
		marks, err := s.doBatch(t.Context(), keys)
		require.NoError(t, err)
		for i, key := range keys {
			want := results[key]
			if len(want) == 0 {
				want = nil // an empty result comes back as nil
			}
			assert.Equal(t, want, marks[i].Result, key)
			mark, found, err := s.marks.Lookup(t.Context(), s.db, key)
			require.NoError(t, err, key)
			assert.True(t, found, key)
			assert.Equal(t, want, mark.Result, key)
		}
	})
}

// TestResultIsRefused: SaveResult refuses a key without a mark, and a second result. The
// transaction continues.
func TestResultIsRefused(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		tx := begin(t, s.db, sql.LevelDefault)
		refused := func(key string) {
			t.Helper()
			var input *dedup.InputError
			require.ErrorAs(t, s.marks.SaveResultTx(t.Context(), tx, key, []byte("x")), &input, key)
			assert.Equal(t, "key", input.Field, key)
		}
		refused("absent")
		_, err := s.marks.MarkTx(t.Context(), tx, "m")
		require.NoError(t, err)
		require.NoError(t, s.marks.SaveResultTx(t.Context(), tx, "m", []byte("once")))
		refused("m")
		require.NoError(t, tx.Commit())
		mark, _, err := s.marks.Lookup(t.Context(), s.db, "m")
		require.NoError(t, err)
		assert.Equal(t, "once", string(mark.Result))
	})
}

// TestResultsGoWithTheirMarks: with the transaction, and with retention.
func TestResultsGoWithTheirMarks(t *testing.T) {
	forEachDeleting(t, func(t *testing.T, e engine) {
		s := newShop(t, e, func(c *sqladapter.Config) { c.Window = 72 * time.Hour })
		for _, message := range []string{"old", "new"} {
			_, err := s.saves(t.Context(), message, []byte(message))
			require.NoError(t, err)
		}
		_, err := s.marks.Do(t.Context(), s.db, "failed",
			func(ctx context.Context, tx *sql.Tx) error {
				return errors.Join(s.marks.SaveResultTx(ctx, tx, "failed", nil), errDomain)
			})
		require.ErrorIs(t, err, errDomain)
		s.age(t, "shop", 10, "old")
		s.deleteExpired(t, 100, 1)
		s.wantMark(t, "old", false)
		var kept []byte
		err = s.db.QueryRowContext(t.Context(),
			`SELECT result FROM "`+s.table+`_results"`).Scan(&kept)
		require.NoError(t, err)
		assert.Equal(t, "new", string(kept), "left are results")
		mark, err := s.saves(t.Context(), "old", []byte("again"))
		require.NoError(t, err)
		assert.True(t, mark.First(), "after the window: %v", mark.Outcome)
		mark, err = s.do(t.Context(), "old")
		require.NoError(t, err)
		assert.Contains(t, string(mark.Result), "again", "its duplicate")
	})
}
