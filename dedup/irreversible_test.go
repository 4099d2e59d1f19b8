package dedup_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

var errBusy = errors.New("bank is busy")

// dangerous is a handler that calls MarkIrreversible and then returns the error of end.
func dangerous(t *testing.T, end func() error) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		assert.NoError(t, dedup.MarkIrreversible(ctx))
		return "v", end()
	}
}

// apart runs fn on a goroutine of its own, for handlers that panic or end their goroutine.
func apart(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		fn()
	}()
	<-done
}

// uncertainKey leaves a key uncertain, as an attempt that failed after MarkIrreversible does.
func uncertainKey(t *testing.T, d *dedup.Deduper, store dedup.Store, key string) {
	t.Helper()
	_, err := do(t, d, key, dangerous(t, func() error { return errBusy }))
	require.ErrorIs(t, err, errBusy)
	wantState(t, store, key, driver.StateUncertain)
}

func TestHowAnAttemptEndsAfterMarkIrreversible(t *testing.T) {
	const succeeded, failed = driver.StateSucceeded, driver.StateFailed
	const released, uncertain = driver.StateReleased, driver.StateUncertain
	for name, test := range map[string]struct {
		end     func() error
		without driver.State // how it ends without MarkIrreversible
		with    driver.State
	}{
		"nil":       {func() error { return nil }, succeeded, succeeded},
		"error":     {func() error { return errBusy }, released, uncertain},
		"permanent": {func() error { return dedup.Permanent(errBusy) }, failed, failed},
		"not begun": {func() error { return dedup.NotStarted(errBusy) }, released, released},
		"not begun, wrapped": {func() error {
			return errors.Join(errNet,
				dedup.NotStarted(errBusy))
		},
			released, released},
		"not begun, permanent": {func() error { return dedup.NotStarted(dedup.Permanent(errBusy)) },
			failed, failed},
		"permanent, not begun": {func() error { return dedup.Permanent(dedup.NotStarted(errBusy)) },
			failed, failed},
		"panic": {func() error { panic("boom") }, released, uncertain},
		"ends its goroutine": {func() error { runtime.Goexit(); return nil },
			released, uncertain},
		"failure of another's": {func() error { return &dedup.FailedError{Message: "x"} },
			failed, failed},
		"lease lost, it thinks": {func() error { return dedup.ErrLeaseLost },
			released, uncertain},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, seen := hook(), &journal{}
				d := newDeduper(t, store, func(c *dedup.Config) { c.Observer = seen.observer() })
				apart(func() {
					_, _ = do(t, d, "without", func(context.Context) (string, error) { return "v", test.end() })
				})
				wantState(t, store, "without", test.without)
				seen.want(t, "uncertain", 0)

				apart(func() { _, _ = do(t, d, "with", dangerous(t, test.end)) })
				rec := wantState(t, store, "with", test.with)
				want := test.with == driver.StateUncertain
				assert.Equal(t, want, rec.Irreversible)
				assert.Equal(t, want, len(seen.of("uncertain")) > 0)
			})
		})
	}
}

func TestNotStartedIsAnError(t *testing.T) {
	assert.NoError(t, dedup.NotStarted(nil), "NotStarted(nil) is an error")
	err := dedup.NotStarted(errBusy)
	assert.ErrorIs(t, err, errBusy, "NotStarted hides what it wraps")
	assert.Equal(t, errBusy.Error(), err.Error())
	assert.True(t, !dedup.IsPermanent(err) && dedup.CanRetry(err),
		"NotStarted hides what it wraps: %v", err)
	err = dedup.NotStarted(dedup.Permanent(errBusy))
	assert.True(t, dedup.IsPermanent(err) && !dedup.CanRetry(err),
		"a failure for good that has not begun is not one any more")
}

