package telemetry_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/contrib/telemetry"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// Observe mode's report, as Prometheus gets it: two different orders have one key, because the key
// leaves the tenant out. Both run. The report shows the false duplicate apart from the real ones,
// how old those are, and what would have been skipped by cause.
func TestReportOfObserveModeCatchesFalseDuplicates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider, read := exposition(t)
		m, err := telemetry.NewMetrics(provider, telemetry.Config{Name: "orders", Window: window})
		require.NoError(t, err)
		d, err := dedup.New(dedup.Memory(100), dedup.Config{
			Namespace: "orders", Window: window, LeaseTTL: time.Minute, Mode: dedup.Observe,
			Observer: m.Observer(),
		})
		require.NoError(t, err)
		defer func() { _ = d.Close(context.Background()) }()
		var shipped []string
		ship := func(key, payload string, at driver.Origin) {
			_, err := dedup.Do(t.Context(), d, key, func(context.Context) (string, error) {
				shipped = append(shipped, payload)
				return payload, nil
			}, dedup.WithFingerprint([]byte(payload)), func(r *dedup.Request) { r.Origin = at })
			assert.NoError(t, err)
		}
		place := func(offset int64) driver.Origin {
			return driver.Origin{Source: "orders", Offset: offset}
		}
		ship("order-1", "tenant a, 10 pears", place(1))
		ship("order-1", "tenant b, 99 cars", place(2)) // no copy of the first
		ship("order-2", "tenant a, 7 figs", place(3))
		time.Sleep(10 * time.Minute)
		ship("order-2", "tenant a, 7 figs", place(3)) // delivered again
		ship("order-2", "tenant a, 7 figs", place(4)) // sent again
		time.Sleep(2 * 24 * time.Hour)
		ship("order-2", "tenant a, 7 figs", place(5))
		assert.Len(t, shipped, 6, "%d of 6 ran", len(shipped))
		report := map[string]string{}
		for _, line := range read() {
			if strings.HasPrefix(line, "onceward") {
				name, value, _ := strings.Cut(line, "} ")
				report[strings.Replace(name, `onceward_name="orders"`, "", 1)] = value
			}
		}
		for name, want := range map[string]string{
			`onceward_dedup_would_skip_total{onceward_cause="key_reuse",,onceward_outcome="mismatch"`:          "1",
			`onceward_dedup_would_skip_total{onceward_cause="broker_redelivery",,onceward_outcome="duplicate"`: "1",
			`onceward_dedup_would_skip_total{onceward_cause="producer_retry",,onceward_outcome="duplicate"`:    "1",
			`onceward_dedup_would_skip_total{onceward_cause="late",,onceward_outcome="duplicate"`:              "1",
			`onceward_dedup_duplicate_age_seconds_bucket{,le="300"`:                                            "0",
			`onceward_dedup_duplicate_age_seconds_bucket{,le="600"`:                                            "2",
			`onceward_dedup_duplicate_age_seconds_bucket{,le="259200"`:                                         "3",
			// the false one has no age: it is not a duplicate
			`onceward_dedup_duplicate_age_seconds_count{`:                                                            "3",
			`onceward_dedup_claims_total{onceward_cached="false",onceward_cause="none",,onceward_outcome="acquired"`: "2",
		} {
			assert.Equal(t, want, report[name], "%s is %q", name, report[name])
		}
		if t.Failed() {
			for name, value := range report {
				fmt.Println(name, value)
			}
		}
	})
}
