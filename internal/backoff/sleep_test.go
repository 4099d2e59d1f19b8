package backoff_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceward/onceward/internal/backoff"
)

var errAsked = errors.New("asked to stop")

func TestSleepLastsItsDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if err := backoff.Sleep(t.Context(), 90*time.Second); err != nil {
			t.Fatal(err)
		}
		if got := time.Since(start); got != 90*time.Second {
			t.Errorf("slept %v", got)
		}
	})
}

func TestSleepReturnsTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errAsked) })
		start := time.Now()
		if err := backoff.Sleep(ctx, time.Hour); !errors.Is(err, errAsked) {
			t.Errorf("got %v, want the cause", err)
		}
		if got := time.Since(start); got != time.Second {
			t.Errorf("slept %v after the context ended", got)
		}
	})
}

func TestSleepUntilADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errAsked)
		defer cancel()
		if err := backoff.Sleep(ctx, 2*time.Second); !errors.Is(err, errAsked) {
			t.Errorf("got %v, want the cause", err)
		}
	})
}

func TestSleepOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		for _, d := range []time.Duration{0, -time.Hour} {
			if err := backoff.Sleep(t.Context(), d); err != nil {
				t.Errorf("%v: %v", d, err)
			}
		}
		if time.Since(start) != 0 {
			t.Error("a sleep of nothing took time")
		}
	})
}

// A loop that only ever sleeps for nothing must still end with its context.
func TestSleepAfterTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errAsked)
	for _, d := range []time.Duration{-1, 0, time.Nanosecond, time.Hour} {
		if err := backoff.Sleep(ctx, d); !errors.Is(err, errAsked) {
			t.Errorf("%v: got %v, want the cause", d, err)
		}
	}
}
