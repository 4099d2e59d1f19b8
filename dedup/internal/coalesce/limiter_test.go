package coalesce

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// gauge counts what is under way at once.
type gauge struct{ now, most atomic.Int64 }

func (g *gauge) in() {
	n := g.now.Add(1)
	for m := g.most.Load(); n > m && !g.most.CompareAndSwap(m, n); m = g.most.Load() {
	}
}
func (g *gauge) out() { g.now.Add(-1) }

// looping has callers call again and again, and returns when all have stopped.
func looping(c *coalescer, callers, times int) {
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for n := range times {
				c.Do(context.Background(), numbered(i*times+n))
			}
		})
	}
	wg.Wait()
}

func TestFewCallsAreSentEachByItselfWithoutAGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &batches{do: echo(time.Millisecond)}
		c := newTestCoalescer(b)
		start := time.Now()
		var wg sync.WaitGroup
		for n := range batchesFrom - 1 {
			wg.Go(func() { c.Do(context.Background(), numbered(n)) })
		}
		synctest.Wait()
		assert.Equal(t, 0, c.senders)
		assert.Equal(t, 0, c.Life.Behind())
		assert.Equal(t, batchesFrom-1, b.count())
		wg.Wait()
		assert.Equal(t, time.Millisecond, time.Since(start))
		drained(t, c)
	})
}

// When the store is near, few batches are under way, so that they are large. When it is far away,
// many are, so that no call waits for two round trips.
func TestBatchesUnderWayFollowTheRoundTrip(t *testing.T) {
	for _, row := range []struct {
		rtt         time.Duration
		least, most int64
	}{
		{50 * time.Microsecond, 1, 4},
		{200 * time.Microsecond, 1, 4},
		{time.Millisecond, 4, 10},
		{2 * time.Millisecond, 14, 16},
		{20 * time.Millisecond, 16, 16},
	} {
		t.Run(row.rtt.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newTestCoalescer(&batches{})
				var direct, learnt gauge
				g := &direct
				c.ask = func(_ context.Context, batch []question) []answer {
					if len(batch) > 1 { // not those who came first
						g.in()
						defer g.out()
					}
					time.Sleep(row.rtt)
					return make([]answer, len(batch))
				}
				looping(c, 64, 3) // learns the distance
				drained(t, c)
				g = &learnt
				looping(c, 20*batchSize, 2)
				drained(t, c)
				most := learnt.most.Load()
				assert.GreaterOrEqual(t, most, row.least)
				assert.LessOrEqual(t, most, row.most)
			})
		})
	}
}

func TestEstimateFollowsAShorterWayAtOnceAndALongerOneSlowly(t *testing.T) {
	var rtt rttEstimator
	want := func(what string, sends int) {
		t.Helper()
		assert.Equal(t, sends, rtt.sends(), what)
	}
	want("nothing known", minSends)
	rtt.note(5*time.Millisecond, 1)
	want("far", maxSends)
	rtt.note(100*time.Microsecond, 1)
	want("near at last", minSends)
	rtt.note(5*time.Millisecond, 1)
	want("one that was held up", 7)
	for range 20 {
		rtt.note(5*time.Millisecond, 1)
	}
	want("far again", maxSends)
	rtt.note(600*time.Microsecond, 256)
	want("a large batch next to the store", minSends)
}

// When a batch is answered, all its callers call again, maybe through another coalescer. The first
// of them must not take itself for a lone caller.
func TestCallersOfABatchAreNotAloneWhenItIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &batches{do: echo(100 * time.Microsecond)}
		claims, ends := newTestCoalescer(b), newTestCoalescer(b)
		ends.Limiter = claims.Limiter
		const callers, times = 200, 50
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				for n := range times {
					claims.Do(context.Background(), numbered(i*times+n))
					ends.Do(context.Background(), numbered(i*times+n))
				}
			})
		}
		wg.Wait()
		drained(t, claims)
		drained(t, ends)
		// 43 calls in a batch with one limiter, 32 with two.
		assert.GreaterOrEqual(t, 2*callers*times/b.count(), 38)
	})
}

