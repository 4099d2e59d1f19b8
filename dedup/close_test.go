package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceward/onceward/dedup"
)

func closeWithin(d *dedup.Deduper, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return d.Close(ctx)
}

func TestCloseWaitsForHandlersAndKeptClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dedup.Memory(10)
		d := newDeduper(t, store, nil)
		go func() {
			if _, err := do(t, d, "k", func(ctx context.Context) (string, error) {
				time.Sleep(30 * time.Second)
				return "v", context.Cause(ctx)
			}); err != nil {
				t.Error(err)
			}
		}()
		c := acquire(t, d, "kept")
		run, stop := c.KeepAlive(t.Context())
		defer stop()
		go func() {
			time.Sleep(40 * time.Second)
			if run.Err() != nil {
				t.Error("cancelled although Close still waits")
			}
			if err := c.Complete(context.Background(), nil); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		start := time.Now()
		if err := closeWithin(d, time.Minute); err != nil || time.Since(start) != 40*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		wantState(t, store, "k", dedup.StateSucceeded)
		wantState(t, store, "kept", dedup.StateSucceeded)
	})
}

// Ending a claim ends its KeepAlive, also when there was no claim to renew.
func TestEndOfAShadowClaimFreesClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, func(c *dedup.Config) { c.FailOpen = true })
		store.setBefore(only("Claim", down))
		c := acquire(t, d, "k")
		run, _ := c.KeepAlive(t.Context())
		if err := c.Complete(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		wantErr(t, context.Cause(run), context.Canceled)
		if err := closeWithin(d, time.Second); err != nil {
			t.Error(err)
		}
	})
}

func TestClosedRefusesEveryCallButTheEndOfAClaim(t *testing.T) {
	store := hook()
	d := newDeduper(t, store, nil)
	held := claimBatch(t, d, keyed("a"), keyed("b"), keyed("c"), keyed("d"))
	if err := d.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	store.forgetCalls()
	errOf := func(_ any, err error) error { return err }
	ctx := t.Context()
	for name, err := range map[string]error{
		"Do":         errOf(dedup.Do(ctx, d, "k", mustNotRun(t))),
		"Claim":      errOf(d.Claim(ctx, "k")),
		"ClaimBatch": errOf(d.ClaimBatch(ctx, []dedup.Request{keyed("k")})),
		"Seen":       errOf(d.Seen(ctx, "k")),
		"Mark":       errOf(d.Mark(ctx, "k")),
		"Lookup":     errOf(d.Lookup(ctx, "k")),
		"Forget":     d.Forget(ctx, "k"),
	} {
		if !errors.Is(err, dedup.ErrClosed) || dedup.CanRetry(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := store.count(); n != 0 {
		t.Errorf("%d calls to the store", n)
	}
	errs := d.CompleteBatch(ctx, []dedup.Completion{{Claim: held[0]}})
	if errs != nil || held[1].Complete(ctx, nil) != nil || held[2].Fail(ctx, errNet) != nil || held[3].Release(ctx) != nil {
		t.Error("what is held cannot be ended")
	}
	if err := d.Close(ctx); err != nil {
		t.Errorf("the second Close: %v", err)
	}
}

func TestCloseMayBeCalledConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeduper(t, dedup.Memory(10), nil)
		_, stop := acquire(t, d, "k").KeepAlive(t.Context())
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if err := closeWithin(d, time.Minute); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		stop()
		wg.Wait()
	})
}

// When Close gives up, it cancels what runs, under a claim or without one, says how much
// that was, and leaves no way for a handler to begin.
func TestCloseThatGivesUpCancelsWhatStillRuns(t *testing.T) {
	for name, change := range map[string]func(*dedup.Config){
		"enforce":   nil,
		"observe":   func(c *dedup.Config) { c.ObserveOnly = true },
		"fail open": func(c *dedup.Config) { c.FailOpen = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := hook()
				d := newDeduper(t, store, change)
				switch name {
				case "observe":
					mark(t, newDeduper(t, store, nil), "k0")
				case "fail open":
					store.setBefore(only("Claim", down))
				}
				var wg sync.WaitGroup
				for i := range 3 {
					wg.Go(func() {
						_, err := do(t, d, fmt.Sprint("k", i), func(ctx context.Context) (string, error) {
							<-ctx.Done()
							return "", context.Cause(ctx)
						})
						if !errors.Is(err, dedup.ErrClosed) {
							t.Errorf("handler %d was cancelled for %v", i, err)
						}
					})
				}
				time.Sleep(10 * time.Second)
				start := time.Now()
				err := closeWithin(d, 2*time.Second)
				if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "with 3 calls") || time.Since(start) != 2*time.Second {
					t.Errorf("%v after %v", err, time.Since(start))
				}
				wg.Wait()
				if err := closeWithin(d, time.Second); err != nil {
					t.Errorf("when all is quiet: %v", err)
				}
			})
		})
	}
}

// A call that is still claiming when Close gives up must not run its handler afterwards:
// the program is about to exit.
func TestNoHandlerStartsAfterCloseGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		store.setAfter(only("Claim", func(call) error { time.Sleep(2 * time.Second); return nil }))
		done := make(chan error, 1)
		go func() {
			_, err := do(t, d, "k", mustNotRun(t))
			done <- err
		}()
		synctest.Wait()
		if err := closeWithin(d, time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		wantErr(t, <-done, dedup.ErrClosed)
		wantState(t, store, "k", dedup.StateReleased)
	})
}

// The goroutines that give back orphans end before Close does, and Close does not wait
// for them longer than it was told.
func TestCloseWaitsForWhatGoesOnBehindTheCallersBacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		store.prompt = true
		d := newDeduper(t, store, nil)
		store.setAfter(func(call) error { time.Sleep(time.Second); return nil })
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := d.Claim(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		start := time.Now()
		err := closeWithin(d, 500*time.Millisecond)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 500*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if err := closeWithin(d, time.Minute); err != nil {
			t.Error(err)
		}
		wantState(t, store, "k", dedup.StateReleased)
	})
}
