package filterbench

import (
	"context"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/bench/internal/work"
	"github.com/onceward/onceward/bloom"
	"github.com/onceward/onceward/sqladapter"
)

// small is an environment that is small enough for a test.
func small() *env {
	return &env{sizes: []int{2000}, budget: time.Millisecond, rounds: 1, hits: 2}
}

// Every workload runs. Every figure except speed reaches its goal even at the smallest size.
func TestEverythingRuns(t *testing.T) {
	e := small()
	rows, err := harness.Runner{Scale: harness.Scale{Rounds: 1, Budget: e.budget}}.Run(
		t.Context(), e.groups())
	require.NoError(t, err)
	// units of speed, and figures counted from too few ids
	speed := regexp.MustCompile("^(ns/key|CPU ns/key|us|s|bytes|allocations/key|in a million)$")
	families := map[string]bool{}
	for _, r := range rows {
		families[r.Workload] = true
		assert.True(t, r.OK || speed.MatchString(r.Unit), "%+v", r)
		assert.True(t, r.Value > 0 || r.Goal != "" || r.Unit == "%", "not measured: %+v", r)
	}
	for _, family := range []string{
		"known ids, 1 goroutine", "new ids, 2 goroutines", "ids added, 1 goroutine", "memory",
		"false positives", "rotation", "snapshot", "degraded",
	} {
		assert.Contains(t, families, family)
	}
}

// All sides know the same ids, because other ids could make a side faster or slower.
func TestSidesKnowTheSame(t *testing.T) {
	const keys = 2000
	b, wrong := small().of(keys), 0
	answer := func(f *bloom.Filter, id [16]byte) bloom.Answer { a, _ := f.Check(id); return a }
	for n := range uint64(keys) {
		known, fresh := id(n), unknown(n)
		require.True(t, answer(b.filter, known) == bloom.Maybe &&
			answer(b.classic, known) == bloom.Maybe && b.bloom.has(known) && b.exact.has(known))
		require.False(t, b.exact.has(fresh))
		for _, maybe := range []bool{answer(b.filter, fresh) != bloom.ProvenNew,
			answer(b.classic, fresh) != bloom.ProvenNew || b.bloom.has(fresh)} {
			if maybe {
				wrong++
			}
		}
	}
	assert.LessOrEqual(t, wrong, keys/50, "new ids that are not new")
}

// A batch asks for as many ids as it counts.
func TestBatchesAskForAll(t *testing.T) {
	f, _ := open(options(100))
	seen := map[uint64]int{}
	inBatches(f, func(n uint64) [16]byte { seen[n]++; return id(n) })(7, 2*batchIDs+3)
	assert.Len(t, seen, 2*batchIDs+3)
	assert.Equal(t, []int{1, 1}, []int{seen[7], seen[2*batchIDs+9]})
	total := 0
	for _, n := range f.Stats().Answers {
		total += int(n)
	}
	assert.Equal(t, 2*batchIDs+3, total, "answered")
}

func TestMeasurementsEndWithTheirContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, must.Try(func() { small().measureRotation(ctx, &harness.Setup{}) }))
}

// opened returns a setup that is closed when the test ends.
func opened(t *testing.T) *harness.Setup {
	s := &harness.Setup{}
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

func embedded(t *testing.T) *server.Redis {
	redis := server.Open(t.Context(), &harness.Bench{}, server.Embedded)
	t.Cleanup(func() { assert.NoError(t, redis.Close()) })
	return redis
}

// The filter saves the expected lookups, and there are no more records than keys.
func TestLayered(t *testing.T) {
	t.Parallel()
	records := server.OpenDatabase(t.Context(), &harness.Bench{}, sqladapter.SQLite, "")
	t.Cleanup(func() { assert.NoError(t, records.Close()) })
	e := &env{sizes: []int{20_000}, budget: time.Millisecond, redis: embedded(t), records: records}
	s := opened(t)
	e.countLookups(t.Context(), s, 50)
	require.Len(t, s.Rows, 2)
	for _, r := range s.Rows {
		assert.True(t, r.OK, "%+v", r)
	}
	assert.InDelta(t, 100, s.Rows[1].AgainstValue, 0.1, "lookups for 100 keys without the filter")
	assert.InDelta(t, 50.5, s.Rows[1].Value, 1.5, "and with it, when 50 are old")

	l, keys := e.newLayers(t.Context(), s, true), harness.FreshKeys(2*batchIDs)
	l.mix(keys, 50)
	work.InBatches(2, batchIDs, l.Batch(work.Either, nil))(t.Context(),
		&harness.Timing{Keys: keys})
	assert.InDelta(t, batchIDs+10, l.records.lookups.Load(), 10, "lookups for the old keys")
}
