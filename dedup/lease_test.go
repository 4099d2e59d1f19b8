package dedup_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
)

const (
	lease = 10 * time.Second // of newDeduper
	// valid is how long a claim of newDeduper counts from before it was sent.
	valid = lease - lease/100 - 2*time.Millisecond
)

// journal records the events of an Observer.
type journal struct {
	mu     sync.Mutex
	events map[string][]dedup.Event
}

func (j *journal) observer() dedup.Observer {
	note := func(name string) func(dedup.Event) {
		return func(e dedup.Event) {
			j.mu.Lock()
			defer j.mu.Unlock()
			if j.events == nil {
				j.events = map[string][]dedup.Event{}
			}
			j.events[name] = append(j.events[name], e)
		}
	}
	return dedup.Observer{
		Claimed: note("claimed"), WouldSkip: note("would skip"), Ended: note("ended"),
		LeaseLost: note("lease lost"), StoreError: note("store error"),
		FailedOpen: note("failed open"),
		Uncertain:  note("uncertain"), Filtered: note("filtered"),
		FilterState: note("filter state"),
	}
}

func (j *journal) of(name string) []dedup.Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]dedup.Event(nil), j.events[name]...)
}

func (j *journal) want(t *testing.T, name string, n int) {
	t.Helper()
	require.Len(t, j.of(name), n, name)
}

// An hour under a lease of ten seconds: never lost, renewed at about a third.
func TestLeaseIsRenewedOverManyLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		c := acquire(t, d, "k")
		ctx, stop := c.KeepAlive(t.Context())
		time.Sleep(time.Hour)
		require.NoError(t, context.Cause(ctx))
		n := store.count("Renew")
		require.GreaterOrEqual(t, n, 900)
		require.LessOrEqual(t, n, 1800)
		require.NoError(t, c.Complete(t.Context(), nil))
		require.ErrorIs(t, context.Cause(ctx), context.Canceled)
		stop()
		stop()
		renewals := store.count("Renew")
		time.Sleep(time.Minute)
		require.Equal(t, renewals, store.count("Renew"), "an ended claim is still renewed")
	})
}

// No lease is lost when the store is away for less than a lease.
func TestLeaseSurvivesRenewalErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, seen := hook(), &journal{}
		d := newDeduper(t, store, func(c *dedup.Config) { c.Observer = seen.observer() })
		start := time.Now()
		store.setBefore(only("Renew", func(c call) error {
			switch at := time.Since(start); {
			case at < 5*time.Second:
				return errNet
			case at < 7*time.Second: // two seconds each
				return hang(c)
			}
			return nil
		}))
		res, err := do(t, d, "k", func(ctx context.Context) (string, error) {
			time.Sleep(35 * time.Second)
			return "ok", context.Cause(ctx)
		})
		require.NoError(t, err)
		require.Equal(t, "ok", res.Value)
		seen.want(t, "lease lost", 0)
		require.GreaterOrEqual(t, len(seen.of("store error")), 3,
			"the renewals that failed were not told")
	})
}

// lostAt runs a handler until its context is canceled, and returns the time of that.
func lostAt(t *testing.T, d *dedup.Deduper, key string) (time.Time, error) {
	t.Helper()
	var at time.Time
	_, err := do(t, d, key, func(ctx context.Context) (string, error) {
		<-ctx.Done()
		at = time.Now()
		return "", context.Cause(ctx)
	})
	return at, err
}

// The last confirmed renewal counts from when it was sent, not from its answer. The store may have
// executed it at once and answered late.
func TestLeaseEndsNoLaterThanItsLastConfirmedRenewalAllows(t *testing.T) {
	for name, outage := range map[string]func(call) error{"refused": down, "hanging": hang} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, seen := hook(), &journal{}
				d := newDeduper(t, store, func(c *dedup.Config) { c.Observer = seen.observer() })
				var confirmed time.Time
				store.setBefore(only("Renew", func(c call) error {
					if c.nth > 5 {
						return outage(c)
					}
					confirmed = time.Now()
					time.Sleep(time.Second) // on the way there
					return nil
				}))
				at, err := lostAt(t, d, "k")
				require.ErrorIs(t, err, dedup.ErrLeaseLost)
				require.Equal(t, valid, at.Sub(confirmed))
				lost := seen.of("lease lost")
				require.Len(t, lost, 1)
				require.Equal(t, 1, lost[0].Attempt)
			})
		})
	}
}

func TestHangingRenewalDoesNotDelayAnotherClaimsCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		store.setBefore(only("Renew", hang))
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 317 * time.Millisecond)
				claimed := time.Now()
				at, err := lostAt(t, d, fmt.Sprint("k", i))
				assert.ErrorIs(t, err, dedup.ErrLeaseLost, "claim %d", i)
				assert.Equal(t, valid, at.Sub(claimed), "claim %d", i)
			})
		}
		wg.Wait()
	})
}

// An observer's slow hook does not delay any other handler.
func TestSlowObserverDoesNotDelayCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, func(c *dedup.Config) {
			c.Observer.LeaseLost = func(dedup.Event) { time.Sleep(5 * time.Second) }
		})
		store.setBefore(only("Renew", down))
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				at, _ := lostAt(t, d, fmt.Sprint("k", i))
				assert.Equal(t, valid, at.Sub(start), "claim %d", i)
			})
		}
		wg.Wait()
	})
}

