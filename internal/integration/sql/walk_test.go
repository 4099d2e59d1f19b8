package sql_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
)

// The window of the tests of the walk, a pass of it, and how many marks fill several slices.
const (
	walkWindow = 72 * time.Hour
	walkMarks  = 25_000
)

// forEachWalk runs a test on the engines that have no index by age.
func forEachWalk(t *testing.T, test func(t *testing.T, e engine)) {
	for _, e := range []engine{postgres("cache_statement"), mariadb()} {
		runOn(t, e, test)
	}
}

func newWalk(t *testing.T, e engine) *shop {
	t.Helper()
	return newShop(t, e, func(c *sqladapter.Config) { c.Window = walkWindow })
}

// marksAged writes n marks of an age, which nobody asks for by their key.
func (s *shop) marksAged(t *testing.T, n int, age time.Duration) {
	t.Helper()
	made := time.Now().Add(-age).UnixMilli()
	if s.dialect == sqladapter.Postgres {
		s.exec(t, fmt.Sprintf(`INSERT INTO "%s" (id, stamp) SELECT gen_random_uuid(), %d::bigint << 20`+
			` FROM generate_series(1, %d)`, s.table, made, n))
		return
	}
	for ; n > 0; n -= 1000 {
		s.exec(t, fmt.Sprintf(`INSERT INTO "%s" (id, owner, created_at)`+
			` WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < %d)`+
			` SELECT unhex(left(sha2(concat(i, uuid(), rand()), 256), 32)), 1, %d FROM c`,
			s.table, min(n, 1000), made))
	}
}

// older counts the marks that are older than an age, and those that are not.
func (s *shop) older(t *testing.T, age time.Duration) (old, young int) {
	t.Helper()
	made := `stamp >> 20`
	if s.dialect == sqladapter.MySQL {
		made = `created_at`
	}
	require.NoError(t, s.db.QueryRowContext(t.Context(),
		fmt.Sprintf(`SELECT COALESCE(SUM(CASE WHEN %s < %d THEN 1 ELSE 0 END), 0), count(*) FROM "%s"`,
			made, time.Now().Add(-age).UnixMilli(), s.table)).Scan(&old, &young))
	return old, young - old
}

// pass lets a part of a pass go by, from 0 to 1, and walks what is due then.
func (s *shop) pass(t *testing.T, part float64) (deleted int64) {
	t.Helper()
	s.passes(t, part)
	return s.deleteDue(t)
}

// passes lets a part of a pass go by.
func (s *shop) passes(t *testing.T, part float64) {
	t.Helper()
	s.exec(t, fmt.Sprintf(`UPDATE "%s_meta" SET walk_begun_ms = walk_begun_ms - %d`, s.table,
		int64(part*float64(walkWindow.Milliseconds()/4))))
}

// deleteDue calls DeleteExpired as its documentation says.
func (s *shop) deleteDue(t *testing.T) (deleted int64) {
	t.Helper()
	const limit = 1000
	for {
		n, err := s.marks.DeleteExpired(context.WithoutCancel(t.Context()), s.db, limit)
		deleted += n
		if !assert.NoError(t, err) || n < limit {
			return deleted
		}
	}
}

// TestWalkDeletesWithinAPass: old marks are gone after a pass, and young ones stay, with their
// results.
func TestWalkDeletesWithinAPass(t *testing.T) {
	forEachWalk(t, func(t *testing.T, e engine) {
		s := newWalk(t, e)
		s.marksAged(t, walkMarks, walkWindow+time.Hour)
		s.marksAged(t, walkMarks/2, walkWindow-time.Hour)
		s.marksAged(t, walkMarks/2, time.Minute)
		for _, message := range []string{"old", "young"} {
			_, err := s.do(t.Context(), message, func(tx *sql.Tx) error {
				return s.marks.SaveResultTx(t.Context(), tx, message, []byte(message))
			})
			require.NoError(t, err)
		}
		s.age(t, "shop", 4, "old")
		deleted := s.deleteDue(t) // begins the pass
		require.EqualValues(t, walkMarks+1, deleted+s.pass(t, 1.25))
		old, young := s.older(t, walkWindow)
		assert.Zero(t, old)
		assert.Equal(t, walkMarks+1, young)
		var results int
		require.NoError(t, s.db.QueryRowContext(t.Context(),
			`SELECT count(*) FROM "`+s.table+`_results"`).Scan(&results))
		assert.Equal(t, 1, results)
		s.wantMark(t, "young", true)
		s.wantMark(t, "old", false)
	})
}

