package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
)

// A clerk delivers batches whose effects keep results, and sees every transaction that is begun.
type clerk struct {
	*shop
	begun atomic.Int64
}

// mariadbClerk has the marks of an engine on MariaDB at a level. It counts the transactions begun.
func mariadbClerk(t *testing.T, e engine, level sql.IsolationLevel) *clerk {
	t.Helper()
	// a copy: the shop that newShop drops at the end keeps its own pool
	s := *newShop(t, e, func(c *sqladapter.Config) { c.Isolation = level })
	c := &clerk{shop: &s}
	c.db = openIntercepted(t, "mysql", mariadbDSN(t, servertest.MariaDB(t), nil),
		func(what string, do func() error) error {
			if what == "begin" {
				c.begun.Add(1)
			}
			return do()
		})
	c.db.SetMaxIdleConns(32)
	return c
}

func receipt(message string) string { return "receipt of " + message }

// saved is the effect of the firsts, a receipt for each but those that begin with "bare".
func (c *clerk) saved(ctx context.Context, tx *sql.Tx, firsts []string) error {
	if err := c.effectOf(ctx, tx, firsts); err != nil {
		return err
	}
	for _, message := range firsts {
		if message[:4] == "bare" {
			continue
		}
		if err := c.marks.SaveResultTx(ctx, tx, message, []byte(receipt(message))); err != nil {
			return err
		}
	}
	return nil
}

// byDoBatch and byHand deliver once; a duplicate without its receipt is an error.
func (c *clerk) byDoBatch(ctx context.Context, batch []string) error {
	marks, err := c.marks.DoBatch(ctx, c.db,
		batch, func(ctx context.Context, tx *sql.Tx, first []int) error {
			return c.saved(ctx, tx, pick(batch, first))
		})
	return errors.Join(err, wantReceipts(batch, marks))
}

func (c *clerk) byHand(ctx context.Context, batch []string) error {
	return c.inTx(ctx, func(tx *sql.Tx) error {
		marks, err := c.marks.MarkBatchTx(ctx, tx, requests(batch))
		if err != nil {
			return err
		}
		var firsts []string
		for i, mark := range marks {
			if mark.First() {
				firsts = append(firsts, batch[i])
			}
		}
		return errors.Join(wantReceipts(batch, marks), c.saved(ctx, tx, firsts))
	})
}

func wantReceipts(batch []string, marks []sqladapter.Mark) error {
	for i, mark := range marks {
		want := receipt(batch[i])
		if mark.First() || batch[i][:4] == "bare" {
			want = ""
		}
		if mark.Err != nil || string(mark.Result) != want {
			return fmt.Errorf("%s is %v with %q, %w; want %q", batch[i], mark.Outcome, mark.Result,
				mark.Err, want)
		}
	}
	return nil
}

// TestOverlappingBatchesKeepResults: workers whose batches keep results begin each message once, at
// every level of MariaDB: in batches that overlap, and in batches that share no key but each have
// an old one. Prevents deadlocks: above READ COMMITTED a read of a missing result locks the gap
// where it would be, against the inserts of others, and all of them read.
func TestOverlappingBatchesKeepResults(t *testing.T) {
	for _, e := range []engine{mariadb(), inGenerations(mariadb())} {
		tried := levels(e.dialect)
		if e.retention == sqladapter.Generations {
			tried = []sql.IsolationLevel{sql.LevelDefault} // only its load differs
		}
		for _, level := range tried {
			t.Run(e.name+"/"+level.String(), func(t *testing.T) {
				t.Parallel()
				t.Run("overlapping", func(t *testing.T) {
					overlapping(t, mariadbClerk(t, e, level))
				})
				t.Run("disjoint", func(t *testing.T) {
					disjoint(t, mariadbClerk(t, e, level), messages(100), true)
				})
				// In its own transaction, the caller reads the results before the effect.
				bare := make([]string, 100)
				for i := range bare {
					bare[i] = fmt.Sprint("bare ", i)
				}
				t.Run("beside bare ones", func(t *testing.T) {
					disjoint(t, mariadbClerk(t, e, level), bare, level == sql.LevelReadCommitted)
				})
			})
		}
	}
}

