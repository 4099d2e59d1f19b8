package sql_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/integration/internal/commitcut"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/pgxv5"
)

// change is a shop that changes its form of ids: programs with the old table alone, with both, and
// with the new one alone. They have one ledger of effects.
type change struct{ old, both, new *shop }

// newChange goes from digests to UUIDv7.
func newChange(t *testing.T, e engine, edit ...func(*sqladapter.Config)) change {
	t.Helper()
	old := newShop(t, e, edit...)
	table := old.table + "_v7"
	on := func(previous *sqladapter.Ledger) *shop {
		s := *old
		s.table = table
		s.marks = old.ledgerOf(t, func(c *sqladapter.Config) {
			for _, f := range edit {
				f(c)
			}
			c.Table, c.IDTime, c.Previous = table, sqladapter.UUIDv7, previous
		})
		return &s
	}
	c := change{old, on(old.marks), on(nil)}
	t.Cleanup(func() { c.new.drop(t) })
	require.NoError(t, c.both.marks.Migrate(t.Context(), old.db))
	require.NoError(t, c.both.marks.Check(t.Context(), old.db))
	return c
}

// together has these programs deliver the same messages at once, and checks that no effect is lost
// or doubled.
func (c change) together(t *testing.T, messages []string, programs ...*shop) {
	t.Helper()
	workerPool{workers: 2 * len(programs), batch: 50,
		deliver: func(ctx context.Context, worker int, batch []string) error {
			// atomic has two ways to mark, by the worker's number.
			return programs[worker/2].atomic(ctx, worker, batch)
		}}.run(t, messages, uint64(len(messages)))
	lost, doubled := c.old.damage(t, messages)
	assert.Zero(t, lost, "of %d", len(messages))
	assert.Zero(t, doubled, "of %d", len(messages))
}

// TestPreviousRollingDeploy: a live system goes from one form of ids to another, back, and forward
// again. Every step has duplicates from before it. Programs of neighboring steps run at once.
func TestPreviousRollingDeploy(t *testing.T) {
	forEachIDEngine(t, func(t *testing.T, e engine) {
		for _, level := range levels(e.dialect)[:2] {
			t.Run(level.String(), func(t *testing.T) {
				c := newChange(t, e, func(c *sqladapter.Config) { c.Isolation = level })
				all := make([]string, changeMessages)
				for i := range all {
					all[i] = uuid7(time.Now(), i)
				}
				part := len(all) / 5
				c.together(t, all[:part], c.old)
				c.together(t, all[:2*part], c.old, c.both)
				c.together(t, all[:3*part], c.old) // the deploy is rolled back
				c.together(t, all[:4*part], c.both, c.old)
				c.together(t, all[:4*part], c.both)
				// A window later no mark of the old table is needed, and new programs come.
				since := 4 * part
				c.together(t, all[since:], c.new, c.both)
				c.together(t, all[since:], c.new)
				assert.Len(t, c.old.effects(t), len(all))
			})
		}
	})
}

// TestPreviousBatchesDoNotDeadlock: overlapping batches of old programs and of those with both
// tables take the keys of the old one in the same order.
func TestPreviousBatchesDoNotDeadlock(t *testing.T) {
	forEachIDEngine(t, func(t *testing.T, e engine) {
		c := newChange(t, e, func(c *sqladapter.Config) { c.Isolation = sql.LevelReadCommitted })
		all := make([]string, 1000)
		for i := range all {
			all[i] = uuid7(time.Now().Add(time.Duration(i)*time.Second), i)
		}
		programs := []*shop{c.old, c.both}
		met := workerPool{workers: 8, batch: 200,
			deliver: func(ctx context.Context, worker int, batch []string) error {
				const byMarkBatchTx = 1 // which repeats nothing
				return programs[worker%2].atomic(ctx, byMarkBatchTx, batch)
			}}.run(t, all, 5)
		assert.Zero(t, met.deadlocks.Load(), "deadlocks")
		c.old.wantEffects(t, all)
	})
}

