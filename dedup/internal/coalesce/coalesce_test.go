package coalesce

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceward/onceward/dedup/internal/ctxend"
	"github.com/onceward/onceward/dedup/internal/drain"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type question struct {
	ID      [16]byte
	Attempt int
}

type answer struct {
	Attempt int
	Err     error
}

var errFailed = errors.New("failed")

func failed(err error) answer {
	var left *AbandonedError
	if errors.As(err, &left) {
		return answer{Err: err}
	}
	return answer{Err: fmt.Errorf("%w: %w", errFailed, err)}
}

// batches records what a coalescer sends.
type batches struct {
	mu   sync.Mutex
	sent [][]question
	at   []time.Time // when each was sent
	do   func([]question) []answer
}

// send returns when ctx ends, as the contract of a store has it.
func (b *batches) send(ctx context.Context, batch []question) []answer {
	b.mu.Lock()
	b.sent = append(b.sent, slices.Clone(batch))
	b.at = append(b.at, time.Now())
	b.mu.Unlock()
	done := make(chan []answer, 1)
	go func() { done <- b.do(batch) }()
	select {
	case answers := <-done:
		return answers
	case <-ctx.Done():
		return slices.Repeat([]answer{{Err: ctxend.Error(ctx)}}, len(batch))
	}
}

func (b *batches) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.sent)
}

// echo answers every item with its own attempt number, after a while.
func echo(after time.Duration) func([]question) []answer {
	return func(batch []question) []answer {
		time.Sleep(after)
		answers := make([]answer, len(batch))
		for i, c := range batch {
			answers[i].Attempt = c.Attempt
		}
		return answers
	}
}

// item is a question with its answer.
type item struct {
	question
	answer answer
}

// coalescer is one whose store takes questions and returns answers.
type coalescer struct {
	*Coalescer[item]
	ask func(context.Context, []question) []answer
	// abandoned may be nil.
	abandoned func([]question, []answer)
}

func newTestCoalescer(b *batches) *coalescer {
	l := &drain.Group{}
	l.Init()
	c := &coalescer{ask: b.send}
	c.Coalescer = &Coalescer[item]{
		Send: c.send, Fail: func(q *item, err error) { q.answer = failed(err) },
		Err: func(q *item) error { return q.answer.Err },
		Abandoned: func(calls []*Call[item]) {
			if c.abandoned == nil {
				return
			}
			answers := make([]answer, len(calls))
			for i, call := range calls {
				answers[i] = call.Of.answer
			}
			c.abandoned(questions(calls), answers)
		},
		Timeout: time.Second, Life: l, Limiter: NewLimiter(),
	}
	return c
}

func questions(calls []*Call[item]) []question {
	all := make([]question, len(calls))
	for i, call := range calls {
		all[i] = call.Of.question
	}
	return all
}

func (c *coalescer) send(ctx context.Context, calls []*Call[item]) {
	for i, ans := range c.ask(ctx, questions(calls)) {
		calls[i].Of.answer = ans
	}
}

// Do makes a call for a question.
func (c *coalescer) Do(ctx context.Context, q question) answer { return c.do(ctx, q, false) }

func (c *coalescer) do(ctx context.Context, q question, urgent bool) answer {
	call := c.New(q.ID, urgent)
	call.Of.question = q
	if err := c.Coalescer.Do(ctx, call); err != nil {
		return failed(err)
	}
	defer c.Done(call)
	return call.Of.answer
}

func numbered(n int) question { return question{ID: [16]byte{byte(n), byte(n >> 8)}, Attempt: n} }

// drained waits until the coalescer has no sender.
func drained(t *testing.T, c *coalescer) {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	assert.Equal(t, 0, c.senders, "when idle")
	assert.Equal(t, 0, c.sent)
	assert.False(t, c.gathering, "when idle")
	assert.Equal(t, queue[item]{}, c.queue)
	assert.Equal(t, queue[item]{}, c.urgent)
	assert.Equal(t, 0, c.Life.Behind())
	assert.Zero(t, c.Limiter.n.Load())
}

func TestCoalescerGroupsSinglesUnderLoadAndKeepsAnswersApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &batches{do: echo(time.Millisecond)}
		c := newTestCoalescer(b)
		var wg sync.WaitGroup
		const calls = 5000
		for n := range calls {
			wg.Go(func() {
				ans := c.Do(context.Background(), numbered(n))
				assert.True(t, ans.Err == nil && ans.Attempt == n, "call %d got %+v", n, ans)
			})
		}
		wg.Wait()
		drained(t, c)
		items := 0
		for _, batch := range b.sent {
			items += len(batch)
			assert.LessOrEqual(t, len(batch), batchSize, "a batch")
		}
		assert.Equal(t, calls, items)
		assert.LessOrEqual(t, len(b.sent), batchesFrom+maxSends+calls/batchSize+1)
	})
}

// A lone call is sent at once, by itself.
func TestCoalescerDoesNotKeepALoneCallWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &batches{do: echo(time.Millisecond)}
		c := newTestCoalescer(b)
		for n := range 10 {
			start := time.Now()
			c.Do(context.Background(), numbered(n))
			assert.Equal(t, time.Millisecond, time.Since(start), "call %d", n)
			drained(t, c)
		}
		assert.Len(t, b.sent, 10)
	})
}

// The contract of a store allows each ID only once per call.
func TestCoalescerNeverPutsOneIDIntoABatchTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &batches{do: echo(time.Millisecond)}
		c := newTestCoalescer(b)
		var wg sync.WaitGroup
		for n := range 1000 {
			wg.Go(func() {
				ch := numbered(n % 7)
				ch.Attempt = n
				assert.Equal(t, n, c.Do(context.Background(), ch).Attempt)
			})
		}
		wg.Wait()
		drained(t, c)
		for _, batch := range b.sent {
			seen := map[[16]byte]bool{}
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
		var unheard atomic.Int32
		c.abandoned = func(reqs []question, answers []answer) {
			assert.Len(t, reqs, len(answers))
			for i := range reqs {
				unheard.Add(1)
				alone := len(reqs) == 1 && errors.Is(answers[i].Err, context.Canceled)
				assert.NotZero(t, reqs[i].Attempt%2)
				assert.False(t, answers[i].Attempt != reqs[i].Attempt && !alone,
					"call %d with the answer of %d", reqs[i].Attempt, answers[i].Attempt)
			}
		}
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		var queued, sent atomic.Int32
		for n := range 20 * batchSize {
			wg.Go(func() {
				if n%2 == 0 {
					ans := c.Do(context.Background(), numbered(n))
					assert.True(t, ans.Err == nil && ans.Attempt == n, "call %d got %+v", n,
						ans)
					return
				}
				var left *AbandonedError
				ans := c.Do(ctx, numbered(n))
				if !assert.True(t, errors.As(ans.Err, &left) &&
					errors.Is(ans.Err, context.Canceled), "cancelled call %d got %+v", n, ans) {
					return
				}
				if left.Queued {
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
		assert.Equal(t, unheard.Load(), sent.Load())
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

// A batch runs under its own deadline, because the first caller's must not apply to the others.
func TestBatchHasItsOwnDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCoalescer(&batches{})
		c.ask = func(ctx context.Context, batch []question) []answer {
			<-ctx.Done()
			return slices.Repeat([]answer{{Err: ctx.Err()}}, len(batch))
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		go c.Do(ctx, numbered(1))
		start := time.Now()
		ans := c.Do(context.Background(), numbered(2))
		assert.ErrorIs(t, ans.Err, context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(start))
		drained(t, c)
	})
}
