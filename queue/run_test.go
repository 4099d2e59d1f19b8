package queue_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/queue"
)

// source delivers what it is given.
type source struct {
	mu      sync.Mutex
	waiting []*queue.Delivery
	errs    []error
	limits  []int
	came    chan struct{}
}

func newSource(ds ...*queue.Delivery) *source {
	return &source{waiting: ds, came: make(chan struct{}, 1)}
}

func (s *source) add(d *queue.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(s.waiting, d)
	select {
	case s.came <- struct{}{}:
	default:
	}
}

func (s *source) Fetch(ctx context.Context, limit int) ([]*queue.Delivery, error) {
	for {
		if ds, err := s.take(limit); len(ds) > 0 || err != nil {
			return ds, err
		}
		select {
		case <-s.came:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *source) take(limit int) (ds []*queue.Delivery, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits = append(s.limits, limit)
	if len(s.errs) > 0 {
		err, s.errs = s.errs[0], s.errs[1:]
		return nil, err
	}
	n := min(limit, len(s.waiting))
	ds, s.waiting = s.waiting[:n], s.waiting[n:]
	return ds, nil
}

// runs starts Run, and returns its end.
func (r *rig) runs(ctx context.Context, src queue.Source) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx, src) }()
	return ended
}

// When its context ends, Run gives back what has not begun, and lets end what has.
func TestRunDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, queue.Config{Workers: 1, Buffer: 3,
			Handler: func(context.Context, *queue.Delivery) error {
				time.Sleep(5 * time.Second)
				return nil
			}})
		a, toldA := delivery("a")
		b, toldB := delivery("b")
		src := newSource(a)
		ctx, cancel := context.WithCancel(t.Context())
		ended := r.runs(ctx, src)
		synctest.Wait()
		src.add(b)
		synctest.Wait()
		assert.Equal(t, 3, src.limits[0])
		cancel()
		synctest.Wait()
		assert.Empty(t, toldA.all())
		assert.Equal(t, []string{"nack"}, toldB.all())
		assert.Zero(t, toldB.after)
		began := time.Now()
		require.NoError(t, <-ended)
		assert.Equal(t, 5*time.Second, time.Since(began))
		assert.Equal(t, []string{"ack"}, toldA.all())
	})
}

// A handler that does not end within the drain is canceled, and its attempt does not count.
func TestRunCancelsAfterTheDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, queue.Config{Drain: 3 * time.Second,
			Handler: func(ctx context.Context, _ *queue.Delivery) error {
				<-ctx.Done()
				return context.Cause(ctx)
			}})
		a, told := delivery("a")
		ctx, cancel := context.WithCancel(t.Context())
		ended := r.runs(ctx, newSource(a))
		synctest.Wait()
		cancel()
		began := time.Now()
		require.NoError(t, <-ended)
		assert.Equal(t, 3*time.Second, time.Since(began))
		assert.Equal(t, []string{"nack"}, told.all())
		assert.Zero(t, r.state(t, "a").Attempt)
	})
}

// A handler that succeeds after the drain is still recorded.
func TestRunRecordsAfterTheDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, queue.Config{Drain: time.Second,
			Handler: func(context.Context, *queue.Delivery) error {
				time.Sleep(time.Minute) // it ignores its context
				return nil
			}})
		a, told := delivery("a")
		ctx, cancel := context.WithCancel(t.Context())
		ended := r.runs(ctx, newSource(a))
		synctest.Wait()
		cancel()
		require.NoError(t, <-ended)
		assert.Equal(t, []string{"ack"}, told.all())
	})
}