// TestPreviousKeepsWhatIsStored: a duplicate comes with the result, the age and the fingerprint of
// its first, whichever of the two tables that is in, and leaves nothing behind in the other.
func TestPreviousKeepsWhatIsStored(t *testing.T) {
	forEachIDEngine(t, func(t *testing.T, e engine) {
		c := newChange(t, e)
		n := 0
		for name, first := range map[string]*shop{"old": c.old, "both": c.both, "new": c.new} {
			asked := []*shop{c.both, c.both} // twice: the first time must leave no trace
			if first == c.both {
				asked = []*shop{c.old, c.new, c.both}
			}
			for _, size := range []int{1, 2} {
				var keys []string
				for range size {
					n++
					keys = append(keys, uuid7(time.Now(), n))
				}
				first.saveAll(t, keys)
				oldRows, newRows := c.old.rowsOf(t), c.new.rowsOf(t)
				for _, s := range asked {
					for _, mark := range s.marked(t, keys) {
						assert.Equal(t, dedup.Duplicate, mark.Outcome, name)
						assert.Equal(t, "receipt", string(mark.Result), name)
					}
					mark, found, err := s.marks.Lookup(t.Context(), s.db, keys[0],
						dedup.WithFingerprint([]byte("other")))
					require.NoError(t, err)
					assert.True(t, found, name)
					assert.Equal(t, dedup.Mismatch, mark.Outcome, name)
				}
				assert.Equal(t, oldRows, c.old.rowsOf(t), name)
				assert.Equal(t, newRows, c.new.rowsOf(t), name)
			}
		}
	})
}

// bound are requests with a fingerprint.
func bound(keys []string) []dedup.Request {
	reqs := requests(keys)
	for i := range reqs {
		dedup.WithFingerprint([]byte("payload"))(&reqs[i])
	}
	return reqs
}

// saveAll marks keys that are new, with a result each.
func (s *shop) saveAll(t *testing.T, keys []string) {
	t.Helper()
	require.NoError(t, s.inTx(t.Context(), func(tx *sql.Tx) error {
		marks, err := s.marks.MarkBatchTx(t.Context(), tx, bound(keys))
		require.NoError(t, err)
		for i, mark := range marks {
			require.True(t, mark.First())
			require.NoError(t, s.marks.SaveResultTx(t.Context(), tx, keys[i], []byte("receipt")))
		}
		return nil
	}))
}

// marked delivers keys that are done: alone with MarkTx, several with MarkBatchTx.
func (s *shop) marked(t *testing.T, keys []string) (marks []sqladapter.Mark) {
	t.Helper()
	require.NoError(t, s.inTx(t.Context(), func(tx *sql.Tx) (err error) {
		if len(keys) > 1 {
			marks, err = s.marks.MarkBatchTx(t.Context(), tx, bound(keys))
			return err
		}
		mark, err := s.marks.MarkTx(t.Context(), tx, keys[0],
			dedup.WithFingerprint([]byte("payload")))
		marks = []sqladapter.Mark{mark}
		return err
	}))
	return marks
}

// TestPreviousOfAnotherForm: the ids of both tables are compared with those that the ledgers make.
func TestPreviousOfAnotherForm(t *testing.T) {
	forEachIDEngine(t, func(t *testing.T, e engine) {
		c := newChange(t, e)
		wrong := c.new.ledgerOf(t, func(cfg *sqladapter.Config) {
			cfg.IDTime = sqladapter.UUIDv7
			cfg.Previous = c.old.ledgerOf(t, withUUIDv7)
		})
		_, err := wrong.Do(t.Context(), c.old.db, uuid7(time.Now(), 1),
			func(context.Context, *sql.Tx) error { return nil })
		require.ErrorContains(t, err, `made for "digest"`)
		assert.Zero(t, c.old.rowsOf(t)+c.new.rowsOf(t))
	})
}

