package telemetry_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/onceward/onceward/contrib/telemetry"
	"github.com/onceward/onceward/contrib/telemetry/internal/metrictest"
)

const window = 72 * time.Hour

// newMetrics returns metrics, and what reads them.
func newMetrics(t testing.TB) (*telemetry.Metrics, *sdk.ManualReader) {
	t.Helper()
	reader := sdk.NewManualReader()
	m, err := telemetry.NewMetrics(sdk.NewMeterProvider(sdk.WithReader(reader)),
		telemetry.Config{Name: metrictest.Name, Window: window})
	require.NoError(t, err)
	return m, reader
}
