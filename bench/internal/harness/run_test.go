package harness

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/bench/internal/must"
)

// scripted is a side that reports one of these rates at each call.
func scripted(name string, order *[]string, rates ...float64) Side {
	return Side{Name: name, External: func(context.Context) Sample {
		*order = append(*order, name)
		rate := rates[0]
		rates = append(rates[1:], rate)
		return Sample{Rate: rate, Usage: Usage{Allocs: rate / 2}}
	}}
}

func TestRunPairsAndRotates(t *testing.T) {
	var order []string
	rows := run(t, Runner{Scale: Scale{Rounds: 3, Keys: 10, Budget: time.Second}}, Setup{
		// The first rate warms up and must not count.
		Sides: []Side{scripted("ours", &order, 9999, 10, 30, 40),
			scripted("theirs", &order, 1, 20, 30, 20)},
		Pairs: []Pair{
			{Name: "rate", Side: "ours", Against: "theirs", Text: "them", Goal: ">= 1x"},
			{Name: "allocations", Side: "ours", Metric: Allocs, Goal: "<= 14 B"},
		},
	})
	assert.Equal(t, []string{"ours", "theirs", "ours", "theirs", "theirs", "ours", "ours",
		"theirs"}, order)
	require.Len(t, rows, 3, "two pairs and the side without one")
	// rounds: 10/20, 30/30, 40/20
	assert.Equal(t, Row{Name: "rate", Value: 30, AgainstValue: 20, Ratio: 1,
		Spread: [2]float64{0.5, 2}, Rounds: 3, OK: true, Against: "them", Workload: "w",
		Side: "ours", X: 3, Unit: "keys/s", Goal: ">= 1x", Usage: Usage{Allocs: 15}}, rows[0])
	assert.Equal(t, 15.0, rows[1].Value)
	assert.False(t, rows[1].OK, "a goal of the value")
	assert.Equal(t, []string{"theirs", "", ""},
		[]string{rows[2].Side, string(rows[2].Goal), rows[2].Against}, "the side without a pair")
}

// If a side always came after the same one, it would pay for the leftovers of that one.
func TestOrderVaries(t *testing.T) {
	const rounds = 3
	for _, sides := range []int{1, 2, 3, 10} {
		before := make(map[int]map[int]bool) // for each side, the sides before it
		last := -1
		for round := range rounds {
			came := make(map[int]bool)
			for i := range sides {
				at := sideAt(i, round, sides)
				if before[at] == nil {
					before[at] = make(map[int]bool)
				}
				before[at][last] = true
				came[at], last = true, at
			}
			assert.Len(t, came, sides, "sides in round %d", round)
		}
		for side, seen := range before {
			assert.True(t, sides <= 2 || len(seen) >= 2,
				"of %d sides, %d always comes after the same one: %v", sides, side, seen)
		}
	}
}

// If the server's CPU time is unknown, both sides have 0, which must not reach a goal.
func TestGoalIsNotReachedByNothing(t *testing.T) {
	var order []string
	rows := run(t, Runner{Scale: Scale{Rounds: 1, Keys: 1, Budget: 1}}, Setup{
		Sides: []Side{scripted("ours", &order, 1), scripted("theirs", &order, 1)},
		Pairs: []Pair{{Side: "ours", Against: "theirs", Metric: ServerMicros, Goal: "<= 1x"}},
	})
	assert.False(t, rows[0].OK)
}

func TestRunSizes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last int
		seen := make(map[string]bool)
		side := Side{Name: "s", Run: func(_ context.Context, timing *Timing) {
			last = len(timing.Keys)
			time.Sleep(time.Microsecond)
			for _, key := range timing.Keys {
				must.True(!seen[key] && len(key) == 36, "key %q came twice, or is no UUID", key)
				seen[key] = true
			}
		}}
		for _, c := range []struct {
			name  string
			setup Setup
			most  int
		}{
			{"the run's bound", Setup{}, 100},
			{"the group's bound", Setup{MaxKeys: 30}, 30},
			{"a multiple", Setup{Multiple: 64}, 128},
			{"a least", Setup{MinKeys: 200}, 200},
		} {
			c.setup.Sides = []Side{side}
			run(t, Runner{Scale: Scale{Rounds: 1, Keys: 100, Budget: time.Second}}, c.setup)
			assert.Equal(t, c.most, last, c.name)
		}
	})
}

// An interrupted run returns the cause of the interrupt, and the group is closed anyway.
func TestRunEnds(t *testing.T) {
	closed, stop := false, errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	failing := Group{Title: "work", Open: func(_ context.Context, s *Setup) {
		s.Defer(func() error { closed = true; return nil })
		s.Side("s", func(ctx context.Context, _ *Timing) { cancel(stop); must.Do(ctx.Err()) })
	}}
	_, err := Runner{Scale: Scale{Rounds: 1, Keys: 1, Budget: 1}}.Run(ctx, []Group{failing})
	require.ErrorIs(t, err, stop)
	assert.True(t, closed)
}

