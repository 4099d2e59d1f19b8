package telemetry_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/onceward/onceward/internal/servertest"
)

// quiet is a service on an ordinary day, with a value each minute or two: new keys, one in a
// hundred of them sent twice within minutes, and nothing wrong.
var quiet = map[string]string{
	`onceward_dedup_claims_total{onceward_outcome="acquired"}`:                     "0+600x2000",
	`onceward_dedup_claims_total{onceward_outcome="duplicate"}`:                    "0+6x2000",
	`onceward_dedup_claims_total{onceward_outcome="unknown"}`:                      "0x2000",
	`onceward_dedup_duplicate_age_seconds_bucket{le="300"}`:                        "0+6x2000",
	`onceward_dedup_duplicate_age_seconds_bucket{le="129600"}`:                     "0+6x2000",
	`onceward_dedup_duplicate_age_seconds_bucket{le="172800"}`:                     "0+6x2000",
	`onceward_dedup_duplicate_age_seconds_bucket{le="+Inf"}`:                       "0+6x2000",
	`onceward_dedup_duplicate_age_seconds_count`:                                   "0+6x2000",
	`onceward_dedup_window_seconds`:                                                "259200x2000",
	`onceward_dedup_window_coverage_ratio{onceward_source="orders"}`:               "1.14x2000",
	`onceward_dedup_window_lag_seconds{onceward_source="orders"}`:                  "20x2000",
	`onceward_dedup_uncertain_total{onceward_found="claim"}`:                       "0x2000",
	`onceward_dedup_uncertain_total{onceward_found="resolve"}`:                     "0x2000",
	`onceward_dedup_uncertain_oldest_seconds`:                                      "0+60x10 0+60x10 0x2000",
	`onceward_dedup_uncertain_total{onceward_found="end"}`:                         "0+1x2000",
	`onceward_dedup_store_errors_total{onceward_retryable="true"}`:                 "0x100 1x1000",
	`onceward_dedup_store_errors_total{onceward_retryable="false"}`:                "0x2000",
	`onceward_dedup_lease_lost_total`:                                              "0x100 1x1000",
	`onceward_dedup_failed_open_total`:                                             "0x2000",
	`onceward_dedup_beyond_window_total`:                                           "0x2000",
	`onceward_dedup_filter_state{onceward_filter_reason="none"}`:                   "1x2000",
	`onceward_dedup_filter_state{onceward_filter_reason="saturated"}`:              "0x2000",
	`onceward_dedup_filter_false_positive_observed_ratio`:                          "0.01x2000",
	`onceward_outbox_lag_seconds`:                                                  "2x2000",
	`onceward_outbox_parked`:                                                       "0x2000",
	`onceward_redis_amnesia`:                                                       "0x2000",
	`onceward_redis_findings_total{onceward_redis_code="evicted_keys"}`:            "0x2000",
	`onceward_retry_given_up_total{onceward_retry_reason="budget_empty"}`:          "0x2000",
	`onceward_retry_given_up_total{onceward_retry_reason="attempts_used"}`:         "0+1x2000",
	`onceward_retry_server_requests_total`:                                         "0+600x2000",
	`onceward_retry_server_retries_total`:                                          "0+6x2000",
	`onceward_retry_server_refused_total`:                                          "0x100 9x1000",
	`onceward_dedup_claims_total{onceward_outcome="in_flight",onceward_cause="x"}`: "0+1x2000",
}

