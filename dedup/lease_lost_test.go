package dedup_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// paused lets a claim of a lapse while b takes the key over.
type paused struct {
	store *hooked
	a, b  *dedup.Deduper
	seen  *journal
}

func newPaused(t *testing.T) *paused {
	p := &paused{store: hook(), seen: &journal{}}
	p.a = newDeduper(t, p.store, func(c *dedup.Config) { c.Observer = p.seen.observer() })
	p.b = newDeduper(t, p.store.inner, nil)
	return p
}

// takeover waits for the lease of a to lapse in the store and claims the key for b.
func (p *paused) takeover(t *testing.T) *dedup.Claim {
	t.Helper()
	p.store.setBefore(only("Renew", down))
	time.Sleep(lease)
	c := acquire(t, p.b, "k")
	p.store.setBefore(nil)
	return c
}

// The store's answer counts even while our own clock says that the lease lasts: the key was marked.
func TestRenewalThatFindsAnotherOwnerCancelsTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaused(t)
		c := acquire(t, p.a, "k")
		run, stop := c.KeepAlive(t.Context())
		defer stop()
		first, err := p.b.Mark(t.Context(), "k")
		require.True(t, first)
		require.NoError(t, err)
		start := time.Now()
		<-run.Done()
		synctest.Wait() // the Observer is called after the context was canceled
		require.ErrorIs(t, context.Cause(run), dedup.ErrLeaseLost)
		require.LessOrEqual(t, time.Since(start), lease/3)
		p.seen.want(t, "lease lost", 1)
		require.ErrorIs(t, c.Release(t.Context()), dedup.ErrLeaseLost)
		require.NotNil(t, c.Stored)
		require.Equal(t, driver.StateSucceeded, c.Stored.State)
	})
}

// A renewal finds a loss, and the canceled handler's end finds it again. It is reported once.
func TestLossIsReportedOnce(t *testing.T) {
	for name, mode := range map[string]dedup.Mode{"enforce": dedup.Enforce,
		"observe": dedup.Observe} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPaused(t)
				a := newDeduper(t, p.store, func(c *dedup.Config) {
					c.Observer, c.Mode = p.seen.observer(), mode
				})
				_, err := dedup.Do(t.Context(), a, "k",
					func(ctx context.Context) (string, error) {
						_, err := p.b.Mark(ctx, "k")
						require.NoError(t, err)
						time.Sleep(lease)
						return "", context.Canceled
					})
				require.ErrorIs(t, err, context.Canceled)
				p.seen.want(t, "lease lost", 1)
			})
		})
	}
}

// The store executes a renewal in time, but its answer comes after the lease has ended here. The
// handler was told to stop, and its context stays canceled.
func TestRenewalAnsweredTooLateRevivesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaused(t)
		c := acquire(t, p.a, "k")
		run, stop := c.KeepAlive(t.Context())
		defer stop()
		p.store.setAfter(only("Renew", func(call) error { time.Sleep(lease); return nil }))
		start := time.Now()
		<-run.Done()
		assert.Equal(t, valid, time.Since(start))
		assert.ErrorIs(t, context.Cause(run), dedup.ErrLeaseLost)
		time.Sleep(lease)
		renewals := p.store.count("Renew")
		time.Sleep(lease)
		assert.Equal(t, 0, p.store.count("Renew")-renewals, "renewals of a lost claim")
		p.seen.want(t, "lease lost", 1)
		require.ErrorIs(t, c.Complete(t.Context(), nil), dedup.ErrLeaseLost)
	})
}

// While a process is paused past its lease, another process takes the key over.
func TestTakeoverAfterThePauseOfAnOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaused(t)
		var fence uint64
		_, err := do(t, p.a, "k", func(ctx context.Context) (string, error) {
			attempt, _ := dedup.FromContext(ctx)
			other := p.takeover(t)
			require.ErrorIs(t, context.Cause(ctx), dedup.ErrLeaseLost)
			fence = attempt.Fence()
			assert.Equal(t, 2, other.Attempt)
			assert.Greater(t, other.Fence(), fence)
			return "", context.Cause(ctx)
		})
		require.ErrorIs(t, err, dedup.ErrLeaseLost)
		rec := wantState(t, p.store, "k", driver.StateInProgress)
		require.Equal(t, 2, rec.Attempt, "the new owner's claim was touched")
	})
}

// A process that is paused between its claim and the effect must not begin it.
func TestNothingBeginsUnderALeaseThatHasLapsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		other := newDeduper(t, store, nil)
		d := newDeduper(t, store, func(c *dedup.Config) {
			c.Observer.Claimed = func(dedup.Event) {
				time.Sleep(2 * lease)
				acquire(t, other, "k")
			}
		})
		_, err := do(t, d, "k", mustNotRun(t))
		assert.ErrorIs(t, err, dedup.ErrLeaseLost)
		assert.True(t, dedup.OutcomeUnknown(err) && !dedup.CanRetry(err), "got %v", err)
		rec := wantState(t, store, "k", driver.StateInProgress)
		assert.Equal(t, 2, rec.Attempt, "the new owner's claim was touched")
	})
}

