package telemetry_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/onceward/onceward/contrib/telemetry"
	"github.com/onceward/onceward/contrib/telemetry/internal/metrictest"
)

// audited are the series of an auditor.
func audited(t *testing.T, got map[string]float64) map[string]float64 {
	t.Helper()
	found := map[string]float64{}
	for name, value := range got {
		if short, is := strings.CutPrefix(name, "onceward.dedup.window."); is {
			found[short] = value
		}
	}
	return found
}

func wantAudited(t *testing.T, got map[string]float64, want map[string]float64) {
	t.Helper()
	got = audited(t, got)
	assert.Equal(t, fmt.Sprint(want), fmt.Sprint(got), "the audit says\n%v\nwant\n%v", got, want)
}

// The auditor compares a window of three days with horizons. It asks for those that change, and
// while Ask fails, the last answer holds.
func TestAuditor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, reader := newMetrics(t)
		var log bytes.Buffer
		var mu sync.Mutex // of what follows
		var answer []telemetry.Horizon
		var failure error
		asked := 0
		answers := func(horizons []telemetry.Horizon, err error) {
			mu.Lock()
			defer mu.Unlock()
			answer, failure = horizons, err
		}
		a, err := m.NewAuditor(telemetry.AuditConfig{
			Horizons: []telemetry.Horizon{{"stripe", 30 * 24 * time.Hour},
				{"clients", 24 * time.Hour}, {"nothing", 0}},
			Ask: func(ctx context.Context) ([]telemetry.Horizon, error) {
				deadline, is := ctx.Deadline()
				assert.True(t, is, "a question has no end")
				assert.LessOrEqual(t, time.Until(deadline), telemetry.DefaultAuditTimeout,
					"a question has no end")
				mu.Lock()
				defer mu.Unlock()
				asked++
				return answer, failure
			},
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		require.NoError(t, err)
		fixed := map[string]float64{
			"horizon{source=stripe}": 30 * 86400, "coverage{source=stripe}": 0.1,
			"horizon{source=clients}": 86400, "coverage{source=clients}": 3,
			"horizon{source=nothing}": 0, "coverage{source=nothing}": 1000, "audit.errors": 0,
		}
		wantAudited(t, metrictest.Collect(t, reader), fixed)
		assert.Equal(t, 1, strings.Count(log.String(), "source=stripe"), "it warned")
		assert.NotContains(t, log.String(), "clients", "it warned")

		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		answers(append(telemetry.Horizons(map[string]time.Duration{"orders": 6 * 24 * time.Hour,
			"compacted": -1}),
			// shorter ones change nothing
			telemetry.Horizon{"orders", time.Hour}, telemetry.Horizon{"compacted", time.Hour}), nil)
		go func() { ended <- a.Run(ctx) }()
		synctest.Wait()
		fixed["horizon{source=orders}"], fixed["coverage{source=orders}"],
			fixed["coverage{source=compacted}"] = 6*86400, 0.5, 0
		wantAudited(t, metrictest.Collect(t, reader), fixed)

		answers(nil, errors.New("no broker"))
		time.Sleep(telemetry.DefaultAuditEvery + time.Second)
		fixed["audit.errors"] = 1
		wantAudited(t, metrictest.Collect(t, reader), fixed)

		answers([]telemetry.Horizon{{"orders", 24 * time.Hour}}, nil)
		time.Sleep(telemetry.DefaultAuditEvery)
		fixed["horizon{source=orders}"], fixed["coverage{source=orders}"] = 86400, 3
		delete(fixed, "coverage{source=compacted}")
		wantAudited(t, metrictest.Collect(t, reader), fixed)
		cancel()
		err = <-ended
		assert.NoError(t, err, "Run: %v after %d questions", err, asked)
		assert.Equal(t, 3, asked, "Run: %v after %d questions", err, asked)
		// stripe, orders, compacted: once each
		assert.Equal(t, 3, strings.Count(log.String(), "would run again"), "warnings: %s",
			log.String())
	})
}

