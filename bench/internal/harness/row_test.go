package harness

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