// trouble has what makes a rule fire: series that replace those of the quiet day, the time at which
// the rule must fire, and an earlier time at which it must not.
var trouble = map[string]struct {
	series  map[string]string
	at      string
	before  string // still silent by then
	summary string // where it is not the rule's with the name put in
}{
	"OncewardDuplicateSpike": {
		map[string]string{`onceward_dedup_claims_total{onceward_outcome="duplicate"}`: "0+6x750 4620+120x500"}, "1530m", "1505m", "",
	},
	"OncewardWindowCoverage": {map[string]string{
		`onceward_dedup_duplicate_age_seconds_bucket{le="300"}`:    "0x2000",
		`onceward_dedup_duplicate_age_seconds_bucket{le="129600"}`: "0x2000",
	}, "80m", "20m", ""},
	"OncewardWindowTooShort": {
		map[string]string{`onceward_dedup_window_coverage_ratio{onceward_source="orders"}`: "0.5x1000"}, "20m", "10m",
		"payments: orders can deliver again what the window has forgotten",
	},
	"OncewardWindowLag": {
		map[string]string{`onceward_dedup_window_lag_seconds{onceward_source="orders"}`: "129600+60x1000"}, "20m", "10m",
		"payments: orders has unread messages older than half of the window; from a whole one on duplicates run again",
	},
	"OncewardWindowPassed": {map[string]string{`onceward_dedup_beyond_window_total`: "0x60 1x1000"},
		"62m", "59m", ""},
	"OncewardUncertain": {
		map[string]string{`onceward_dedup_uncertain_total{onceward_found="claim"}`: "0+1x2000"},
		"60m", "20m", ""},
	"OncewardOutcomeUnknown": {map[string]string{
		`onceward_dedup_claims_total{onceward_outcome="unknown"}`: "0x60 60+60x1000"}, "75m",
		"62m", ""},
	"OncewardStoreErrors": {map[string]string{
		`onceward_dedup_store_errors_total{onceward_retryable="true"}`: "0+1x2000"}, "30m",
		"10m", ""},
	"OncewardStoreRefuses": {map[string]string{
		`onceward_dedup_store_errors_total{onceward_retryable="false"}`: "0x60 1x1000"}, "62m",
		"59m", ""},
	"OncewardLeaseLost": {map[string]string{`onceward_dedup_lease_lost_total`: "0x60 5x1000"},
		"65m", "59m", ""},
	"OncewardFailedOpen": {map[string]string{`onceward_dedup_failed_open_total`: "0x60 1x1000"},
		"62m", "59m", ""},
	"OncewardFilterSaturated": {
		map[string]string{`onceward_dedup_filter_state{onceward_filter_reason="saturated"}`: "1x1000"}, "20m", "10m", "",
	},
	"OncewardFilterFalsePositives": {
		map[string]string{`onceward_dedup_filter_false_positive_observed_ratio`: "0.2x1000"},
		"40m", "20m", ""},
	"OncewardOutboxLag": {
		map[string]string{`onceward_outbox_lag_seconds`: "300x1000"}, "10m", "3m",
		"payments: the oldest message of the outbox has waited for 5m 0s",
	},
	"OncewardOutboxParked": {
		map[string]string{`onceward_outbox_parked`: "3x1000"}, "10m", "3m",
		"payments: 3 messages of the outbox are parked; nobody will publish them by itself",
	},
	"OncewardAmnesia": {map[string]string{`onceward_redis_amnesia`: "0x60 1x1000"}, "62m",
		"60m", ""},
	"OncewardEvictions": {map[string]string{
		`onceward_redis_findings_total{onceward_redis_code="evicted_keys"}`: "0x60 1x1000"},
		"62m", "59m", ""},
	"OncewardClientRetriesRefused": {
		map[string]string{`onceward_retry_server_refused_total`: "0+60x1000"}, "20m", "8m", "",
	},
	"OncewardRetryBudgetExhausted": {
		map[string]string{`onceward_retry_given_up_total{onceward_retry_reason="budget_empty"}`: "0+1x1000"}, "15m", "3m", "",
	},
}

// promTest is a file for promtool test rules.
type promTest struct {
	RuleFiles []string    `yaml:"rule_files"`
	Tests     []promStory `yaml:"tests"`
}

type promStory struct {
	Name     string       `yaml:"name"`
	Interval string       `yaml:"interval"`
	Series   []promSeries `yaml:"input_series"`
	Rules    []promRule   `yaml:"alert_rule_test"`
}

type promSeries struct {
	Series string `yaml:"series"`
	Values string `yaml:"values"`
}

type promRule struct {
	At    string      `yaml:"eval_time"`
	Alert string      `yaml:"alertname"`
	Want  []promAlert `yaml:"exp_alerts"`
}

type promAlert struct {
	Labels      map[string]string `yaml:"exp_labels"`
	Annotations map[string]string `yaml:"exp_annotations"`
}