// A side that fails, before a timing or in it, fails the run with its name.
func TestFailureNamesTheSide(t *testing.T) {
	broken := errors.New("broken")
	fail := func(context.Context, *Timing) { must.Do(broken) }
	for _, side := range []Side{{Name: "us", Run: fail}, {Name: "us", Prepare: fail}} {
		_, err := Runner{Scale: Scale{Rounds: 1}}.Run(t.Context(), []Group{{Title: "work",
			Open: func(_ context.Context, s *Setup) { s.Sides = []Side{side} }}})
		require.EqualError(t, err, "work: us: broken")
	}
}

// Without a bound a timing takes its whole budget. When 0 meant "one batch", the figures of a store
// were those of its first round trip.
func TestWithoutABoundTheBudgetSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct{ run, setup, want int }{{0, 0, 1000}, {0, 100, 100},
			{500, 0, 500}, {500, 100, 100}} {
			var keys int
			scale := Scale{Rounds: 1, Keys: c.run, Budget: 20 * time.Millisecond}
			run(t, Runner{Scale: scale}, Setup{
				MaxKeys: c.setup, MinKeys: 1, Multiple: 1, Sides: []Side{{
					Name: "a microsecond a key", Run: func(_ context.Context, timing *Timing) {
						keys = len(timing.Keys)
						time.Sleep(time.Duration(keys) * time.Microsecond)
					}}}})
			if c.run+c.setup == 0 {
				assert.GreaterOrEqual(t, keys, c.want)
			} else {
				assert.Equal(t, c.want, keys, "bounds %d and %d", c.run, c.setup)
			}
		}
	})
}

// A group may work on another server than the run.
func TestServerOfAGroup(t *testing.T) {
	reads := func(each time.Duration) CPU {
		total := time.Duration(0)
		return func(context.Context) time.Duration { total += each; return total }
	}
	r := Runner{Scale: Scale{Rounds: 1, Budget: time.Nanosecond},
		Meter: Meter{ServerCPU: reads(time.Millisecond)}}
	for _, c := range []struct {
		of   CPU
		want float64
	}{{reads(time.Second), 100_000}, {nil, 100}} {
		rows := run(t, r, Setup{MinKeys: 10, MaxKeys: 10, ServerCPU: c.of,
			Sides: []Side{{Name: "s", Run: func(context.Context, *Timing) {}}}})
		assert.Equal(t, c.want, rows[0].ServerUS)
	}
}

// If a group cannot be opened completely, its connections are closed in reverse order. An error of
// a close is an error of the run.
func TestFailedGroupIsClosed(t *testing.T) {
	broken, unclosed := errors.New("broken"), errors.New("unclosed")
	var order []int
	r := Runner{Scale: Scale{Rounds: 1}}
	_, err := r.Run(t.Context(), []Group{{Open: func(_ context.Context, s *Setup) {
		for i := range 2 {
			s.Defer(func() error { order = append(order, i); return unclosed })
		}
		must.Do(broken)
	}}})
	require.ErrorIs(t, err, broken)
	require.ErrorIs(t, err, unclosed)
	assert.Equal(t, []int{1, 0}, order)
}

// Figures that are not timed in turn are rows of their group.
func TestFiguresBelongToTheirGroup(t *testing.T) {
	var s Setup
	s.Figure("n", "s", 9, "B").Wants("<= 10 B")
	s.Figure("n", "s", 9, "B").Next("other", 6).Wants("<= 1x")
	rows := run(t, Runner{Scale: Scale{Rounds: 5}}, s)
	assert.Equal(t, []Row{
		{Name: "n", Side: "s", Value: 9, Unit: "B", Rounds: 1, Goal: "<= 10 B", OK: true,
			Workload: "w", X: 3},
		{Name: "n", Side: "s", Value: 9, Unit: "B", Rounds: 1, Goal: "<= 1x", Against: "other",
			AgainstValue: 6, Ratio: 1.5, Spread: [2]float64{1.5, 1.5}, Workload: "w", X: 3},
	}, rows)
}

func TestRecent(t *testing.T) {
	const n, gap = 20_000, 128
	for _, share := range []int{0, 50, 90} {
		at, repeated := make(map[string]int), 0
		for i, key := range Recent(n, share, gap) {
			first, known := at[key]
			if !known {
				at[key] = i
				continue
			}
			repeated++
			require.GreaterOrEqual(t, i-first, gap, fmt.Sprintf("key %d repeats %d", i, first))
		}
		assert.InDelta(t, share, 100*float64(repeated)/(n-gap), 2, "%% of duplicates")
	}
}

