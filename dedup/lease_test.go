package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceward/onceward/dedup"
)

const (
	lease = 10 * time.Second // of newDeduper
	// valid is how long a claim of newDeduper counts from before it was sent.
	valid = lease - lease/100 - 2*time.Millisecond
)

// journal notes what an Observer is told.
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
		LeaseLost: note("lease lost"), StoreError: note("store error"), FailedOpen: note("failed open"),
		Uncertain: note("uncertain"), Filtered: note("filtered"), FilterState: note("filter state"),
	}
}

func (j *journal) of(name string) []dedup.Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]dedup.Event(nil), j.events[name]...)
}

func (j *journal) want(t *testing.T, name string, n int) {
	t.Helper()
	if got := j.of(name); len(got) != n {
		t.Fatalf("%d events %q, want %d: %+v", len(got), name, n, got)
	}
}

// An hour under a lease of ten seconds: never lost, renewed at about a third.
func TestLeaseIsRenewedOverManyLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		c := acquire(t, d, "k")
		ctx, stop := c.KeepAlive(t.Context())
		time.Sleep(time.Hour)
		if err := context.Cause(ctx); err != nil {
			t.Fatal(err)
		}
		if n := store.count("Renew"); n < 900 || n > 1800 {
			t.Fatalf("%d renewals in 360 leases", n)
		}
		if err := c.Complete(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		wantErr(t, context.Cause(ctx), context.Canceled)
		stop()
		stop()
		renewals := store.count("Renew")
		time.Sleep(time.Minute)
		if store.count("Renew") != renewals {
			t.Fatal("an ended claim is still renewed")
		}
	})
}

// A store that is away for less than a lease costs nothing.
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
		if err != nil || res.Value != "ok" {
			t.Fatalf("%+v, %v", res, err)
		}
		seen.want(t, "lease lost", 0)
		if len(seen.of("store error")) < 3 {
			t.Fatal("the renewals that failed were not told")
		}
	})
}

// lostAt runs a handler until its context is canceled, and returns when that was.
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

// The last confirmed renewal counts from when it was sent, not from its answer: the
// store may have executed it at once and been slow to say so.
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
				wantErr(t, err, dedup.ErrLeaseLost)
				if got := at.Sub(confirmed); got != valid {
					t.Fatalf("cancelled %v after the last confirmed renewal was sent, want %v", got, valid)
				}
				if lost := seen.of("lease lost"); len(lost) != 1 || lost[0].Attempt != 1 {
					t.Fatalf("told %+v", lost)
				}
			})
		})
	}
}

func TestHangingRenewalDoesNotDelayAnotherClaimsCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		store.setBefore(only("Renew", hang))
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 317 * time.Millisecond)
				claimed := time.Now()
				at, err := lostAt(t, d, fmt.Sprint("k", i))
				if !errors.Is(err, dedup.ErrLeaseLost) || at.Sub(claimed) != valid {
					t.Errorf("claim %d of %v: %v after %v", i, claimed.Sub(start), err, at.Sub(claimed))
				}
			})
		}
		wg.Wait()
	})
}

// A slow hook is a bug of its author, and keeps no other handler running.
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
				if at, _ := lostAt(t, d, fmt.Sprint("k", i)); at.Sub(start) != valid {
					t.Errorf("claim %d was cancelled after %v", i, at.Sub(start))
				}
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
		if n := store.count("Renew"); n > 200 {
			t.Errorf("%d renewal batches for 200 claims in six leases", n)
		}
		for _, c := range claims {
			if err := c.Complete(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
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
		if ctx.Err() != nil {
			t.Fatal("the second KeepAlive disturbed the first")
		}
		stop()
		stop()
		wantErr(t, context.Cause(ctx), context.Canceled)
		dead("kept before", c)
		if err := c.Complete(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		dead("ended", c)
	})
}

// A claim that was kept too late is canceled before any handler can start under it.
func TestKeepAliveAfterTheLeaseIsCancelledAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &journal{}
		d := newDeduper(t, dedup.Memory(10), func(c *dedup.Config) { c.Observer = seen.observer() })
		c := acquire(t, d, "k")
		time.Sleep(valid)
		ctx, stop := c.KeepAlive(t.Context())
		defer stop()
		wantErr(t, context.Cause(ctx), dedup.ErrLeaseLost)
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
		wantErr(t, context.Cause(run), context.Canceled)
		time.Sleep(5 * lease)
		wantOutcome(t, claim(t, b, "k"), dedup.InFlight)
		if err := c.Complete(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	})
}

// A renewal that crosses the end of its own claim finds no owner. That is not a loss.
func TestRenewalThatMeetsItsOwnEndIsNoAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, seen := hook(), &journal{}
		d := newDeduper(t, store, func(c *dedup.Config) { c.Observer = seen.observer() })
		c := acquire(t, d, "k")
		_, stop := c.KeepAlive(t.Context())
		defer stop()
		store.setBefore(only("Renew", func(call) error { time.Sleep(100 * time.Millisecond); return nil }))
		store.setAfter(only("Finish", func(call) error { time.Sleep(time.Second); return nil }))
		for store.count("Renew") == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		if err := c.Complete(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		seen.want(t, "lease lost", 0)
		seen.want(t, "ended", 1)
	})
}
