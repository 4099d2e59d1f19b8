package telemetry

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/contrib/telemetry/internal/metrictest"
)

const beyondWindow = "onceward.dedup.beyond_window"

// An effect is beyond the window when its message is older than the window, and not before.
func TestEffectBeyondTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider, collect := metrictest.New(t)
		m, err := NewMetrics(provider, Config{Name: metrictest.Name, Window: time.Hour})
		require.NoError(t, err)
		assert.Contains(t, collect(), beyondWindow, "a later series would miss its first event")
		written := time.Now()
		m.CountEffect(written)
		m.CountEffect(written.Add(time.Minute)) // of a clock that is ahead
		m.CountEffect(time.Time{})
		time.Sleep(time.Hour)
		m.CountEffect(written)
		assert.Zero(t, collect()[beyondWindow])
		time.Sleep(time.Nanosecond)
		m.CountEffect(written)
		assert.EqualValues(t, 1, collect()[beyondWindow])
	})
}

func TestEffectWithoutAWindow(t *testing.T) {
	m, collect := observed(t)
	m.CountEffect(time.Unix(1, 0))
	assert.Zero(t, collect()[beyondWindow])
}
