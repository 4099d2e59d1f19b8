package filterbench

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
)

// A stream has the share of duplicates in its name, so far apart that they are not in flight.
func TestStreams(t *testing.T) {
	t.Parallel()
	const n = 40 * workers * batchIDs
	for _, share := range shares {
		for _, old := range []bool{false, true} {
			s := stream{share: share, old: old}
			m := s.make(n)
			repeated, known := checkStream(t, s, m)
			least := float64(share)
			if !old { // the first keys of a worker have no earlier key to repeat
				least *= 1 - gap*workers/float64(n)
			}
			got := 100 * float64(repeated) / n
			assert.True(t, got >= least-0.5 && got <= float64(share)+0.1,
				"%+v: %.1f %% are duplicates", s, got)
			assert.Equal(t, []int{m.news, m.news}, []int{n - repeated, known - len(m.old)})
			again := s.make(n)
			assert.NotEqual(t, m.keys[0], again.keys[0], "the next stream has the same keys")
			assert.Equal(t, m.news, again.news)
		}
	}
}

// checkStream counts the keys that repeat an earlier one, and the different keys. It checks the
// distance of repeated keys.
func checkStream(t *testing.T, s stream, m made) (repeated, different int) {
	t.Helper()
	first, last := map[string]int{}, map[string]int{} // -1: before the stream
	for _, key := range m.old {
		_, twice := first[key] // assert.NotContains would be slow here
		require.False(t, twice, "%+v: an old key ends twice", s)
		first[key] = -1
	}
	for w := range workers {
		for i, key := range part(m.keys, w) {
			at, dup := first[key]
			if !dup {
				first[key], last[key] = i, i
				continue
			}
			repeated++
			require.Equal(t, s.old, at < 0, "%+v: key %d repeats one at %d", s, i, at)
			require.True(t, s.old || i-at >= gap && i-last[key] <= gap+recentSpan,
				"%+v: key %d repeats one that came first at %d and last at %d", s, i, at, last[key])
			last[key] = i
		}
	}
	return repeated, len(first)
}

// Every side runs each new key of a stream once, in every timing.
func TestOwnedRunsEachOnce(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	ran := map[string]map[string]int{}
	e := &env{rounds: 1, redis: embedded(t), effect: func(side, key string) {
		mu.Lock()
		defer mu.Unlock()
		if ran[side] == nil {
			ran[side] = map[string]int{}
		}
		ran[side][key]++
	}}
	sides := []string{ownedTwo, ownedOne, sharedTwo, sharedOne, sharedSmall, rawSide}
	for _, s := range []stream{{share: 90}, {share: 50, old: true}} {
		clear(ran)
		var group harness.Groups
		e.stream(&group, s)
		rows, err := harness.Runner{
			Scale: harness.Scale{Rounds: 1, Budget: time.Millisecond}}.Run(t.Context(), group)
		require.NoError(t, err)
		m := s.make(e.ownedKeys(s))
		const timings = 3 // two come before the round that counts
		assert.ElementsMatch(t, sides, slices.Collect(maps.Keys(ran)))
		for side, keys := range ran {
			assert.Len(t, keys, timings*(m.news+len(m.old)), "%+v, %s", s, side)
			for key, n := range keys {
				require.Equal(t, 1, n, "%+v, %s: %s", s, side, key)
			}
		}
		for _, r := range rows {
			// the embedded Redis has no CPU time of its own
			assert.True(t, r.Value > 0 || strings.HasSuffix(r.Name, "Redis CPU"), "%+v", r)
		}
	}
}

// A side that loses keys, or runs some twice, gives an error and no figure.
func TestWrongNumberIsAnError(t *testing.T) {
	for ran, want := range map[int]bool{99: false, 100: true, 101: false} {
		counts := func(_ context.Context, worker int, _ []string, _ effect) int {
			return ran * (1 - worker)
		}
		err := must.Try(func() { consumeAll(t.Context(), counts, make([]string, 2), 100, nil) })
		assert.Equal(t, want, err == nil, "%d of 100", ran)
	}
}

// Sets are folded within the timing, or another side's timing would include that work.
func TestTimingFolds(t *testing.T) {
	t.Parallel()
	// a set has freshMembers members
	redis := embedded(t)
	o := openOwned(t.Context(), opened(t), redis.Addr, (&env{marks: 60_000}).oneGeneration())
	o.take(t.Context())
	ctx, done := context.WithTimeout(t.Context(), time.Minute)
	defer done()
	o.markAll(ctx, freshMembers+2*marksAtOnce)
	assert.Equal(t, uint64(1), o.unfolded(ctx, 0), "sets to be folded")
	o.fold(ctx)
	assert.Zero(t, o.unfolded(ctx, 0), "sets that are left")
	o.proven(0)
	require.Error(t, must.Try(func() { o.proven(freshMembers + 3*marksAtOnce) }),
		"keys that were claimed at the inner store count as proven new")
}

func TestLoad(t *testing.T) {
	t.Parallel()
	e := &env{rounds: 2, redis: embedded(t), marks: freshMembers + marksAtOnce}
	s := opened(t)
	e.measureLoad(t.Context(), s)
	require.Len(t, s.Rows, 2)
	assert.Equal(t, 2, s.Rows[1].Rounds)
	assert.True(t, s.Rows[1].OK)
	assert.Positive(t, s.Rows[1].Value)
}

// Streams are long enough for fresh sets to be folded within the timing.
func TestStreamsFillSets(t *testing.T) {
	t.Parallel()
	e := &env{freshSets: 2}
	for share, sets := range map[int]int{0: 2, 10: 2, 50: 1, 90: 1} {
		s := stream{share: share}
		each := s.make(e.ownedKeys(s)).news / workers
		assert.True(t, each >= sets*freshMembers+batchIDs && each <= sets*freshMembers+5*batchIDs,
			"%d %%: %d new keys for %d sets", share, each, sets)
	}
}
