package httpbench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/server"
)

// Every side except those of PostgreSQL does the work that its row names: the handler runs once for
// each new key and never for a replay. Otherwise the timing fails.
func TestSides(t *testing.T) {
	s := server.Open(t.Context(), &harness.Bench{}, server.Embedded)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	e := &env{redis: s}
	rows, err := harness.Runner{
		Scale: harness.Scale{Rounds: 1, Keys: 64, Budget: 5 * time.Millisecond}}.Run(
		t.Context(), e.groups())
	require.NoError(t, err)
	seen := make(map[string]bool)
	for _, row := range rows {
		assert.True(t, row.Value > 0 && row.P50Micros > 0 && row.P99Micros >= row.P50Micros &&
			row.Allocs > 0 && (row.Against == "" || row.Ratio > 0), "%+v", row)
		seen[row.Name+": "+row.Side] = true
	}
	assert.Len(t, seen, 2*(9-len(needsSQL)+7))
}

func opened(t *testing.T, side string) *party {
	s := &harness.Setup{Multiple: 1}
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return (&env{}).newParty(t.Context(), s, side, false)
}

// If a key is known that should be new, or new that should be known, the run returns an error and
// no timing.
func TestWrongWorkIsNotTimed(t *testing.T) {
	p := opened(t, oursMemory)
	timing := func() *harness.Timing {
		return &harness.Timing{Keys: harness.FreshKeys(3), Latency: make([]time.Duration, 3)}
	}
	work := timing()
	run := func(work *harness.Timing) error {
		return must.Try(func() { p.side().Run(t.Context(), work) })
	}
	require.NoError(t, run(work))
	require.Error(t, run(work), "replays were timed as new requests")
	p.again = true
	require.NoError(t, run(work))
	require.Error(t, run(timing()), "new requests were timed as replays")
}

// The client allocates almost nothing, because the rows are about servers.
func TestClientAllocatesNothing(t *testing.T) {
	p := opened(t, fiberBare)
	const n = 2000
	work := &harness.Timing{Keys: harness.FreshKeys(n), Latency: make([]time.Duration, n)}
	allocs := testing.AllocsPerRun(3, func() { p.send(true)(t.Context(), work) })
	// of the client, and of a server that also allocates nothing
	assert.LessOrEqual(t, allocs/n, float64(mostAllocs))
}
