package pipeline_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/kafkaadapter/internal/pipeline"
)

// within returns a context that ends after d with errAsked.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(t.Context()), d, errAsked)
	t.Cleanup(cancel)
	return ctx
}

// sleeper runs each item for n seconds. If its context ends before that, it records the cause.
type sleeper struct {
	mu       sync.Mutex
	finished []item
	causes   []error
	deaf     bool // does not listen to its context
}

func (s *sleeper) process(ctx context.Context, it item) pipeline.Decision {
	done := ctx.Done()
	if s.deaf {
		done = nil
	}
	select {
	case <-time.After(time.Duration(it.n) * time.Second):
	case <-done:
		time.Sleep(time.Millisecond) // so that Drain returns first
		s.mu.Lock()
		defer s.mu.Unlock()
		s.causes = append(s.causes, context.Cause(ctx))
		return pipeline.RetryAfter(time.Second)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished = append(s.finished, it)
	return pipeline.Done()
}

func TestDrainLetsRunningItemsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sleeper{}
		l := newKeyQueues(t, pipeline.KeyQueuesConfig{Workers: 2}, s.process)
		submit(t, l, item{"a", 3}, item{"b", 5}, item{"a", 1}, item{"c", 1}, item{"b", 2})
		synctest.Wait()
		start := time.Now()
		left := l.Drain(within(t, time.Minute))
		assert.Equal(t, 5*time.Second, time.Since(start))
		assert.Equal(t, pipeline.Drained[item]{Pending: []item{{"a", 1}, {"b", 2}, {"c", 1}}}, left)
		assert.Equal(t, []item{{"a", 3}, {"b", 5}}, s.finished)
		assert.Nil(t, s.causes, "what was canceled")
		assert.ErrorIs(t, l.Submit(nil, item{}), pipeline.ErrStopped, "Submit after Drain")
		assert.Zero(t, l.Drain(t.Context()), "a second Drain hands out again")
		assert.Zero(t, l.Stats(), "after Drain")
	})
}

func TestDrainCancelsWhatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sleeper{}
		l := newKeyQueues(t, pipeline.KeyQueuesConfig{}, s.process)
		submit(t, l, item{"slow", 3600}, item{"slow", 1}, item{"a", 1})
		synctest.Wait()
		start := time.Now()
		left := l.Drain(within(t, 10*time.Second))
		assert.Equal(t, 10*time.Second, time.Since(start))
		assert.Equal(t, []item{{"slow", 3600}}, left.Running)
		assert.Equal(t, []item{{"slow", 1}}, left.Pending)
		// The handler has ended by now: the second Drain returns its item as pending.
		again := l.Drain(within(t, time.Second))
		assert.Equal(t, pipeline.Drained[item]{Pending: []item{{"slow", 3600}}}, again)
		require.Len(t, s.causes, 1)
		assert.ErrorIs(t, s.causes[0], pipeline.ErrDrained)
		assert.ErrorIs(t, s.causes[0], errAsked, "the cause of the drain's context")
	})
}

func TestDrainReturnsThoughAHandlerIsDeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sleeper{deaf: true}
		l := newKeyQueues(t, pipeline.KeyQueuesConfig{}, s.process)
		submit(t, l, item{"deaf", 100})
		synctest.Wait()
		for range 2 {
			left := l.Drain(within(t, 10*time.Second))
			assert.Equal(t, pipeline.Drained[item]{Running: []item{{"deaf", 100}}}, left)
		}
		// The handler succeeds in the end. Then Drain returns nothing.
		assert.Zero(t, l.Drain(within(t, time.Hour)), "after its end")
		assert.Equal(t, []item{{"deaf", 100}}, s.finished)
	})
}

func TestDrainTakesParkedItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		l := newKeyQueues(t, pipeline.KeyQueuesConfig{}, func(_ context.Context,
			it item) pipeline.Decision {
			j.note(it)
			return pipeline.RetryAfter(time.Hour)
		})
		submit(t, l, item{"a", 1}, item{"a", 2}, item{"b", 1})
		synctest.Wait()
		left := l.Drain(t.Context())
		assert.Equal(t, []item{{"a", 1}, {"a", 2}, {"b", 1}}, left.Pending)
		time.Sleep(2 * time.Hour) // their timers must not bring them back
		j.mu.Lock()
		defer j.mu.Unlock()
		assert.Len(t, j.lines, 2)
	})
}

func TestDrainOfUnusedKeyQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newKeyQueues(t, pipeline.KeyQueuesConfig{}, (&sleeper{}).process)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 2 {
			assert.Zero(t, l.Drain(ctx))
		}
	})
}

func TestConcurrentDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sleeper{}
		l := newKeyQueues(t, pipeline.KeyQueuesConfig{Workers: 1}, s.process)
		submit(t, l, item{"a", 5}, item{"a", 1}, item{"b", 1}, item{"c", 1})
		synctest.Wait()
		var wg sync.WaitGroup
		var mu sync.Mutex
		var pending []item
		for range 4 {
			wg.Go(func() {
				left := l.Drain(within(t, time.Minute))
				mu.Lock()
				defer mu.Unlock()
				pending = append(pending, left.Pending...)
			})
		}
		wg.Wait()
		assert.Len(t, pending, 3, "items that were handed out")
	})
}

// KeyQueues under a session's context end with it: nothing more is started, and Drain
// still finds everything.
func TestContextOfTheKeyQueuesEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		s := &sleeper{}
		l, err := pipeline.NewKeyQueues(ctx, pipeline.KeyQueuesConfig{Workers: 1}, s.process)
		require.NoError(t, err)
		submit(t, l, item{"a", 60}, item{"b", 1})
		synctest.Wait()
		cancel(errAsked)
		time.Sleep(time.Second)
		assert.ErrorIs(t, l.Submit(nil, item{}), pipeline.ErrStopped, "Submit after the end")
		require.Len(t, s.causes, 1)
		assert.ErrorIs(t, s.causes[0], errAsked)
		assert.Nil(t, s.finished)
		assert.Equal(t, []item{{"a", 60}, {"b", 1}}, l.Drain(t.Context()).Pending)
	})
}
