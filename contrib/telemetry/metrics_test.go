package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/onceward/onceward/contrib/telemetry"
	"github.com/onceward/onceward/contrib/telemetry/internal/metrictest"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/retry"
)

func TestNewMetricsRefuses(t *testing.T) {
	provider := sdk.NewMeterProvider()
	for _, c := range []struct {
		what     string
		provider metric.MeterProvider
		cfg      telemetry.Config
		want     string
	}{
		{"no provider", nil, telemetry.Config{Name: "x"}, "provider is nil"},
		{"no name", provider, telemetry.Config{}, "Name is empty"},
		{"a long name", provider, telemetry.Config{Name: strings.Repeat("x", 256)},
			"Name has more than 255"},
		{"a name that is no text", provider, telemetry.Config{Name: "\xff"}, "not UTF-8"},
		{"a negative window", provider, telemetry.Config{Name: "x", Window: -1},
			"Window is negative"},
	} {
		t.Run(c.what, func(t *testing.T) {
			_, err := telemetry.NewMetrics(c.provider, c.cfg)
			assert.ErrorContains(t, err, c.want)
		})
	}
}

// Each hook counts its event, with attribute values that are known.
func TestHooks(t *testing.T) {
	failed := errors.New("no route to host")
	for _, c := range []struct {
		name string
		tell func(o *dedup.Observer)
		want map[string]float64
	}{
		{"a new key", func(o *dedup.Observer) {
			o.Claimed(dedup.Event{Outcome: dedup.Acquired, Attempt: 1})
		},
			map[string]float64{"onceward.dedup.claims{cached=false,cause=none,outcome=acquired}": 1}},
		{"a duplicate", func(o *dedup.Observer) {
			o.Claimed(dedup.Event{Outcome: dedup.Duplicate, Cause: driver.BrokerRedelivery,
				Age: time.Hour, Cached: true})
		}, map[string]float64{
			"onceward.dedup.claims{cached=true,cause=broker_redelivery,outcome=duplicate}": 1,
			"onceward.dedup.duplicate.age": 1,
		}},
		{"a duplicate whose age is not kept", func(o *dedup.Observer) {
			o.Claimed(dedup.Event{Outcome: dedup.Duplicate, Cause: driver.ProducerRetry})
		}, map[string]float64{
			"onceward.dedup.claims{cached=false,cause=producer_retry,outcome=duplicate}": 1}},
		{"a mismatch is no duplicate", func(o *dedup.Observer) {
			o.Claimed(dedup.Event{Outcome: dedup.Mismatch, Cause: driver.KeyReuse, Age: time.Hour})
		}, map[string]float64{
			"onceward.dedup.claims{cached=false,cause=key_reuse,outcome=mismatch}": 1}},
		{"what this version does not know", func(o *dedup.Observer) {
			o.Claimed(dedup.Event{Outcome: 77, Cause: "payments/42"})
		},
			map[string]float64{"onceward.dedup.claims{cached=false,cause=other,outcome=unknown}": 1}},
		{"would skip", func(o *dedup.Observer) {
			o.WouldSkip(dedup.Event{Outcome: dedup.Duplicate, Cause: driver.Late})
		},
			map[string]float64{"onceward.dedup.would_skip{cause=late,outcome=duplicate}": 1}},
		{"ended", func(o *dedup.Observer) {
			o.Ended(dedup.Event{State: driver.StateSucceeded})
			o.Ended(dedup.Event{State: driver.StateReleased})
			o.Ended(dedup.Event{State: 99})
		}, map[string]float64{
			"onceward.dedup.ends{state=succeeded}": 1, "onceward.dedup.ends{state=released}": 1,
			"onceward.dedup.ends{state=absent}": 1,
		}},
		{"uncertain", func(o *dedup.Observer) {
			o.Uncertain(dedup.Event{Outcome: dedup.Uncertain})
			o.Uncertain(dedup.Event{Outcome: dedup.Uncertain, Err: failed})
			o.Uncertain(dedup.Event{Outcome: dedup.Uncertain, State: driver.StateReleased})
		}, map[string]float64{
			"onceward.dedup.uncertain{found=claim}":   1,
			"onceward.dedup.uncertain{found=resolve}": 1, "onceward.dedup.uncertain{found=end}": 1,
		}},
		{"a lease lost", func(o *dedup.Observer) {
			o.LeaseLost(dedup.Event{Err: dedup.ErrLeaseLost})
		},
			map[string]float64{"onceward.dedup.lease.lost": 1}},
		{"store errors", func(o *dedup.Observer) {
			o.StoreError(dedup.Event{Err: failed})
			o.StoreError(dedup.Event{Err: context.Canceled})
			o.StoreError(dedup.Event{Err: driver.ErrUnreadable})
		}, map[string]float64{
			"onceward.dedup.store.errors{retryable=true}":  2,
			"onceward.dedup.store.errors{retryable=false}": 1,
		}},
		{"failed open", func(o *dedup.Observer) { o.FailedOpen(dedup.Event{Err: failed}) },
			map[string]float64{"onceward.dedup.failed_open": 1}},
		{"verdicts", func(o *dedup.Observer) {
			o.Filtered(dedup.Event{FilterAnswer: "new", Outcome: dedup.Acquired, Saved: 2})
			o.Filtered(dedup.Event{FilterAnswer: "maybe", Outcome: dedup.Acquired})
			o.Filtered(dedup.Event{FilterAnswer: "maybe", Outcome: dedup.Duplicate})
			o.Filtered(dedup.Event{FilterAnswer: "unknown", Reason: "saturated",
				Outcome: dedup.Acquired})
			o.Filtered(dedup.Event{FilterAnswer: "unknown", Reason: "key payments/42"})
			o.Filtered(dedup.Event{FilterAnswer: "payments/42"})
		}, map[string]float64{
			"onceward.dedup.filter.verdicts{filter.reason=none,filter.verdict=new}":          1,
			"onceward.dedup.filter.verdicts{filter.reason=none,filter.verdict=maybe}":        2,
			"onceward.dedup.filter.verdicts{filter.reason=saturated,filter.verdict=unknown}": 1,
			"onceward.dedup.filter.verdicts{filter.reason=other,filter.verdict=unknown}":     1,
			"onceward.dedup.filter.verdicts{filter.reason=none,filter.verdict=unknown}":      1,
			"onceward.dedup.filter.saved":           2,
			"onceward.dedup.filter.false_positives": 1,
		}},
		{"the state of a filter", func(o *dedup.Observer) {
			o.FilterState(dedup.Event{Fill: 0.9, Reason: "lost", Err: failed})
			o.FilterState(dedup.Event{Fill: 0.5, Estimated: 0.01, Observed: 0.02,
				Reason: "saturated"})
		}, map[string]float64{
			"onceward.dedup.filter.errors":                         1,
			"onceward.dedup.filter.fill":                           0.5,
			"onceward.dedup.filter.false_positive.estimated":       0.01,
			"onceward.dedup.filter.false_positive.observed":        0.02,
			"onceward.dedup.filter.state{filter.reason=saturated}": 1,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, reader := newMetrics(t)
			o := m.Observer()
			c.tell(&o)
			c.want["onceward.dedup.window"] = window.Seconds()
			metrictest.Want(t, metrictest.Collect(t, reader), "onceward.", c.want)
		})
	}
}

