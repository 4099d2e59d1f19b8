package dedup_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// answering sets a Resolve that always returns found.
func answering(found dedup.Resolution) func(*dedup.Config) {
	return resolving(func(context.Context, string, dedup.Record) (dedup.Resolution, error) {
		return found, nil
	})
}

func resolving(fn func(context.Context, string, dedup.Record) (dedup.Resolution,
	error)) func(*dedup.Config) {
	return func(c *dedup.Config) { c.Resolve = fn }
}

// bank is the fixture of a resolver's test: an uncertain key, and a Deduper that asks about it.
type bank struct {
	*testing.T
	store *hooked
	seen  *journal
	d     *dedup.Deduper
}

func newBank(t *testing.T, change func(*dedup.Config)) *bank {
	return newBankOf(t, func(store *hooked) dedup.Store { return store }, change)
}

// newBankOf is newBank with a Deduper over the store that over returns.
func newBankOf(t *testing.T, over func(*hooked) dedup.Store, change func(*dedup.Config)) *bank {
	b := &bank{T: t, store: hook(), seen: &journal{}}
	b.d = newDeduper(t, over(b.store), func(c *dedup.Config) {
		change(c)
		c.Observer = b.seen.observer()
	})
	uncertainKey(t, newDeduper(t, b.store.inner, nil), b.store, "k")
	return b
}

func TestResolveThatKnows(t *testing.T) {
	t.Run("succeeded", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBank(t, answering(dedup.Happened([]byte("ch_1"))))
			res, err := do(t, b.d, "k", mustNotRun(t))
			require.NoError(t, err)
			assert.Equal(t, "ch_1", res.Value)
			assert.Equal(t, dedup.Duplicate, res.Outcome)
			assert.Equal(t, 2, res.Attempt)
			rec := wantState(t, b.store, "k", driver.StateSucceeded)
			assert.Equal(t, "ch_1", string(rec.Result))
			assert.False(t, rec.Irreversible, "%+v", rec)
			b.seen.want(t, "ended", 1)
			told := b.seen.of("claimed")
			require.Len(t, told, 1)
			assert.Equal(t, dedup.Duplicate, told[0].Outcome)
			require.Equal(t, dedup.Duplicate, claim(t, b.d, "k").Outcome)
		})
	})
	t.Run("failed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBank(t, answering(dedup.FailedForGood("card refused")))
			for range 2 {
				_, err := do(t, b.d, "k", mustNotRun(t))
				var failed *dedup.FailedError
				require.ErrorAs(t, err, &failed)
				assert.Equal(t, "card refused", failed.Message)
			}
			wantState(t, b.store, "k", driver.StateFailed)
		})
	})
	t.Run("failed, where no failure is kept", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBankOf(t, func(store *hooked) dedup.Store { return noFailures{store} },
				func(c *dedup.Config) {
					answering(dedup.FailedForGood("card refused"))(c)
					c.SeenOnly = true
				})
			for range 2 { // with a nil error the caller would acknowledge a success
				_, err := dedup.Do(t.Context(), b.d, "k", func(context.Context) (struct{}, error) {
					t.Error("the effect ran again")
					return struct{}{}, nil
				})
				var failed *dedup.FailedError
				require.ErrorAs(t, err, &failed)
				assert.Equal(t, "card refused", failed.Message)
				wantState(t, b.store, "k", driver.StateUncertain)
			}
		})
	})
	t.Run("large result", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBank(t, answering(dedup.Happened([]byte(strings.Repeat("x", 1<<20)))))
			_, err := do(t, b.d, "k", mustNotRun(t))
			require.ErrorIs(t, err, dedup.ErrNoResult)
			wantState(t, b.store, "k", driver.StateSucceeded)
		})
	})
	t.Run("released", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBank(t, answering(dedup.DidNotHappen()))
			res, err := do(t, b.d, "k", returns("v"))
			require.NoError(t, err)
			assert.Equal(t, dedup.Acquired, res.Outcome)
			assert.Equal(t, 2, res.Attempt)
			wantState(t, b.store, "k", driver.StateSucceeded)
		})
	})
}

