package redisbench

import (
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/bench/internal/work"
)

func titled(groups []harness.Group, pattern string) []harness.Group {
	match := regexp.MustCompile(pattern)
	return slices.DeleteFunc(groups, func(g harness.Group) bool {
		return !match.MatchString(g.Title)
	})
}

// Every family does its work. The sides check their answers, so a run without an error means that
// new keys were new and duplicates were known.
func TestFamiliesRun(t *testing.T) {
	redis := server.Open(t.Context(), &harness.Bench{}, server.Embedded)
	t.Cleanup(func() { _ = redis.Close() })
	e := newEnv(redis, harness.Options{Quick: true,
		Scale: harness.Scale{Budget: time.Millisecond}})
	groups := titled(e.groups(), "^batch 16,|^batch 256, (8|duplicates)|^lone caller, new key|"+
		"^64 callers, new keys$|^64 .*RTT|^stream with 90 .* one caller|^stream with 50 .* 64|"+
		"^peers, 16|result of 1024 bytes")
	require.Len(t, groups, 12)
	rows, err := harness.Runner{Scale: harness.Scale{Rounds: 1, Keys: 64, Budget: e.budget},
		Between: redis.Empty}.Run(t.Context(), groups)
	require.NoError(t, err)
	for _, row := range rows {
		assert.Positive(t, row.Value, "%+v", row)
		assert.NotContains(t, []string{row.Workload, row.Side, row.Name}, "")
		// A pair without a ratio names a side that is not there.
		assert.Equal(t, row.Against != "", row.Ratio > 0, "%+v", row)
	}
}

func TestGoalsAreAllThere(t *testing.T) {
	titles := make(map[string]bool)
	for _, g := range newEnv(&server.Redis{Own: true}, harness.Options{Long: true}).groups() {
		assert.False(t, titles[g.Title], "two groups are called %q", g.Title)
		titles[g.Title] = true
	}
	for _, want := range []string{
		"batch 256, claim + complete, new keys", "batch 256, duplicates",
		"batch 256, 8 under way, claim + complete, new keys", "lone caller, new key",
		"lone caller, new key, other core busy", "64 callers, new keys",
		"256 callers, new keys", "1024 callers, new keys", "1024 callers, new keys, 2 ms RTT",
		"bytes per remembered key, 1 M keys", "duplicates answered in process",
		"stream with 0 % recent duplicates, one caller",
		"stream with 50 % recent duplicates, one caller",
		"stream with 90 % recent duplicates, one caller",
		"growth 10 k -> 10 M keys, duplicate check, " + work.Full.Name,
	} {
		assert.Contains(t, titles, want)
	}
}

// Memory is not measured for an embedded server. Keys that stay for an hour are not written to a
// server that others use.
func TestOthersServersAreNotFilled(t *testing.T) {
	few := len(work.Layouts)
	for _, c := range []struct {
		own, isEmbedded bool
		pattern         string
		want            int
	}{
		{true, false, "^bytes|^server CPU", 3}, {true, true, "^bytes|^server CPU", 0},
		{false, false, "^bytes|^server CPU", 0},
		{true, false, "^growth", 2 * few}, {true, true, "^growth", few},
		{false, false, "^growth", 0}, {false, false, "^batch 16,", 1},
	} {
		able := 0
		for _, g := range titled(newEnv(&server.Redis{Own: c.own, Embedded: c.isEmbedded},
			harness.Options{Long: true}).groups(), c.pattern) {
			if g.Unable == "" {
				able++
			}
		}
		assert.Equal(t, c.want, able, "%+v", c)
	}
}
