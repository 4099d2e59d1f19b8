package redisadapter_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/layered"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

// hidden is a wrapper that hides all optional interfaces of its store.
type hidden struct{ dedup.Store }

// TestWindowOfTheStoreCounts: a Deduper with another window than its store's used to run the effect
// of every delivery, because no end could be recorded.
func TestWindowOfTheStoreCounts(t *testing.T) {
	eachLayout(t, func(t *testing.T, layout redisadapter.Layout) {
		redistest.Each(t, func(t *testing.T, b redistest.Backend) {
			store, err := redisadapter.New(t.Context(), b.Client, layoutOptions(b.Prefix, layout))
			require.NoError(t, err)
			one := layout == redisadapter.Compact
			window := store.Limits().Window
			assert.Zero(t, store.Limits().MaxHold)
			cfg := dedup.Config{Namespace: "window", Window: time.Hour, LeaseTTL: time.Second,
				SeenOnly: seenOnly(store)}
			if one {
				require.NotZero(t, window)
				cfg.Window = 2 * window
			} else {
				require.Zero(t, window)
			}
			_, err = dedup.New(store, cfg)
			wantWindow(t, err, one)
			moving, err := layered.Moving(store, dedup.Memory(10))
			require.NoError(t, err)
			_, err = dedup.New(moving, cfg)
			wantWindow(t, err, one)

			moving, err = layered.Moving(dedup.Memory(10), hidden{store})
			require.NoError(t, err)
			for name, tested := range map[string]dedup.Store{"hidden": hidden{store},
				"moving": moving} {
				d, err := dedup.New(tested, cfg)
				require.NoError(t, err)
				effects := 0
				for range 20 {
					_, err = dedup.Do(t.Context(), d, "k "+name,
						func(context.Context) (struct{}, error) {
							effects++
							return struct{}{}, nil
						})
					wantWindow(t, err, one)
				}
				assert.Equal(t, map[bool]int{true: 0, false: 1}[one], effects, name)
			}
		})
	})
}

// wantWindow insists on an InputError about the window that says so once, and is not ErrUnknown.
func wantWindow(t *testing.T, err error, wrong bool) {
	t.Helper()
	if !wrong {
		require.NoError(t, err)
		return
	}
	var input *dedup.InputError
	require.ErrorAs(t, err, &input)
	assert.Contains(t, []string{"Window", "Config.Window"}, input.Field)
	assert.Regexp(t, `^dedup: (Config\.)?Window is 2h0m0s; `, err.Error())
	assert.NotErrorIs(t, err, dedup.ErrUnknown)
	assert.False(t, dedup.OutcomeUnknown(err) || dedup.CanRetry(err) || dedup.CanAck(err))
}

// TestClaimIsRefusedForWhatItsEndWouldBe: a layout without results and fingerprints refuses a claim
// that may bring some. It does not refuse the record of an effect that has happened.
func TestClaimIsRefusedForWhatItsEndWouldBe(t *testing.T) {
	eachLayout(t, func(t *testing.T, layout redisadapter.Layout) {
		redistest.Each(t, func(t *testing.T, b redistest.Backend) {
			store, err := redisadapter.New(t.Context(), b.Client, layoutOptions(b.Prefix, layout))
			require.NoError(t, err)
			cfg := dedup.Config{Namespace: "window", Window: time.Hour, LeaseTTL: time.Second}
			d, err := dedup.New(hidden{store}, cfg)
			require.NoError(t, err)
			effects := 0
			for range 20 {
				_, err = dedup.Do(t.Context(), d, "result", func(context.Context) (string, error) {
					effects++
					return "v", nil
				})
			}
			if seenOnly(store) {
				wantInput(t, err, "ResultLimit")
				assert.Zero(t, effects)
			} else {
				require.NoError(t, err)
				assert.Equal(t, 1, effects)
			}
			assert.NotErrorIs(t, err, dedup.ErrUnknown)
			if layout != redisadapter.Compact {
				return
			}
			cfg.SeenOnly = true
			d, err = dedup.New(store, cfg)
			require.NoError(t, err)
			_, err = dedup.Do(t.Context(), d, "fingerprint",
				func(context.Context) (struct{}, error) {
					effects++
					return struct{}{}, nil
				}, dedup.WithFingerprint([]byte("x")))
			wantInput(t, err, "Fingerprint")
			assert.NotErrorIs(t, err, dedup.ErrUnknown)
			assert.Zero(t, effects)
		})
	})
}

// TestMovingRefusesTwoWindows: no end could have the windows of both stores.
func TestMovingRefusesTwoWindows(t *testing.T) {
	client := redistest.Open(t, redistest.Backends[0]).Client
	open := func(prefix string, window time.Duration) *redisadapter.Store {
		o := layoutOptions(prefix, redisadapter.Compact)
		o.Window = window
		store, err := redisadapter.New(t.Context(), client, o)
		require.NoError(t, err)
		return store
	}
	_, err := layered.Moving(open("a", time.Hour), open("b", 2*time.Hour))
	wantInput(t, err, "Follow")
	_, err = layered.Moving(open("c", time.Hour), open("d", time.Hour))
	require.NoError(t, err)
}
