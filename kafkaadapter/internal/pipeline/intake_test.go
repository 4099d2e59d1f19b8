package pipeline_test

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/kafkaadapter/internal/pipeline"
)

var errAsked = errors.New("asked to stop")

// intakeConfig has the settings in which a test differs from the usual ones.
type intakeConfig struct {
	BatchMax  int
	BatchWait time.Duration
}

const usualWait = 2 * time.Millisecond

func newIntake(t *testing.T, source <-chan int, cfg intakeConfig) *pipeline.Intake[int] {
	t.Helper()
	return pipeline.NewIntake(source, cmp.Or(cfg.BatchMax, 256), cmp.Or(cfg.BatchWait, usualWait))
}

// crowd gives in a batch of two items, so that in waits for more items in its next batch.
func crowd(t *testing.T, in *pipeline.Intake[int], source chan<- int) {
	t.Helper()
	for range 2 {
		go func() { source <- -1 }()
	}
	synctest.Wait()
	batch, err := in.Next(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, batch, 2)
}

func filled(from, to int) chan int {
	source := make(chan int, 1024)
	for i := from; i < to; i++ {
		source <- i
	}
	return source
}

func numbers(from, to int) []int {
	var out []int
	for i := from; i < to; i++ {
		out = append(out, i)
	}
	return out
}

func TestIntakeTakesWhatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		in := newIntake(t, filled(0, 600), intakeConfig{})
		for i, want := range [][]int{numbers(0, 256), numbers(256, 512), numbers(512, 600)} {
			batch, err := in.Next(t.Context(), nil)
			require.NoError(t, err)
			require.Equal(t, want, batch, "batch %d", i)
			if i < 2 {
				assert.Zero(t, time.Since(start), "batch %d is full, and has waited", i)
			}
		}
		assert.Equal(t, usualWait, time.Since(start), "the batch that was not full")
	})
}

func TestIntakeWaitsForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := make(chan int)
		in := newIntake(t, source, intakeConfig{})
		time.AfterFunc(time.Hour, func() { source <- 1 })
		start := time.Now()
		batch, err := in.Next(t.Context(), nil)
		// the item is alone, and Next does not wait for more
		require.NoError(t, err)
		assert.Equal(t, []int{1}, batch)
		assert.Equal(t, time.Hour, time.Since(start))
	})
}

func TestIntakeWaitIsForTheWholeBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := make(chan int)
		in := newIntake(t, source,
			intakeConfig{BatchMax: 10, BatchWait: 10 * time.Millisecond})
		crowd(t, in, source)
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range 9 {
				source <- i
				time.Sleep(4 * time.Millisecond)
			}
		})
		for round := range 3 { // also proves that the timer is set anew
			start := time.Now()
			batch, err := in.Next(t.Context(), nil)
			require.NoError(t, err, "round %d", round)
			require.Len(t, batch, 3, "round %d: the 3 of 10 ms", round)
			assert.LessOrEqual(t, time.Since(start), 14*time.Millisecond, "round %d", round)
		}
		wg.Wait()
	})
}

func TestIntakeStopsWaitingWhenFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := make(chan int)
		in := newIntake(t, source, intakeConfig{BatchMax: 3, BatchWait: time.Hour})
		crowd(t, in, source)
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range 3 {
				source <- i
				time.Sleep(time.Second)
			}
		})
		defer wg.Wait()
		start := time.Now()
		batch, err := in.Next(t.Context(), nil)
		require.NoError(t, err)
		assert.Len(t, batch, 3)
		assert.Equal(t, 2*time.Second, time.Since(start))
	})
}

// After a batch of one item Next does not wait for more items. After a batch of two it does.
func TestIntakeWaitsWhereItIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := make(chan int, 2)
		in := newIntake(t, source, intakeConfig{BatchWait: time.Minute})
		next := func(items ...int) time.Duration {
			for _, item := range items {
				source <- item
			}
			began := time.Now()
			_, err := in.Next(t.Context(), nil)
			require.NoError(t, err)
			return time.Since(began)
		}
		assert.Zero(t, next(1), "the first")
		assert.Zero(t, next(2), "alone again")
		assert.Equal(t, time.Minute, next(3, 4), "company")
		assert.Equal(t, time.Minute, next(5), "after company")
		assert.Zero(t, next(6), "after one that came alone")
	})
}

func TestIntakeOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		in := newIntake(t, filled(0, 2), intakeConfig{BatchMax: 1})
		for i := range 2 {
			batch, err := in.Next(t.Context(), nil)
			require.NoError(t, err)
			assert.Equal(t, []int{i}, batch)
		}
		assert.Zero(t, time.Since(start), "a batch of one waited for company")
	})
}

func TestIntakeAppends(t *testing.T) {
	in := newIntake(t, filled(1, 3), intakeConfig{BatchMax: 2})
	batch, err := in.Next(t.Context(), []int{0})
	require.NoError(t, err)
	assert.Equal(t, []int{0, 1, 2}, batch)
}

// Only the caller can finish the slot of a message that was received. So Next returns a batch that
// it has begun, whatever happens.
func TestIntakeEnd(t *testing.T) {
	type end struct {
		name  string
		after time.Duration // after the first item, if there is one
		how   func(source chan int, cancel context.CancelCauseFunc)
		err   error
	}
	ends := []end{
		{"closed at once", 0, func(s chan int, _ context.CancelCauseFunc) {
			close(s)
		}, pipeline.ErrSourceClosed},
		{"closed while waiting", time.Millisecond, func(s chan int, _ context.CancelCauseFunc) {
			close(s)
		}, pipeline.ErrSourceClosed},
		{"cancelled while waiting", time.Millisecond, func(_ chan int, c context.CancelCauseFunc) {
			c(errAsked)
		}, errAsked},
	}
	for _, row := range ends {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				source := filled(0, 2)
				in := newIntake(t, source, intakeConfig{BatchWait: time.Minute})
				if row.after == 0 {
					row.how(source, cancel)
				} else {
					time.AfterFunc(row.after, func() { row.how(source, cancel) })
				}
				start := time.Now()
				batch, err := in.Next(ctx, nil)
				require.NoError(t, err)
				require.Equal(t, []int{0, 1}, batch, "both items come at the end")
				require.Equal(t, row.after, time.Since(start))
				batch, err = in.Next(ctx, nil)
				assert.ErrorIs(t, err, row.err)
				assert.Nil(t, batch)
			})
		})
	}
}

func TestIntakeEndBeforeTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		in := newIntake(t, make(chan int), intakeConfig{})
		time.AfterFunc(time.Second, func() { cancel(errAsked) })
		_, err := in.Next(ctx, nil)
		assert.ErrorIs(t, err, errAsked)
		source := filled(0, 5)
		in = newIntake(t, source, intakeConfig{})
		for range 20 { // a select alone would take an item in half of the cases
			batch, err := in.Next(ctx, nil)
			require.ErrorIs(t, err, errAsked, "after the end")
			require.Empty(t, batch, "after the end")
		}
	})
}
