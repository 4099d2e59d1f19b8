package telemetry_test

import (
	"database/sql"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/otlptranslator"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/onceward/onceward/contrib/telemetry"
	"github.com/onceward/onceward/contrib/telemetry/kafkametric"
	"github.com/onceward/onceward/contrib/telemetry/redismetric"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/redisadapter"
	"github.com/onceward/onceward/retry"
)

// instruments is a meter that records the instruments that are made, under the names that the
// exporter for Prometheus gives them.
type instruments struct {
	noop.Meter
	names map[string]bool
}

func (i *instruments) note(name, unit string, kind otlptranslator.MetricType, suffixes ...string) {
	namer := otlptranslator.NewMetricNamer("", otlptranslator.UnderscoreEscapingWithSuffixes)
	translated, err := namer.Build(otlptranslator.Metric{Name: name, Unit: unit, Type: kind})
	if err != nil {
		panic(err)
	}
	if suffixes == nil {
		suffixes = []string{""}
	}
	for _, suffix := range suffixes {
		i.names[translated+suffix] = true
	}
}

// notes is the provider of such a meter.
type notes struct {
	noop.MeterProvider
	meter *instruments
}

func (n notes) Meter(string, ...metric.MeterOption) metric.Meter { return n.meter }

func (i *instruments) Int64Counter(name string,
	opts ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	i.note(name, metric.NewInt64CounterConfig(opts...).Unit(),
		otlptranslator.MetricTypeMonotonicCounter)
	return i.Meter.Int64Counter(name, opts...)
}

func (i *instruments) Int64ObservableCounter(name string,
	opts ...metric.Int64ObservableCounterOption) (metric.Int64ObservableCounter, error) {
	i.note(name, metric.NewInt64ObservableCounterConfig(opts...).Unit(),
		otlptranslator.MetricTypeMonotonicCounter)
	return i.Meter.Int64ObservableCounter(name, opts...)
}

func (i *instruments) Float64ObservableGauge(name string,
	opts ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	i.note(name, metric.NewFloat64ObservableGaugeConfig(opts...).Unit(),
		otlptranslator.MetricTypeGauge)
	return i.Meter.Float64ObservableGauge(name, opts...)
}

func (i *instruments) Float64Histogram(name string,
	opts ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	i.note(name, metric.NewFloat64HistogramConfig(opts...).Unit(),
		otlptranslator.MetricTypeHistogram, "_bucket", "_sum", "_count")
	return i.Meter.Float64Histogram(name, opts...)
}

// exported are the names of everything that this module measures, as Prometheus has them.
func exported(t *testing.T) map[string]bool {
	t.Helper()
	all := &instruments{names: map[string]bool{}}
	m, err := telemetry.NewMetrics(notes{meter: all}, telemetry.Config{Name: "x", Window: 1})
	require.NoError(t, err)
	redis, err := redismetric.New(notes{meter: all}, "x")
	require.NoError(t, err)
	kafka, err := kafkametric.New(notes{meter: all}, "x")
	require.NoError(t, err)
	budget, err := retry.NewBudget(retry.BudgetConfig{})
	require.NoError(t, err)
	_, err = m.NewAuditor(telemetry.AuditConfig{})
	require.NoError(t, err)
	for _, err := range []error{
		m.ObserveRetryBudget(storm(t)),
		m.ObserveBudget(budget), m.ObserveUncertain(dedup.Memory(1)),
		m.ObserveOutbox(new(outbox.Outbox), new(sql.DB)),
		m.ObserveRelay(new(outbox.Relay)),
		// nobody collects
		redis.ObserveStore(new(redisadapter.Store)),
		kafka.Observe(func() []kafkaadapter.Progress { return nil }),
	} {
		require.NoError(t, err)
	}
	return all.names
}

// The names that are translated here are those that the exporter exposes.
func TestTranslatedNamesAreExposed(t *testing.T) {
	names := exported(t)
	require.GreaterOrEqual(t, len(names), 35, "names")
	provider, read := exposition(t)
	m, err := telemetry.NewMetrics(provider, telemetry.Config{Name: "x", Window: window})
	require.NoError(t, err)
	tellEverything(m)
	n := 0
	for _, line := range read() {
		name := line[:max(0, strings.IndexAny(line, "{ "))]
		if strings.HasPrefix(name, "onceward") {
			n++
			assert.True(t, names[name], "%s is exposed, and was not expected", name)
		}
	}
	assert.GreaterOrEqual(t, n, 50, "only series")
}

