package sql_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
)

// TestDownAfterABlockedDrop: a generation that could not be dropped, because a session was reading
// it, is dropped on the way down like the others. Otherwise its table would block the generation
// with the same number, when they are counted from 1 again.
func TestDownAfterABlockedDrop(t *testing.T) {
	prefix := servertest.Prefix(t)
	for name, table := range map[string]string{"short": prefix + "_marks",
		"long": prefix + strings.Repeat("x", 63-len(prefix))} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, inGenerations(postgres("cache_statement")), func(c *sqladapter.Config) {
				c.Table = table
			})
			for generation := 1; generation <= 3; generation++ {
				s.nextGeneration(t, generation, generation > 1)
			}
			require.NoError(t, s.marks.Migrations().To(t.Context(), s.db, 0))
			assert.Empty(t, append(s.relations(t, "r"), s.relations(t, "v")...))
			require.NoError(t, s.marks.Migrate(t.Context(), s.db))
			for generation := 1; generation <= 3; generation++ {
				s.nextGeneration(t, generation, false)
			}
		})
	}
}

// nextGeneration rotates. If read is set, a session reads the oldest generation, and Rotate cannot
// drop it.
func (s *shop) nextGeneration(t *testing.T, generation int, read bool) {
	t.Helper()
	s.wantFirst(t, fmt.Sprintf("of generation %d", generation), true)
	s.windowPassed(t, generation)
	s.wantFirst(t, fmt.Sprintf("later than generation %d", generation), true)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	if read {
		reader, old := begin(t, s.db, sql.LevelDefault),
			s.relation(fmt.Sprintf("_g%d", generation-1))
		defer func() { _ = reader.Rollback() }()
		_, err := reader.ExecContext(ctx, `SELECT 1 FROM `+old)
		require.NoError(t, err)
		go func() {
			s.waitForDrop(ctx, old)
			stop()
		}()
	}
	sealed, err := s.rotated(ctx)
	require.True(t, sealed, "%v", sealed)
	require.Equal(t, read, err != nil)
}

// waitForDrop returns when a session waits for a lock on a table, or when ctx ends.
func (s *shop) waitForDrop(ctx context.Context, table string) {
	for waiting := 0; waiting == 0; {
		if err := backoff.Sleep(ctx, 5*time.Millisecond); err != nil {
			return
		}
		// After an error, Rotate is canceled before it has sealed, which nextGeneration reports.
		err := s.db.QueryRowContext(ctx,
			`SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = to_regclass($1)`,
			table).Scan(&waiting)
		if err != nil {
			return
		}
	}
}
