package outboxbench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
)

// Every workload runs completely. Relays and recipes count what they publish, so a run without an
// error means that all messages were published. Nothing is left behind.
func TestGroupsRun(t *testing.T) {
	postgres := server.OpenDatabase(t.Context(), &harness.Bench{}, sqladapter.Postgres,
		servertest.Postgres(t))
	db := postgres.Pool(64)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	e := &env{db: db, url: postgres.URL, wakeUps: 1, least: 40}
	rows, err := harness.Runner{
		Scale: harness.Scale{Rounds: 1, Keys: 100, Budget: time.Millisecond}}.Run(t.Context(),
		e.groups())
	require.NoError(t, err)
	for _, row := range rows {
		assert.Positive(t, row.Value, "%+v", row)
		assert.Equal(t, row.Against != "", row.Ratio > 0, "%+v", row)
	}
	assert.Len(t, rows, 2*7+3+2*4)
	var left int
	require.NoError(t, db.QueryRowContext(t.Context(),
		`SELECT count(*) FROM pg_tables WHERE tablename LIKE 'bench_outbox_%'`).Scan(&left))
	assert.Zero(t, left, "tables are left")
}