// TestWalkIsPaced: a call walks what is due and one slice at least, so the work of a pass is
// spread over its time.
func TestWalkIsPaced(t *testing.T) {
	forEachWalk(t, func(t *testing.T, e engine) {
		s := newWalk(t, e)
		s.marksAged(t, 4*walkMarks, walkWindow+time.Hour)
		s.wantFirst(t, "new", true) // or nothing is old
		s.exec(t, fmt.Sprintf(`UPDATE "%s_meta" SET newest_ms = %d`, s.table,
			time.Now().UnixMilli()))
		s.deleteDue(t) // begins the pass
		left, _ := s.older(t, walkWindow)
		assert.InDelta(t, 4*walkMarks, left, 11_000, "one slice")
		for range 3 {
			s.pass(t, 0.25)
			now, _ := s.older(t, walkWindow)
			assert.InDelta(t, walkMarks, left-now, 11_000, "in a quarter of a pass")
			left = now
		}
		s.pass(t, 0.25)
		left, _ = s.older(t, walkWindow)
		assert.Zero(t, left)
	})
}

// TestWalkUnderVacuum: the places of marks change while a pass is under way: freed by a vacuum and
// filled again, compacted, sorted, updated. No young mark is deleted, and every old one is gone
// within a pass and a quarter.
func TestWalkUnderVacuum(t *testing.T) {
	s := newWalk(t, postgres("cache_statement"))
	index := s.table + `_pkey`
	for name, disturb := range map[string]string{
		"VACUUM":      `VACUUM "` + s.table + `"`,
		"VACUUM FULL": `VACUUM FULL "` + s.table + `"`,
		"CLUSTER":     `CLUSTER "` + s.table + `" USING "` + index + `"`,
		"HOT updates": `UPDATE "` + s.table + `" SET stamp = stamp + 1 WHERE ctid IN (SELECT ctid FROM "` + s.table + `" ORDER BY random() LIMIT 2000)`,
		"TRUNCATE":    `TRUNCATE "` + s.table + `"`,
	} {
		t.Run(name, func(t *testing.T) {
			s.exec(t, `TRUNCATE "`+s.table+`"`)
			// Old and young marks share pages.
			var young int
			for range 10 {
				s.marksAged(t, walkMarks/10, walkWindow+time.Hour)
				s.marksAged(t, walkMarks/10, time.Minute)
				young += walkMarks / 10
			}
			s.deleteDue(t)
			for i := range 5 {
				s.pass(t, 0.25)
				s.exec(t, disturb)
				if name == "TRUNCATE" {
					young = 0
				}
				if i < 4 { // new marks fill the room of the deleted ones
					s.marksAged(t, 1000, 0)
					young += 1000
				}
			}
			s.deleteDue(t)
			old, left := s.older(t, walkWindow)
			assert.Zero(t, old)
			assert.Equal(t, young, left, "young marks")
		})
	}
}