// The words of package dedup and of package bloom are all known here: a new one would be "other".
func TestEveryOutcomeCauseAndStateHasItsValue(t *testing.T) {
	m, reader := newMetrics(t)
	o := m.Observer()
	for outcome := dedup.Unknown; outcome <= dedup.Uncertain; outcome++ {
		o.WouldSkip(dedup.Event{Outcome: outcome})
	}
	next := dedup.Uncertain + 1
	assert.Equal(t, "unknown", next.String(), "package dedup has another outcome, %v", next)
	for _, cause := range []driver.Cause{driver.BrokerRedelivery, driver.RebalanceReplay,
		driver.ProducerRetry, driver.KeyReuse, driver.Late, "other_source"} {
		o.WouldSkip(dedup.Event{Outcome: dedup.Duplicate, Cause: cause})
	}
	for state := driver.StateAbsent; state <= driver.StateUncertain; state++ {
		o.Ended(dedup.Event{State: state})
	}
	assert.Equal(t, "absent", (driver.StateUncertain + 1).String(),
		"package dedup has another state")
	got := metrictest.Collect(t, reader)
	for name, value := range got {
		assert.False(t, value > 1 && name != "onceward.dedup.window",
			"%s is %v: two values are counted as one", name, value)
		assert.NotContains(t, name, "=other,", "%s is %v: two values are counted as one", name,
			value)
		assert.NotContains(t, name, "=other}", "%s is %v: two values are counted as one", name,
			value)
	}
	maps.DeleteFunc(got, func(_ string, value float64) bool { return value == 0 })
	assert.Equal(t, 1+6+6+6, len(got), "series: %v", slices.Sorted(maps.Keys(got)))
}

