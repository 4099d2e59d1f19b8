package harness

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/bench/internal/must"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		name string
		in   []float64
		want float64
	}{
		{"nothing", nil, 0},
		{"one", []float64{3}, 3},
		{"odd", []float64{9, 1, 5}, 5},
		{"even is the mean of the middle", []float64{8, 2, 4, 1}, 3},
		{"an outlier moves nothing", []float64{1, 2, 1000}, 2},
	} {
		before := slices.Clone(c.in)
		assert.Equal(t, c.want, Median(c.in), c.name)
		assert.Equal(t, before, c.in, "the argument was changed")
	}
}

// The median of the ratios is not the ratio of the medians. Here the machine is slower in the
// second and third round, but both sides are equal in each round.
func TestPaired(t *testing.T) {
	assert.Equal(t, []float64{1, 1, 1}, Paired([]float64{100, 50, 40}, []float64{100, 50, 40}))
	assert.Equal(t, []float64{0.5}, Paired([]float64{1, 2, 3}, []float64{2, 0}),
		"a round without a reference")
	assert.Equal(t, [2]float64{0.5, 2}, Spread([]float64{2, 0.5, 1}))
	assert.Equal(t, [2]float64{}, Spread(nil))
}

func TestPercentile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for share, want := range map[float64]time.Duration{0: 1, 0.5: 50, 0.99: 99, 1: 100} {
		assert.Equal(t, want, Percentile(hundred, share), share)
	}
	assert.Equal(t, time.Duration(7), Percentile([]time.Duration{7}, 0.99))
	assert.Zero(t, Percentile(nil, 0.5))
}

func TestPercentilesLeaveOutWhatWasNotMeasured(t *testing.T) {
	p50, p99 := Percentiles([]time.Duration{0, 3000, 0, 1000, 2000})
	assert.Equal(t, []float64{2, 3}, []float64{p50, p99}, "us")
}

func TestGoal(t *testing.T) {
	for _, c := range []struct {
		goal         Goal
		value, ratio float64
		ok           bool
	}{
		{"", 1, 0, true},
		{">= 0.85x (stretch 0.92x)", 0, 0.85, true},
		{">= 0.85x (stretch 0.92x)", 1, 0.849, false},
		{"<= 1.6x", 2, 1.6, true},
		{"<= 1.6x", 0, 1.61, false},
		{"<= 10 B (stretch 9 B)", 10.1, 0.01, false},
		{">= 99 %", 99, 0, true},
		{">= 99 %", 98.9, 100, false},
		{"<= 0 allocations", 0, 0, true},
		{"<= 0 allocations", 1, 0, false},
	} {
		assert.Equal(t, c.ok, c.goal.Reached(c.value, c.ratio), "%+v", c)
	}
	for _, bad := range []Goal{"1x", "> 1x", ">= 1", ">= x", ">= 1x (2x)"} {
		assert.Error(t, must.Try(func() { bad.Reached(1, 1) }), bad)
	}
}

func TestResultsRoundTrip(t *testing.T) {
	want := Results{
		Area: "redis", Commit: "abc", Date: "2026-01-02", Machine: "2 cores",
		Versions: map[string]string{"go": "1.26"},
		Rows: []Row{{
			Name: "batch", Value: 1.5, Unit: "keys/s", Against: "raw", AgainstValue: 2, Ratio: 0.75,
			Spread: [2]float64{0.5, 1}, Rounds: 7, Goal: ">= 0.85x", OK: false, Workload: "batch",
			Side: "onceward", X: 256, Binds: "Redis", Usage: Usage{ClientUS: 1, ServerUS: 2,
				Allocs: 3, P50Micros: 4, P99Micros: 5},
		}},
		LeftOut: []string{"this"},
	}
	path := filepath.Join(t.TempDir(), "new", "redis.json")
	require.NoError(t, want.Write(path))
	got, err := Read(path)
	require.NoError(t, err)
	assert.Equal(t, want, got)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	// Other tools read these names, in this order.
	rest := string(data)
	for _, name := range []string{"area", "commit", "date", "machine", "versions", "rows", "name",
		"value", "unit", "against", "against_value", "ratio", "spread", "rounds", "goal", "ok",
		"workload", "side", "x", "client_us", "server_us", "allocs", "p50_us", "p99_us", "binds"} {
		var found bool
		_, rest, found = strings.Cut(rest, `"`+name+`"`)
		require.True(t, found, "no %q there in\n%s", name, data)
	}
	assert.Contains(t, string(data), `">= 0.85x"`, "the goal is escaped")
}

func TestReadRefusesWhatItDoesNotKnow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"area":"redis","rows":[{"nome":"x"}]}`), 0o600))
	_, err := Read(path)
	require.ErrorContains(t, err, "nome")
}