// A claim by hand of a resolved key can be kept alive and ended.
func TestResolveThenClaimByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, answering(dedup.DidNotHappen()))
		c := acquire(t, b.d, "k")
		assert.True(t, c.Record.Irreversible, "%+v", c.Record)
		assert.Equal(t, 2, c.Attempt)
		run, stop := c.KeepAlive(t.Context())
		defer stop()
		time.Sleep(5 * lease)
		require.NoError(t, context.Cause(run))
		assert.NoError(t, c.Complete(t.Context(), nil))
	})
}

// A rerun that ends without saying how is asked about again, even if it has not reached its own
// MarkIrreversible.
func TestARerunStaysIrreversible(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(*bank)
		want driver.State
	}{
		"error": {func(b *bank) { _, _ = do(b.T, b.d, "k", fails(errBusy)) }, driver.StateUncertain},
		"panic": {func(b *bank) {
			apart(func() {
				_, _ = do(b.T, b.d, "k", func(context.Context) (string, error) { panic("x") })
			})
		}, driver.StateUncertain},
		"lapse": {func(b *bank) {
			acquire(b.T, b.d, "k")
			time.Sleep(lease)
		}, driver.StateUncertain},
		"not begun": {func(b *bank) {
			_, _ = do(b.T, b.d, "k", fails(dedup.NotStarted(errBusy)))
		}, driver.StateReleased},
		"permanent": {func(b *bank) {
			_, _ = do(b.T, b.d, "k", fails(dedup.Permanent(errBusy)))
		}, driver.StateFailed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBank(t, answering(dedup.DidNotHappen()))
				test.end(b)
				wantState(t, b.store, "k", test.want)
			})
		})
	}
}

func fails(err error) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return "", err }
}

// If Resolve does not know either, the key stays uncertain, and the next call asks again.
func TestResolveThatDoesNotKnow(t *testing.T) {
	for name, test := range map[string]struct {
		resolve   func(context.Context, string, dedup.Record) (dedup.Resolution, error)
		cause     error
		retryable bool
	}{
		"still unknown": {func(context.Context, string, dedup.Record) (dedup.Resolution, error) {
			return dedup.Resolution{}, nil
		}, nil, true},
		"error": {func(context.Context, string, dedup.Record) (dedup.Resolution, error) {
			return dedup.Happened([]byte("no")), errNet
		}, errNet, true},
		"nobody will know": {func(context.Context, string, dedup.Record) (dedup.Resolution, error) {
			return dedup.Resolution{}, dedup.Permanent(errNet)
		}, errNet, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBank(t, resolving(test.resolve))
				for want := 2; want <= 3; want++ {
					c := claim(t, b.d, "k")
					require.Equal(t, dedup.Uncertain, c.Outcome)
					require.ErrorIs(t, c.Err(), dedup.ErrUncertain)
					if test.cause != nil {
						require.ErrorIs(t, c.Err(), test.cause)
					}
					assert.Equal(t, test.retryable, dedup.CanRetry(c.Err()))
					rec := wantState(t, b.store, "k", driver.StateUncertain)
					assert.Equal(t, want, rec.Attempt)
					assert.Equal(t, want, c.Attempt)
				}
				_, err := do(t, b.d, "k", mustNotRun(t))
				require.ErrorIs(t, err, dedup.ErrUncertain)
			})
		})
	}
}

func TestResolveThatPanics(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() {
		panic("boom")
	}, "goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBank(t, resolving(func(context.Context, string, dedup.Record) (
					dedup.Resolution, error) {
					end()
					return dedup.DidNotHappen(), nil
				}))
				went := false
				apart(func() {
					defer func() { went = recover() != nil || name == "goexit" }()
					_, _ = b.d.Claim(t.Context(), "k")
				})
				assert.True(t, went, "the panic did not go on")
				wantState(t, b.store, "k", driver.StateUncertain)
			})
		})
	}
}

