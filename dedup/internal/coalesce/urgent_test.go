package coalesce

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup/internal/lazyctx"
)

// An effect waits for an urgent call, so it is sent before the calls that only begin one.
func TestUrgentCallsGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &batches{do: echo(time.Second / 2)}
		c := newTestCoalescer(b)
		var wg sync.WaitGroup
		const calls, urgent = 2 * maxSends * batchSize, 50 // more than one round of senders takes
		for n := range calls {
			wg.Go(func() { c.Do(context.Background(), numbered(n)) })
		}
		synctest.Wait()
		before := b.count()
		for n := range urgent {
			wg.Go(func() { c.do(context.Background(), numbered(calls+n), true) })
		}
		wg.Wait()
		drained(t, c)
		next := -1 // the batch that begins with an urgent call
		for n, batch := range b.sent[before:] {
			if batch[0].Attempt >= calls {
				assert.Negative(t, next, "a second batch begins with an urgent call")
				next = n
			}
			for i, q := range batch {
				assert.Equal(t, n == next && i < urgent, q.Attempt >= calls,
					"call %d of batch %d", i, n)
			}
		}
		require.GreaterOrEqual(t, next, 0, "no batch begins with an urgent call")
		// The senders that come back at once put their batches down in any order.
		assert.Equal(t, b.at[before], b.at[before+next], "when it is sent")
	})
}

// However many urgent calls there are, a quarter of each batch is left for other calls.
func TestUrgentCallsKeepNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCoalescer(&batches{do: echo(time.Millisecond)})
		var wg sync.WaitGroup
		const urgent = 2 * maxSends * batchSize
		for n := range urgent {
			wg.Go(func() {
				for range 20 {
					c.do(context.Background(), numbered(n), true)
				}
			})
		}
		time.Sleep(10 * time.Millisecond)
		start := time.Now()
		var others sync.WaitGroup
		for n := range 10 {
			others.Go(func() { c.Do(context.Background(), numbered(urgent+n)) })
		}
		others.Wait()
		assert.LessOrEqual(t, time.Since(start), 3*time.Millisecond)
		wg.Wait()
		drained(t, c)
	})
}

// A call that waits has no timer for the coalescer's deadline. A sender that comes back from the
// store gives up every waiting call whose deadline is over, wherever it is in the queue, and sends
// none of them.
func TestCallPastItsDeadlineIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &batches{do: echo(time.Hour)} // until the batch's own timeout
		c := newTestCoalescer(b)
		start := time.Now()
		var wg sync.WaitGroup
		for n := 0; c.senders < minSends; n++ {
			for i := range 2 * nearShare {
				wg.Go(func() { c.Do(context.Background(), numbered(2*nearShare*n+i)) })
			}
			synctest.Wait()
		}
		const late = 2 * takeLooks
		for n := range late {
			wg.Go(func() {
				ctx := lazyctx.WithTimeout(context.WithoutCancel(t.Context()), c.Timeout/2)
				defer ctx.End(context.Canceled)
				ans := c.do(ctx, numbered(1000+n), n%2 == 0)
				var left *AbandonedError
				if assert.ErrorAs(t, ans.Err, &left) {
					assert.True(t, left.Queued)
				}
				assert.ErrorIs(t, ans.Err, context.DeadlineExceeded)
				assert.Equal(t, c.Timeout, time.Since(start), "when the senders are back")
			})
		}
		wg.Wait()
		drained(t, c)
		time.Sleep(2 * time.Hour) // what was left behind
		for _, batch := range b.sent {
			for _, q := range batch {
				require.False(t, q.Attempt >= 1000 && q.Attempt < 1000+late, "%d was sent",
					q.Attempt)
			}
		}
	})
}

// The caller of a call with the coalescer's deadline may leave before that deadline.
func TestCallerWithADeadlineOfOursMayGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCoalescer(&batches{do: echo(500 * time.Millisecond)})
		outer, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for n := range 3 * batchesFrom {
			wg.Go(func() {
				ctx := lazyctx.WithTimeout(outer, time.Hour)
				defer ctx.End(context.Canceled)
				assert.ErrorIs(t, c.Do(ctx, numbered(n)).Err, context.Canceled)
			})
		}
		synctest.Wait()
		start := time.Now()
		cancel()
		wg.Wait()
		assert.Zero(t, time.Since(start))
		synctest.Wait()
		time.Sleep(time.Second)
		drained(t, c)
	})
}
