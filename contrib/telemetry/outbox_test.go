package telemetry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceward/onceward/contrib/telemetry/internal/metrictest"
	"github.com/onceward/onceward/outbox"
)

func observed(t *testing.T) (*Metrics, func() map[string]float64) {
	t.Helper()
	provider, collect := metrictest.New(t)
	m, err := NewMetrics(provider, Config{Name: metrictest.Name})
	if err != nil {
		t.Fatal(err)
	}
	return m, collect
}

func TestOutboxLag(t *testing.T) {
	m, collect := observed(t)
	now, failure := outbox.Lag{Pending: 12, Parked: 3, Scheduled: 7,
		Oldest: 90 * time.Second}, error(nil)
	if err := m.observeLag(func(ctx context.Context) (outbox.Lag, error) {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("a collection waits for the database without end")
		}
		return now, failure
	}); err != nil {
		t.Fatal(err)
	}
	got := collect()
	if got["onceward.outbox.pending"] != 12 || got["onceward.outbox.parked"] != 3 ||
		got["onceward.outbox.scheduled"] != 7 || got["onceward.outbox.lag"] != 90 ||
		got["onceward.outbox.lag.errors"] != 0 {
		t.Errorf("the lag is %v", got)
	}
	failure = errors.New("no connection")
	got = collect()
	if _, old := got["onceward.outbox.lag"]; old || got["onceward.outbox.lag.errors"] != 1 {
		t.Errorf("when the database does not answer there is %v: an old lag would look like a small one", got)
	}
	failure = nil
	if got = collect(); got["onceward.outbox.lag"] != 90 || got["onceward.outbox.lag.errors"] != 1 {
		t.Errorf("when it answers again there is %v", got)
	}
	if err := m.ObserveOutbox(&outbox.Outbox{}, nil); err == nil {
		t.Error("no database is no error")
	}
	if err := m.observeLag(nil); err == nil {
		t.Error("a second outbox is no error")
	}
}

func TestRelayStats(t *testing.T) {
	m, collect := observed(t)
	if err := m.observeStats(func() outbox.Stats {
		return outbox.Stats{Published: 5, Batches: 4, Failures: 3, Parked: 2, Overtaken: 1}
	}); err != nil {
		t.Fatal(err)
	}
	got := collect()
	for name, value := range map[string]float64{"published": 5, "batches": 4, "failures": 3,
		"parked": 2, "overtaken": 1} {
		if got["onceward.outbox.relay."+name] != value {
			t.Errorf("%s is %v, want %v", name, got["onceward.outbox.relay."+name], value)
		}
	}
	if err := m.ObserveRelay(nil); err == nil {
		t.Error("a nil relay is no error")
	}
}

// Series are bounded: a topic that has failed for long has one, and none that has come back.
func TestFailingTopics(t *testing.T) {
	m, collect := observed(t)
	var now []outbox.FailingTopic
	for i := range MaxTopics + 5 {
		now = append(now, outbox.FailingTopic{Topic: fmt.Sprint("t", i),
			Since: time.Now().Add(-time.Duration(i) * time.Hour)})
	}
	if err := m.observeTopics(func() []outbox.FailingTopic {
		return slices.Clone(now)
	}); err != nil {
		t.Fatal(err)
	}
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
	if n := got["onceward.outbox.relay.topics.failing"]; n != MaxTopics+5 {
		t.Errorf("%v topics fail", n)
	}
	if _, short := got[prefix+"0}"]; short || series() != MaxTopics {
		t.Errorf("%d series, the one that has failed for the shortest among them: %t",
			series(), short)
	}
	longest := MaxTopics + 4
	if d := got[fmt.Sprint(prefix, longest, "}")] - float64(longest*3600); d < 0 || d > 3600 {
		t.Errorf("the longest is wrong by %v s", d)
	}
	now = nil
	if got = collect(); series() != 0 || got["onceward.outbox.relay.topics.failing"] != 0 {
		t.Errorf("when all are back there is %v", got)
	}
}
