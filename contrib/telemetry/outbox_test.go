package telemetry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/contrib/telemetry/internal/metrictest"
	"github.com/onceward/onceward/outbox"
)

func observed(t *testing.T) (*Metrics, func() map[string]float64) {
	t.Helper()
	provider, collect := metrictest.New(t)
	m, err := NewMetrics(provider, Config{Name: metrictest.Name})
	require.NoError(t, err)
	return m, collect
}

func TestOutboxLag(t *testing.T) {
	m, collect := observed(t)
	now, failure := outbox.Lag{Pending: 12, Parked: 3, Scheduled: 7,
		Oldest: 90 * time.Second}, error(nil)
	require.NoError(t, m.observeLag(func(ctx context.Context) (outbox.Lag, error) {
		_, bounded := ctx.Deadline()
		assert.True(t, bounded, "a collection waits for the database without end")
		return now, failure
	}))
	got := collect()
	assert.EqualValues(t, 12, got["onceward.outbox.pending"], "the lag is %v", got)
	assert.EqualValues(t, 3, got["onceward.outbox.parked"], "the lag is %v", got)
	assert.EqualValues(t, 7, got["onceward.outbox.scheduled"], "the lag is %v", got)
	assert.EqualValues(t, 90, got["onceward.outbox.lag"], "the lag is %v", got)
	assert.Zero(t, got["onceward.outbox.lag.errors"], "the lag is %v", got)
	failure = errors.New("no connection")
	got = collect()
	_, old := got["onceward.outbox.lag"]
	assert.False(t, old,
		"when the database does not answer there is %v: an old lag would look like a small one",
		got)
	assert.EqualValues(t, 1, got["onceward.outbox.lag.errors"],
		"when the database does not answer there is %v: an old lag would look like a small one",
		got)
	failure = nil
	got = collect()
	assert.EqualValues(t, 90, got["onceward.outbox.lag"], "when it answers again there is %v", got)
	assert.EqualValues(t, 1, got["onceward.outbox.lag.errors"], "when it answers again there is %v",
		got)
	assert.Error(t, m.ObserveOutbox(&outbox.Outbox{}, nil), "no database is no error")
	assert.Error(t, m.observeLag(nil), "a second outbox is no error")
}

func TestRelayStats(t *testing.T) {
	m, collect := observed(t)
	require.NoError(t, m.observeStats(func() outbox.Stats {
		return outbox.Stats{Published: 5, Batches: 4, Failures: 3, Parked: 2, Overtaken: 1}
	}))
	got := collect()
	for name, value := range map[string]float64{"published": 5, "batches": 4, "failures": 3,
		"parked": 2, "overtaken": 1} {
		assert.Equal(t, value, got["onceward.outbox.relay."+name], "%s is %v", name,
			got["onceward.outbox.relay."+name])
	}
	assert.Error(t, m.ObserveRelay(nil), "a nil relay is no error")
}

// Series are bounded: topics that have failed for longest have one, a topic that is back has none.
func TestFailingTopics(t *testing.T) {
	m, collect := observed(t)
	var now []outbox.FailingTopic
	for i := range MaxTopics + 5 {
		now = append(now, outbox.FailingTopic{Topic: fmt.Sprint("t", i),
			Since: time.Now().Add(-time.Duration(i) * time.Hour)})
	}
	require.NoError(t, m.observeTopics(func() []outbox.FailingTopic {
		return slices.Clone(now)
	}))
	const prefix = "onceward.outbox.relay.topic.failing{topic=t"
	got := collect()
	series := func() (n int) {
		for name := range got {
			if strings.HasPrefix(name, prefix) {
				n++
			}
		}
		return n
	}
	assert.EqualValues(t, MaxTopics+5, got["onceward.outbox.relay.topics.failing"], "topics fail")
	_, short := got[prefix+"0}"]
	assert.False(t, short, "%d series, the one that has failed for the shortest among them: %t",
		series(), short)
	assert.Equal(t, MaxTopics, series(),
		"series, the one that has failed for the shortest among them: %t", short)
	longest := MaxTopics + 4
	d := got[fmt.Sprint(prefix, longest, "}")] - float64(longest*3600)
	assert.GreaterOrEqual(t, d, float64(0), "the longest")
	assert.LessOrEqual(t, d, float64(3600), "the longest")
	now = nil
	got = collect()
	assert.Zero(t, series(), "when all are back there is %v", got)
	assert.Zero(t, got["onceward.outbox.relay.topics.failing"], "when all are back there is %v",
		got)
}
