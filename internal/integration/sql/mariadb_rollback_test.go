package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/sqlerr"
	"github.com/onceward/onceward/sqladapter"
)

// TestMariaDBDeadlocksOverAMarkThatWasRolledBack is what the documentation says: those who wait for
// a mark that is rolled back deadlock with each other. In its own transaction, the caller gets the
// error, and Do runs its transaction again.
func TestMariaDBDeadlocksOverAMarkThatWasRolledBack(t *testing.T) {
	s := newShop(t, mariadb())
	failed := errors.New("every second effect")
	var mu sync.Mutex
	deadlocks := 0
	var all []string
	for round := 0; round < 200 && (round < 20 || deadlocks == 0); round++ {
		key := fmt.Sprint("k", round)
		all = append(all, key)
		var wg sync.WaitGroup
		for caller := range 8 {
			wg.Go(func() {
				if caller%2 == 0 { // a transaction of its own, which rolls back
					tx, err := s.db.BeginTx(t.Context(), nil)
					if !assert.NoError(t, err) {
						return
					}
					defer func() { _ = tx.Rollback() }()
					if _, err := s.marks.MarkTx(t.Context(), tx, key); err != nil {
						assert.True(t, sqladapter.Retryable(err), "%v", err)
						if sqlerr.MySQL(err) == 1213 {
							mu.Lock()
							deadlocks++
							mu.Unlock()
						}
					}
					return
				}
				runs := 0
				_, err := s.marks.Do(t.Context(), s.db,
					key, func(ctx context.Context, tx *sql.Tx) error {
						if err := s.effect(ctx, tx, key); err != nil {
							return err
						}
						if runs++; runs == 1 && caller == 1 {
							return failed
						}
						return nil
					})
				if err != nil && !errors.Is(err, failed) {
					assert.True(t, sqladapter.Retryable(err), "%v", err)
				}
			})
		}
		wg.Wait()
		_, err := s.marks.Do(t.Context(), s.db, key, func(ctx context.Context, tx *sql.Tx) error {
			return s.effect(ctx, tx, key)
		})
		require.NoError(t, err)
	}
	assert.NotZero(t, deadlocks, "nobody has deadlocked: the documentation may promise more")
	t.Logf("%d deadlocks of %d keys", deadlocks, len(all))
	s.wantEffects(t, all)
}
