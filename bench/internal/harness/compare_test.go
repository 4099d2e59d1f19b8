package harness

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The rate of a program that does the work of two sides one after the other, and not that of one of
// them.
func TestNextToTwoTogether(t *testing.T) {
	var order []string
	known := Row{Name: "known when it was opened"}
	rows := run(t, Runner{Rounds: 1, MaxKeys: 10, Budget: time.Second}, Setup{
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
	rows, err := r.Run(t.Context(), []Group{{Workload: "w", X: 3, Title: "work",
		Open: func(_ context.Context, s *Setup) { *s = setup }}})
	require.NoError(t, err)
	return rows
}

// A side that needs more keys than others does not make them take as many.
func TestLeastKeysOfASide(t *testing.T) {
	sizes := make(map[string]int)
	side := func(name string, least int) Side {
		return Side{Name: name, MinKeys: least, Run: func(_ context.Context, t *Timing) {
			sizes[name] = len(t.Keys)
		}}
	}
	run(t, Runner{Rounds: 1, MaxKeys: 10, Budget: time.Nanosecond},
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

// In every round the slower of two sides counts, and the row names the one that was slower
// in the median.
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

func TestReadingsAreFarApart(t *testing.T) {
	at := time.Now()
	before := Reading{ended: clock{at: at, client: time.Second}, server: time.Second, mallocs: 5}
	after := Reading{began: clock{at: at.Add(2 * time.Second), client: 3 * time.Second},
		busy: 8 * time.Second, server: 2 * time.Second, broker: 4 * time.Second, mallocs: 3005}
	assert.Equal(t, Sample{Rate: 500, Usage: Usage{ClientUS: 2000, ServerUS: 1000, BrokerUS: 4000,
		BusyUS: 8000, Allocs: 3}}, before.To(after, 1000))
}
