package sql_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/sqlerr"
	"github.com/onceward/onceward/sqladapter"
)

// A workerPool has workers that all get the same messages, each worker in its own order and
// batches. A worker gets a batch again until it has acknowledged it. A broker cannot do more
// to its consumers. The effects are in the shop's ledger.
type workerPool struct {
	workers, batch int
	// sameOrder gives all workers the same batches at the same time.
	sameOrder bool
	// deliver is one delivery to one of the workers; nil acknowledges it.
	deliver func(ctx context.Context, worker int, batch []string) error
}

// deliveryFailures counts the deliveries that failed.
type deliveryFailures struct {
	failed    atomic.Int64 // deliveries that were not acknowledged
	deadlocks atomic.Int64 // those of them that a deadlock ended
}

// between is the time from a failed delivery to the next.
const between = 5 * time.Millisecond

// run ends when every worker has acknowledged every message.
func (c workerPool) run(t *testing.T, messages []string, seed uint64) *deliveryFailures {
	t.Helper()
	var met deliveryFailures
	var wg sync.WaitGroup
	for w := range c.workers {
		wg.Go(func() {
			mine, stream := slices.Clone(messages), uint64(w)
			if c.sameOrder {
				stream = 0
			}
			rng := rand.New(rand.NewPCG(seed, stream))
			rng.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
			for batch := range slices.Chunk(mine, c.batch) {
				if !c.untilAcknowledged(t, w, batch, &met) {
					return
				}
			}
		})
	}
	wg.Wait()
	return &met
}

// untilAcknowledged reports whether it was, and fails the test otherwise.
func (c workerPool) untilAcknowledged(t *testing.T, worker int, batch []string,
	met *deliveryFailures) bool {
	pause := time.NewTicker(between)
	defer pause.Stop()
	for {
		err := c.deliver(t.Context(), worker, batch)
		if err == nil {
			return true
		}
		met.failed.Add(1)
		if deadlocked(err) {
			met.deadlocks.Add(1)
		}
		if !assert.True(t, sqladapter.Retryable(err), "worker %d: %v", worker, err) {
			return false
		}
		select {
		case <-pause.C:
		case <-t.Context().Done():
			t.Errorf("worker %d was not done in time: %v", worker, err)
			return false
		}
	}
}

func deadlocked(err error) bool {
	return sqlerr.State(err) == "40P01" || sqlerr.MySQL(err) == 1213
}

// TestOverlappingBatches: batches overlap and come in any order, at every isolation level. Prevents
// deadlocks: if keys were marked in the order in which they come, the server would end several of
// these transactions. Above READ COMMITTED, only PostgreSQL refuses the losers.
func TestOverlappingBatches(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		tried := levels(e.dialect)
		if !slices.Contains([]string{"postgres/cache_statement", "mariadb"}, e.name) {
			tried = tried[:1] // the modes of a driver do not differ in this
		}
		for _, level := range tried {
			t.Run(level.String(), func(t *testing.T) {
				s := newShop(t, e, func(c *sqladapter.Config) { c.Isolation = level })
				c, all := workerPool{workers: 8, batch: 200, deliver: s.atomic}, messages(1000)
				if e.dialect == sqladapter.SQLite {
					// one writer at a time, and one statement for each key
					c.batch, all = 25, all[:100]
				}
				met := c.run(t, all, 5)
				refused := e.dialect == sqladapter.Postgres && level != sql.LevelReadCommitted
				failed, deadlocks := met.failed.Load(), met.deadlocks.Load()
				assert.Zero(t, deadlocks, "%d deliveries failed", failed)
				assert.False(t, failed != 0 && !refused, "%d deliveries failed", failed)
				s.wantEffects(t, all)
			})
		}
	})
}

// TestBatchLocksItsOwnRows: a batch of duplicates does not wait for a mark that is not in it.
// Prevents a plan that reads, and locks, the whole table: with many keys, or few rows.
func TestBatchLocksItsOwnRows(t *testing.T) {
	for _, e := range []engine{postgres("cache_statement"), mariadb()} {
		for _, size := range []int{200, 2500} {
			t.Run(fmt.Sprintf("%s/%d", e.name, size), func(t *testing.T) {
				s := newShop(t, e)
				all := messages(size)
				require.NoError(t, s.atomic(t.Context(), 1, all))
				s.win(t, begin(t, s.db, sql.LevelDefault), []string{"somebody else's"})
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				assert.NoError(t, s.atomic(ctx, 1, all),
					"a batch of duplicates next to an open transaction")
			})
		}
	}
}

// damage compares the ledger with what was delivered and acknowledged.
func (s *shop) damage(t *testing.T, messages []string) (lost, doubled int) {
	t.Helper()
	counts := s.effects(t)
	for _, message := range messages {
		switch n := counts[message]; {
		case n == 0:
			lost++
		case n > 1:
			doubled++
		}
	}
	return lost, doubled
}

// bind writes the placeholders of the dialect for question marks.
func (s *shop) bind(query string) string {
	if s.dialect != sqladapter.Postgres {
		return query
	}
	var b strings.Builder
	for i, part := range strings.Split(query, "?") {
		if i > 0 {
			fmt.Fprintf(&b, "$%d", i)
		}
		b.WriteString(part)
	}
	return b.String()
}

// effectOf writes the effects of messages in one statement, which may also be outside of any
// transaction.
func (s *shop) effectOf(ctx context.Context, tx execer, messages []string) error {
	if len(messages) == 0 {
		return nil
	}
	query := `INSERT INTO ` + s.ledger + ` (message) VALUES (?)` +
		strings.Repeat(`, (?)`, len(messages)-1)
	_, err := tx.ExecContext(ctx, s.bind(query), anys(messages)...)
	return err
}

// execer is a transaction, a connection or a pool.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func anys(texts []string) []any {
	all := make([]any, len(texts))
	for i, text := range texts {
		all[i] = text
	}
	return all
}

// atomic delivers as documented: every other worker with DoBatch, the rest with MarkBatchTx in a
// transaction of their own, where the library repeats nothing.
func (s *shop) atomic(ctx context.Context, worker int, batch []string) error {
	if worker%2 == 0 {
		_, err := s.marks.DoBatch(ctx, s.db,
			batch, func(ctx context.Context, tx *sql.Tx, first []int) error {
				return s.effectOf(ctx, tx, pick(batch, first))
			})
		return err
	}
	return s.inTx(ctx, func(tx *sql.Tx) error {
		marks, err := s.marks.MarkBatchTx(ctx, tx, requests(batch))
		if err != nil {
			return err
		}
		var first []int
		for i, mark := range marks {
			if mark.First() {
				first = append(first, i)
			}
		}
		return s.effectOf(ctx, tx, pick(batch, first))
	})
}

func (s *shop) inTx(ctx context.Context, work func(tx *sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: s.level})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := work(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func requests(batch []string) []dedup.Request {
	reqs := make([]dedup.Request, len(batch))
	for i, message := range batch {
		reqs[i].Key = message
	}
	return reqs
}

func pick(batch []string, places []int) []string {
	picked := make([]string, len(places))
	for i, place := range places {
		picked[i] = batch[place]
	}
	return picked
}
