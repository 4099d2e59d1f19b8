package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/onceward/onceward/contrib/telemetry/internal/meter"
)

const sourceKey = attribute.Key("onceward.source")

// Horizon is how long after the first delivery of a message its source may deliver the message
// again.
type Horizon struct {
	// Source names the source: a topic, a provider of webhooks, a queue of dead letters. It is the
	// attribute onceward.source. Required.
	Source string
	// For is the time. Negative: without limit.
	For time.Duration
}

// AuditConfig configures an [Auditor]: the horizons and lags to compare with the window.
type AuditConfig struct {
	// Horizons are the horizons that do not change, such as webhook.Provider.Horizon and the time
	// for which clients keep a key. Default none.
	Horizons []Horizon
	// Ask returns further horizons, which operators may change, such as the retention of topics. It
	// must return soon when its context ends. The Auditor uses each answer until the next one.
	// Default nil: none.
	Ask func(ctx context.Context) ([]Horizon, error)
	// Lags returns the age of the oldest unread message by source, as kafkasarama.Lags and
	// kafkafranz.Lags do for the topics of a group. With several groups, put the name of the group
	// into the name of the source. A negative age is an error. Otherwise Lags is called like Ask.
	// Default nil: none.
	Lags func(ctx context.Context) (map[string]time.Duration, error)
	// Every is the time between two calls, at least a second. Default DefaultAuditEvery.
	Every time.Duration
	// Timeout bounds one call. Default DefaultAuditTimeout.
	Timeout time.Duration
	// Logger gets one warning for each source whose horizon is longer than the window, or whose lag
	// is longer than half of it, and one for each call that fails. Default: discarded.
	Logger *slog.Logger
}

// Defaults of AuditConfig.
const (
	DefaultAuditEvery   = 5 * time.Minute
	DefaultAuditTimeout = 30 * time.Second
)

// Horizons returns the horizons of topics with these retentions, which kafkasarama.Retentions and
// kafkafranz.Retentions return: use it in AuditConfig.Ask. A group cannot be behind by more than
// the retention.
func Horizons(kept map[string]time.Duration) []Horizon {
	var all []Horizon
	for _, source := range slices.Sorted(maps.Keys(kept)) {
		all = append(all, Horizon{Source: source, For: kept[source]})
	}
	return all
}

// maxSources bounds the series of an Auditor.
const maxSources = 100

// Auditor compares the window of a Deduper with the horizons and lags of its sources, because a
// duplicate that arrives after the window runs again, and nothing counts it. Make it with
// [Metrics.NewAuditor]. It is safe for concurrent use.
type Auditor struct {
	cfg    AuditConfig
	window time.Duration
	errors metric.Int64Counter
	named  []metric.AddOption

	mu     sync.Mutex
	now    map[string]time.Duration // by source
	warned map[string]bool
	lags   map[string]time.Duration // by source
	behind map[string]bool          // warned of
}

// NewAuditor makes an auditor of Config.Window. Until Close of the Metrics, each collection has the
// gauges horizon, coverage, and, after the first answer, lag. Coverage is the window divided by the
// horizon, at most 1000, and 0 for a horizon without limit. NewAuditor starts no goroutine; see
// [Auditor.Run]. The names of the gauges begin with onceward.dedup.window.
//
// If a source has several horizons, the longest counts. Beyond 100 sources, all others are one
// source called other; the same holds for lags. A Config without a Window, a bad field of cfg and a
// second auditor are errors.
func (m *Metrics) NewAuditor(cfg AuditConfig) (*Auditor, error) {
	if cfg.Every == 0 {
		cfg.Every = DefaultAuditEvery
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultAuditTimeout
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case m.window == 0:
		return nil, errors.New("telemetry: Config.Window is 0; an auditor has nothing to compare")
	case cfg.Every < time.Second:
		return nil, fmt.Errorf("telemetry: AuditConfig.Every is %v; at least a second is needed",
			cfg.Every)
	case cfg.Timeout < 0:
		return nil, fmt.Errorf("telemetry: AuditConfig.Timeout is negative: %v", cfg.Timeout)
	}
	for _, h := range cfg.Horizons {
		if h.Source == "" {
			return nil, errors.New("telemetry: a Horizon of AuditConfig has no Source")
		}
	}
	a := &Auditor{cfg: cfg, window: m.window, warned: map[string]bool{}, behind: map[string]bool{}}
	a.errors = m.maker.Counter("onceward.dedup.window.audit.errors", "{error}",
		"Calls for horizons and lags that failed; the answer before still holds")
	a.named = m.maker.Add()
	if err := a.observe(m.maker); err != nil {
		return nil, err
	}
	a.errors.Add(context.Background(), 0, a.named...)
	a.set(nil)
	return a, nil
}