const clerks, clerkBatch = 8, 32

// pool delivers by DoBatch. If both is set, every other worker delivers byHand.
func (c *clerk) pool(both bool) workerPool {
	return workerPool{workers: clerks, batch: clerkBatch,
		deliver: func(ctx context.Context, worker int, batch []string) error {
			if both && worker%2 == 1 {
				return c.byHand(ctx, batch)
			}
			return c.byDoBatch(ctx, batch)
		}}
}

func overlapping(t *testing.T, c *clerk) {
	all := messages(320)
	met := c.pool(true).run(t, all, 5)
	c.wantNoRepetition(t, met, clerks*len(all)/clerkBatch)
	c.wantEffects(t, all)
}

// disjoint has batches of new messages, and one old one in each.
func disjoint(t *testing.T, c *clerk, old []string, both bool) {
	const batches = 10
	require.NoError(t, c.byDoBatch(t.Context(), old))
	c.begun.Store(0)
	var met deliveryFailures
	var wg sync.WaitGroup
	batch := func(worker, n int) []string {
		mixed := []string{old[(worker*batches+n)%len(old)]}
		for i := range clerkBatch - 1 {
			mixed = append(mixed, fmt.Sprintf("new %d of %d by %d", i, n, worker))
		}
		return mixed
	}
	all := old
	for w := range clerks {
		for n := range batches {
			all = append(all, batch(w, n)[1:]...)
		}
		wg.Go(func() {
			for n := 0; n < batches &&
				c.pool(both).untilAcknowledged(t, w, batch(w, n), &met); n++ {
			}
		})
	}
	wg.Wait()
	c.wantNoRepetition(t, &met, clerks*batches)
	c.wantEffects(t, all)
}

func (c *clerk) wantNoRepetition(t *testing.T, met *deliveryFailures, deliveries int) {
	t.Helper()
	assert.Zero(t, c.begun.Load()-int64(deliveries), "%d deliveries", deliveries)
	assert.Zero(t, met.failed.Load(), "%d deliveries", deliveries)
}

// TestResultsHoldNobodyUp: while a batch with duplicates is open, a transaction that keeps the
// result of another message does not wait. The table of results is empty or has one row: the gaps
// are wide.
func TestResultsHoldNobodyUp(t *testing.T) {
	for _, e := range []engine{mariadb(), inGenerations(mariadb())} {
		for _, level := range levels(e.dialect) {
			for _, old := range []string{"message", "bare"} {
				t.Run(e.name+"/"+level.String()+"/"+old, func(t *testing.T) {
					t.Parallel()
					c := mariadbClerk(t, e, level)
					require.NoError(t, c.byDoBatch(t.Context(), []string{old}))
					other := *c.shop
					other.db = c.impatient(t)
					others := 0
					beside := func() error {
						for range 8 {
							others++
							if _, err := other.saves(t.Context(), fmt.Sprint("other ", others),
								[]byte("x")); err != nil {
								return fmt.Errorf("next to a duplicate: %w", err)
							}
						}
						return nil
					}
					marks, err := c.marks.DoBatch(t.Context(), c.db, []string{old, "new 1"},
						func(context.Context, *sql.Tx, []int) error { return beside() })
					require.NoError(t, err)
					require.Equal(t, dedup.Duplicate, marks[0].Outcome, "DoBatch: %v", marks)
					assert.True(t, marks[1].First(), "DoBatch: %v", marks)
					if old == "bare" && level != sql.LevelReadCommitted {
						// MarkBatchTx reads the missing result before the effect, and locks its gap
						return
					}
					tx := begin(t, c.db, level)
					marks, err = c.marks.MarkBatchTx(t.Context(),
						tx, requests([]string{old, "new 2"}))
					require.NoError(t, err)
					require.True(t, marks[1].First(), "%v", marks)
					assert.NoError(t, beside())
				})
			}
		}
	}
}
