package telemetry

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/onceward/onceward/contrib/telemetry/internal/meter"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// The attributes of a Deduper's events.
const (
	outcomeKey   = attribute.Key("onceward.outcome")
	causeKey     = attribute.Key("onceward.cause")
	cachedKey    = attribute.Key("onceward.cached")
	stateKey     = attribute.Key("onceward.state")
	foundKey     = attribute.Key("onceward.found")
	retryableKey = attribute.Key("onceward.retryable")
)

// ageBounds are spread so that any usual window, and half of it, is close to a bound.
var ageBounds = []float64{
	1, 5, 15, 60, 300, 600, 900, 1800, // to half an hour
	3600, 2 * 3600, 4 * 3600, 8 * 3600, 12 * 3600,
	day, 1.5 * day, 2 * day, 3 * day, 5 * day, 7 * day, 14 * day, 21 * day, 30 * day,
}

const day = 24 * 3600

// These are the ways in which a key is found to be uncertain.
const (
	foundByClaim   = "claim"   // a claim found it
	foundByResolve = "resolve" // Config.Resolve was asked, and did not know
	foundByEnd     = "end"     // an attempt has ended as uncertain
)

// dedupMetrics counts the events of a Deduper. The options of the counters are made once, because
// there are few of them, and a claim must not pay for an allocation.
type dedupMetrics struct {
	claims, wouldSkip, ends, uncertain, lost, storeErrors, failedOpen, beyond metric.Int64Counter

	age metric.Float64Histogram

	// indexed by outcome, by cause, and by whether the cache answered
	claimed   [outcomes][causes][2][]metric.AddOption
	skipped   [outcomes][causes][]metric.AddOption
	ended     [states][]metric.AddOption
	found     map[string][]metric.AddOption
	retryable [2][]metric.AddOption
	named     []metric.AddOption
	aged      []metric.RecordOption
}

// The numbers of possible values.
const (
	outcomes = int(dedup.Uncertain) + 1
	states   = int(driver.StateUncertain) + 1
	causes   = 8
)

// causeNames are all values of onceward.cause: those of package dedup, and two more.
var causeNames = [causes]string{
	"none", string(driver.BrokerRedelivery), string(driver.RebalanceReplay),
	string(driver.ProducerRetry), string(driver.KeyReuse), string(driver.Late),
	string(driver.OtherSource),
	other,
}

// other stands for a value that this version does not know, because labels are a closed set.
const other = "other"

func causeIndex(c driver.Cause) int {
	if c == "" {
		return 0
	}
	for i := 1; i < causes-1; i++ {
		if causeNames[i] == string(c) {
			return i
		}
	}
	return causes - 1
}

func outcomeIndex(o driver.Outcome) int {
	if int(o) < outcomes {
		return int(o)
	}
	return int(dedup.Unknown)
}

func stateIndex(s driver.State) int {
	if int(s) < states {
		return int(s)
	}
	return int(driver.StateAbsent)
}

func (d *dedupMetrics) make(m *meter.Maker) {
	d.claims = m.Counter("onceward.dedup.claims", "{claim}",
		"Claims, and questions of Seen, that were answered")
	d.wouldSkip = m.Counter("onceward.dedup.would_skip", "{claim}",
		"Claims that ran in Observe mode, and would not have in Enforce mode")
	d.ends = m.Counter("onceward.dedup.ends", "{attempt}",
		"Attempts whose end is on record, by what was asked for")
	d.uncertain = m.Counter("onceward.dedup.uncertain", "{observation}",
		"How often a key was found uncertain, or became so")
	d.lost = m.Counter("onceward.dedup.lease.lost", "{lease}",
		"Leases that were lost while their attempt ran, or at its end")
	d.storeErrors = m.Counter("onceward.dedup.store.errors", "{error}",
		"Questions that a store could not answer, or not yet")
	d.failedOpen = m.Counter("onceward.dedup.failed_open", "{claim}",
		"Effects that ran without a claim, as the mode FailOpen allows")
	d.beyond = m.Counter("onceward.dedup.beyond_window", "{effect}",
		"Effects of messages that are older than the window: an earlier effect may be forgotten")
	d.age = m.Histogram("onceward.dedup.duplicate.age",
		"Time since the key of a duplicate was done, by the store's clock", ageBounds)

	for o := range outcomes {
		outcome := outcomeKey.String(driver.Outcome(o).String())
		for c, name := range causeNames {
			cause := causeKey.String(name)
			d.skipped[o][c] = m.Add(outcome, cause)
			for i, cached := range []bool{false, true} {
				d.claimed[o][c][i] = m.Add(outcome, cause, cachedKey.Bool(cached))
			}
		}
	}
	for s := range states {
		d.ended[s] = m.Add(stateKey.String(driver.State(s).String()))
	}
	d.found = map[string][]metric.AddOption{}
	for _, found := range []string{foundByClaim, foundByResolve, foundByEnd} {
		d.found[found] = m.Add(foundKey.String(found))
	}
	d.retryable = [2][]metric.AddOption{m.Add(retryableKey.Bool(false)),
		m.Add(retryableKey.Bool(true))}
	d.named, d.aged = m.Add(), []metric.RecordOption{m.Set()}
	d.zero(context.Background())
}

