package sql_test

import (
	"database/sql"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/sqladapter"
)

const workers = 16

// TestEachEffectOnce: 16 workers get the same messages, each in its own order.
func TestEachEffectOnce(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		all := messages(60)
		if e.dialect == sqladapter.SQLite {
			all = all[:30] // one writer at a time, and the queue for it is not fair
		}
		var firsts atomic.Int64
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				mine := slices.Clone(all)
				rng := rand.New(rand.NewPCG(1, uint64(w)))
				rng.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
				for _, message := range mine {
					first, err := s.redeliver(t.Context(), message)
					if !assert.NoError(t, err, message) {
						return
					}
					if first {
						firsts.Add(1)
					}
				}
			})
		}
		wg.Wait()
		assert.Equal(t, int64(len(all)), firsts.Load(), "%d firsts for %d messages", firsts.Load(),
			len(all))
		s.wantEffects(t, all)
	})
}

// waitForLock returns when a session waits for a lock in a statement that names table.
func waitForLock(t *testing.T, db *sql.DB, table string) {
	t.Helper()
	poll(t, "a session that waits for "+table, func() bool {
		var n int
		err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE wait_event_type = 'Lock' AND state = 'active' AND query LIKE '%' || $1 || '%'`, table).Scan(&n)
		require.NoError(t, err)
		return n > 0
	})
}

// poll asks until the answer is yes, at most for a minute.
func poll(t *testing.T, what string, yes func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !yes() {
		require.False(t, time.Now().After(deadline), "waited a minute for %s", what)
		<-tick.C
	}
}

// TestLoserStaysUsable: a duplicate does not poison the loser's transaction.
func TestLoserStaysUsable(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		_, err := s.deliver(t.Context(), "done", nil)
		require.NoError(t, err)
		tx := begin(t, s.db, sql.LevelDefault)
		for _, message := range []string{"done", "new", "new"} {
			mark, err := s.marks.MarkTx(t.Context(), tx, message)
			require.NoError(t, err)
			if mark.First() {
				require.NoError(t, s.effect(t.Context(), tx, message))
			}
		}
		require.NoError(t, tx.Commit())
		s.wantEffects(t, []string{"done", "new"})
	})
}

// TestSecondMarkInOneTransaction: the second mark of a key is a duplicate in the same transaction,
// below a savepoint, and within one batch. After a rollback to the savepoint the key is first
// again.
func TestSecondMarkInOneTransaction(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		tx := begin(t, s.db, sql.LevelDefault)
		exec := func(text string) {
			t.Helper()
			_, err := tx.ExecContext(t.Context(), text)
			require.NoError(t, err)
		}
		want := func(when, key string, want driver.Outcome) {
			t.Helper()
			mark, err := s.marks.MarkTx(t.Context(), tx, key)
			require.NoError(t, err)
			assert.Equal(t, want, mark.Outcome, when)
		}
		want("at first", "m", dedup.Acquired)
		want("again", "m", dedup.Duplicate)
		exec(`SAVEPOINT a`)
		want("below a savepoint", "m", dedup.Duplicate)
		want("new below a savepoint", "n", dedup.Acquired)
		want("again below a savepoint", "n", dedup.Duplicate)
		exec(`ROLLBACK TO SAVEPOINT a`)
		want("after the rollback", "m", dedup.Duplicate)
		want("what was rolled back", "n", dedup.Acquired)
		exec(`RELEASE SAVEPOINT a`)
		want("after the release", "n", dedup.Duplicate)
		marks, err := s.marks.MarkBatchTx(t.Context(),
			tx, []dedup.Request{{Key: "n"}, {Key: "o"}, {Key: "m"}})
		require.NoError(t, err)
		require.False(t, marks[0].First(), "batch: %v", marks)
		require.True(t, marks[1].First(), "batch: %v", marks)
		assert.False(t, marks[2].First(), "batch: %v", marks)
		require.NoError(t, tx.Commit())
	})
}

// TestBatchOutcomes: each item of a batch has its own outcome, on a real server as on a script.
func TestBatchOutcomes(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		body, other := driver.FingerprintOf([]byte("body")), driver.FingerprintOf([]byte("other"))
		reqs := []dedup.Request{
			{Key: "a", Fingerprint: body},
			{Key: ""},
			{Key: "a", Fingerprint: body},
			{Key: "a", Fingerprint: other},
			{Key: "b"},
			{Key: "a", Scope: "tenant", Fingerprint: other},
		}
		for round, want := range [][]driver.Outcome{
			{dedup.Acquired, dedup.Unknown, dedup.Duplicate, dedup.Mismatch, dedup.Acquired,
				dedup.Acquired},
			{dedup.Duplicate, dedup.Unknown, dedup.Duplicate, dedup.Mismatch, dedup.Duplicate,
				dedup.Duplicate},
		} {
			tx := begin(t, s.db, sql.LevelDefault)
			marks, err := s.marks.MarkBatchTx(t.Context(), tx, reqs)
			require.NoError(t, err)
			for i, mark := range marks {
				assert.Equal(t, want[i], mark.Outcome, "round %d, item %d", round, i)
			}
			require.Equal(t, body, marks[0].Fingerprint, "round %d: fingerprints came back", round)
			assert.Equal(t, driver.Fingerprint{}, marks[4].Fingerprint,
				"round %d: fingerprints came back", round)
			require.NoError(t, tx.Commit())
		}
	})
}