// TestWalkReadsItsPagesAlone: no plan of a slice reads all of the table, neither one that is made
// for its numbers nor the one that a connection keeps, with statistics of the table and without.
func TestWalkReadsItsPagesAlone(t *testing.T) {
	s := newWalk(t, postgres("cache_statement"))
	s.db.SetMaxOpenConns(1)
	s.marksAged(t, 2*walkMarks, time.Minute)
	scans := func() (n int) {
		s.exec(t, `SELECT pg_stat_force_next_flush()`)
		require.NoError(t, s.db.QueryRowContext(t.Context(),
			`SELECT seq_scan FROM pg_stat_user_tables WHERE relname = '`+s.table+`'`).Scan(&n))
		return n
	}
	const calls = 8 // from the sixth on a plan is kept
	for _, statistics := range []string{`SELECT 1`, `ANALYZE "` + s.table + `"`} {
		s.exec(t, statistics)
		before := scans()
		for range calls {
			s.pass(t, 0.3)
		}
		assert.Equal(t, before, scans(), statistics)
	}
}

// TestWalkReachesNewPages: marks on pages that were added while the pass was under way belong to
// it.
func TestWalkReachesNewPages(t *testing.T) {
	s := newWalk(t, postgres("cache_statement"))
	s.marksAged(t, walkMarks, time.Minute)
	s.deleteDue(t)
	s.pass(t, 0.5)
	s.marksAged(t, walkMarks, walkWindow+time.Hour)
	assert.EqualValues(t, walkMarks, s.pass(t, 0.75))
}

// TestWalkRaces: marks, duplicates, failing effects and walkers at once, in a window
// so short that marks expire all the time. A mark that is younger than the window is never gone, so
// its message is never first again.
func TestWalkRaces(t *testing.T) {
	const (
		window    = 2 * time.Second
		consumers = 6
		keys      = 40
	)
	forEachWalk(t, func(t *testing.T, e engine) {
		s := newShop(t, e, func(c *sqladapter.Config) { c.Window = window })
		ctx, stop := context.WithTimeout(t.Context(), 4*window)
		defer stop()
		var running sync.WaitGroup
		for range 2 {
			running.Go(func() {
				for ctx.Err() == nil {
					_, err := s.marks.DeleteExpired(ctx, s.db, 50)
					assert.True(t, err == nil || ctx.Err() != nil, "%v", err)
				}
			})
		}
		if e.dialect == sqladapter.Postgres {
			running.Go(func() {
				for ctx.Err() == nil {
					_, err := s.db.ExecContext(ctx, `VACUUM "`+s.table+`"`)
					assert.True(t, err == nil || ctx.Err() != nil, "%v", err)
				}
			})
		}
		var mu sync.Mutex
		firsts := map[string]time.Time{} // when the last first was answered
		again := 0
		for range consumers {
			running.Go(func() {
				for ctx.Err() == nil {
					message := fmt.Sprint("key ", rand.IntN(keys))
					if rand.IntN(10) == 0 { // ages count from the newest mark
						message = fmt.Sprint("once ", rand.Int64())
					}
					asked := time.Now()
					mark, err := s.do(ctx, message)
					if err != nil {
						assert.Error(t, ctx.Err(), "%v", err)
						return
					}
					if !mark.First() {
						continue
					}
					mu.Lock()
					if before, ok := firsts[message]; ok {
						again++
						assert.Greater(t, time.Since(before), window, "%s was first again", message)
					}
					firsts[message] = asked
					mu.Unlock()
				}
			})
		}
		running.Wait()
		assert.Positive(t, again, "no mark has expired, so nothing was tested")
	})
}

