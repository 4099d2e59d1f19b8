package dedup

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceward/onceward/dedup/internal/drain"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// batches records what a coalescer sends.
type batches struct {
	mu   sync.Mutex
	sent [][]Finish
	do   func([]Finish) []Answer
}

// send returns when ctx ends, as the contract of a store has it.
func (b *batches) send(ctx context.Context, batch []Finish) []Answer {
	b.mu.Lock()
	b.sent = append(b.sent, slices.Clone(batch))
	b.mu.Unlock()
	done := make(chan []Answer, 1)
	go func() { done <- b.do(batch) }()
	select {
	case answers := <-done:
		return answers
	case <-ctx.Done():
		return repeat(Answer{Err: gone(ctx)}, len(batch))
	}
}

func (b *batches) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.sent)
}

// echo answers every item with its own attempt number, after a while.
func echo(after time.Duration) func([]Finish) []Answer {
	return func(batch []Finish) []Answer {
		time.Sleep(after)
		answers := make([]Answer, len(batch))
		for i, c := range batch {
			answers[i].Record.Attempt = c.Attempt
		}
		return answers
	}
}

func newTestCoalescer(b *batches) *coalescer[Finish] {
	l := &drain.Group{}
	l.Init()
	return &coalescer[Finish]{
		send: b.send, id: func(c Finish) ID {
			return c.ID
		}, timeout: time.Second, life: l, crowd: newCrowd(),
	}
}

func numbered(n int) Finish { return Finish{ID: ID{byte(n), byte(n >> 8)}, Attempt: n} }

// drained waits until the coalescer has no sender.
func drained(t *testing.T, c *coalescer[Finish]) {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	assert.Equal(t, 0, c.senders, "when idle")
	assert.Equal(t, 0, c.sent)
	assert.False(t, c.gathering, "when idle")
	assert.Equal(t, queue[Finish]{}, c.queue)
	assert.Equal(t, 0, c.life.Behind())
	assert.Zero(t, c.crowd.n.Load())
}

func TestCoalescerGroupsSinglesUnderLoadAndKeepsAnswersApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &batches{do: echo(time.Millisecond)}
		c := newTestCoalescer(b)
		var wg sync.WaitGroup
		const calls = 5000
		for n := range calls {
			wg.Go(func() {
				ans := c.do(context.Background(), numbered(n))
				assert.True(t, ans.Err == nil && ans.Record.Attempt == n, "call %d got %+v", n, ans)
			})
		}
		wg.Wait()
		drained(t, c)
		items := 0
		for _, batch := range b.sent {
			items += len(batch)
			assert.LessOrEqual(t, len(batch), coalesceBatch, "a batch")
		}
		assert.Equal(t, calls, items)
		assert.LessOrEqual(t, len(b.sent), crowdBegins+maxSends+calls/coalesceBatch+1)
	})
}

// A lone call is sent at once, by itself.
func TestCoalescerDoesNotKeepALoneCallWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &batches{do: echo(time.Millisecond)}
		c := newTestCoalescer(b)
		for n := range 10 {
			start := time.Now()
			c.do(context.Background(), numbered(n))
			assert.Equal(t, time.Millisecond, time.Since(start), "call %d", n)
			drained(t, c)
		}
		assert.Len(t, b.sent, 10)
	})
}

// A store wants every ID once per call.
func TestCoalescerNeverPutsOneIDIntoABatchTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &batches{do: echo(time.Millisecond)}
		c := newTestCoalescer(b)
		var wg sync.WaitGroup
		for n := range 1000 {
			wg.Go(func() {
				ch := numbered(n % 7)
				ch.Attempt = n
				assert.Equal(t, n, c.do(context.Background(), ch).Record.Attempt)
			})
		}
		wg.Wait()
		drained(t, c)
		for _, batch := range b.sent {
			seen := map[ID]bool{}
			for _, ch := range batch {
				require.False(t, seen[ch.ID], "%v twice in a batch of %d", ch.ID, len(batch))
				seen[ch.ID] = true
			}
		}
	})
}

func TestCancelledCallDoesNotDisturbItsBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &batches{do: echo(time.Second / 2)}
		c := newTestCoalescer(b)
		var orphans atomic.Int32
		c.orphans = func(reqs []Finish, answers []Answer) {
			assert.Len(t, reqs, len(answers))
			for i := range reqs {
				orphans.Add(1)
				alone := len(reqs) == 1 && errors.Is(answers[i].Err, context.Canceled)
				assert.NotZero(t, reqs[i].Attempt%2)
				assert.False(t, answers[i].Record.Attempt != reqs[i].Attempt && !alone,
					"orphan %d with the answer of %d", reqs[i].Attempt, answers[i].Record.Attempt)
			}
		}
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		var queued, sent atomic.Int32
		for n := range 20 * coalesceBatch {
			wg.Go(func() {
				if n%2 == 0 {
					ans := c.do(context.Background(), numbered(n))
					assert.True(t, ans.Err == nil && ans.Record.Attempt == n, "call %d got %+v", n,
						ans)
					return
				}
				var left *abandonedError
				ans := c.do(ctx, numbered(n))
				if !assert.True(t, errors.As(ans.Err, &left) &&
					errors.Is(ans.Err, context.Canceled), "cancelled call %d got %+v", n, ans) {
					return
				}
				if left.queued {
					queued.Add(1)
				} else {
					sent.Add(1)
				}
			})
		}
		synctest.Wait()
		before := b.count()
		cancel()
		wg.Wait()
		drained(t, c)
		assert.Equal(t, orphans.Load(), sent.Load())
		assert.NotZero(t, sent.Load())
		assert.NotZero(t, queued.Load())
		for _, batch := range b.sent[before:] {
			for _, ch := range batch {
				require.NotEqual(t, 1, ch.Attempt%2,
					"a call that was cancelled in the queue has been sent")
			}
		}
	})
}

// A store that breaks its contract learns nothing about anybody.
func TestAnswersOfTheWrongNumberAreUnknown(t *testing.T) {
	for _, got := range []int{0, 1, 3} {
		b := &batches{do: func([]Finish) []Answer { return make([]Answer, got) }}
		answers := answered(b.send(t.Context(), []Finish{numbered(1), numbered(2)}), 2)
		require.Len(t, answers, 2, "%d answers for two items became", got)
		assert.True(t, OutcomeUnknown(answers[0].Err) && OutcomeUnknown(answers[1].Err),
			"%d answers for two items became %+v", got, answers)
	}
	synctest.Test(t, func(t *testing.T) {
		b := &batches{do: func([]Finish) []Answer { return nil }}
		c := newTestCoalescer(b)
		ans := c.do(context.Background(), numbered(1))
		assert.True(t, OutcomeUnknown(ans.Err), "%+v", ans)
		drained(t, c)
	})
}

// A batch runs under its own deadline: the first caller's would be the others' too.
func TestBatchHasItsOwnDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCoalescer(&batches{})
		c.send = func(ctx context.Context, batch []Finish) []Answer {
			<-ctx.Done()
			return repeat(Answer{Err: ctx.Err()}, len(batch))
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		go c.do(ctx, numbered(1))
		start := time.Now()
		ans := c.do(context.Background(), numbered(2))
		assert.ErrorIs(t, ans.Err, context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(start))
		drained(t, c)
	})
}
