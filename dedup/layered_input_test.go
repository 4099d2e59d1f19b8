package dedup_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
)

// oneWindow is a store like Redis in a compact layout.
type oneWindow struct{ *hooked }

func (oneWindow) Limits() dedup.Limits { return dedup.Limits{Window: time.Hour} }

// Each row is a configuration with which two processes, or two stores, would not agree on what
// is remembered, or a filter that would be asked for nothing.
func TestNewRefusesBadLayers(t *testing.T) {
	store := hook()
	for name, row := range map[string]struct {
		field  string
		change func(*dedup.Config)
	}{
		"filter without leases": {"Filter", func(c *dedup.Config) {
			c.Leases, c.HotWindow = nil, 0
		}},
		"nil filter of its type": {"Filter", func(c *dedup.Config) {
			c.Filter = (*exact)(nil)
		}},
		"hot window without leases": {"HotWindow", func(c *dedup.Config) {
			c.Leases, c.Filter = nil, nil
		}},
		"no hot window": {"HotWindow", func(c *dedup.Config) { c.HotWindow = 0 }},
		"negative hot window": {"HotWindow", func(c *dedup.Config) {
			c.HotWindow = -time.Hour
		}},
		"hot window of nine leases": {"HotWindow", func(c *dedup.Config) {
			c.HotWindow = 10*c.LeaseTTL - 1
		}},
		"hot window of the window": {"HotWindow", func(c *dedup.Config) {
			c.HotWindow = c.Window
		}},
		"nil leases of their type": {"Leases", func(c *dedup.Config) {
			c.Leases = (*pointerStore)(nil)
		}},
		"leases that are the store": {"Leases", func(c *dedup.Config) { c.Leases = store }},
		"leases with a window": {"Leases", func(c *dedup.Config) {
			c.Leases = oneWindow{hook()}
		}},
		"results that leases lose": {"SeenOnly", func(c *dedup.Config) {
			c.Leases = &noFailures{hook()}
		}},
		"window that leases are not": {"Window", func(c *dedup.Config) { c.Window = -1 }},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := dedup.Config{
				Namespace: "test", Window: 24 * time.Hour, LeaseTTL: time.Minute,
				Leases: hook(), HotWindow: time.Hour, Filter: &exact{store: store},
			}
			row.change(&cfg)
			d, err := dedup.New(store, cfg)
			wantInput(t, err, "Config."+row.field)
			require.Nil(t, d, "a Deduper beside the error")
			require.Equal(t, 0, store.count())
		})
	}
}

// noFailures keeps nothing of a finished key but that it is done.
type noFailures struct{ *hooked }

func (noFailures) Limits() dedup.Limits { return dedup.Limits{NoResults: true, NoFailures: true} }

func TestNewRefusesLeasesWithoutCapacity(t *testing.T) {
	_, err := dedup.New(hook(), dedup.Config{
		Namespace: "test", Window: 24 * time.Hour, LeaseTTL: time.Minute, Leases: dedup.Memory(0),
		HotWindow: time.Hour,
	})
	wantInput(t, err, "capacity")
}
