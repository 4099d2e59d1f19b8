package dedup_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
)

// A handler that first looks at its context after it has lost its lease gets the same answer as one
// that has waited for the loss. So do the contexts that it derives.
func TestContextThatIsAskedLateIsCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		store.setBefore(only("Renew", down))
		caller, cancel := context.WithCancel(t.Context())
		_, err := dedup.Do(caller, d, "k", func(ctx context.Context) (string, error) {
			time.Sleep(2 * lease)
			cancel()
			child, stop := context.WithTimeout(ctx, time.Hour)
			defer stop()
			assert.ErrorIs(t, context.Cause(child), dedup.ErrLeaseLost)
			assert.ErrorIs(t, context.Cause(ctx), dedup.ErrLeaseLost)
			<-ctx.Done()
			assert.ErrorIs(t, ctx.Err(), context.Canceled)
			return "", context.Cause(ctx)
		})
		require.ErrorIs(t, err, dedup.ErrLeaseLost)
	})
}

// A store may leave a call to its client if the call's context ends by its deadline only. A
// handler's context also ends in other ways, so it must not look like such a context.
func TestOnlyTheEndOfACallIsLeftToItsDeadline(t *testing.T) {
	type timed interface{ Caller() context.Context }
	store := hook()
	var limit time.Time
	store.setBefore(only("Finish", func(c call) error {
		within, ok := c.ctx.(timed)
		if assert.True(t, ok) {
			assert.Nil(t, within.Caller().Done(), "somebody may end the record of an effect")
			limit, _ = c.ctx.Deadline()
		}
		return nil
	}))
	d := newDeduper(t, store, nil)
	_, err := dedup.Do(t.Context(), d, "k", func(ctx context.Context) (string, error) {
		_, ok := ctx.(timed)
		assert.False(t, ok, "the handler's context says that it ends by its deadline only")
		return "", dedup.MarkIrreversible(ctx)
	})
	require.NoError(t, err)
	assert.WithinDuration(t, time.Now(), limit, d.Config().StoreTimeout)
}