// day returns the quiet day with some of its series replaced.
func day(name string, other map[string]string) promStory {
	all := maps.Clone(quiet)
	maps.Copy(all, other)
	story := promStory{Name: name, Interval: "1m"}
	if name == "OncewardDuplicateSpike" {
		story.Interval = "2m" // it looks back for a day
	}
	for _, series := range slices.Sorted(maps.Keys(all)) {
		metric, labels, _ := strings.Cut(strings.TrimSuffix(series, "}"), "{")
		story.Series = append(story.Series,
			promSeries{fmt.Sprintf(`%s{%s}`, metric,
				strings.TrimPrefix(labels+`,onceward_name="payments"`, ",")), all[series]})
	}
	return story
}

// Each rule is silent on a quiet day, silent before its trouble has lasted long enough, and fires
// then, while all the others stay silent. Prometheus's own promtool checks that.
func TestAlertsFire(t *testing.T) {
	promtool := servertest.Program(t, "promtool")
	text, err := os.ReadFile("alerts.yml")
	require.NoError(t, err)
	var all rules
	require.NoError(t, yaml.Unmarshal(text, &all))
	rules := all.Groups[0].Rules
	assert.Len(t, rules, len(trouble), "each rule has its trouble")
	assert.Len(t, all.Groups, 1, "each rule has its trouble")
	path, err := filepath.Abs("alerts.yml")
	require.NoError(t, err)
	file := promTest{RuleFiles: []string{path}}
	ordinary := day("a quiet day", nil)
	for _, rule := range rules {
		for _, at := range []string{"30m", "120m", "240m"} {
			ordinary.Rules = append(ordinary.Rules, promRule{At: at, Alert: rule.Alert})
		}
		what, is := trouble[rule.Alert]
		if !assert.True(t, is, "nothing makes %s fire", rule.Alert) {
			continue
		}
		summary := what.summary
		if summary == "" {
			summary = strings.ReplaceAll(rule.Annotations.Summary, "{{ $labels.onceward_name }}",
				"payments")
		}
		story := day(rule.Alert, what.series)
		story.Rules = []promRule{{At: what.before, Alert: rule.Alert},
			{At: what.at, Alert: rule.Alert, Want: []promAlert{{
				Labels: labelsOf(rule.Alert, rule.Labels["severity"]),
				Annotations: map[string]string{"summary": summary,
					"runbook_url": rule.Annotations.RunbookURL},
			}}}}
		for _, another := range rules {
			if another.Alert != rule.Alert {
				story.Rules = append(story.Rules, promRule{At: what.at, Alert: another.Alert})
			}
		}
		file.Tests = append(file.Tests, story)
	}
	file.Tests = append(file.Tests, ordinary)
	out, err := runPromtool(t, promtool, &file)
	assert.NoError(t, err, "%v\n%s", err, out)
	// And promtool can fail.
	file.Tests = file.Tests[1:2]
	file.Tests[0].Rules[1].Want = nil
	out, err = runPromtool(t, promtool, &file)
	assert.Error(t, err, "an alert that is not expected is fine:\n%s", out)
}

// labelsOf are those of an alert.
func labelsOf(alert, severity string) map[string]string {
	labels := map[string]string{"severity": severity, "onceward_name": "payments"}
	if alert == "OncewardWindowTooShort" || alert == "OncewardWindowLag" {
		labels["onceward_source"] = "orders"
	}
	return labels
}

func runPromtool(t *testing.T, promtool string, file *promTest) ([]byte, error) {
	t.Helper()
	var text bytes.Buffer
	require.NoError(t, yaml.NewEncoder(&text).Encode(file))
	path := filepath.Join(t.TempDir(), "alerts.yml")
	require.NoError(t, os.WriteFile(path, text.Bytes(), 0o600))
	return exec.CommandContext(t.Context(), promtool, "test", "rules", path).CombinedOutput()
}

// The series of the troubles are series that the packages export.
func TestTroublesAreOfWhatThereIs(t *testing.T) {
	metrics, labels := exported(t), values(t)
	check := func(series map[string]string) {
		for name := range series {
			if strings.Contains(name, `onceward_cause="x"`) {
				continue // stands for any
			}
			for _, problem := range problems(name, metrics, labels) {
				t.Errorf("%s: %s", name, problem)
			}
		}
	}
	check(quiet)
	for _, what := range trouble {
		check(what.series)
	}
}
