package queue_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/queue"
)

func TestHandleTellsTheBroker(t *testing.T) {
	permanent := dedup.Permanent(errHandler)
	for name, c := range map[string]struct {
		handler queue.Handler
		max     int
		calls   []string
		err     error
		state   driver.State
	}{
		"done":     {returns(nil), 0, []string{"ack"}, nil, driver.StateSucceeded},
		"failed":   {returns(errHandler), 0, []string{"nack"}, errHandler, driver.StateReleased},
		"for good": {returns(permanent), 0, []string{"park", "ack"}, nil, driver.StateFailed},
		"panic": {func(context.Context, *queue.Delivery) error { panic("broken") }, 0,
			[]string{"nack"}, nil, driver.StateReleased},
		"ended its goroutine": {func(context.Context, *queue.Delivery) error {
			runtime.Goexit()
			return nil
		}, 0, []string{"nack"}, nil, driver.StateReleased},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, queue.Config{Handler: c.handler})
			d, told := delivery("order-1")
			err := r.Handle(t.Context(), d)
			assert.Equal(t, c.calls, told.all())
			assert.Equal(t, c.state, r.state(t, "order-1").State)
			if c.calls[len(c.calls)-1] == "ack" {
				require.NoError(t, err)
			} else {
				require.Error(t, err)
			}
			if c.err != nil {
				require.ErrorIs(t, err, c.err)
			}
			assert.Equal(t, 1, d.Attempt)
		})
	}
}

// A message that is done is acknowledged, and has no second effect.
func TestDuplicateIsAcknowledged(t *testing.T) {
	runs := 0
	r := newRig(t, queue.Config{Handler: func(context.Context, *queue.Delivery) error {
		runs++
		return nil
	}})
	for range 3 {
		d, told := delivery("order-1")
		require.NoError(t, r.Handle(t.Context(), d))
		assert.Equal(t, []string{"ack"}, told.all())
	}
	assert.Equal(t, 1, runs)
}

// The record of a failure says that it was parked, so its copies are not parked again. A failure
// that Config.Resolve or another program has recorded is parked at the next delivery.
func TestFailureOnRecordIsParkedOnce(t *testing.T) {
	r := newRig(t, queue.Config{Handler: returns(dedup.Permanent(errHandler))})
	first, told := delivery("order-1")
	require.NoError(t, r.Handle(t.Context(), first))
	assert.Equal(t, []string{"park", "ack"}, told.all())
	require.ErrorIs(t, told.reason, errHandler)
	again, told := delivery("order-1")
	require.NoError(t, r.Handle(t.Context(), again))
	assert.Equal(t, []string{"ack"}, told.all())

	c, err := r.d.Claim(t.Context(), "order-2", dedup.WithScope("tests"))
	require.NoError(t, err)
	require.NoError(t, c.Fail(t.Context(), errHandler))
	found, told := delivery("order-2")
	require.NoError(t, r.Handle(t.Context(), found))
	assert.Equal(t, []string{"park", "ack"}, told.all())
}

// A message in flight elsewhere is not acknowledged.
func TestInFlightIsNotAcknowledged(t *testing.T) {
	waiting := 0
	r := newRig(t, queue.Config{Handler: returns(nil),
		Observer: queue.Observer{Waiting: func(*queue.Delivery) { waiting++ }}})
	_, err := r.d.Claim(t.Context(), "order-1", dedup.WithScope("tests"))
	require.NoError(t, err)
	d, told := delivery("order-1")
	require.ErrorIs(t, r.Handle(t.Context(), d), dedup.ErrInFlight)
	assert.Equal(t, []string{"nack"}, told.all())
	assert.LessOrEqual(t, told.after, time.Second+time.Millisecond)
	assert.Equal(t, 1, waiting)
}

func TestMismatchIsParked(t *testing.T) {
	r := newRig(t, queue.Config{Handler: returns(nil), Fingerprint: true})
	d, _ := delivery("order-1")
	require.NoError(t, r.Handle(t.Context(), d))
	other, told := delivery("order-1")
	other.Payload = []byte("another payload")
	require.NoError(t, r.Handle(t.Context(), other))
	assert.Equal(t, []string{"park", "ack"}, told.all())
	require.ErrorIs(t, told.reason, dedup.ErrMismatch)
	assert.Equal(t, driver.StateSucceeded, r.state(t, "order-1").State)
}