// values are the attributes and their values that docs/reference/telemetry.md lists, as Prometheus
// has them.
func values(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/reference/telemetry.md")
	require.NoError(t, err)
	all := map[string][]string{"onceward_name": nil, "onceward_source": nil, "le": nil}
	for _, row := range regexp.MustCompile(
		"(?m)^\\| ((?:`onceward[a-z._]+`(?:, )?)+) \\| ([^|]*) \\|$").FindAllStringSubmatch(
		string(page), -1) {
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			key := strings.ReplaceAll(name[1], ".", "_")
			for _, value := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(row[2],
				-1) {
				all[key] = append(all[key], value[1])
			}
		}
	}
	// the page names the type of these
	source, err := os.ReadFile("../../redisadapter/internal/wire/advice.go")
	require.NoError(t, err)
	for _, code := range regexp.MustCompile(`(?m)^\tCode\w+ += "(\w+)"`).FindAllStringSubmatch(
		string(source), -1) {
		all["onceward_redis_code"] = append(all["onceward_redis_code"], code[1])
	}
	require.GreaterOrEqual(t, len(all), 12, "the page lists attributes")
	return all
}

var (
	matchers  = regexp.MustCompile(`\{([^}]*)\}`)
	matcher   = regexp.MustCompile(`^([a-z_]+)(=|!=|=~|!~)"([^"]*)"$`)
	groupings = regexp.MustCompile(
		`\b(?:by|without|on|ignoring|group_left|group_right) ?\(([^)]*)\)`)
	numbers = regexp.MustCompile(`\b[0-9][0-9a-z.]*`)
	words   = regexp.MustCompile(`[A-Za-z_:][A-Za-z0-9_:]*`)
)

// promql has the words of PromQL that the rules and the dashboard use.
var promql = []string{"sum", "max", "min", "rate", "increase", "histogram_quantile", "and",
	"or", "offset", "clamp_max", "clamp_min", "on", "group_left"}

// problems returns the names in a PromQL expression that do not exist: metrics, labels, values.
func problems(expr string, metrics map[string]bool, labels map[string][]string) (found []string) {
	if strings.Count(expr, "(") != strings.Count(expr, ")") ||
		strings.Count(expr, "[") != strings.Count(expr, "]") {
		found = append(found, "brackets that do not match")
	}
	for _, selector := range matchers.FindAllStringSubmatch(expr, -1) {
		for m := range strings.SplitSeq(selector[1], ",") {
			parts := matcher.FindStringSubmatch(strings.TrimSpace(m))
			if parts == nil {
				found = append(found, "no matcher: "+m)
				continue
			}
			known, is := labels[parts[1]]
			if !is {
				found = append(found, "no label "+parts[1])
			}
			for value := range strings.SplitSeq(parts[3], "|") {
				if known != nil && !slices.Contains(known, value) {
					found = append(found, fmt.Sprintf("no value %s of %s", value, parts[1]))
				}
			}
		}
	}
	rest := matchers.ReplaceAllString(expr, "")
	for _, grouping := range groupings.FindAllStringSubmatch(rest, -1) {
		for label := range strings.SplitSeq(grouping[1], ",") {
			if _, is := labels[strings.TrimSpace(label)]; !is {
				found = append(found, "no label "+label)
			}
		}
	}
	rest = numbers.ReplaceAllString(groupings.ReplaceAllString(rest, ""), "")
	measured := false
	for _, word := range words.FindAllString(rest, -1) {
		measured = measured || metrics[word]
		if !metrics[word] && !slices.Contains(promql, word) {
			found = append(found, "no metric "+word)
		}
	}
	if !measured {
		found = append(found, "no metric at all")
	}
	return found
}

// A wrong name in an expression is found.
func TestProblemsOfExpressions(t *testing.T) {
	metrics, labels := map[string]bool{"a_total": true, "b_bucket": true},
		map[string][]string{"kind": {"x", "y"}, "le": nil, "name": nil}
	for expr, want := range map[string]string{
		`sum by (name) (rate(a_total{kind=~"x|y",name="whoever"}[5m])) / 2 > 0.5`: "",
		`histogram_quantile(0.99, sum by (name, le) (rate(b_bucket[6h])))`:        "",
		`rate(a[5m])`:                           "no metric a",
		`rate(c_total[5m]) + rate(a_total[5m])`: "no metric c_total",
		`sum by (who) (a_total)`:                "no label who",
		`a_total{who="x"}`:                      "no label who",
		`a_total{kind="z"}`:                     "no value z of kind",
		`a_total{kind~"x"}`:                     "no matcher",
		`sum(a_total`:                           "brackets",
		`1 > 2`:                                 "no metric at all",
		`summ(a_total)`:                         "no metric summ",
	} {
		got := strings.Join(problems(expr, metrics, labels), "; ")
		assert.False(t, want == "" && got != "", "%s: %q, want %q", expr, got, want)
		assert.Contains(t, got, want, expr)
	}
}
