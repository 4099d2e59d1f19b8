package owned

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

// TestWindowOfTheStoreCounts: with another window than the store's no completion could be recorded,
// and every delivery would have its effect.
func TestWindowOfTheStoreCounts(t *testing.T) {
	b := redistest.Open(t, redistest.Backends[0])
	s := &placing{open(t, b, suiteOptions(b.Prefix))}
	ready(t, s.Store, Partition{Source: "payments/orders", Number: 3, Count: 4})
	right := dedup.Config{Namespace: "window", Window: time.Hour, Hold: 100 * time.Hour,
		LeaseTTL: time.Second, SeenOnly: true}
	_, err := dedup.New(s, right)
	require.NoError(t, err)
	for field, change := range map[string]func(*dedup.Config){
		"Window":      func(c *dedup.Config) { c.Window = 2 * time.Hour },
		"Hold":        func(c *dedup.Config) { c.Hold = 101 * time.Hour },
		"ResultLimit": func(c *dedup.Config) { c.SeenOnly = false },
	} {
		t.Run(field, func(t *testing.T) {
			cfg := right
			change(&cfg)
			_, err := dedup.New(s, cfg)
			require.Error(t, err)
			// a wrapper that passes nothing on
			d, err := dedup.New(struct{ dedup.Store }{s}, cfg)
			require.NoError(t, err)
			effects := 0
			for range 20 {
				_, err = dedup.Do(t.Context(), d, "k", func(context.Context) (struct{}, error) {
					effects++
					return struct{}{}, nil
				})
			}
			var input *dedup.InputError
			require.ErrorAs(t, err, &input)
			assert.Equal(t, field, input.Field)
			assert.NotErrorIs(t, err, dedup.ErrUnknown)
			assert.Zero(t, effects)
		})
	}
}

// TestNewRefusesAnInnerStoreWithAnotherWindow: it would refuse requests that are passed on to it.
func TestNewRefusesAnInnerStoreWithAnotherWindow(t *testing.T) {
	b := redistest.Open(t, redistest.Backends[0])
	o := suiteOptions(b.Prefix)
	require.NoError(t, Init(t.Context(), b.Client, o))
	inner, err := redisadapter.New(t.Context(), b.Client, redisadapter.Options{
		Prefix: b.Prefix + "-in", Layout: redisadapter.Compact,
		Secret: []byte("a secret of the tests"), Window: 2 * time.Hour, ExpectedKeys: 100,
	})
	require.NoError(t, err)
	_, err = New(t.Context(), b.Client, inner, o)
	var input *dedup.InputError
	require.ErrorAs(t, err, &input)
	assert.Equal(t, "Options.Window", input.Field)
}
