package telemetry

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/onceward/onceward/contrib/telemetry/internal/meter"
	"github.com/onceward/onceward/dedup"
)

const (
	answerKey = attribute.Key("onceward.filter.verdict")
	reasonKey = attribute.Key("onceward.filter.reason")
)

// The answers of a filter, as dedup.Event has them.
const (
	answerNew     = "new"
	answerMaybe   = "maybe"
	answerUnknown = "unknown"
)

// reasonNames are all values of onceward.filter.reason: "none", those of package bloom, those of
// package dedup for leases that do not remember enough, and "other". A filter of another author may
// have other words.
var reasonNames = []string{
	"none", "loading", "not_covered", "expired", "lost", "shared", "saturated", "other_key",
	"hot_unknown", "hot_forgot", other,
}

func reasonName(reason string) string {
	if reason == "" {
		return reasonNames[0]
	}
	for _, name := range reasonNames[1:] {
		if name == reason {
			return name
		}
	}
	return other
}

type filterMetrics struct {
	answers, saved, wrong, errors metric.Int64Counter

	sure    map[string][]metric.AddOption // by answer, except unknown
	unsure  map[string][]metric.AddOption // by reason
	named   []metric.AddOption
	reasons map[string]metric.MeasurementOption

	mu   sync.Mutex
	last *dedup.Event // the last event of FilterState
}

func (f *filterMetrics) make(m *meter.Maker) {
	f.answers = m.Counter("onceward.dedup.filter.verdicts", "{claim}",
		"Claims by what the filter said of their keys")
	f.saved = m.Counter("onceward.dedup.filter.saved", "{question}",
		"Questions to a store that its answers have made needless")
	f.wrong = m.Counter("onceward.dedup.filter.false_positives", "{claim}",
		"Keys that were new although the filter had said maybe")
	f.errors = m.Counter("onceward.dedup.filter.errors", "{error}",
		"Changes of a filter's state that told an error")
	f.sure = map[string][]metric.AddOption{}
	for _, answer := range []string{answerNew, answerMaybe} {
		f.sure[answer] = m.Add(answerKey.String(answer), reasonKey.String(reasonNames[0]))
	}
	f.unsure, f.reasons = map[string][]metric.AddOption{}, map[string]metric.MeasurementOption{}
	for _, reason := range reasonNames {
		f.unsure[reason] = m.Add(answerKey.String(answerUnknown), reasonKey.String(reason))
		f.reasons[reason] = m.Set(reasonKey.String(reason))
	}
	f.named = m.Add()
}

func (f *filterMetrics) count(ctx context.Context, e *dedup.Event) {
	options, sure := f.sure[e.FilterAnswer]
	if !sure {
		options = f.unsure[reasonName(e.Reason)]
	}
	f.answers.Add(ctx, 1, options...)
	if e.Saved > 0 {
		f.saved.Add(ctx, int64(e.Saved), f.named...)
	}
	if e.FilterAnswer == answerMaybe && e.Outcome == dedup.Acquired {
		f.wrong.Add(ctx, 1, f.named...)
	}
}

func (f *filterMetrics) countState(ctx context.Context, e *dedup.Event) {
	if e.Err != nil {
		f.errors.Add(ctx, 1, f.named...)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = &dedup.Event{Fill: e.Fill, Estimated: e.Estimated, Observed: e.Observed,
		Reason: reasonName(e.Reason)}
}

// observe registers gauges that show the last state. Without a filter there are no series.
func (f *filterMetrics) observe(m *meter.Maker) error {
	fill := m.Gauge("onceward.dedup.filter.fill", "1", "Share of the filter's bits that are set")
	estimated := m.Gauge("onceward.dedup.filter.false_positive.estimated", "1",
		"Rate of false positives by the filter's bits")
	observed := m.Gauge("onceward.dedup.filter.false_positive.observed", "1",
		"Rate of false positives among the answers so far")
	state := m.Gauge("onceward.dedup.filter.state", "{state}",
		"1 for the reason why nothing is new to the filter, or for none; 0 for others")
	named := m.Set()
	return m.Observe("the filter", func(_ context.Context, to metric.Observer) {
		f.mu.Lock()
		last := f.last
		f.mu.Unlock()
		if last == nil {
			return
		}
		to.ObserveFloat64(fill, last.Fill, named)
		to.ObserveFloat64(estimated, last.Estimated, named)
		to.ObserveFloat64(observed, last.Observed, named)
		for reason, set := range f.reasons {
			to.ObserveFloat64(state, meter.Flag(reason == last.Reason), set)
		}
	}, fill, estimated, observed, state)
}
