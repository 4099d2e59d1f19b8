package bench

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakeSide takes a time for each operation, and stalls once.
type fakeSide struct {
	took, stall time.Duration
	stallAt     time.Duration

	mu    sync.Mutex
	begun time.Time
	done  map[string]bool
	sent  int
	wrong []message
}

func (f *fakeSide) work(ctx context.Context, batch []message) []error {
	took := f.took
	f.mu.Lock()
	if f.done == nil {
		f.done, f.begun = map[string]bool{}, time.Now()
	}
	if f.stall > 0 && time.Since(f.begun) >= f.stallAt {
		took, f.stall = f.stall, 0
	}
	for _, m := range batch {
		if f.sent++; m.dup != f.done[m.key] {
			f.wrong = append(f.wrong, m)
		}
	}
	f.mu.Unlock()
	wait(ctx, time.Now().Add(took))
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range batch {
		f.done[m.key] = true
	}
	return nil
}

func kindOf(err error) string { return err.Error() }

// A server that stalls for half a second holds up all that is due in that time: half of a second's
// messages. Who measures from the send sees one of a hundred.
func TestStallShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeSide{took: time.Millisecond, stall: 500 * time.Millisecond,
			stallAt: 200 * time.Millisecond}
		c := newCrew(load{workers: 1, batch: 1, rate: 100}, "a", f.work, kindOf)
		got := c.run(t.Context(), time.Second, math.MaxInt64)
		if got.messages() != 100 || got.unsent != 0 {
			t.Fatalf("%d messages, %d unsent", got.messages(), got.unsent)
		}
		// 500 ms of stall, less 10 ms for each message that was due later.
		if p50, p90 := got.latency.quantile(0.5),
			got.latency.quantile(0.9); p50 < time.Millisecond || p90 < 350*time.Millisecond ||
			p90 > 450*time.Millisecond {
			t.Errorf("p50 %v, p90 %v", p50, p90)
		}
		if got.latency.max < 499*time.Millisecond || got.elapsed < time.Second {
			t.Error(got.latency.max, got.elapsed)
		}
	})
}

// At full speed nothing is due: each worker waits for its answer, and one operation is slow.
func TestFullSpeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeSide{took: time.Millisecond, stall: 500 * time.Millisecond,
			stallAt: 200 * time.Millisecond}
		c := newCrew(load{workers: 1, batch: 1}, "a", f.work, kindOf)
		got := c.run(t.Context(), time.Second, math.MaxInt64)
		if got.messages() < 490 || got.messages() > 510 ||
			got.latency.quantile(0.99) > 2*time.Millisecond ||
			got.latency.max < 500*time.Millisecond {
			t.Errorf("%d messages, p99 %v, max %v", got.messages(), got.latency.quantile(0.99),
				got.latency.max)
		}
	})
}

// A server that takes half of the rate is not let off: what was due and could not be sent any more
// is counted, and so is its wait.
func TestRateNotReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeSide{took: 40 * time.Millisecond}
		c := newCrew(load{workers: 1, batch: 1, rate: 100}, "a", f.work, kindOf)
		got := c.run(t.Context(), time.Second, math.MaxInt64)
		if got.messages()+got.unsent != 100 || got.unsent < 45 ||
			got.latency.quantile(1) < time.Second || got.latency.n != 100 {
			t.Errorf("%d messages, %d unsent, max %v of %d", got.messages(), got.unsent,
				got.latency.max, got.latency.n)
		}
		if rate := got.perSecond(); rate > 26 {
			t.Errorf("%.1f messages a second", rate)
		}
	})
}

// The share of duplicates is as asked, each of a key that is done; and what comes for new is new.
func TestDuplicates(t *testing.T) {
	for _, test := range []struct {
		dup            float64
		batch, workers int
	}{{0, 1, 4}, {0.05, 1, 4}, {0.05, 64, 3}, {0.5, 7, 2}, {0.9, 1, 1}} {
		synctest.Test(t, func(t *testing.T) {
			f := &fakeSide{took: time.Millisecond}
			c := newCrew(load{workers: test.workers, batch: test.batch, dup: test.dup}, "a",
				f.work, kindOf)
			total := newTally()
			for range 3 { // keys of an earlier slice are done as well
				total.join(c.run(t.Context(), time.Second, math.MaxInt64))
			}
			share := float64(total.dups) / float64(total.messages())
			if math.Abs(share-test.dup) > 0.01 || len(f.wrong) > 0 ||
				f.sent != int(total.messages()) || total.used != total.fresh {
				t.Errorf("%+v: a share of %.3f, %d messages of %d, wrong %v", test, share,
					total.messages(), f.sent, f.wrong)
			}
			if len(f.done) != int(total.fresh) {
				t.Errorf("%d keys, %d were counted", len(f.done), total.fresh)
			}
		})
	}
}

func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeSide{took: time.Millisecond}
		c := newCrew(load{workers: 4, batch: 8}, "a", f.work, kindOf)
		got := c.run(t.Context(), time.Minute, 1000)
		if !got.full || got.used > 1000 || got.used < 1000-8 || len(f.done) != int(got.used) ||
			got.elapsed > time.Second {
			t.Errorf("%d keys used, %d sent, in %v", got.used, len(f.done), got.elapsed)
		}
	})
}

// Errors are counted by kind; their keys are no duplicates of anything.
func TestErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		odd, even := errors.New("odd"), errors.New("even")
		n := 0
		c := newCrew(load{workers: 1, batch: 2, dup: 0.5},
			"a", func(ctx context.Context, batch []message) []error {
				wait(ctx, time.Now().Add(time.Millisecond))
				if n++; batch[0].dup || batch[1].dup {
					t.Errorf("a key that has failed came again: %v", batch)
				}
				return []error{odd, even}
			}, kindOf)
		got := c.run(t.Context(), time.Second, math.MaxInt64)
		// A worker that had an error rests: 1 ms and 10 ms for each.
		if n < 80 || n > 95 || got.faults["odd"].count != int64(n) ||
			got.faults["even"].count != int64(n) || got.messages() != 0 || got.used != int64(2*n) {
			t.Errorf("%d operations, %+v", n, got)
		}
	})
}

// Who is interrupted returns at once, and what fails for that is no error of the server.
func TestInterruptedLoad(t *testing.T) {
	for _, rate := range []float64{0, 1000} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Hour, nil)
			defer cancel()
			time.AfterFunc(100*time.Millisecond, cancel)
			c := newCrew(load{workers: 2, batch: 1, rate: rate}, "a",
				func(ctx context.Context, _ []message) []error {
					wait(ctx, time.Now().Add(time.Second))
					if err := ctx.Err(); err != nil {
						return []error{err}
					}
					return nil
				}, kindOf)
			begun := time.Now()
			got := c.run(ctx, time.Minute, math.MaxInt64)
			if time.Since(begun) != 100*time.Millisecond || len(got.faults) > 0 || got.unsent > 0 {
				t.Errorf("rate %g: %v, %+v", rate, time.Since(begun), got.faults)
			}
		})
	}
}