// A program does the work of two sides one after the other. It is compared with the rate of both
// together, and not with that of one of them.
func TestNextToTwoTogether(t *testing.T) {
	var order []string
	known := Row{Name: "known when it was opened"}
	rows := run(t, Runner{Scale: Scale{Rounds: 1, Keys: 10, Budget: time.Second}}, Setup{
		Sides: []Side{scripted("both", &order, 30), scripted("one", &order, 100),
			scripted("other", &order, 50), scripted("none", &order, 0)},
		Pairs: []Pair{{Side: "both", Against: "one", And: "other"},
			{Side: "both", Against: "one", And: "none"}},
		Rows: []Row{known},
	})
	assert.InDelta(t, 33.33, rows[0].AgainstValue, 0.01, "1/(1/100 + 1/50)")
	assert.InDelta(t, 0.9, rows[0].Ratio, 0.001)
	assert.Zero(t, rows[1].Ratio, "a side that did nothing gives no ratio")
	assert.Zero(t, rows[1].AgainstValue)
	assert.Equal(t, known.Name, rows[len(rows)-1].Name)
}

// run measures one group.
func run(t *testing.T, r Runner, setup Setup) []Row {
	t.Helper()
	setup.Keys = FreshKeys
	rows, err := r.Run(t.Context(), []Group{{Workload: "w", X: 3, Title: "work",
		Open: func(_ context.Context, s *Setup) { *s = setup }}})
	require.NoError(t, err)
	return rows
}

// If one side needs more keys than others, the others still get fewer.
func TestLeastKeysOfASide(t *testing.T) {
	sizes := make(map[string]int)
	side := func(name string, least int) Side {
		return Side{Name: name, MinKeys: least, Run: func(_ context.Context, t *Timing) {
			sizes[name] = len(t.Keys)
		}}
	}
	run(t, Runner{Scale: Scale{Rounds: 1, Keys: 10, Budget: time.Nanosecond}},
		Setup{Sides: []Side{side("few", 0), side("many", 500)}})
	assert.LessOrEqual(t, sizes["few"], 10)
	assert.Equal(t, 500, sizes["many"])
}

func TestBinds(t *testing.T) {
	const rate = 1e5 // so that 10 us of CPU per message are one core
	for _, c := range []struct {
		name                        string
		client, redis, broker, busy float64
		want                        string
	}{
		{"one thread", 2, 9, 0, 11, "the thread of Redis (of 2 cores: client 0.20, Redis 0.90, " +
			"broker 0.00, other programs 0.00)"},
		{"cores are full", 12, 5, 1, 18, "CPU of the client ("},
		{"with those of others", 8, 2, 1, 18, "CPU of the client (of 2 cores: client 0.80, " +
			"Redis 0.20, broker 0.10, other programs 0.70)"},
		{"broker", 5, 2, 11, 18, "CPU of the broker ("},
		{"Redis and not its thread alone", 5, 8, 4, 18, "CPU of Redis ("},
		{"round trips", 5, 2, 1, 8, "no processor is full, it waits in part ("},
		{"the machine is unknown", 12, 5, 1, 0, "CPU of the client (of 2 cores: client 1.20, " +
			"Redis 0.50, broker 0.10, other programs 0.00)"},
	} {
		got := binds(Row{Value: rate, Usage: Usage{ClientUS: c.client, ServerUS: c.redis,
			BrokerUS: c.broker, BusyUS: c.busy}}, 2)
		assert.Contains(t, got, c.want, c.name)
	}
}

// In every round the slower of two sides counts. The row names the side that was slower in the
// median.
func TestSlowerOfTwo(t *testing.T) {
	samples := map[string][]Sample{"a": {{Rate: 10}, {Rate: 30}, {Rate: 10}},
		"b": {{Rate: 20}, {Rate: 15}, {Rate: 40}}, "us": {{Rate: 5}, {Rate: 5}, {Rate: 5}}}
	row := Group{}.row(Pair{Side: "us", Against: "b", Or: "a", Metric: Messages,
		Goal: ">= 0.5x"}, samples)
	assert.Equal(t, []any{"a", 10.0, 0.5, [2]float64{1. / 3, 0.5}, true},
		[]any{row.Against, row.AgainstValue, row.Ratio, row.Spread, row.OK})
	row = Group{}.row(Pair{Side: "us", Against: "a", Or: "b", Metric: Messages}, samples)
	assert.Equal(t, []any{"a", 0.5}, []any{row.Against, row.Ratio}, "the other way round")
}

// The time that it takes to read a server's CPU time is not measured.
func TestReadingIsNotMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cpu := func(each time.Duration) CPU {
			var read time.Duration
			return func(context.Context) time.Duration {
				time.Sleep(time.Hour)
				read += each
				return read
			}
		}
		m := Meter{ServerCPU: cpu(time.Second), BrokerCPU: cpu(2 * time.Second)}
		s := m.Measure(t.Context(), func() int { time.Sleep(time.Second); return 10 })
		assert.Equal(t, []float64{10, 100_000, 200_000},
			[]float64{s.Rate, s.ServerUS, s.BrokerUS})
	})
}