// Two processes ask one bank at a time; the other finds the key in flight.
func TestOneAsksAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asking, questions atomic.Int32
		ask := func(context.Context, string, dedup.Record) (dedup.Resolution, error) {
			assert.EqualValues(t, 1, asking.Add(1), "two ask at a time")
			time.Sleep(3 * lease) // longer than the lease, which is renewed meanwhile
			asking.Add(-1)
			questions.Add(1)
			return dedup.Happened([]byte("ch_1")), nil
		}
		b := newBank(t, resolving(ask))
		other := newDeduper(t, b.store.inner, resolving(ask))
		waiting := newDeduper(t, b.store.inner, func(c *dedup.Config) {
			c.Resolve, c.Wait = ask, time.Hour
		})
		done := make(chan error, 2)
		go func() { _, err := do(t, b.d, "k", mustNotRun(t)); done <- err }()
		synctest.Wait()
		go func() { _, err := do(t, waiting, "k", mustNotRun(t)); done <- err }()
		time.Sleep(2 * lease)
		for _, d := range []*dedup.Deduper{other, b.d} {
			assert.Equal(t, dedup.InFlight, claim(t, d, "k").Outcome, "while it is asked about")
		}
		for range 2 {
			assert.NoError(t, <-done)
		}
		assert.EqualValues(t, 1, questions.Load())
	})
}

// Resolve gets the number of the attempt and the key under which the effect was sent downstream.
// It may look at finished steps.
func TestWhatResolveIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		sent, n := "", 0
		_, err := do(t, newDeduper(t, store, nil), "k", func(ctx context.Context) (string, error) {
			a, _ := dedup.FromContext(ctx)
			sent = a.DownstreamKey("bank")
			wantStep(t, ctx, "order", "o_1", &n)
			return "", errors.Join(errBusy, dedup.MarkIrreversible(ctx))
		})
		require.ErrorIs(t, err, errBusy)
		d := newDeduper(t, store,
			resolving(func(ctx context.Context, key string, rec dedup.Record) (dedup.Resolution,
				error) {
				a, ok := dedup.FromContext(ctx)
				assert.True(t, ok)
				assert.Equal(t, "k", key)
				assert.Equal(t, 2, a.Number)
				assert.Equal(t, sent, a.DownstreamKey("bank"))
				assert.Equal(t, driver.StateUncertain, rec.State)
				assert.True(t, rec.Irreversible, "record %+v", rec)
				assert.Equal(t, 2, rec.Attempt)
				wantStep(t, ctx, "order", "o_1", &n)
				return dedup.Happened(nil), nil
			}))
		require.Equal(t, dedup.Duplicate, claim(t, d, "k").Outcome)
		assert.Equal(t, 1, n, "the step")
	})
}

// When a resolver's claim is lost, its context is canceled, and its answer does not count.
func TestResolveThatLosesItsClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *bank
		b = newBank(t, resolving(func(ctx context.Context, _ string, _ dedup.Record) (
			dedup.Resolution, error) {
			b.store.setBefore(only("Renew", down))
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), dedup.ErrLeaseLost)
			return dedup.DidNotHappen(), nil
		}))
		_, err := b.d.Claim(t.Context(), "k")
		assert.True(t, dedup.OutcomeUnknown(err), "got %v", err)
		assert.ErrorIs(t, err, dedup.ErrLeaseLost)
		wantState(t, b.store, "k", driver.StateUncertain)
	})
}

