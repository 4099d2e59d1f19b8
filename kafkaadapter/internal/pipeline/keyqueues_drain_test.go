package pipeline_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceward/onceward/kafkaadapter/internal/pipeline"
)

// within returns a context that ends after d with errAsked.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(t.Context()), d, errAsked)
	t.Cleanup(cancel)
	return ctx
}

// sleeper runs each item for n seconds unless its context ends, which it notes.
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
		time.Sleep(time.Millisecond) // so that Drain has answered before
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
		if time.Since(start) != 5*time.Second {
			t.Errorf("drained in %v, want 5s", time.Since(start))
		}
		if want := []item{{"a", 1}, {"b", 2}, {"c", 1}}; !slices.Equal(left.Pending, want) ||
			left.Running != nil {
			t.Errorf("left %+v, want %v pending", left, want)
		}
		if want := []item{{"a", 3}, {"b", 5}}; !slices.Equal(s.finished, want) || s.causes != nil {
			t.Errorf("finished %v, cancelled %v", s.finished, s.causes)
		}
		if err := l.Submit(nil, item{}); !errors.Is(err, pipeline.ErrStopped) {
			t.Errorf("Submit after Drain: %v", err)
		}
		if again := l.Drain(t.Context()); again.Pending != nil || again.Running != nil {
			t.Errorf("a second Drain handed out %+v again", again)
		}
		if got := l.Stats(); got != (pipeline.KeyQueueStats{}) {
			t.Errorf("after Drain: %+v", got)
		}
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
		if time.Since(start) != 10*time.Second {
			t.Errorf("drained in %v, want 10s", time.Since(start))
		}
		if !slices.Equal(left.Running, []item{{"slow", 3600}}) ||
			!slices.Equal(left.Pending, []item{{"slow", 1}}) {
			t.Errorf("left %+v", left)
		}
		// The handler has heard it: asking again finds its attempt ended, not finished.
		again := l.Drain(within(t, time.Second))
		if again.Running != nil || !slices.Equal(again.Pending, []item{{"slow", 3600}}) {
			t.Errorf("then left %+v", again)
		}
		if len(s.causes) != 1 || !errors.Is(s.causes[0], pipeline.ErrDrained) ||
			!errors.Is(s.causes[0], errAsked) {
			t.Errorf("cancelled with %v, want ErrDrained and the cause of the drain's context",
				s.causes)
		}
	})
}

func TestDrainReturnsThoughAHandlerIsDeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sleeper{deaf: true}
		l := newKeyQueues(t, pipeline.KeyQueuesConfig{}, s.process)
		submit(t, l, item{"deaf", 100})
		synctest.Wait()
		for range 2 {
			if left := l.Drain(within(t, 10*time.Second)); !slices.Equal(left.Running,
				[]item{{"deaf", 100}}) || left.Pending != nil {
				t.Errorf("left %+v", left)
			}
		}
		// It ends after all, successfully: then it is nobody's.
		if left := l.Drain(within(t, time.Hour)); left.Running != nil || left.Pending != nil {
			t.Errorf("after its end: %+v", left)
		}
		if !slices.Equal(s.finished, []item{{"deaf", 100}}) {
			t.Errorf("finished %v", s.finished)
		}
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
		if want := []item{{"a", 1}, {"a", 2}, {"b", 1}}; !slices.Equal(left.Pending, want) {
			t.Errorf("left %+v, want %v pending", left, want)
		}
		time.Sleep(2 * time.Hour) // their timers must not bring them back
		j.mu.Lock()
		defer j.mu.Unlock()
		if len(j.lines) != 2 {
			t.Errorf("ran %v", j.lines)
		}
	})
}

func TestCloseCancelsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sleeper{}
		l := newKeyQueues(t, pipeline.KeyQueuesConfig{}, s.process)
		submit(t, l, item{"a", 100}, item{"b", 100})
		synctest.Wait()
		start := time.Now()
		left := l.Close(within(t, time.Minute))
		if time.Since(start) != time.Millisecond || left.Running != nil ||
			!slices.Equal(left.Pending, []item{{"a", 100}, {"b", 100}}) {
			t.Errorf("after %v: %+v", time.Since(start), left)
		}
		for _, cause := range s.causes {
			if !errors.Is(cause, pipeline.ErrClosed) {
				t.Errorf("cancelled with %v", cause)
			}
		}
		if again := l.Close(t.Context()); again.Pending != nil || again.Running != nil {
			t.Errorf("a second Close handed out %+v", again)
		}
	})
}

func TestCloseWaitsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sleeper{deaf: true}
		l := newKeyQueues(t, pipeline.KeyQueuesConfig{}, s.process)
		submit(t, l, item{"deaf", 60})
		synctest.Wait()
		start := time.Now()
		left := l.Close(within(t, 10*time.Second))
		if time.Since(start) != 10*time.Second ||
			!slices.Equal(left.Running, []item{{"deaf", 60}}) {
			t.Errorf("after %v: %+v", time.Since(start), left)
		}
		time.Sleep(time.Minute)
	})
}

func TestDrainOfUnusedKeyQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newKeyQueues(t, pipeline.KeyQueuesConfig{}, (&sleeper{}).process)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 2 {
			if left := l.Drain(ctx); left.Pending != nil || left.Running != nil {
				t.Errorf("left %+v", left)
			}
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
		if len(pending) != 3 {
			t.Errorf("handed out %v, want 3 items once each", pending)
		}
	})
}

// KeyQueues under a session's context end with it: nothing more is started, and Drain
// still finds everything.
func TestContextOfTheKeyQueuesEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		s := &sleeper{}
		l, err := pipeline.NewKeyQueues(ctx, pipeline.KeyQueuesConfig{Workers: 1}, s.process)
		if err != nil {
			t.Fatal(err)
		}
		submit(t, l, item{"a", 60}, item{"b", 1})
		synctest.Wait()
		cancel(errAsked)
		time.Sleep(time.Second)
		if err := l.Submit(nil, item{}); !errors.Is(err, pipeline.ErrStopped) {
			t.Errorf("Submit after the end: %v", err)
		}
		if len(s.causes) != 1 || !errors.Is(s.causes[0], errAsked) || s.finished != nil {
			t.Errorf("causes %v, finished %v", s.causes, s.finished)
		}
		if left := l.Drain(t.Context()); !slices.Equal(left.Pending, []item{{"a", 60}, {"b", 1}}) {
			t.Errorf("left %+v", left)
		}
	})
}
