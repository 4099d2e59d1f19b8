package dedup_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/layered"
)

// oneWindow is a store like Redis in a compact layout.
type oneWindow struct{ *hooked }

func (oneWindow) Limits() driver.Limits { return driver.Limits{Window: time.Hour} }

// In each row two processes, or the two stores, would not agree on what is remembered, or nobody
// would ask the filter anything.
func TestNewRefusesBadLayers(t *testing.T) {
	cold := hook()
	for name, row := range map[string]struct {
		hot    dedup.Store
		cold   dedup.Store
		field  string
		change func(*layered.Config)
	}{
		"nil filter of its type": {field: "layered.Config.Filter", change: func(c *layered.Config) {
			c.Filter = (*exact)(nil)
		}},
		"no hot window": {field: "layered.Config.HotWindow", change: func(c *layered.Config) {
			c.HotWindow = 0
		}},
		"negative hot window": {field: "layered.Config.HotWindow",
			change: func(c *layered.Config) { c.HotWindow = -time.Hour }},
		"hot window of nine leases": {field: "layered.Config.HotWindow",
			change: func(c *layered.Config) { c.HotWindow = 10*c.LeaseTTL - 1 }},
		"no lease": {field: "layered.Config.LeaseTTL", change: func(c *layered.Config) {
			c.LeaseTTL = 0
		}},
		"a short hold":      {hot: &fixed{Store: hook(), hold: time.Minute}, field: "layered.Config.HotWindow"},
		"nil hot of a type": {hot: (*pointerStore)(nil), field: "Hot"},
		"nil cold":          {cold: (*pointerStore)(nil), field: "Cold"},
		"one store":         {hot: cold, field: "Hot"},
		"hot with a window": {hot: oneWindow{hook()}, field: "Hot"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := layered.Config{HotWindow: time.Hour, LeaseTTL: time.Minute,
				Filter: &exact{store: cold}}
			if row.change != nil {
				row.change(&cfg)
			}
			if row.hot == nil {
				row.hot = hook()
			}
			if row.cold == nil {
				row.cold = cold
			}
			store, err := layered.New(row.hot, row.cold, cfg)
			wantInput(t, err, row.field)
			require.Nil(t, store, "a store beside the error")
			require.Equal(t, 0, cold.count())
		})
	}
}

// If one of the two stores keeps no results, the layered store keeps none.
func TestLayeredResultsThatHotLoses(t *testing.T) {
	store, err := layered.New(&noFailures{hook()}, hook(),
		layered.Config{HotWindow: time.Hour, LeaseTTL: time.Minute})
	require.NoError(t, err)
	_, err = dedup.New(store, dedup.Config{Namespace: "test", Window: 24 * time.Hour,
		LeaseTTL: time.Minute})
	wantInput(t, err, "Config.SeenOnly")
}

// noFailures keeps of a finished key only that it is done.
type noFailures struct{ *hooked }

func (noFailures) Limits() driver.Limits { return driver.Limits{NoResults: true, NoFailures: true} }