// TestWalkHoldsNothingUp: while the transaction of a slice is open, new marks that fall between
// those of the slice are made, and marks that are not committed are left out.
func TestWalkHoldsNothingUp(t *testing.T) {
	s := newWalk(t, mariadb())
	s.marksAged(t, 50, walkWindow+time.Hour)
	s.marksAged(t, 50, time.Minute)
	// One of them has a result that another transaction has locked, so the slice stays open.
	s.exec(t, `INSERT INTO "`+s.table+`_results" (id, result) SELECT id, 'x' FROM "`+s.table+
		`" ORDER BY created_at LIMIT 1`)
	gate := begin(t, s.db, sql.LevelReadCommitted)
	_, err := gate.ExecContext(t.Context(), `UPDATE "`+s.table+`_results" SET result = 'y'`)
	require.NoError(t, err)
	open := begin(t, s.db, sql.LevelReadCommitted)
	_, err = s.marks.MarkTx(t.Context(), open, "not committed")
	require.NoError(t, err)

	walked := make(chan error, 1)
	go func() {
		n, err := s.marks.DeleteExpired(context.WithoutCancel(t.Context()), s.db, 100)
		if err == nil && n != 50 {
			err = fmt.Errorf("%d marks were deleted", n)
		}
		walked <- err
	}()
	poll(t, "the slice stays open", func() bool {
		var waits int
		require.NoError(t, s.db.QueryRowContext(t.Context(),
			`SELECT count(*) FROM `+servertest.Processlist+` WHERE info LIKE 'DELETE%'`+
				` AND info LIKE '%`+s.table+`%'`).Scan(&waits))
		return waits > 0
	})
	for _, message := range messages(200) { // some of them in every gap
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		_, err := s.do(ctx, message)
		cancel()
		require.NoError(t, err, "a new mark waits for the walk")
	}
	require.NoError(t, open.Commit())
	require.NoError(t, gate.Rollback())
	require.NoError(t, <-walked)
	s.wantMark(t, "not committed", true)
}

// TestWalkDownUp: the versions with and without the index, on a table in use; the program of the
// version before deletes without the index, too.
func TestWalkDownUp(t *testing.T) {
	forEachWalk(t, func(t *testing.T, e engine) {
		s := newWalk(t, e)
		indexes := func() (n int) {
			catalog := `SELECT count(*) FROM pg_indexes WHERE tablename = '` + s.table +
				`' AND indexname LIKE '%expiry'`
			if e.dialect == sqladapter.MySQL {
				catalog = `SELECT count(*) FROM information_schema.statistics WHERE table_name = '` +
					s.table + `' AND index_name LIKE '%expiry'`
			}
			require.NoError(t, s.db.QueryRowContext(t.Context(), catalog).Scan(&n))
			return n
		}
		assert.Zero(t, indexes())
		ctx, stop := context.WithCancel(t.Context())
		var marking sync.WaitGroup
		done := 0
		marking.Go(func() {
			for ; ctx.Err() == nil; done++ {
				if _, err := s.do(ctx, fmt.Sprint("in use ", done)); err != nil {
					assert.Error(t, ctx.Err(), "%v", err)
					return
				}
			}
		})
		for range 3 {
			require.NoError(t, s.marks.Migrations().To(ctx, s.db, 1))
			assert.Equal(t, 1, indexes())
			require.NoError(t, s.marks.Migrations().Up(ctx, s.db))
			assert.Zero(t, indexes())
		}
		stop()
		marking.Wait()
		assert.Positive(t, done)

		s.marksAged(t, 100, walkWindow+time.Hour)
		before := s.rowsOf(t)
		assert.EqualValues(t, 30, s.deleteAsVersion1(t, 30))
		assert.Equal(t, before-30, s.rowsOf(t))
		assert.EqualValues(t, 70, s.deleteDue(t))
	})
}

func (s *shop) rowsOf(t *testing.T) (n int) {
	t.Helper()
	require.NoError(t, s.db.QueryRowContext(t.Context(),
		`SELECT count(*) FROM "`+s.table+`"`).Scan(&n))
	return n
}

