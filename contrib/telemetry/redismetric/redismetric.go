// Package redismetric measures what a [redisadapter.Store] knows about its server, with
// OpenTelemetry. It is separate from package telemetry so that a program without Redis does not
// link a Redis client.
//
//	metrics, err := redismetric.New(provider, "payments")
//	...
//	opts := redisadapter.Options{OnFinding: metrics.OnFinding}
//	store, err := redisadapter.New(ctx, client, opts)
//	...
//	err = metrics.ObserveStore(store)
package redismetric

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/onceward/onceward/contrib/telemetry/internal/meter"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/redisadapter"
)

const (
	codeKey     = attribute.Key("onceward.redis.code")
	severityKey = attribute.Key("onceward.redis.severity")
)

// codes are all values of onceward.redis.code, except "other".
var codes = []string{
	"version", "replica_role", "loading", "eviction_policy", "eviction_policy_unlimited",
	"not_learned", "evicted_keys", "no_maxmemory", "memory_near_limit", "no_persistence",
	"no_persistence_with_replicas", "append_failed", "replica_link", "plaintext",
	"cluster_reload_interval", "replica_reads", "context_timeout", "canary_not_everywhere",
	"amnesia", "suspect", "recovered", "flagged_claims", "clock_jump", "full_buckets",
	"unreachable",
}

// Metrics counts the findings of a store and observes its health, under one name. Make it with
// [New]. All methods are safe for concurrent use.
type Metrics struct {
	maker    *meter.Maker
	findings metric.Int64Counter
	found    map[string]map[preflight.Severity][]metric.AddOption
}

// New makes the instruments with the provider. The name means what telemetry.Config.Name means; use
// the same name for the same Deduper. It starts no goroutine. A nil provider and a bad name are
// errors; an error of the provider is returned as it is.
func New(provider metric.MeterProvider, name string) (*Metrics, error) {
	maker, err := meter.New("redismetric", provider, name)
	if err != nil {
		return nil, err
	}
	m := &Metrics{maker: maker,
		found: map[string]map[preflight.Severity][]metric.AddOption{}}
	m.findings = maker.Counter("onceward.redis.findings", "{finding}",
		"Findings of New, Watch and the amnesia guard about a server")
	for _, code := range append([]string{other}, codes...) {
		m.found[code] = map[preflight.Severity][]metric.AddOption{}
		for s := preflight.Note; s <= preflight.Critical; s++ {
			m.found[code][s] = maker.Add(codeKey.String(code),
				severityKey.String(s.String()))
		}
	}
	// If a series appeared only with its first event, a rule that asks for its increase would miss
	// that event.
	m.findings.Add(context.Background(), 0, m.found["evicted_keys"][preflight.Warning]...)
	return m, maker.Err()
}

// other stands for a code that this version does not know.
const other = "other"

// OnFinding counts a finding. Set it as [redisadapter.Options].OnFinding; the store then no longer
// logs findings, whose texts say what to do. To log them too, call OnFinding in a function of your
// own that also logs.
func (m *Metrics) OnFinding(f preflight.Finding) {
	found, known := m.found[f.Code]
	if !known {
		found = m.found[other]
	}
	m.findings.Add(context.Background(), 1, found[min(f.Severity, preflight.Critical)]...)
}

// ObserveStore adds the health of a store to each collection, until Close. It makes no round trip.
// A Metrics observes one store, so a nil store and a second store are errors.
func (m *Metrics) ObserveStore(store *redisadapter.Store) error {
	if store == nil {
		return errors.New("redismetric: the store is nil")
	}
	return m.observe(store.Health)
}

// Close ends the observation of the store. Findings are still counted. A second call does nothing.
func (m *Metrics) Close() error { return m.maker.Close() }

func (m *Metrics) observe(health func() redisadapter.Health) error {
	amnesia := m.maker.Gauge("onceward.redis.amnesia", "{state}",
		"1 while claims follow Options.Amnesia because data is lost, or may be")
	suspect := m.maker.Gauge("onceward.redis.suspect", "{state}",
		"1 while another server, or a restarted one, answers")
	remaining := m.maker.Gauge("onceward.redis.amnesia.remaining",
		"s", "For how much longer claims follow Options.Amnesia")
	flagged := m.maker.Total("onceward.redis.flagged", "{claim}",
		"Claims that AllowAndFlag has granted in spite of amnesia")
	open := m.maker.Gauge("onceward.redis.breaker.open", "{state}",
		"1 while calls fail at once because the server cannot be reached")
	inFlight := m.maker.Gauge("onceward.redis.pipelines", "{pipeline}", "Pipelines under way")
	named := m.maker.Set()
	return m.maker.Observe("a store", func(_ context.Context, to metric.Observer) {
		now := health()
		to.ObserveFloat64(amnesia, meter.Flag(now.Amnesia), named)
		to.ObserveFloat64(suspect, meter.Flag(now.Suspect), named)
		to.ObserveFloat64(remaining, meter.Seconds(now.Remaining), named)
		to.ObserveInt64(flagged, int64(min(now.Flagged, 1<<62)), named) // bounded
		to.ObserveFloat64(open, meter.Flag(now.BreakerOpen), named)
		to.ObserveFloat64(inFlight, float64(now.InFlight), named)
	}, amnesia, suspect, remaining, flagged, open, inFlight)
}