// A handler whose context was canceled for the loss returns nil. It may mean "I was told to stop".
// If that were recorded as succeeded without an effect, the message would be lost.
func TestLostHandlerThatReturnsNilIsNotRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		store.setBefore(only("Renew", down))
		res, err := do(t, d, "k", func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "v", nil
		})
		require.ErrorIs(t, err, dedup.ErrLeaseLost)
		require.Equal(t, "v", res.Value)
		require.Equal(t, dedup.Acquired, res.Outcome)
		wantState(t, store, "k", driver.StateInProgress)
		require.Equal(t, 0, store.count("Finish"), "something was written")
		time.Sleep(lease - valid) // the store's lease outlives ours by the margin
		res, err = do(t, d, "k", returns("again"))
		require.NoError(t, err)
		require.Equal(t, 2, res.Attempt)
	})
}

// The same, for a handler that knows that its effect has landed.
func TestLostHandlerThatSaysLandedIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaused(t)
		var other *dedup.Claim
		_, err := do(t, p.a, "k", func(ctx context.Context) (string, error) {
			other = p.takeover(t)
			assert.True(t, dedup.EffectApplied(ctx), "EffectApplied outside an attempt")
			return "first", nil
		})
		require.ErrorIs(t, err, dedup.ErrLeaseLost)
		require.Equal(t, "first", string(wantState(t, p.store, "k", driver.StateSucceeded).Result))
		require.ErrorIs(t, other.Complete(t.Context(), []byte("second")), dedup.ErrLeaseLost)
		require.NotNil(t, other.Stored, "what the new owner found")
		require.Equal(t, "first", string(other.Stored.Result))
	})
}

// completedLate lets b claim the key of a claim, and completes that claim before a knows.
func completedLate(t *testing.T, use func(*dedup.Claim)) (recorded bool, err error) {
	t.Helper()
	p := newPaused(t)
	c := acquire(t, p.a, "k")
	use(c)
	time.Sleep(lease)
	acquire(t, p.b, "k")
	err = c.Complete(t.Context(), []byte("late"))
	return lookup(t, p.store, "k").State == driver.StateSucceeded, err
}

func TestLateCompleteCountsUnlessTheFenceWasRead(t *testing.T) {
	for name, row := range map[string]struct {
		use  func(*dedup.Claim)
		want bool
	}{
		// The effect happened, and no downstream refused it: recording it spares a third run.
		"fence not read": {func(*dedup.Claim) {}, true},
		// The downstream may have refused the old fence, and then there was no effect.
		"fence read": {func(c *dedup.Claim) { c.Fence() }, false},
		"fence read, but landed": {func(c *dedup.Claim) {
			c.Fence()
			ctx, stop := c.KeepAlive(context.Background())
			defer stop()
			dedup.EffectApplied(ctx)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				recorded, err := completedLate(t, row.use)
				require.ErrorIs(t, err, dedup.ErrLeaseLost)
				require.Equal(t, row.want, recorded)
			})
		})
	}
}

// The fence can be read in one way only, so that no read of it goes unnoticed.
func TestFenceCannotBeReadBehindTheClaimsBack(t *testing.T) {
	d := newDeduper(t, dedup.Memory(10), nil)
	c := acquire(t, d, "k")
	require.Zero(t, c.Record.Fence, "Record tells the fence of an acquired claim")
	first := c.Fence()
	require.NoError(t, c.Release(t.Context()))
	again := acquire(t, d, "k")
	require.NotZero(t, first)
	require.Greater(t, again.Fence(), first)
	require.Zero(t, claim(t, d, "k").Fence())
}

// An outage that outlasts the lease ends in ErrUnknown. When the store is back, a second call of
// Complete puts the effect on record, which had landed in time.
func TestCompleteAfterAnOutageStillCounts(t *testing.T) {
	for name, kept := range map[string]bool{"kept alive": true, "by hand": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := hook()
				d := newDeduper(t, store, nil)
				c := acquire(t, d, "k")
				if kept {
					_, stop := c.KeepAlive(t.Context())
					defer stop()
				}
				store.setBefore(down)
				err := c.Complete(t.Context(), []byte("v"))
				require.True(t, dedup.OutcomeUnknown(err), "during the outage: %v", err)
				store.setBefore(nil)
				require.NoError(t, c.Complete(t.Context(), []byte("v")), "after the outage")
				wantState(t, store, "k", driver.StateSucceeded)
			})
		})
	}
}

func TestLateFailAndReleaseChangeNothing(t *testing.T) {
	for name, end := range map[string]func(*dedup.Claim) error{
		"fail":    func(c *dedup.Claim) error { return c.Fail(context.Background(), errNet) },
		"release": func(c *dedup.Claim) error { return c.Release(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPaused(t)
				old := acquire(t, p.a, "k")
				time.Sleep(lease)
				current := acquire(t, p.b, "k")
				require.ErrorIs(t, end(old), dedup.ErrLeaseLost)
				require.ErrorIs(t, end(old), dedup.ErrLeaseLost) // without asking again
				p.seen.want(t, "lease lost", 1)
				require.Equal(t, 2, wantState(t, p.store, "k", driver.StateInProgress).Attempt)
				require.NoError(t, current.Complete(t.Context(), nil))
			})
		})
	}
}