// deleteAsVersion1 runs the statements of a program from before the walk.
func (s *shop) deleteAsVersion1(t *testing.T, limit int) (deleted int64) {
	t.Helper()
	table := `"` + s.table + `"`
	if s.dialect == sqladapter.Postgres {
		ticks := walkWindow.Milliseconds() / 1024
		res, err := s.db.ExecContext(t.Context(), `DELETE FROM `+table+` WHERE ctid = ANY (ARRAY(SELECT ctid FROM `+
			table+` WHERE stamp >> 30 < least((extract(epoch FROM statement_timestamp()) * 1000)::bigint >> 10,`+
			` (SELECT max(stamp >> 30) FROM `+table+`)) - $1::bigint ORDER BY stamp >> 30 LIMIT $2::bigint FOR UPDATE SKIP LOCKED))`,
			ticks, limit)
		require.NoError(t, err)
		n, err := res.RowsAffected()
		require.NoError(t, err)
		return n
	}
	tx := begin(t, s.db, sql.LevelReadCommitted)
	rows, err := tx.QueryContext(t.Context(), `SELECT hex(id) FROM `+table+
		` WHERE created_at < LEAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000,`+
		` (SELECT max(created_at) FROM `+table+`)) - ? ORDER BY created_at LIMIT ? FOR UPDATE SKIP LOCKED`,
		walkWindow.Milliseconds(), limit)
	require.NoError(t, err)
	defer func() { assert.NoError(t, rows.Close()) }()
	var ids []string
	for rows.Next() {
		var id string
		require.NoError(t, rows.Scan(&id))
		ids = append(ids, id)
	}
	require.NoError(t, rows.Err())
	for _, id := range ids {
		_, err := tx.ExecContext(t.Context(), `DELETE FROM `+table+` WHERE id = x'`+id+`'`)
		require.NoError(t, err)
	}
	require.NoError(t, tx.Commit())
	return int64(len(ids))
}

// TestWalkRefusesPartitions: a partitioned table has no pages of its own, so the walk would never
// delete anything, without an error.
func TestWalkRefusesPartitions(t *testing.T) {
	s := newWalk(t, postgres("cache_statement"))
	s.exec(t, `DROP TABLE "`+s.table+`"`)
	s.exec(t, `CREATE TABLE "`+s.table+`" (id uuid NOT NULL PRIMARY KEY, stamp bigint NOT NULL,`+
		` fingerprint bytea) PARTITION BY HASH (id)`)
	for i := range 2 {
		s.exec(t, fmt.Sprintf(`CREATE TABLE "%s_p%d" PARTITION OF "%s" FOR VALUES WITH (MODULUS 2, REMAINDER %d)`,
			s.table, i, s.table, i))
	}
	_, err := s.marks.DeleteExpired(t.Context(), s.db, 10)
	require.ErrorContains(t, err, "partitioned")
}

// TestDropIndexWaitsForNobody: a transaction that has marked and stays open does not keep others
// from marking while the index is dropped.
func TestDropIndexWaitsForNobody(t *testing.T) {
	forEachWalk(t, func(t *testing.T, e engine) {
		s := newWalk(t, e)
		require.NoError(t, s.marks.Migrations().To(t.Context(), s.db, 1))
		open := begin(t, s.db, sql.LevelReadCommitted)
		_, err := s.marks.MarkTx(t.Context(), open, "open")
		require.NoError(t, err)
		up := make(chan error, 1)
		go func() { up <- s.marks.Migrations().Up(context.WithoutCancel(t.Context()), s.db) }()
		poll(t, "the migration waits for the transaction", func() bool {
			waiting := `SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'DROP INDEX CONCURRENTLY%` + s.table +
				`%' OR query LIKE '%holds up nobody%DROP INDEX%` + s.table + `%' AND wait_event_type = 'Lock'`
			if e.dialect == sqladapter.MySQL {
				waiting = `SELECT count(*) FROM ` + servertest.Processlist + ` WHERE info LIKE '%DROP INDEX%` +
					s.table + `%' AND state LIKE 'Waiting for table metadata lock%'`
			}
			var n int
			require.NoError(t, s.db.QueryRowContext(t.Context(), waiting).Scan(&n))
			return n > 0
		})
		for _, message := range messages(5) {
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			_, err := s.do(ctx, message)
			cancel()
			require.NoError(t, err)
		}
		require.NoError(t, open.Commit())
		require.NoError(t, <-up)
		require.NoError(t, s.marks.Check(t.Context(), s.db))
	})
}