// A counter of an event that should never happen starts at 0: Prometheus does not see a rise in a
// series that appears with its first event.
func TestSeriesOfWhatShouldNotHappenBeginAtZero(t *testing.T) {
	_, reader := newMetrics(t)
	got := metrictest.Collect(t, reader)
	for _, name := range []string{
		"uncertain{found=claim}", "uncertain{found=resolve}", "uncertain{found=end}",
		"store.errors{retryable=true}",
		"store.errors{retryable=false}", "lease.lost", "failed_open",
		"claims{cached=false,cause=none,outcome=unknown}",
	} {
		value, is := got["onceward.dedup."+name]
		assert.True(t, is, "%s is %v, there: %v", name, value, is)
		assert.Zero(t, value, "%s is %v, there: %v", name, value, is)
	}
}

// A window of duplicates, through a Deduper: their ages, their causes, and next to them the window.
func TestDuplicatesOfADeduper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, reader := newMetrics(t)
		d, err := dedup.New(dedup.Memory(100),
			dedup.Config{Namespace: "payments", Window: window, LeaseTTL: time.Minute,
				Observer: m.Observer()})
		require.NoError(t, err)
		defer func() { _ = d.Close(t.Context()) }()
		deliver := func() {
			_, err := dedup.Do(t.Context(), d, "evt_1", func(context.Context) (string, error) {
				return "ch_1", nil
			})
			require.NoError(t, err)
		}
		deliver()
		for _, after := range []time.Duration{3 * time.Second, 10 * time.Minute, 40 * time.Hour} {
			time.Sleep(after)
			deliver()
		}
		got := metrictest.Collect(t, reader)
		metrictest.Want(t, got, "onceward.", map[string]float64{
			"onceward.dedup.window": window.Seconds(),
			"onceward.dedup.claims{cached=false,cause=none,outcome=acquired}":            1,
			"onceward.dedup.claims{cached=false,cause=producer_retry,outcome=duplicate}": 2,
			"onceward.dedup.claims{cached=false,cause=late,outcome=duplicate}":           1,
			"onceward.dedup.ends{state=succeeded}":                                       1,
			"onceward.dedup.duplicate.age":                                               3,
		})
		var all metricdata.ResourceMetrics
		require.NoError(t, reader.Collect(t.Context(), &all))
		age := find(t, &all,
			"onceward.dedup.duplicate.age").(metricdata.Histogram[float64]).DataPoints[0]
		for _, c := range []struct{ below, above float64 }{{5, 1}, {900, 600},
			{48 * 3600, 36 * 3600}} {
			i := slices.Index(age.Bounds, c.below)
			assert.False(t, i < 1 || age.Bounds[i-1] != c.above || age.BucketCounts[i] != 1,
				"no duplicate in (%v s, %v s]: bounds %v, counts %v", c.above, c.below, age.Bounds,
				age.BucketCounts)
		}
	})
}

func find(t *testing.T, all *metricdata.ResourceMetrics, name string) metricdata.Aggregation {
	t.Helper()
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name == name {
				return m.Data
			}
		}
	}
	t.Fatalf("no metric %s", name)
	return nil
}