func TestRunStops(t *testing.T) {
	var input *dedup.InputError
	var unprocessable *queue.UnprocessableError
	for name, c := range map[string]struct {
		prepare func(r *rig, src *source, d *queue.Delivery)
		is      func(error) bool
	}{
		"source is gone": {func(_ *rig, src *source, _ *queue.Delivery) {
			src.errs = []error{errHandler, dedup.Permanent(errHandler)}
		}, func(err error) bool { return errors.Is(err, errHandler) }},
		"closed": {func(r *rig, _ *source, _ *queue.Delivery) {
			_ = r.d.Close(context.Background())
		},
			func(err error) bool { return errors.Is(err, dedup.ErrClosed) }},
		"bad scope": {func(_ *rig, _ *source, d *queue.Delivery) { d.Scope = "\n" },
			func(err error) bool { return errors.As(err, &input) }},
		"nowhere to park": {func(_ *rig, _ *source, d *queue.Delivery) { d.Park = nil },
			func(err error) bool { return errors.As(err, &unprocessable) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, queue.Config{Handler: returns(dedup.Permanent(errHandler))})
				d, told := delivery("a")
				src := newSource(d)
				c.prepare(r, src, d)
				err := <-r.runs(t.Context(), src)
				assert.True(t, c.is(err), "%v", err)
				assert.NotContains(t, told.all(), "ack")
			})
		})
	}
}

// An error of a handler is about its message, also when it looks like one that stops a consumer.
func TestHandlersErrorsStopNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errs := []error{dedup.ErrClosed, &dedup.InputError{Field: "x"}, &queue.UnprocessableError{},
			nil}
		r := newRig(t, queue.Config{Handler: func(_ context.Context, d *queue.Delivery) error {
			return errs[d.Deliveries]
		}})
		src := newSource()
		for n := range errs {
			d, _ := delivery(string(rune('a' + n)))
			d.Deliveries = n
			src.add(d)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := r.runs(ctx, src)
		synctest.Wait()
		select {
		case err := <-ended:
			assert.Fail(t, "Run ended", "%v", err)
		default:
		}
		cancel()
		require.NoError(t, <-ended)
	})
}

func TestRunInput(t *testing.T) {
	r := newRig(t, queue.Config{Handler: returns(nil)})
	var input *dedup.InputError
	require.ErrorAs(t, r.Run(t.Context(), nil), &input)
}

// Messages of a key wait for each other, and not for others. Those behind one that failed are
// given back, so that they are redelivered in order.
func TestRunKeepsTheOrderOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &byID{answers: map[string]error{"a1": errHandler}}
		r := newRig(t, queue.Config{Handler: func(ctx context.Context, d *queue.Delivery) error {
			time.Sleep(time.Second)
			return h.handle(ctx, d)
		}})
		src := newSource()
		logs := map[string]*log{}
		for _, id := range []string{"a0", "a1", "a2", "a3", "b0", "b1"} {
			d, told := delivery(id)
			d.Key, logs[id] = id[:1], told
			src.add(d)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := r.runs(ctx, src)
		time.Sleep(2*time.Second + time.Millisecond)
		synctest.Wait()
		assert.Equal(t, []string{"ack"}, logs["b1"].all())
		assert.Equal(t, []string{"nack"}, logs["a1"].all())
		assert.Equal(t, []string{"nack"}, logs["a2"].all())
		assert.Equal(t, []string{"nack"}, logs["a3"].all())
		h.mu.Lock()
		h.answers = nil
		h.mu.Unlock()
		for _, id := range []string{"a1", "a2", "a3"} {
			d, _ := delivery(id)
			d.Key = "a"
			src.add(d)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		cancel()
		require.NoError(t, <-ended)
		assert.Equal(t, "a0b0a1b1a1a2a3", sortedPairs(h.ran))
	})
}

// sortedPairs joins ids, those of one moment in their order.
func sortedPairs(ids []string) string {
	for i := 0; i+1 < len(ids) && i < 4; i += 2 {
		if ids[i] > ids[i+1] {
			ids[i], ids[i+1] = ids[i+1], ids[i]
		}
	}
	return strings.Join(ids, "")
}

// Run holds no more than Buffer, also when a source gives more than it was asked for.
func TestRunHoldsABuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, queue.Config{Workers: 2, Buffer: 4,
			Handler: func(ctx context.Context, _ *queue.Delivery) error {
				<-ctx.Done()
				return ctx.Err()
			}, Drain: time.Second})
		src := newSource()
		for n := range 10 {
			d, _ := delivery(string(rune('a' + n)))
			src.add(d)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := r.runs(ctx, src)
		synctest.Wait()
		assert.Len(t, src.waiting, 6)
		cancel()
		require.NoError(t, <-ended)
		assert.Len(t, src.waiting, 6)
	})
}