// Without Park no message is skipped: it is given back, and the error tells the caller to stop.
func TestUnparkableStops(t *testing.T) {
	r := newRig(t, queue.Config{Handler: returns(dedup.Permanent(errHandler))})
	d, told := delivery("order-1")
	d.Park = nil
	err := r.Handle(t.Context(), d)
	var stop *queue.UnprocessableError
	require.ErrorAs(t, err, &stop)
	require.ErrorIs(t, err, errHandler)
	assert.Contains(t, err.Error(), `"order-1" of "tests"`)
	assert.Equal(t, []string{"nack"}, told.all())
	assert.Equal(t, driver.StateReleased, r.state(t, "order-1").State)
}

// A message that could not be parked is redelivered, and is not on record as failed.
func TestFailingPark(t *testing.T) {
	for name, park := range map[string]func(context.Context, *queue.Delivery, error) error{
		"error": func(context.Context, *queue.Delivery, error) error { return errHandler },
		"panic": func(context.Context, *queue.Delivery, error) error { panic("broken") },
	} {
		r := newRig(t, queue.Config{Handler: returns(dedup.Permanent(errors.New("bad order"))),
			Park: park})
		d, told := delivery("order-1")
		require.Error(t, r.Handle(t.Context(), d), name)
		assert.Equal(t, []string{"nack"}, told.all(), name)
		assert.Equal(t, driver.StateReleased, r.state(t, "order-1").State, name)
	}
}

func TestRetryAfter(t *testing.T) {
	r := newRig(t, queue.Config{Handler: returns(queue.RetryAfter(time.Minute, errHandler))})
	d, told := delivery("order-1")
	require.ErrorIs(t, r.Handle(t.Context(), d), errHandler)
	assert.Equal(t, time.Minute, told.after)
	require.NoError(t, queue.RetryAfter(time.Minute, nil))
}

func TestAttempts(t *testing.T) {
	runs := 0
	r := newRig(t, queue.Config{Attempts: queue.Attempts{Max: 2},
		Handler: func(context.Context, *queue.Delivery) error {
			runs++
			return errHandler
		}})
	d, told := delivery("order-1")
	require.ErrorIs(t, r.Handle(t.Context(), d), errHandler)
	assert.Equal(t, []string{"nack"}, told.all())
	d, told = delivery("order-1")
	require.NoError(t, r.Handle(t.Context(), d))
	assert.Equal(t, []string{"park", "ack"}, told.all())
	require.ErrorIs(t, told.reason, queue.ErrAttempts)
	require.ErrorIs(t, told.reason, errHandler)
	// It has not failed for good, and a copy is not tried again.
	assert.Equal(t, driver.StateReleased, r.state(t, "order-1").State)
	d, told = delivery("order-1")
	require.NoError(t, r.Handle(t.Context(), d))
	assert.Equal(t, []string{"park", "ack"}, told.all())
	assert.Equal(t, 2, runs)
}

// A message that kills its process also ends the attempts of the messages that run next to it. If
// they ran together again, all of them would reach Max.
func TestSuspectsRunAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		running, most := 0, 0
		r := newRig(t, queue.Config{Attempts: queue.Attempts{Max: 5}, Workers: 10,
			Handler: func(context.Context, *queue.Delivery) error {
				running++
				most = max(most, running)
				time.Sleep(time.Second)
				running--
				return nil
			}})
		ids := []string{"a", "b", "c"}
		for range 2 { // processes that die
			for _, id := range ids {
				_, err := r.d.Claim(t.Context(), id, dedup.WithScope("tests"))
				require.NoError(t, err)
			}
			time.Sleep(2 * time.Second)
		}
		for _, id := range ids {
			d, _ := delivery(id)
			go func() { _ = r.Handle(t.Context(), d) }()
		}
		synctest.Wait()
		attempts := 0
		for _, id := range ids {
			attempts += r.state(t, id).Attempt
		}
		assert.Equal(t, 2+2+3, attempts, "those that wait have not been claimed")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.Equal(t, 1, most)
		for _, id := range ids {
			assert.Equal(t, driver.StateSucceeded, r.state(t, id).State)
		}
	})
}