// If the caller leaves, or Close gives up, the key stays uncertain.
func TestResolveThatIsInterrupted(t *testing.T) {
	for _, name := range []string{"caller", "close"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asking := make(chan struct{})
				b := &bank{store: hook()}
				d, err := dedup.New(b.store, dedup.Config{
					Namespace: "test", Window: time.Hour, LeaseTTL: 10 * time.Second,
					Resolve: func(ctx context.Context, _ string, _ dedup.Record) (dedup.Resolution,
						error) {
						close(asking)
						<-ctx.Done()
						return dedup.DidNotHappen(), ctx.Err()
					},
				})
				require.NoError(t, err)
				uncertainKey(t, newDeduper(t, b.store.inner, nil), b.store, "k")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan error, 1)
				go func() { _, err := d.Claim(ctx, "k"); done <- err }()
				<-asking
				want := dedup.ErrClosed
				if name == "caller" {
					want = context.Canceled
					cancel()
				} else {
					assert.Error(t, closeWithin(d, time.Second), "Close did not wait")
				}
				err = <-done
				assert.ErrorIs(t, err, want)
				assert.True(t, dedup.OutcomeUnknown(err), "got %v", err)
				wantState(t, b.store, "k", driver.StateUncertain)
				_ = closeWithin(d, time.Minute)
			})
		})
	}
}

// Resolve knows the answer, but the store is down. No caller may act on that answer.
func TestResolveThatCannotBeRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *bank
		b = newBank(t, resolving(func(context.Context, string, dedup.Record) (dedup.Resolution,
			error) {
			b.store.setBefore(down)
			return dedup.Happened(nil), nil
		}))
		_, err := b.d.Claim(t.Context(), "k")
		assert.True(t, dedup.OutcomeUnknown(err), "got %v", err)
		assert.ErrorIs(t, err, errNet)
		b.store.setBefore(nil)
		time.Sleep(lease)
		wantState(t, b.store, "k", driver.StateUncertain)
	})
}

// Another process marks the key while Resolve runs. The caller gets that mark.
func TestResolveThatIsOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *bank
		b = newBank(t, resolving(func(ctx context.Context, _ string, _ dedup.Record) (
			dedup.Resolution, error) {
			_, err := newDeduper(t, b.store.inner, nil).Mark(context.WithoutCancel(ctx), "k")
			assert.NoError(t, err)
			return dedup.FailedForGood("no"), nil
		}))
		c := claim(t, b.d, "k")
		require.Equal(t, dedup.Duplicate, c.Outcome)
		assert.Equal(t, driver.StateSucceeded, c.Record.State)
	})
}

// ClaimBatch and Seen never wait for a downstream: they return Uncertain. Resolve is not called for
// a key that is not uncertain.
func TestResolveIsNotForEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, resolving(func(context.Context, string, dedup.Record) (dedup.Resolution,
			error) {
			t.Error("asked")
			return dedup.Resolution{}, nil
		}))
		require.Equal(t, dedup.Uncertain, claimBatch(t, b.d, keyed("k"))[0].Outcome)
		_, err := b.d.Seen(t.Context(), "k")
		require.ErrorIs(t, err, dedup.ErrUncertain)
		wantState(t, b.store, "k", driver.StateUncertain)

		res, err := do(t, b.d, "other", returns("v"))
		require.NoError(t, err)
		assert.Equal(t, dedup.Acquired, res.Outcome)
		_, err = do(t, b.d, "released", fails(errBusy))
		require.ErrorIs(t, err, errBusy)
		res, err = do(t, b.d, "released", returns("v"))
		require.NoError(t, err)
		assert.Equal(t, 2, res.Attempt)
	})
	synctest.Test(t, func(t *testing.T) { // Observe mode runs, and reports
		b := newBank(t, func(c *dedup.Config) {
			c.Mode = dedup.Observe
			c.Resolve = func(context.Context, string, dedup.Record) (dedup.Resolution, error) {
				t.Error("asked")
				return dedup.Resolution{}, nil
			}
		})
		assert.Equal(t, 1, runs(t, b.d, "k"))
		skip := b.seen.of("would skip")
		require.Len(t, skip, 1)
		assert.Equal(t, dedup.Uncertain, skip[0].Outcome)
		wantState(t, b.store, "k", driver.StateUncertain)
	})
}