// Run calls AuditConfig.Ask and Lags at once and once in each AuditConfig.Every, until ctx ends;
// then it returns nil. If both are nil it returns at once. A call that fails is counted; the next
// one comes at its usual time.
func (a *Auditor) Run(ctx context.Context) error {
	if a.cfg.Ask == nil && a.cfg.Lags == nil {
		return nil
	}
	again := time.NewTicker(a.cfg.Every)
	defer again.Stop()
	for ctx.Err() == nil {
		ask(ctx, a, "horizons", a.cfg.Ask, a.set)
		ask(ctx, a, "lags", a.lagging(), a.setLags)
		select {
		case <-ctx.Done():
		case <-again.C:
		}
	}
	return nil
}

// ask calls question, if it is not nil, and passes its answer to set.
func ask[T any](ctx context.Context, a *Auditor, what string,
	question func(context.Context) (T, error), set func(T)) {
	if question == nil {
		return
	}
	asking, cancel := context.WithTimeout(ctx, a.cfg.Timeout)
	defer cancel()
	found, err := question(asking)
	switch {
	case ctx.Err() != nil: // Run is ending
	case err != nil:
		a.errors.Add(ctx, 1, a.named...)
		a.cfg.Logger.Warn("telemetry: "+what+" cannot be asked for", "error", err)
	default:
		set(found)
	}
}

// lagging returns AuditConfig.Lags, with a check of its answer.
func (a *Auditor) lagging() func(context.Context) (map[string]time.Duration, error) {
	if a.cfg.Lags == nil {
		return nil
	}
	return func(ctx context.Context) (map[string]time.Duration, error) {
		found, err := a.cfg.Lags(ctx)
		for _, source := range slices.Sorted(maps.Keys(found)) {
			if d := found[source]; err == nil && d < 0 {
				err = fmt.Errorf("the lag of %q is negative: %v", source, d)
			}
		}
		return found, err
	}
}

// setLags keeps the lags, and warns of each source whose lag has become longer than half of the
// window. Until the lag is as long as the window, there is time to act; after that, there is none.
func (a *Auditor) setLags(found map[string]time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := map[string]time.Duration{}
	for _, source := range slices.Sorted(maps.Keys(found)) {
		put(now, source, found[source])
	}
	for source, lag := range now {
		late := lag > a.window/2
		if late && !a.behind[source] {
			a.cfg.Logger.Warn("telemetry: the oldest unread message is older than half of the window; duplicates read after the window would run again",
				"source", source, "lag", lag, "window", a.window)
		}
		a.behind[source] = late
	}
	maps.DeleteFunc(a.behind, func(source string, _ bool) bool { _, is := now[source]; return !is })
	a.lags = now
}

// set keeps the horizons, and warns of each source whose horizon has become longer than the window.
func (a *Auditor) set(found []Horizon) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := map[string]time.Duration{}
	for _, list := range [][]Horizon{a.cfg.Horizons, found} {
		for _, h := range list {
			put(now, h.Source, h.For)
		}
	}
	for source, horizon := range now {
		short := longer(horizon, a.window)
		if short && !a.warned[source] {
			a.cfg.Logger.Warn("telemetry: a duplicate may come after the window and would run again", "source", source, "horizon", horizon, "window", a.window)
		}
		a.warned[source] = short
	}
	a.now = now
}

// put keeps the longest time of a source. The number of series is bounded: put counts all sources
// beyond maxSources as the source other.
func put(now map[string]time.Duration, source string, d time.Duration) {
	if _, known := now[source]; source == "" || !known && len(now) >= maxSources-1 {
		source = other
	}
	if before, known := now[source]; !known || longer(d, before) {
		now[source] = d
	}
}

// longer reports whether horizon x reaches beyond y. A negative horizon has no limit.
func longer(x, y time.Duration) bool { return y >= 0 && (x < 0 || x > y) }

// coverage returns the window divided by the horizon.
func coverage(window, horizon time.Duration) float64 {
	const most = 1000
	switch {
	case horizon < 0:
		return 0
	case horizon == 0:
		return most
	}
	return min(most, window.Seconds()/horizon.Seconds())
}

func (a *Auditor) observe(m *meter.Maker) error {
	horizon := m.Gauge("onceward.dedup.window.horizon",
		"s", "For how long a source may deliver something again; missing for one without limit")
	covered := m.Gauge("onceward.dedup.window.coverage",
		"1", "The window divided by the horizon of a source: below 1 duplicates may come too late")
	behind := m.Gauge("onceward.dedup.window.lag", "s",
		"How old the oldest message of a source is that has not been read")
	return m.Observe("an auditor", func(_ context.Context, to metric.Observer) {
		a.mu.Lock()
		now, lags := a.now, a.lags
		a.mu.Unlock()
		for source, d := range lags {
			to.ObserveFloat64(behind, d.Seconds(), m.Set(sourceKey.String(source)))
		}
		for source, d := range now {
			set := m.Set(sourceKey.String(source))
			to.ObserveFloat64(covered, coverage(a.window, d), set)
			if d >= 0 {
				to.ObserveFloat64(horizon, d.Seconds(), set)
			}
		}
	}, horizon, covered, behind)
}
