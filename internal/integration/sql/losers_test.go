package sql_test

import (
	"database/sql"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/internal/sqlerr"
	"github.com/onceward/onceward/sqladapter"
)

// levels are the isolation levels that an engine has.
func levels(d sqladapter.Dialect) []sql.IsolationLevel {
	if d == sqladapter.SQLite {
		return []sql.IsolationLevel{sql.LevelDefault}
	}
	return []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead,
		sql.LevelSerializable}
}

// TestLosers: while a transaction that has marked a message is open, three others that deliver
// it get no answer. When it commits they learn Duplicate; when it rolls back one of them has
// the effect in its place, and the others learn Duplicate of that.
func TestLosers(t *testing.T) {
	pg, my := postgres("cache_statement"), mariadb()
	for _, e := range []engine{pg, inGenerations(pg), my, inGenerations(my), sqlite()} {
		for _, level := range levels(e.dialect) {
			for _, w := range methods {
				t.Run(e.name+"/"+level.String()+"/"+w.name, func(t *testing.T) {
					t.Parallel()
					s := newShop(t, e, func(c *sqladapter.Config) { c.Isolation = level })
					s.losers(t, w, "winner commits", (*sql.Tx).Commit, 0)
					s.losers(t, w, "winner rolls back", (*sql.Tx).Rollback, 1)
				})
			}
		}
	}
}

// losers has one transaction win and end, and checks how many of the others are first.
func (s *shop) losers(t *testing.T, w method, message string, end func(*sql.Tx) error, want int64) {
	t.Helper()
	const losers = 3
	batch := make([]string, w.size)
	for i := range batch {
		batch[i] = message + string(rune('a'+i))
	}
	winner := begin(t, s.db, s.level)
	s.win(t, winner, batch)
	var ended atomic.Bool
	var firsts atomic.Int64
	var asking, wg sync.WaitGroup
	for range losers {
		asking.Add(1)
		wg.Go(func() {
			asking.Done()
			first, err := w.do(s, t.Context(), batch)
			assert.NoError(t, err)
			assert.True(t, ended.Load(), "%s: a loser: first = %v", message, first)
			if first {
				firsts.Add(1)
			}
		})
	}
	asking.Wait()
	s.waitForLosers(t, losers)
	ended.Store(true)
	assert.NoError(t, end(winner))
	wg.Wait()
	assert.Equal(t, want, firsts.Load(), message)
	lost, doubled := s.damage(t, batch)
	assert.Zero(t, lost, "%s: of %d effects", message, w.size)
	assert.Zero(t, doubled, "%s: of %d effects", message, w.size)
}

// win marks the batch and has its effects, in an open transaction.
func (s *shop) win(t *testing.T, tx *sql.Tx, batch []string) {
	t.Helper()
	marks, err := s.marks.MarkBatchTx(t.Context(), tx, requests(batch))
	require.NoError(t, err)
	for i, mark := range marks {
		require.True(t, mark.First(), "winner, %q: %v", batch[i], mark.Outcome)
	}
	require.NoError(t, s.effectOf(t.Context(), tx, batch))
}

// TestOldSnapshot is TestIsolation for MariaDB: a loser that has read before the winner committed
// still gets the right answer, although a plain SELECT does not show it the mark. With
// innodb_snapshot_isolation, the default of newer versions, it has to begin again.
func TestOldSnapshot(t *testing.T) {
	for _, isolated := range []string{"OFF", "ON"} {
		for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted,
			sql.LevelRepeatableRead} {
			t.Run(level.String()+"/"+isolated, func(t *testing.T) {
				s := newShop(t, engine{name: "mariadb", dialect: sqladapter.MySQL,
					open: func(t *testing.T) *sql.DB {
						return openDB(t, "mysql",
							mariadbDSN(t, servertest.MariaDB(t), func(cfg *mysql.Config) {
								cfg.Params["innodb_snapshot_isolation"] = isolated
							}))
					}})
				loser := begin(t, s.db, level)
				_, err := loser.ExecContext(t.Context(),
					`SELECT count(*) FROM `+s.ledger)
				require.NoError(t, err)
				first, err := s.deliver(t.Context(), "m", nil)
				require.NoError(t, err)
				require.True(t, first, "winner")
				mark, err := s.marks.MarkTx(t.Context(), loser, "m")
				if level == sql.LevelReadCommitted || isolated == "OFF" {
					require.NoError(t, err)
					assert.Equal(t, dedup.Duplicate, mark.Outcome, "loser")
					return
				}
				require.Equal(t, 1020, sqlerr.MySQL(err), "loser")
				require.True(t, sqladapter.Retryable(err), "loser")
				require.Equal(t, dedup.Unknown, mark.Outcome, "loser")
				require.NoError(t, loser.Rollback())
				first, err = s.redeliver(t.Context(), "m")
				require.NoError(t, err)
				assert.False(t, first, "loser, second try: first")
			})
		}
	}
}

// waitForLosers returns when n sessions wait for a lock on the marks. SQLite does not report this:
// its losers wait in BEGIN, or soon will.
func (s *shop) waitForLosers(t *testing.T, n int) {
	t.Helper()
	if query := waiting[s.dialect]; query != "" {
		poll(t, "the losers to wait", func() bool {
			var waiting int
			err := s.db.QueryRowContext(t.Context(), s.bind(query),
				"%"+s.table+"%").Scan(&waiting)
			require.NoError(t, err)
			return waiting >= n
		})
	}
}

// waiting counts the sessions that wait for a lock in a statement like the argument.
var waiting = map[sqladapter.Dialect]string{
	sqladapter.Postgres: `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND state = 'active' AND query LIKE ?`,
	// innodb_trx would show it, but is not refreshed while it is read ten times a second. So this
	// counts the INSERTs that have been running for a while. MySQL counts that time in seconds.
	sqladapter.MySQL: `SELECT count(*) FROM ` + servertest.Processlist + ` WHERE /*!80000 time > 0 */ /*M! time_ms > 20 */ AND info LIKE concat('INSERT INTO', ?)`,
}
