package backoff_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/backoff"
)

var errAsked = errors.New("asked to stop")

func TestSleepLastsItsDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		require.NoError(t, backoff.Sleep(t.Context(), 90*time.Second))
		assert.Equal(t, 90*time.Second, time.Since(start), "slept")
	})
}

func TestSleepReturnsTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errAsked) })
		start := time.Now()
		assert.ErrorIs(t, backoff.Sleep(ctx, time.Hour), errAsked)
		assert.Equal(t, time.Second, time.Since(start), "slept after the context ended")
	})
}

func TestSleepUntilADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errAsked)
		defer cancel()
		assert.ErrorIs(t, backoff.Sleep(ctx, 2*time.Second), errAsked)
	})
}

func TestSleepOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		for _, d := range []time.Duration{0, -time.Hour} {
			assert.NoError(t, backoff.Sleep(t.Context(), d), "%v", d)
		}
		assert.Zero(t, time.Since(start), "a sleep of nothing took time")
	})
}

// A loop that only ever sleeps for nothing must still end with its context.
func TestSleepAfterTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errAsked)
	for _, d := range []time.Duration{-1, 0, time.Nanosecond, time.Hour} {
		assert.ErrorIs(t, backoff.Sleep(ctx, d), errAsked, "%v", d)
	}
}
