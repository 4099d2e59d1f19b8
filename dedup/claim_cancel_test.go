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

// wantFree insists that nobody holds the key once everything has settled.
func wantFree(t *testing.T, store *hooked, key string) {
	t.Helper()
	time.Sleep(3 * time.Second) // a StoreTimeout, and far less than a lease
	synctest.Wait()
	if rec := lookup(t, store, key); rec.State == dedup.StateInProgress {
		t.Fatalf("a claim nobody knows of was left behind: %+v", rec)
	}
}

// Wherever a caller is canceled while it claims, the key is free soon after.
func TestCancelledClaimLeavesNoClaimBehind(t *testing.T) {
	slow := only("Claim", func(call) error { time.Sleep(time.Second); return nil })
	lost := only("Claim", func(c call) error { time.Sleep(time.Second); return errNet })
	for name, row := range map[string]struct {
		before, after func(call) error
		cancel        time.Duration
	}{
		"before the request arrives":         {slow, nil, 500 * time.Millisecond},
		"before the reply arrives":           {nil, slow, 500 * time.Millisecond},
		"and the reply is lost":              {nil, lost, 500 * time.Millisecond},
		"between two asks":                   {nil, lost, time.Second + time.Microsecond},
		"during the second ask":              {nil, lost, 1500 * time.Millisecond},
		"while the store hangs":              {nil, only("Claim", hang), 500 * time.Millisecond},
		"while a hidden claim is renewed":    {only("Renew", func(call) error { time.Sleep(time.Second); return nil }), lostTimes("Claim", 1), 500 * time.Millisecond},
		"and every reply of the ask is lost": {nil, lost, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := hook()
				store.prompt = true
				d := newDeduper(t, store, nil)
				store.setBefore(row.before)
				store.setAfter(row.after)
				ctx, cancel := context.WithTimeout(t.Context(), row.cancel)
				defer cancel()
				c, err := d.Claim(ctx, "k")
				counted := 0
				if c != nil || !dedup.OutcomeUnknown(err) {
					// Canceled while it renews its hidden claim, the call may still win.
					if c == nil || c.Release(t.Context()) != nil {
						t.Fatalf("%v, %v", c, err)
					}
					counted = 1
				}
				if store.count("Claim") == 0 {
					t.Fatal("nothing was asked")
				}
				wantFree(t, store, "k")
				if rec := lookup(t, store, "k"); rec.Attempt != counted {
					t.Errorf("counted as attempt %d", rec.Attempt)
				}
			})
		})
	}
}

// lostTimes loses the first n replies, or requests, of a method.
func lostTimes(method string, n int) func(call) error {
	return only(method, func(c call) error {
		if c.nth <= n {
			return errNet
		}
		return nil
	})
}

func TestCancelledBatchLeavesNoClaimBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		store.setAfter(only("Claim", hang))
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		claims, err := d.ClaimBatch(ctx, []dedup.Request{{Key: "a"}, {Key: "b"}, {Key: "a"}})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range claims {
			wantOutcome(t, c, dedup.Unknown)
		}
		wantFree(t, store, "a")
		wantFree(t, store, "b")
		if n := store.count("Finish"); n != 1 {
			t.Fatalf("%d round trips to release one batch", n)
		}
	})
}

// A claim that was never sent needs no release.
func TestCallThatIsCancelledBeforehandAsksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, seen := hook(), &journal{}
		d := newDeduper(t, store, func(c *dedup.Config) { c.Observer = seen.observer() })
		errBye := errors.New("bye")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errBye)
		errs := map[string]error{}
		_, errs["Claim"] = d.Claim(ctx, "k")
		_, errs["Do"] = dedup.Do(ctx, d, "k", mustNotRun(t))
		_, errs["Seen"] = d.Seen(ctx, "k")
		_, errs["Mark"] = d.Mark(ctx, "k")
		_, errs["Lookup"] = d.Lookup(ctx, "k")
		claims, err := d.ClaimBatch(ctx, []dedup.Request{{Key: "k"}})
		if err != nil {
			t.Fatal(err)
		}
		errs["ClaimBatch"] = claims[0].Err()
		for name, err := range errs {
			if !errors.Is(err, errBye) || !errors.Is(err, context.Canceled) || !dedup.OutcomeUnknown(err) || dedup.CanRetry(err) {
				t.Errorf("%s: %v", name, err)
			}
		}
		synctest.Wait()
		if n := store.count(); n != 0 {
			t.Errorf("%d calls to the store", n)
		}
		seen.want(t, "store error", 0) // it is not the store's fault
	})
}

// A thousand impatient callers of a hanging store leave nothing behind, and are not
// released one by one.
func TestManyCancelledClaimsAreReleasedInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		store.prompt = true
		d := newDeduper(t, store, nil)
		store.setAfter(only("Claim", func(call) error { time.Sleep(time.Second); return nil }))
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() {
				if _, err := d.Claim(ctx, fmt.Sprint("k", i)); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Second)
		for i := range 1000 {
			wantFreeNow(t, store, fmt.Sprint("k", i))
		}
		if n := store.count("Finish"); n > 20 {
			t.Errorf("%d round trips to release", n)
		}
	})
}

func wantFreeNow(t *testing.T, store *hooked, key string) {
	t.Helper()
	synctest.Wait()
	if rec := lookup(t, store, key); rec.State == dedup.StateInProgress {
		t.Fatalf("%q is still held", key)
	}
}

// A caller with a deadline and a store that hangs: FailOpen is for the store's sake.
func TestFailOpenDoesNotRunForACallerThatHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, func(c *dedup.Config) { c.FailOpen = true })
		store.setBefore(only("Claim", hang))
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { time.Sleep(time.Second); cancel(errors.New("bye")) }()
		if _, err := dedup.Do(ctx, d, "k", mustNotRun(t)); !dedup.OutcomeUnknown(err) {
			t.Fatal(err)
		}
		timed, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := dedup.Do(timed, d, "k", mustNotRun(t)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	})
}
