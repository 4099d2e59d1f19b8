package dedup_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

func newDeduper(t *testing.T, store dedup.Store, change func(*dedup.Config)) *dedup.Deduper {
	t.Helper()
	cfg := dedup.Config{Namespace: "test", Window: time.Hour, LeaseTTL: 10 * time.Second}
	if change != nil {
		change(&cfg)
	}
	d, err := dedup.New(store, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { // in a bubble, this also proves that no goroutine is left
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.NoError(t, d.Close(ctx))
	})
	return d
}

func TestDoRunsOnceAndReplays(t *testing.T) {
	d := newDeduper(t, dedup.Memory(100), nil)
	type receipt struct{ Charge string }
	runs := 0
	charge := func(context.Context) (receipt, error) { runs++; return receipt{"ch_1"}, nil }
	for i, want := range []driver.Outcome{dedup.Acquired, dedup.Duplicate, dedup.Duplicate} {
		res, err := dedup.DoResult(t.Context(), d, "evt_1", charge)
		require.NoError(t, err, "call %d", i)
		require.Equal(t, "ch_1", res.Value.Charge, "call %d", i)
		require.Equal(t, want, res.Outcome, "call %d", i)
	}
	require.Equal(t, 1, runs, "the effect")
}

// A handler that takes many leases keeps its claim, and another caller sees it in
// flight all the time.
func TestDoRenewsWhileTheHandlerRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dedup.Memory(100)
		a, b := newDeduper(t, store, nil), newDeduper(t, store, nil)
		done := make(chan error)
		go func() {
			_, err := dedup.Do(t.Context(), a, "evt_1", func(ctx context.Context) (string, error) {
				time.Sleep(95 * time.Second)
				return "ok", context.Cause(ctx)
			})
			done <- err
		}()
		for range 9 {
			time.Sleep(10 * time.Second)
			_, err := dedup.Do(t.Context(), b, "evt_1", func(context.Context) (string, error) {
				return "twice", nil
			})
			require.ErrorIs(t, err, dedup.ErrInFlight, "second caller")
		}
		require.NoError(t, <-done)
		res, err := dedup.DoResult(t.Context(), b, "evt_1", func(context.Context) (string, error) {
			return "twice", nil
		})
		require.NoError(t, err)
		require.Equal(t, "ok", res.Value)
	})
}