// TestPreviousWaits: of two programs of neighboring steps one waits for the other's transaction,
// and then learns whether it was committed.
func TestPreviousWaits(t *testing.T) {
	forEachIDEngine(t, func(t *testing.T, e engine) {
		c := newChange(t, e)
		n := 0
		for _, pair := range [][2]*shop{{c.old, c.both}, {c.both, c.old}, {c.both, c.new},
			{c.new, c.both}, {c.both, c.both}} {
			for _, commit := range []bool{true, false} {
				n++
				key := uuid7(time.Now(), n)
				tx := begin(t, c.old.db, sql.LevelReadCommitted)
				mark, err := pair[0].marks.MarkTx(t.Context(), tx, key)
				require.NoError(t, err)
				require.True(t, mark.First())
				answer := make(chan sqladapter.Mark, 1)
				go func() {
					mark, err := pair[1].marks.Do(context.WithoutCancel(t.Context()), c.old.db, key,
						func(context.Context, *sql.Tx) error { return nil })
					assert.NoError(t, err)
					answer <- mark
				}()
				waitForAny(t, c)
				select {
				case mark := <-answer:
					assert.Fail(t, "it did not wait", "%v", mark)
				default:
				}
				if commit {
					require.NoError(t, tx.Commit())
				} else {
					require.NoError(t, tx.Rollback())
				}
				assert.Equal(t, !commit, (<-answer).First(), "pair %d", n)
			}
		}
	})
}

// waitForAny waits until a statement that inserts a mark waits for a lock.
func waitForAny(t *testing.T, c change) {
	t.Helper()
	query := `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%` +
		c.old.table + `%'`
	if c.old.dialect == sqladapter.MySQL {
		query = `SELECT count(*) FROM ` + servertest.Processlist + ` WHERE info LIKE 'INSERT%` +
			c.old.table + `%'`
	}
	poll(t, "a mark to wait", func() bool {
		var n int
		require.NoError(t, c.old.db.QueryRowContext(t.Context(), query).Scan(&n))
		return n > 0
	})
}

// TestPreviousOverPgx: the same with transactions of pgx, whose arrays are in binary form.
func TestPreviousOverPgx(t *testing.T) {
	c := newChange(t, pgxEngine())
	do := func(s *shop, keys []string) (marks []sqladapter.Mark) {
		marks, err := pgxv5.DoBatch(t.Context(), s.marks, s.pool, keys,
			func(ctx context.Context, tx pgx.Tx, first []int) error {
				_, err := tx.Exec(ctx, `INSERT INTO `+s.ledger+` SELECT unnest($1::text[])`,
					pick(keys, first))
				return err
			})
		require.NoError(t, err)
		return marks
	}
	all := make([]string, 400)
	for i := range all {
		all[i] = uuid7(time.Now(), i)
	}
	do(c.old, all[:100])
	do(c.both, all[:200])
	do(c.old, all[:300])
	do(c.both, all[:300])
	do(c.new, all[300:])
	do(c.both, slices.Concat(all[:100], all[300:]))
	lost, doubled := c.old.damage(t, all)
	assert.Zero(t, lost+doubled)
	for _, mark := range do(c.both, all) {
		assert.Equal(t, dedup.Duplicate, mark.Outcome)
	}
}

// TestPreviousLostCommit: Do and Confirm find out about a lost COMMIT, whatever it has done.
func TestPreviousLostCommit(t *testing.T) {
	for _, e := range cuttables([]string{"cache_statement"}) {
		t.Run(e.name, func(t *testing.T) {
			c := newChange(t, e.engine)
			cutter, db := e.through(t)
			both := *c.both
			both.db = db
			var done []string
			for n, how := range []commitcut.How{commitcut.Lost, commitcut.Torn, commitcut.Late,
				commitcut.Undelivered} {
				key := uuid7(time.Now(), n)
				cutter.Arm(commitcut.Cut{How: how, Bytes: 3})
				mark, err := both.do(t.Context(), key)
				require.NoError(t, err)
				assert.Equal(t, how == commitcut.Undelivered, mark.First(), "%v", how)
				done = append(done, key)

				alone := uuid7(time.Now(), 100+n)
				tx, err := db.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				mark, err = c.both.marks.MarkTx(t.Context(), tx, alone)
				require.NoError(t, err)
				require.True(t, mark.First())
				cutter.Arm(commitcut.Cut{How: how, Bytes: 3})
				require.Error(t, tx.Commit())
				got, err := c.both.marks.Confirm(t.Context(), c.both.db, alone, mark)
				require.NoError(t, err)
				want := sqladapter.Committed
				if how == commitcut.Undelivered {
					want = sqladapter.NotCommitted
				}
				assert.Equal(t, want, got, fmt.Sprint(how))
			}
			c.old.wantEffects(t, done)
		})
	}
}