// zero starts the series of events that should never happen. If a series appeared with its first
// event, a rule that asks for its increase would miss that event.
func (d *dedupMetrics) zero(ctx context.Context) {
	for _, options := range d.found {
		d.uncertain.Add(ctx, 0, options...)
	}
	for _, options := range d.retryable {
		d.storeErrors.Add(ctx, 0, options...)
	}
	d.lost.Add(ctx, 0, d.named...)
	d.failedOpen.Add(ctx, 0, d.named...)
	d.beyond.Add(ctx, 0, d.named...)
	d.claims.Add(ctx, 0, d.claimed[dedup.Unknown][0][0]...)
}

// Observer returns hooks for [dedup.Config].Observer, and for owned.Options.Observer. All of them
// are set, so the Deduper makes an event of every claim, also of those that its cache answers. Join
// adds hooks of your own.
//
// Keys, their digests and errors are in no attribute.
func (m *Metrics) Observer() dedup.Observer {
	d := &m.dedup
	ctx := context.Background() // hooks have none
	return dedup.Observer{
		Claimed: func(e dedup.Event) { d.countClaim(ctx, &e) },
		WouldSkip: func(e dedup.Event) {
			d.wouldSkip.Add(ctx, 1, d.skipped[outcomeIndex(e.Outcome)][causeIndex(e.Cause)]...)
		},
		Ended:     func(e dedup.Event) { d.ends.Add(ctx, 1, d.ended[stateIndex(e.State)]...) },
		Uncertain: func(e dedup.Event) { d.uncertain.Add(ctx, 1, d.found[howFound(&e)]...) },
		LeaseLost: func(dedup.Event) { d.lost.Add(ctx, 1, d.named...) },
		StoreError: func(e dedup.Event) {
			d.storeErrors.Add(ctx, 1, d.retryable[index(retryMayHelp(e.Err))]...)
		},
		FailedOpen:  func(dedup.Event) { d.failedOpen.Add(ctx, 1, d.named...) },
		Filtered:    func(e dedup.Event) { m.filter.count(ctx, &e) },
		FilterState: func(e dedup.Event) { m.filter.countState(ctx, &e) },
	}
}

func (d *dedupMetrics) countClaim(ctx context.Context, e *dedup.Event) {
	d.claims.Add(ctx, 1,
		d.claimed[outcomeIndex(e.Outcome)][causeIndex(e.Cause)][index(e.Cached)]...)
	if e.Outcome == dedup.Duplicate && e.Age > 0 { // zero: the layout does not keep it
		d.age.Record(ctx, e.Age.Seconds(), d.aged...)
	}
}

// retryMayHelp reports whether another attempt may get an answer from the store. A canceled call,
// as in a shutdown, says nothing about its store.
func retryMayHelp(err error) bool {
	return dedup.CanRetry(err) || dedup.OutcomeUnknown(err) || errors.Is(err, context.Canceled)
}

func howFound(e *dedup.Event) string {
	switch {
	case e.State != driver.StateAbsent:
		return foundByEnd
	case e.Err != nil:
		return foundByResolve
	default:
		return foundByClaim
	}
}

func index(is bool) int {
	if is {
		return 1
	}
	return 0
}