// Usual windows, and their halves, lie close to a bound of the histogram: a quantile that is
// interpolated in a bucket far wider than that would say little about them.
func TestBoundsFitWindows(t *testing.T) {
	m, reader := newMetrics(t)
	o := m.Observer()
	o.Claimed(dedup.Event{Outcome: dedup.Duplicate, Age: time.Second})
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	bounds := find(t, &all,
		"onceward.dedup.duplicate.age").(metricdata.Histogram[float64]).DataPoints[0].Bounds
	assert.False(t,
		bounds[0] != 1 || bounds[len(bounds)-1] != 30*24*3600 || !slices.IsSorted(bounds),
		"bounds %v: want them from a second to 30 days", bounds)
	for _, w := range []time.Duration{10 * time.Minute, time.Hour, 24 * time.Hour, 72 * time.Hour,
		7 * 24 * time.Hour, 14 * 24 * time.Hour, 30 * 24 * time.Hour} {
		for _, at := range []float64{w.Seconds(), w.Seconds() / 2} {
			nearest := slices.MinFunc(bounds, func(a, b float64) int {
				return int(math.Copysign(1, math.Abs(a-at)-math.Abs(b-at)))
			})
			assert.LessOrEqual(t, max(nearest/at, at/nearest), 1.5,
				"the bound nearest to %v s of the window %v is %v s", at, w, nearest)
		}
	}
}

// tellEverything calls each hook of m, so that each of its metrics has a series.
func tellEverything(m *telemetry.Metrics) {
	hooks := reflect.ValueOf(m.Observer())
	for h := range hooks.NumField() {
		hook := hooks.Field(h).Interface().(func(dedup.Event))
		hook(dedup.Event{Outcome: dedup.Duplicate, Cause: driver.Late, Age: time.Hour,
			State: driver.StateFailed, FilterAnswer: "new", Saved: 1, Err: driver.ErrStoreFull})
		hook(dedup.Event{Outcome: dedup.Acquired, FilterAnswer: "maybe"})
	}
	m.OnRetry(retry.Event{})
	m.OnRetry(retry.Event{GaveUp: retry.BudgetEmpty})
}

// The number of series does not grow with keys, attempts, ages or errors.
func TestSeriesAreBounded(t *testing.T) {
	m, reader := newMetrics(t)
	o := m.Observer()
	hooks := reflect.ValueOf(o)
	tell := func(i int) {
		for h := range hooks.NumField() {
			hooks.Field(h).Interface().(func(dedup.Event))(dedup.Event{
				ID: driver.ID{byte(i), byte(i >> 8)}, Outcome: driver.Outcome(i % 9),
				Cause: driver.Cause(fmt.Sprint("cause", i)), Attempt: i,
				Age: time.Duration(i) * time.Minute, State: driver.State(i % 11), Cached: i%2 == 0,
				FilterAnswer: fmt.Sprint("verdict", i%4),
				Reason:       fmt.Sprint("reason", i), Err: fmt.Errorf("error %d", i),
			})
		}
	}
	for i := range 100 {
		tell(i)
	}
	before := len(metrictest.Collect(t, reader))
	for i := range 10_000 {
		tell(i)
	}
	after := len(metrictest.Collect(t, reader))
	assert.Equal(t, before, after, "%d series after 100 events of each hook, %d after 10,000 more",
		before, after)
}

// A claim must not pay for an allocation to be counted.
func TestCountingAllocatesNothing(t *testing.T) {
	m, _ := newMetrics(t)
	o := m.Observer()
	e := dedup.Event{Outcome: dedup.Duplicate, Cause: driver.Late, Age: time.Hour,
		State: driver.StateSucceeded, FilterAnswer: "new"}
	assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
		o.Claimed(e)
		o.Ended(e)
		o.Filtered(e)
	}), float64(0), "allocations")
}

func TestClose(t *testing.T) {
	m, reader := newMetrics(t)
	o := m.Observer()
	o.FilterState(dedup.Event{Fill: 0.5})
	require.GreaterOrEqual(t, len(metrictest.Collect(t, reader)), 4, "series before Close")
	for range 2 {
		require.NoError(t, m.Close())
	}
	o.LeaseLost(dedup.Event{})
	metrictest.Want(t, metrictest.Collect(t, reader), "onceward.",
		map[string]float64{"onceward.dedup.lease.lost": 1})
}

// Hooks are called concurrently, while somebody collects.
func TestConcurrentUse(t *testing.T) {
	m, reader := newMetrics(t)
	o := m.Observer()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 500 {
				o.Claimed(dedup.Event{Outcome: dedup.Acquired})
				o.FilterState(dedup.Event{Fill: float64(i)})
			}
		})
	}
	for range 20 {
		metrictest.Collect(t, reader)
	}
	all.Wait()
	assert.EqualValues(t, 2000,
		metrictest.Collect(t,
			reader)["onceward.dedup.claims{cached=false,cause=none,outcome=acquired}"], "claims")
}