// Calls are bounded: beyond the limit nothing is sent, and nobody waits.
func TestCallBeyondTheLimitIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &batches{do: echo(time.Millisecond)}
		c := newTestCoalescer(b)
		const limit = 100
		c.Limiter.Limit = limit
		var wg sync.WaitGroup
		for n := range limit {
			wg.Go(func() {
				ans := c.Do(context.Background(), numbered(n))
				assert.True(t, ans.Err == nil && ans.Attempt == n, "call %d got %+v", n, ans)
			})
		}
		synctest.Wait()
		start := time.Now()
		ans := c.Do(context.Background(), numbered(limit))
		assert.ErrorIs(t, ans.Err, ErrFull)
		assert.Zero(t, time.Since(start))
		assert.True(t, errors.Is(ans.Err, errFailed), "%v after %v", ans.Err,
			time.Since(start))
		wg.Wait()
		drained(t, c)
		for _, batch := range b.sent {
			for _, ch := range batch {
				assert.NotEqual(t, limit, ch.Attempt, "what was refused has been sent")
			}
		}
		ans = c.Do(context.Background(), numbered(limit))
		assert.NoError(t, ans.Err, "when the others have gone")
	})
}

func TestStoreThatPanicsDoesSoInOneCaller(t *testing.T) {
	errBoom := errors.New("boom")
	for _, callers := range []int{1, 20} {
		t.Run(fmt.Sprint(callers, " callers"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newTestCoalescer(&batches{})
				var sends, panics, unknown atomic.Int32
				c.ask = func(context.Context, []question) []answer {
					sends.Add(1)
					time.Sleep(time.Millisecond)
					panic(errBoom)
				}
				var wg sync.WaitGroup
				for n := range callers {
					wg.Go(func() {
						defer func() {
							if v := recover(); v != nil {
								panics.Add(1)
								err, ok := v.(error)
								assert.True(t, ok, "panicked with %v", v)
								assert.ErrorIs(t, err, errBoom, "panicked with %v", v)
							}
						}()
						if ans := c.Do(context.Background(),
							numbered(n)); errors.Is(ans.Err, errFailed) &&
							strings.Contains(ans.Err.Error(), "boom") {
							unknown.Add(1)
						}
					})
				}
				wg.Wait()
				drained(t, c)
				assert.Equal(t, sends.Load(), panics.Load())
				assert.Equal(t, int32(callers), panics.Load()+unknown.Load())
				assert.False(t, callers > 1 && unknown.Load() == 0,
					"%d sends, %d panics, %d told Unknown", sends.Load(), panics.Load(),
					unknown.Load())
			})
		})
	}
}

// A lone call costs one allocation in addition to the store's own.
func TestLoneCallAllocatesOnce(t *testing.T) {
	c := newTestCoalescer(&batches{})
	c.Send = func(context.Context, []*Call[item]) {}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	assert.LessOrEqual(t, testing.AllocsPerRun(100, func() { c.Do(ctx, numbered(1)) }), 1.0)
}

// When the caller of a direct call goes, its request is given to Abandoned at once.
func TestLoneCallerReturnsWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCoalescer(&batches{do: echo(500 * time.Millisecond)})
		var unheard int
		c.abandoned = func(reqs []question, answers []answer) {
			unheard += len(reqs)
			assert.True(t, len(reqs) == 1 && reqs[0].Attempt == 7 &&
				errors.Is(answers[0].Err, context.DeadlineExceeded), "%v, %v", reqs, answers)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		start := time.Now()
		var left *AbandonedError
		require.ErrorAs(t, c.Do(ctx, numbered(7)).Err, &left)
		assert.False(t, left.Queued)
		assert.Equal(t, time.Millisecond, time.Since(start))
		assert.Equal(t, 1, unheard)
		drained(t, c)
		time.Sleep(time.Second) // what was left behind
	})
}

// A lone call ends at the coalescer's deadline, too. Its caller is still there and gets the error,
// so nothing is given to Abandoned.
func TestLoneCallHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCoalescer(&batches{do: echo(time.Minute)})
		c.abandoned = func([]question, []answer) { t.Error("its caller is still there") }
		start := time.Now()
		var left *AbandonedError
		ans := c.Do(t.Context(), numbered(1))
		assert.ErrorIs(t, ans.Err, context.DeadlineExceeded)
		assert.NotErrorAs(t, ans.Err, &left)
		assert.Equal(t, time.Second, time.Since(start))
		drained(t, c)
		time.Sleep(time.Hour) // what was left behind
	})
}