// The auditor exports the lag of a group, and warns while there is time. While Lags fails, the last
// answer holds.
func TestAuditorLags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, reader := newMetrics(t)
		var log bytes.Buffer
		var mu sync.Mutex // of what follows
		var answer map[string]time.Duration
		var failure error
		a, err := m.NewAuditor(telemetry.AuditConfig{
			Lags: func(ctx context.Context) (map[string]time.Duration, error) {
				_, is := ctx.Deadline()
				assert.True(t, is, "a question has no end")
				mu.Lock()
				defer mu.Unlock()
				return answer, failure
			},
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		require.NoError(t, err)
		// nobody has asked
		wantAudited(t, metrictest.Collect(t, reader), map[string]float64{"audit.errors": 0})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		first := true
		for _, c := range []struct {
			what   string
			lags   map[string]time.Duration
			err    error
			want   map[string]float64
			warned int // so far
		}{
			{"half of the window", map[string]time.Duration{"orders": window / 2, "mails": 0}, nil,
				map[string]float64{"lag{source=orders}": 36 * 3600, "lag{source=mails}": 0,
					"audit.errors": 0}, 0},
			{"more than half", map[string]time.Duration{"orders": window/2 + time.Second},
				nil, map[string]float64{"lag{source=orders}": 36*3600 + 1, "audit.errors": 0}, 1},
			{"still", map[string]time.Duration{"orders": window},
				nil, map[string]float64{"lag{source=orders}": 72 * 3600, "audit.errors": 0}, 1},
			{"no broker", nil, errors.New("no broker"),
				map[string]float64{"lag{source=orders}": 72 * 3600, "audit.errors": 1}, 1},
			{"negative", map[string]time.Duration{"orders": -1}, nil,
				map[string]float64{"lag{source=orders}": 72 * 3600, "audit.errors": 2}, 1},
			{"caught up", map[string]time.Duration{"orders": time.Minute}, nil,
				map[string]float64{"lag{source=orders}": 60, "audit.errors": 2}, 1},
			{"again", map[string]time.Duration{"orders": window},
				nil, map[string]float64{"lag{source=orders}": 72 * 3600, "audit.errors": 2}, 2},
			{"not asked for any more", map[string]time.Duration{},
				nil, map[string]float64{"audit.errors": 2}, 2},
			{"and once more", map[string]time.Duration{"orders": window}, nil,
				map[string]float64{"lag{source=orders}": 72 * 3600, "audit.errors": 2}, 3},
		} {
			mu.Lock()
			answer, failure = c.lags, c.err
			mu.Unlock()
			if first {
				go func() { ended <- a.Run(ctx) }()
				first = false
			} else {
				time.Sleep(telemetry.DefaultAuditEvery)
			}
			synctest.Wait()
			t.Log(c.what)
			wantAudited(t, metrictest.Collect(t, reader), c.want)
			assert.Equal(t, c.warned, strings.Count(log.String(), "older than half"),
				"%s: warnings: %s", c.what, log.String())
		}
		many := map[string]time.Duration{}
		for i := range 1000 {
			many[fmt.Sprint("topic ", i)] = time.Duration(i) * time.Second
		}
		mu.Lock()
		answer = many
		mu.Unlock()
		time.Sleep(telemetry.DefaultAuditEvery)
		synctest.Wait()
		got := audited(t, metrictest.Collect(t, reader))
		assert.Len(t, got, 100+1, "series; the longest of the rest is %v s",
			got["lag{source=other}"])
		assert.EqualValues(t, 999, got["lag{source=other}"],
			"series; the longest of the rest is %v s", got["lag{source=other}"])
		cancel()
		assert.NoError(t, <-ended)
	})
}

// However many topics there are, the auditor has series for at most a hundred sources.
func TestAuditorIsBounded(t *testing.T) {
	m, reader := newMetrics(t)
	var many []telemetry.Horizon
	for i := range 1000 {
		many = append(many, telemetry.Horizon{Source: fmt.Sprint("topic ", i),
			For: time.Duration(i) * time.Hour})
	}
	_, err := m.NewAuditor(telemetry.AuditConfig{Horizons: many})
	require.NoError(t, err)
	got := audited(t, metrictest.Collect(t, reader))
	assert.Len(t, got, 2*100+1, "series; the longest of the rest is %v s",
		got["horizon{source=other}"])
	assert.EqualValues(t, 999*3600, got["horizon{source=other}"],
		"series; the longest of the rest is %v s", got["horizon{source=other}"])
}

func TestNewAuditorRefuses(t *testing.T) {
	m, _ := newMetrics(t)
	for want, cfg := range map[string]telemetry.AuditConfig{
		"Every":   {Every: time.Millisecond},
		"Timeout": {Timeout: -1},
		"Source":  {Horizons: []telemetry.Horizon{{For: time.Hour}}},
	} {
		_, err := m.NewAuditor(cfg)
		assert.ErrorContains(t, err, want)
	}
	a, err := m.NewAuditor(telemetry.AuditConfig{})
	require.NoError(t, err)
	// there is nobody to ask
	assert.NoError(t, a.Run(t.Context()))
	_, err = m.NewAuditor(telemetry.AuditConfig{})
	assert.Error(t, err, "a second auditor is no error")
	none, err := telemetry.NewMetrics(sdk.NewMeterProvider(), telemetry.Config{Name: "x"})
	require.NoError(t, err)
	_, err = none.NewAuditor(telemetry.AuditConfig{})
	assert.ErrorContains(t, err, "Window", "without a window")
}
