package sql_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/sqladapter"
)

// TestIsolation: the answer that the loser of a race gets at each level of PostgreSQL. Above READ
// COMMITTED it has to begin again, and then gets the right answer.
func TestIsolation(t *testing.T) {
	forEachPostgres(t, func(t *testing.T, e engine) {
		for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead,
			sql.LevelSerializable} {
			t.Run(level.String(), func(t *testing.T) {
				s := newShop(t, e)
				loser := begin(t, s.db, level)
				// It takes the snapshot before the winner's commit.
				_, err := loser.ExecContext(t.Context(), `SELECT count(*) FROM `+s.ledger)
				require.NoError(t, err)
				first, err := s.deliver(t.Context(), "m", nil)
				require.NoError(t, err)
				require.True(t, first, "winner")
				mark, err := s.marks.MarkTx(t.Context(), loser, "m")
				if level == sql.LevelReadCommitted {
					require.NoError(t, err)
					assert.Equal(t, dedup.Duplicate, mark.Outcome, "loser")
					return
				}
				var state interface{ SQLState() string }
				require.ErrorAs(t, err, &state, "loser")
				require.Equal(t, "40001", state.SQLState(), "loser")
				require.True(t, sqladapter.Retryable(err), "loser")
				require.Equal(t, dedup.Unknown, mark.Outcome, "loser")
				require.NoError(t, loser.Rollback())
				again := begin(t, s.db, level)
				mark, err = s.marks.MarkTx(t.Context(), again, "m")
				require.NoError(t, err)
				assert.Equal(t, dedup.Duplicate, mark.Outcome, "loser, second try")
			})
		}
	})
}

// TestOneStatementSeesOneSnapshot is why MarkTx has two statements. The single WITH that
// is often published as free of races gives the loser no row at all: neither its own nor
// the winner's.
func TestOneStatementSeesOneSnapshot(t *testing.T) {
	s := newShop(t, postgres("cache_statement"))
	winner := begin(t, s.db, sql.LevelDefault)
	_, err := s.marks.MarkTx(t.Context(), winner, "m")
	require.NoError(t, err)
	id, err := driver.NewID("shop", "", "m")
	require.NoError(t, err)
	answer := make(chan error, 1)
	go func() {
		var n int
		answer <- s.db.QueryRowContext(t.Context(), `WITH ins AS (
				INSERT INTO `+s.table+` (id, stamp)
				SELECT encode($1::bytea, 'hex')::uuid, 0
				ON CONFLICT DO NOTHING RETURNING id
			)
			SELECT 1 FROM `+s.table+` WHERE id = encode($1::bytea, 'hex')::uuid`, id[:]).Scan(&n)
	}()
	waitForLock(t, s.db, s.table)
	require.NoError(t, winner.Commit())
	require.ErrorIs(t, <-answer, sql.ErrNoRows, "the one-statement form answered")
	s.wantMark(t, "m", true)
}

// TestLockTimeout: a bounded wait answers "in flight", which is never acknowledged.
func TestLockTimeout(t *testing.T) {
	forEachPostgres(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		winner := begin(t, s.db, sql.LevelDefault)
		_, err := s.marks.MarkTx(t.Context(), winner, "m")
		require.NoError(t, err)
		loser := begin(t, s.db, sql.LevelDefault)
		_, err = loser.ExecContext(t.Context(), `SET LOCAL lock_timeout = '20ms'`)
		require.NoError(t, err)
		mark, err := s.marks.MarkTx(t.Context(), loser, "m")
		assert.Equal(t, dedup.InFlight, mark.Outcome, "loser")
		assert.ErrorIs(t, err, dedup.ErrInFlight, "loser")
		assert.True(t, sqladapter.Retryable(err), "loser")
	})
}

// TestSQLiteReadThenMark: a deferred transaction that has read cannot mark once another
// one has committed, whatever the timeout; run again from BEGIN it can.
func TestSQLiteReadThenMark(t *testing.T) {
	file := t.TempDir() + "/marks.db"
	s := newShop(t, engine{name: "sqlite/deferred", dialect: sqladapter.SQLite,
		open: func(t *testing.T) *sql.DB {
			return openDB(t, "sqlite", sqliteDSN(file, "deferred"))
		}})
	read := func() *sql.Tx {
		tx := begin(t, s.db, sql.LevelDefault)
		var n int
		err := tx.QueryRowContext(t.Context(),
			`SELECT count(*) FROM `+s.ledger).Scan(&n)
		require.NoError(t, err)
		return tx
	}
	late := read()
	_, err := s.deliver(t.Context(), "m", nil)
	require.NoError(t, err)
	_, err = s.marks.MarkTx(t.Context(), late, "m")
	require.True(t, sqladapter.Retryable(err),
		"mark on an old snapshot: %v, want a retryable error", err)
	require.NoError(t, late.Rollback())
	again := read()
	mark, err := s.marks.MarkTx(t.Context(), again, "m")
	require.NoError(t, err)
	assert.Equal(t, dedup.Duplicate, mark.Outcome, "second try")
}

// TestConn: a transaction begun by hand on a single connection is a transaction too.
func TestConn(t *testing.T) {
	s := newShop(t, sqlite())
	conn, err := s.db.Conn(t.Context())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	for i, want := range []driver.Outcome{dedup.Acquired, dedup.Acquired, dedup.Duplicate} {
		end := "COMMIT"
		if i == 0 {
			end = "ROLLBACK"
		}
		_, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE")
		require.NoError(t, err)
		mark, err := s.marks.MarkTx(t.Context(), conn, "m")
		require.NoError(t, err, "round %d", i)
		assert.Equal(t, want, mark.Outcome, "round %d", i)
		_, err = conn.ExecContext(t.Context(), end)
		require.NoError(t, err)
	}
}
