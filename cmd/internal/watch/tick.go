package watch

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"time"
)

// Tick is what --json writes each time.
type Tick struct {
	At        time.Time  `json:"at"`
	Seconds   float64    `json:"seconds"` // that the rates are of
	Processes *Processes `json:"processes,omitempty"`
	Servers   []Server   `json:"servers,omitempty"`
	Table     *Table     `json:"table,omitempty"`
	// Failed are the sources that did not answer, by what they said; the rates are those of the
	// others.
	Failed map[string]string `json:"failed,omitempty"`
}

// Processes are those that expose metrics, together. Rates are a second.
type Processes struct {
	Asked    int `json:"asked"`
	Answered int `json:"answered"`
	// Counted have answered this time and the last: the rates are theirs.
	Counted int                `json:"counted"`
	Claims  map[string]float64 `json:"claims_per_second"`     // by outcome
	Causes  map[string]float64 `json:"duplicates_per_second"` // by cause
	Ends    map[string]float64 `json:"ends_per_second"`       // by state
	Trouble map[string]float64 `json:"trouble_per_second"`    // by kind
	// Ages of the duplicates that came: so many seconds at most, for a half and for 99 of 100 of
	// them. -1: beyond the last bound of the histogram. Absent: there were none.
	AgeHalf *float64 `json:"duplicate_age_half_seconds,omitempty"`
	Age99   *float64 `json:"duplicate_age_99_seconds,omitempty"`
	// Window is the smallest of theirs, in seconds; 0 when none tells.
	Window float64 `json:"window_seconds"`
	// Now are gauges: messages in flight and behind, of Kafka and of outboxes.
	Now map[string]float64 `json:"now"`
}

// kinds of trouble, by their counters.
var kinds = map[string]string{
	"onceward_dedup_store_errors_total": "store_errors",
	"onceward_dedup_lease_lost_total":   "leases_lost",
	"onceward_dedup_failed_open_total":  "failed_open",
	"onceward_dedup_uncertain_total":    "uncertain",
	"onceward_dedup_would_skip_total":   "would_skip",
	"onceward_retry_given_up_total":     "given_up",
	"onceward_redis_flagged_total":      "flagged",
	"onceward_kafka_parked_total":       "parked",
	"onceward_kafka_unrecorded_total":   "unrecorded",
}

// gauges that are shown.
var gauges = map[string]string{
	"onceward_kafka_in_flight":    "kafka_in_flight",
	"onceward_kafka_lag":          "kafka_lag",
	"onceward_outbox_pending":     "outbox_pending",
	"onceward_redis_amnesia":      "redis_amnesia",
	"onceward_redis_breaker_open": "redis_breaker_open",
}

const (
	claimsMetric = "onceward_dedup_claims_total"
	endsMetric   = "onceward_dedup_ends_total"
	agesMetric   = "onceward_dedup_duplicate_age_seconds_bucket"
	windowMetric = "onceward_dedup_window_seconds"
)

func newProcesses() *Processes {
	return &Processes{
		Claims: map[string]float64{}, Causes: map[string]float64{}, Ends: map[string]float64{},
		Trouble: map[string]float64{}, Now: map[string]float64{},
	}
}

// count adds what a process has done in so many seconds. ages gathers the histogram.
func (p *Processes) count(grown []series, seconds float64, ages map[float64]float64) {
	for _, s := range grown {
		rate := s.value / seconds
		switch s.metric {
		case claimsMetric:
			p.Claims[s.labels["onceward_outcome"]] += rate
			if s.labels["onceward_outcome"] == "duplicate" {
				p.Causes[s.labels["onceward_cause"]] += rate
			}
		case endsMetric:
			p.Ends[s.labels["onceward_state"]] += rate
		case agesMetric:
			if bound, err := strconv.ParseFloat(s.labels["le"], 64); err == nil {
				ages[bound] += s.value
			}
		}
		if kind := kinds[s.metric]; kind != "" {
			p.Trouble[kind] += rate
		}
	}
}

// state adds a process' gauges.
func (p *Processes) state(now sample) {
	for _, s := range now {
		if s.metric == windowMetric && (p.Window == 0 || s.value < p.Window) {
			p.Window = s.value
		}
		if name := gauges[s.metric]; name != "" {
			p.Now[name] += s.value
		}
	}
}

// quantile is the least bound below which so large a share of the duplicates lies; nil when there
// are none, -1 beyond the last.
func quantile(ages map[float64]float64, share float64) *float64 {
	all := ages[math.Inf(1)]
	if all == 0 {
		return nil
	}
	for _, bound := range slices.Sorted(maps.Keys(ages)) {
		if ages[bound] >= share*all && !math.IsInf(bound, 1) {
			return &bound
		}
	}
	beyond := -1.0
	return &beyond
}

// sum of rates.
func sum(of map[string]float64) (total float64) {
	for _, v := range of {
		total += v
	}
	return total
}