// Many claims are renewed together, not one by one.
func TestRenewalsShareBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		var claims []*dedup.Claim
		for i := range 200 {
			c := acquire(t, d, fmt.Sprint("k", i))
			_, stop := c.KeepAlive(t.Context())
			defer stop()
			claims = append(claims, c)
		}
		time.Sleep(time.Minute)
		n := store.count("Renew")
		assert.LessOrEqual(t, n, 200, "renewal batches for 200 claims in six leases")
		for _, c := range claims {
			require.NoError(t, c.Complete(t.Context(), nil))
		}
	})
}

func TestKeepAliveMisuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeduper(t, dedup.Memory(10), nil)
		dead := func(name string, c *dedup.Claim) {
			t.Helper()
			ctx, stop := c.KeepAlive(t.Context())
			wantInput(t, context.Cause(ctx), "Claim")
			stop()
			stop()
			t.Log(name)
		}
		c := acquire(t, d, "k")
		dead("not acquired", claim(t, d, "k"))
		ctx, stop := c.KeepAlive(t.Context())
		dead("kept already", c)
		require.NoError(t, ctx.Err(), "the second KeepAlive disturbed the first")
		stop()
		stop()
		require.ErrorIs(t, context.Cause(ctx), context.Canceled)
		dead("kept before", c)
		require.NoError(t, c.Complete(t.Context(), nil))
		dead("ended", c)
	})
}

// When KeepAlive comes too late, its context is canceled before any handler can start under it.
func TestKeepAliveAfterTheLeaseIsCancelledAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &journal{}
		d := newDeduper(t, dedup.Memory(10), func(c *dedup.Config) { c.Observer = seen.observer() })
		c := acquire(t, d, "k")
		time.Sleep(valid)
		ctx, stop := c.KeepAlive(t.Context())
		defer stop()
		require.ErrorIs(t, context.Cause(ctx), dedup.ErrLeaseLost)
		seen.want(t, "lease lost", 1)
	})
}

// Canceling the caller does not stop the renewal: the effect may still be running.
func TestRenewalGoesOnAfterTheCallersContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dedup.Memory(10)
		a, b := newDeduper(t, store, nil), newDeduper(t, store, nil)
		ctx, cancel := context.WithCancel(t.Context())
		c := acquire(t, a, "k")
		run, stop := c.KeepAlive(ctx)
		defer stop()
		cancel()
		require.ErrorIs(t, context.Cause(run), context.Canceled)
		time.Sleep(5 * lease)
		require.Equal(t, dedup.InFlight, claim(t, b, "k").Outcome)
		require.NoError(t, c.Complete(t.Context(), nil))
	})
}

// A renewal that is under way when its claim ends finds no owner. That is not a loss.
func TestRenewalThatMeetsItsOwnEndIsNoAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, seen := hook(), &journal{}
		d := newDeduper(t, store, func(c *dedup.Config) { c.Observer = seen.observer() })
		c := acquire(t, d, "k")
		_, stop := c.KeepAlive(t.Context())
		defer stop()
		store.setBefore(only("Renew", func(call) error {
			time.Sleep(100 * time.Millisecond)
			return nil
		}))
		store.setAfter(only("Finish", func(call) error { time.Sleep(time.Second); return nil }))
		for store.count("Renew") == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		require.NoError(t, c.Complete(t.Context(), nil))
		seen.want(t, "lease lost", 0)
		seen.want(t, "ended", 1)
	})
}

// The claims of a batch are kept alive one by one, and end together with their batch. Then none is
// renewed any more, every handler's context has ended, and Close waits for nothing.
func TestBatchThatIsKeptAliveEndsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		claims, err := d.ClaimBatch(t.Context(),
			[]dedup.Request{{Key: "a"}, {Key: "b"}, {Key: "c"}})
		require.NoError(t, err)
		var runs []context.Context
		var ends []dedup.Completion
		for _, c := range claims {
			run, _ := c.KeepAlive(t.Context())
			again, _ := c.KeepAlive(t.Context())
			require.Error(t, again.Err(), "it is kept already")
			at, ok := dedup.FromContext(run)
			require.True(t, ok)
			assert.Equal(t, c.Key, at.Key)
			runs, ends = append(runs, run), append(ends, dedup.Completion{Claim: c})
		}
		time.Sleep(2 * lease)
		for _, run := range runs {
			require.NoError(t, run.Err())
		}
		require.Nil(t, d.CompleteBatch(t.Context(), ends[:2]))
		require.Error(t, runs[0].Err())
		require.Error(t, runs[1].Err())
		require.NoError(t, runs[2].Err(), "it has not ended")
		require.Nil(t, d.CompleteBatch(t.Context(), ends[2:]))
		renewals := store.count("Renew")
		time.Sleep(2 * lease)
		assert.Equal(t, renewals, store.count("Renew"), "renewals of what has ended")
		require.NoError(t, d.Close(t.Context()))
	})
}