// Messages that have only failed did not kill a process, so they run together.
func TestFailedMessagesAreNoSuspects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, queue.Config{Attempts: queue.Attempts{Max: 9}, Handler: returns(errHandler)})
		for range 3 {
			d, _ := delivery("a")
			_ = r.Handle(t.Context(), d)
			d, _ = delivery("b")
			_ = r.Handle(t.Context(), d)
		}
		var running atomic.Int32
		ctx, cancel := context.WithCancel(t.Context())
		c, err := queue.New(queue.Config{Deduper: r.d, Attempts: queue.Attempts{Max: 9},
			Handler: func(ctx context.Context, _ *queue.Delivery) error {
				running.Add(1)
				<-ctx.Done()
				return ctx.Err()
			}})
		require.NoError(t, err)
		for _, id := range []string{"a", "b"} {
			d, _ := delivery(id)
			go func() { _ = c.Handle(ctx, d) }()
		}
		synctest.Wait()
		assert.EqualValues(t, 2, running.Load())
		cancel()
		synctest.Wait()
	})
}

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, queue.Config{Attempts: queue.Attempts{Timeout: time.Minute},
			Handler: func(ctx context.Context, _ *queue.Delivery) error {
				<-ctx.Done()
				return dedup.Permanent(ctx.Err()) // which a canceled handler cannot know
			}})
		d, told := delivery("order-1")
		require.ErrorIs(t, r.Handle(t.Context(), d), context.DeadlineExceeded)
		assert.Equal(t, []string{"nack"}, told.all())
		assert.Equal(t, driver.StateReleased, r.state(t, "order-1").State)
	})
}

// After the last attempt the message is parked as one whose attempts are used up. A permanent error
// after the timeout neither records a failure nor settles an irreversible effect.
func TestTimeoutOfTheLastAttempt(t *testing.T) {
	for name, c := range map[string]struct {
		irreversible bool
		want         driver.State
	}{
		"plain":        {false, driver.StateReleased},
		"irreversible": {true, driver.StateUncertain},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, queue.Config{
					Attempts: queue.Attempts{Max: 2, Timeout: time.Minute},
					Handler: func(ctx context.Context, d *queue.Delivery) error {
						if c.irreversible && d.Attempt == 2 {
							require.NoError(t, dedup.MarkIrreversible(ctx))
						}
						<-ctx.Done()
						return dedup.Permanent(ctx.Err())
					}})
				d, _ := delivery("order-1")
				require.ErrorIs(t, r.Handle(t.Context(), d), context.DeadlineExceeded)
				d, told := delivery("order-1")
				require.NoError(t, r.Handle(t.Context(), d))
				assert.Equal(t, []string{"park", "ack"}, told.all())
				require.ErrorIs(t, told.reason, queue.ErrAttempts)
				assert.False(t, dedup.IsPermanent(told.reason))
				assert.Equal(t, c.want, r.state(t, "order-1").State)
			})
		})
	}
}

// Extend is called while the handler works, and not after the acknowledgement.
func TestExtendWhileAtWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, queue.Config{Handler: func(context.Context, *queue.Delivery) error {
			time.Sleep(10*time.Second + time.Millisecond)
			return nil
		}})
		d, told := delivery("order-1")
		d.Every = time.Second
		d.Extend = func(context.Context) error {
			told.extend++
			assert.Empty(t, told.all())
			return errHandler // the handler continues
		}
		require.NoError(t, r.Handle(t.Context(), d))
		time.Sleep(10 * time.Second)
		assert.Equal(t, 10, told.extend)
		assert.Equal(t, []string{"ack"}, told.all())
	})
}

// A record that could not be confirmed is not acknowledged.
func TestUnrecordedIsNotAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var unrecorded error
		r := newRig(t, queue.Config{
			Observer: queue.Observer{
				Unrecorded: func(_ *queue.Delivery, err error) { unrecorded = err }},
			Handler: returns(nil)})
		r.store.SetPlan(func(c deduptest.Call) deduptest.Fault {
			if c.Op == deduptest.OpFinish {
				return deduptest.Fault{Kind: deduptest.DropRequest}
			}
			return deduptest.Fault{}
		})
		d, told := delivery("order-1")
		err := r.Handle(t.Context(), d)
		assert.True(t, dedup.OutcomeUnknown(err), "%v", err)
		assert.True(t, dedup.OutcomeUnknown(unrecorded), "%v", unrecorded)
		assert.Equal(t, []string{"nack"}, told.all())
	})
}

// While the store is away the message is held: it does not run, and uses up no deliveries.
func TestStoreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ran := false
		r := newRig(t, queue.Config{Handler: func(context.Context, *queue.Delivery) error {
			ran = true
			return nil
		}})
		r.store.SetPlan(func(deduptest.Call) deduptest.Fault {
			return deduptest.Fault{Kind: deduptest.DropRequest}
		})
		d, told := delivery("order-1")
		done := make(chan error, 1)
		go func() { done <- r.Handle(t.Context(), d) }()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		assert.False(t, ran)
		assert.Empty(t, told.all())
		r.store.SetPlan(nil)
		require.NoError(t, <-done)
		assert.True(t, ran)
		assert.Equal(t, []string{"ack"}, told.all())
	})
}

func TestLostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, queue.Config{Handler: func(ctx context.Context, _ *queue.Delivery) error {
			<-ctx.Done()
			return nil // which proves nothing
		}})
		r.store.SetPlan(func(c deduptest.Call) deduptest.Fault {
			if c.Op == deduptest.OpRenew {
				return deduptest.Fault{Kind: deduptest.DropRequest}
			}
			return deduptest.Fault{}
		})
		d, told := delivery("order-1")
		require.ErrorIs(t, r.Handle(t.Context(), d), dedup.ErrLeaseLost)
		assert.Equal(t, []string{"nack"}, told.all())
	})
}

func TestLostAck(t *testing.T) {
	var refused error
	r := newRig(t, queue.Config{Handler: returns(nil),
		Observer: queue.Observer{AckRefused: func(_ *queue.Delivery, err error) { refused = err }}})
	d, _ := delivery("order-1")
	d.Ack = func(context.Context) error { return errHandler }
	require.ErrorIs(t, r.Handle(t.Context(), d), errHandler)
	require.ErrorIs(t, refused, errHandler)
	assert.Equal(t, driver.StateSucceeded, r.state(t, "order-1").State)
}

// An attempt that is canceled because the consumer ends does not count, unless it may have had its
// effect.
func TestCutShort(t *testing.T) {
	for name, c := range map[string]struct {
		irreversible bool
		state        driver.State
		attempt      int
	}{
		"plain":        {false, driver.StateReleased, 0},
		"irreversible": {true, driver.StateUncertain, 1},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			handler := func(ctx context.Context, _ *queue.Delivery) error {
				if c.irreversible {
					require.NoError(t, dedup.MarkIrreversible(ctx))
				}
				cancel()
				<-ctx.Done()
				return ctx.Err()
			}
			r := newRig(t, queue.Config{Handler: handler})
			d, told := delivery("order-1")
			require.ErrorIs(t, r.Handle(ctx, d), context.Canceled)
			assert.Equal(t, []string{"nack"}, told.all())
			assert.Zero(t, told.after)
			rec := r.state(t, "order-1")
			assert.Equal(t, c.state, rec.State)
			assert.Equal(t, c.attempt, rec.Attempt)
		})
	}
}

func TestNothingBeginsAfterTheEnd(t *testing.T) {
	handler := func(context.Context, *queue.Delivery) error {
		assert.Fail(t, "the handler ran")
		return nil
	}
	r := newRig(t, queue.Config{Handler: handler})
	unclaimed, err := queue.New(queue.Config{Handler: handler, Unclaimed: true})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 { // select chooses at random
		for _, c := range []*queue.Consumer{r.Consumer, unclaimed} {
			d, told := delivery("order-1")
			require.ErrorIs(t, c.Handle(ctx, d), context.Canceled)
			assert.Equal(t, []string{"nack"}, told.all())
		}
	}
	assert.Equal(t, driver.StateAbsent, r.state(t, "order-1").State)
}

// Without a Resolve an uncertain message is parked. With one, its answer decides.
func TestUncertain(t *testing.T) {
	for name, c := range map[string]struct {
		resolve func(context.Context, string, dedup.Record) (dedup.Resolution, error)
		calls   []string
	}{
		"nobody asks": {nil, []string{"park", "ack"}},
		"happened": {func(context.Context, string, dedup.Record) (dedup.Resolution, error) {
			return dedup.Happened(nil), nil
		}, []string{"ack"}},
		"open": {func(context.Context, string, dedup.Record) (dedup.Resolution, error) {
			return dedup.Resolution{}, nil
		}, []string{"nack"}},
		"failed": {func(context.Context, string, dedup.Record) (dedup.Resolution, error) {
			return dedup.FailedForGood("no such account"), nil
		}, []string{"park", "ack"}},
	} {
		for _, many := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				handler := func(ctx context.Context, _ *queue.Delivery) error {
					require.NoError(t, dedup.MarkIrreversible(ctx))
					return errHandler
				}
				r := newRigWith(t, queue.Config{Handler: handler}, dedup.Config{Resolve: c.resolve})
				d, _ := delivery("order-1")
				require.ErrorIs(t, r.Handle(t.Context(), d), errHandler)
				d, told := delivery("order-1")
				ds := []*queue.Delivery{d}
				if many {
					other, _ := delivery("order-2")
					ds = append(ds, other)
				}
				r.HandleAll(t.Context(), ds)
				assert.Equal(t, c.calls, told.all())
			})
		}
	}
}