// No call gets an uncertain key until an operator decides about it.
func TestOperatorsDecideAboutUncertainKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		for _, key := range []string{"happened", "again"} {
			uncertainKey(t, d, store, key)
			_, err := do(t, d, key, mustNotRun(t))
			require.ErrorIs(t, err, dedup.ErrUncertain)
			assert.False(t, dedup.CanRetry(err), "a key that nobody asks about is retryable")
			require.Equal(t, dedup.Uncertain, claim(t, d, key).Outcome)
			require.Equal(t, dedup.Uncertain, claimBatch(t, d, keyed(key))[0].Outcome)
			_, err = d.Seen(t.Context(), key)
			require.ErrorIs(t, err, dedup.ErrUncertain)
		}
		first, err := d.Mark(t.Context(), "happened")
		assert.True(t, first)
		assert.NoError(t, err)
		require.Equal(t, dedup.Duplicate, claim(t, d, "happened").Outcome)
		assert.NoError(t, d.Forget(t.Context(), "again"))
		res, err := do(t, d, "again", returns("v"))
		require.NoError(t, err)
		assert.Equal(t, 1, res.Attempt)
	})
}

// A process that dies after MarkIrreversible leaves a key that lives for the window, although
// lease and hold are shorter.
func TestMarkIrreversibleOutlivesTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		a, b := newProcess(t, store.inner), newDeduper(t, store, nil)
		c := acquire(t, a.d, "k")
		run, stop := c.KeepAlive(t.Context())
		defer stop()
		require.NoError(t, dedup.MarkIrreversible(run))
		a.die()
		time.Sleep(lease)
		require.Equal(t, dedup.Uncertain, claim(t, b, "k").Outcome)
		rec := wantState(t, store, "k", driver.StateUncertain)
		assert.GreaterOrEqual(t, rec.Remaining, 59*time.Minute)
	})
}

// MarkIrreversible does not return before the store has answered. It asks again if the answer is
// lost.
func TestMarkIrreversibleIsAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		c := acquire(t, d, "k")
		run, stop := c.KeepAlive(t.Context())
		defer stop()
		answer := make(chan struct{})
		store.setAfter(only("Renew", func(c call) error {
			<-answer
			if c.nth == 1 {
				return errNet
			}
			return nil
		}))
		returned := make(chan error, 1)
		go func() { returned <- dedup.MarkIrreversible(run) }()
		synctest.Wait()
		select {
		case err := <-returned:
			t.Fatalf("MarkIrreversible returned %v before the store did", err)
		default:
		}
		close(answer)
		require.NoError(t, <-returned)
		assert.Equal(t, 2, store.count("Renew"))
		store.forgetCalls()
		require.NoError(t, dedup.MarkIrreversible(run))
		assert.Equal(t, 0, store.count(), "the second MarkIrreversible")
		rec := lookup(t, store, "k")
		assert.True(t, rec.Irreversible, "MarkIrreversible has returned nil, and the key is not dangerous")
	})
}

// An effect whose MarkIrreversible the store has not acknowledged must not begin.
func TestMarkIrreversibleFailsClosed(t *testing.T) {
	for name, test := range map[string]struct {
		store func(*hooked)
		want  error
	}{
		"store down":      {func(s *hooked) { s.setBefore(only("Renew", down)) }, dedup.ErrUnknown},
		"replies lost":    {func(s *hooked) { s.setAfter(only("Renew", down)) }, dedup.ErrUnknown},
		"answer too late": {func(s *hooked) { s.setAfter(only("Renew", func(call) error { time.Sleep(lease); return nil })) }, dedup.ErrLeaseLost},
		"answered too late by a server that was replaced": {func(s *hooked) {
			s.setAfter(only("Renew", func(c call) error {
				if c.nth == 1 { // and renewals go on elsewhere
					time.Sleep(lease)
				}
				return nil
			}))
		}, dedup.ErrLeaseLost},
		"store that hangs": {func(s *hooked) { s.setBefore(only("Renew", hang)) }, dedup.ErrUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := hook()
				d := newDeduper(t, store, nil)
				test.store(store)
				_, err := do(t, d, "k", func(ctx context.Context) (string, error) {
					err := dedup.MarkIrreversible(ctx)
					require.ErrorIs(t, err, test.want)
					store.setBefore(nil)
					store.setAfter(nil)
					return "", dedup.NotStarted(err)
				})
				require.ErrorIs(t, err, test.want)
				wantState(t, store, "k", driver.StateReleased)
			})
		})
	}
}

func TestMarkIrreversibleOfALateOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaused(t)
		c := acquire(t, p.a, "k")
		run, stop := c.KeepAlive(t.Context())
		defer stop()
		first, err := p.b.Mark(t.Context(), "k") // another process marks the key
		require.NoError(t, err)
		require.True(t, first)
		require.ErrorIs(t, dedup.MarkIrreversible(run), dedup.ErrLeaseLost)
		require.ErrorIs(t, context.Cause(run), dedup.ErrLeaseLost)
		p.seen.want(t, "lease lost", 1)
		require.ErrorIs(t, dedup.MarkIrreversible(run), dedup.ErrLeaseLost)
		wantState(t, p.store, "k", driver.StateSucceeded)
	})
	synctest.Test(t, func(t *testing.T) {
		p := newPaused(t)
		c := acquire(t, p.a, "k")
		run, stop := c.KeepAlive(t.Context())
		defer stop()
		p.takeover(t)
		writes := p.store.count("Renew")
		require.ErrorIs(t, dedup.MarkIrreversible(run), dedup.ErrLeaseLost)
		n := p.store.count("Renew")
		assert.Equal(t, writes, n, "a claim that is known to be lost asks the store")
		assert.False(t, lookup(t, p.store, "k").Irreversible,
			"a late owner's danger is on the new owner's claim")
	})
}

func TestMarkIrreversibleOutsideAnAttempt(t *testing.T) {
	wantInput(t, dedup.MarkIrreversible(t.Context()), "Context") // outside an attempt
	wantInput(t, dedup.MarkIrreversible(nil), "Context")         //nolint:staticcheck // on purpose
	synctest.Test(t, func(t *testing.T) {
		d := newDeduper(t, dedup.Memory(10), nil)
		var kept context.Context
		_, err := do(t, d, "k", func(ctx context.Context) (string, error) { kept = ctx; return "v", nil })
		require.NoError(t, err)
		wantInput(t, dedup.MarkIrreversible(kept), "Context") // after the end
	})
}

func TestMarkIrreversibleOfACancelledCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		_, err := do(t, d, "k", func(ctx context.Context) (string, error) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			err := dedup.MarkIrreversible(ctx)
			assert.True(t, dedup.OutcomeUnknown(err), "got %v", err)
			assert.ErrorIs(t, err, context.Canceled)
			return "", err
		})
		require.ErrorIs(t, err, context.Canceled)
		wantState(t, store, "k", driver.StateReleased)
	})
}

// Without a claim MarkIrreversible declares nothing, and in Observe mode it does not fail.
func TestMarkIrreversibleWithoutAClaim(t *testing.T) {
	for name, mode := range map[string]func(*journal) func(*dedup.Config){
		"observe": observing, "fail open": failingOpen,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := hook()
				d := newDeduper(t, store, mode(&journal{}))
				if name == "observe" {
					acquire(t, newDeduper(t, store.inner, nil), "k")
				} else {
					store.setBefore(only("Claim", down))
				}
				_, err := do(t, d, "k", dangerous(t, func() error { return nil }))
				assert.NoError(t, err)
				assert.Equal(t, 0, store.count("Renew"))
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, observing(&journal{}))
		_, err := do(t, d, "won", dangerous(t, func() error { return errBusy }))
		assert.ErrorIs(t, err, errBusy)
		wantState(t, store, "won", driver.StateUncertain) // recorded for real
		store.setBefore(only("Renew", down))
		_, err = do(t, d, "down", dangerous(t, func() error { return nil }))
		assert.NoError(t, err)
	})
}

// Many handlers that begin at once share their round trips.
func TestMarkIrreversiblesShareABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		slow := func(call) error { time.Sleep(time.Millisecond); return nil }
		store.setBefore(only("Renew", slow))
		const handlers = 500
		done := make(chan error, handlers)
		for i := range handlers {
			go func() {
				key := string(rune('a'+i%26)) + string(rune('0'+i/26))
				_, err := do(t, d, key, dangerous(t, func() error { return nil }))
				done <- err
			}()
		}
		for range handlers {
			assert.NoError(t, <-done)
		}
		assert.LessOrEqual(t, store.count("Renew"), 50, "%d handlers took", handlers)
	})
}