func TestNoID(t *testing.T) {
	r := newRig(t, queue.Config{Handler: returns(nil)})
	var stop *queue.UnprocessableError
	for n := range 10 { // one message, delivered again and again
		d, _ := delivery("")
		d.Deliveries = n + 1
		err := r.Handle(t.Context(), d)
		require.ErrorIs(t, err, queue.ErrNoID)
		require.False(t, errors.As(err, &stop))
	}
	for n := 1; n < 3; n++ {
		d, told := delivery("")
		if n == 1 {
			d.Payload, d.Deliveries = []byte("another"), 2
		} // the third one has the payload of the first, and is new
		err := r.Handle(t.Context(), d)
		require.ErrorIs(t, err, queue.ErrNoID)
		assert.Equal(t, []string{"nack"}, told.all())
		assert.Equal(t, n == 2, errors.As(err, &stop))
	}
	d, _ := delivery("order-1")
	require.NoError(t, r.Handle(t.Context(), d))
	d, told := delivery("")
	require.NoError(t, r.Handle(t.Context(), d))
	assert.Equal(t, []string{"park", "ack"}, told.all())

	allowed := newRig(t, queue.Config{Handler: returns(nil), AllowNoID: true})
	d, told = delivery("")
	require.NoError(t, allowed.Handle(t.Context(), d))
	assert.Equal(t, []string{"park", "ack"}, told.all())
}

// A message whose id cannot be a key is parked. A bad scope is an error of the caller.
func TestBadRequest(t *testing.T) {
	r := newRig(t, queue.Config{Handler: returns(nil)})
	d, told := delivery("line\nbreak")
	require.NoError(t, r.Handle(t.Context(), d))
	assert.Equal(t, []string{"park", "ack"}, told.all())
	d, told = delivery("order-1")
	d.Scope = "line\nbreak"
	var input *dedup.InputError
	require.ErrorAs(t, r.Handle(t.Context(), d), &input)
	assert.Equal(t, []string{"nack"}, told.all())
}

func TestUnclaimed(t *testing.T) {
	var attempts []int
	results := []error{errHandler, errHandler, nil, dedup.Permanent(errHandler)}
	r := newRig(t, queue.Config{Unclaimed: true, Attempts: queue.Attempts{Max: 3},
		Handler: func(_ context.Context, d *queue.Delivery) error {
			attempts = append(attempts, d.Attempt)
			return results[len(attempts)-1]
		}})
	for n, want := range [][]string{{"nack"}, {"park", "ack"}, {"ack"}, {"park", "ack"}} {
		d, told := delivery("order-1")
		d.Deliveries = []int{2, 3, 0, 1}[n]
		_ = r.Handle(t.Context(), d)
		assert.Equal(t, want, told.all(), n)
	}
	assert.Equal(t, []int{2, 3, 1, 1}, attempts)
	assert.Empty(t, r.store.Stats().Calls)
}

func TestConfigScope(t *testing.T) {
	r := newRig(t, queue.Config{Handler: returns(nil), Scope: "shared"})
	d, _ := delivery("order-1")
	require.NoError(t, r.Handle(t.Context(), d))
	rec, err := r.d.Lookup(t.Context(), "order-1", dedup.WithScope("shared"))
	require.NoError(t, err)
	assert.Equal(t, driver.StateSucceeded, rec.State)
}

// lapsing answers that every key is in flight, under a lease that has just ended.
type lapsing struct{ dedup.Store }

func (lapsing) Claim(_ context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	answers := make([]driver.Answer, len(reqs))
	for i := range answers {
		answers[i].Outcome = driver.InFlight
		answers[i].Record = driver.Record{State: driver.StateInProgress, Attempt: 3}
	}
	return answers
}

// Whatever the store answers, nothing runs without a claim.
func TestNothingRunsUnclaimed(t *testing.T) {
	for _, most := range []int{0, 5} {
		d, err := dedup.New(lapsing{dedup.Memory(10)}, dedup.Config{Namespace: "queue",
			Window: time.Hour, LeaseTTL: time.Second})
		require.NoError(t, err)
		c, err := queue.New(queue.Config{Deduper: d, Attempts: queue.Attempts{Max: most},
			Handler: func(context.Context, *queue.Delivery) error {
				assert.Fail(t, "the handler ran")
				return nil
			}})
		require.NoError(t, err)
		a, told := delivery("a")
		require.ErrorIs(t, c.Handle(t.Context(), a), dedup.ErrInFlight)
		assert.Equal(t, []string{"nack"}, told.all())
	}
}
