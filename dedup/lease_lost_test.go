package dedup_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceward/onceward/dedup"
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

// The store's answer is believed before our own clock: somebody marked the key done.
func TestRenewalThatFindsAnotherOwnerCancelsTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaused(t)
		c := acquire(t, p.a, "k")
		run, stop := c.KeepAlive(t.Context())
		defer stop()
		if first, err := p.b.Mark(t.Context(), "k"); !first || err != nil {
			t.Fatal(first, err)
		}
		start := time.Now()
		<-run.Done()
		wantErr(t, context.Cause(run), dedup.ErrLeaseLost)
		if waited := time.Since(start); waited > lease/3 {
			t.Fatalf("cancelled after %v", waited)
		}
		p.seen.want(t, "lease lost", 1)
		wantErr(t, c.Release(t.Context()), dedup.ErrLeaseLost)
		if c.Stored == nil || c.Stored.State != dedup.StateSucceeded {
			t.Fatalf("found %+v", c.Stored)
		}
	})
}

// A renewal is executed in time, and its answer comes when the lease has ended here:
// the handler has been told to stop, and stays told.
func TestRenewalAnsweredTooLateRevivesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaused(t)
		c := acquire(t, p.a, "k")
		run, stop := c.KeepAlive(t.Context())
		defer stop()
		p.store.setAfter(only("Renew", func(call) error { time.Sleep(lease); return nil }))
		start := time.Now()
		<-run.Done()
		if took := time.Since(start); took != valid || !errors.Is(context.Cause(run), dedup.ErrLeaseLost) {
			t.Errorf("%v after %v", context.Cause(run), took)
		}
		time.Sleep(lease)
		renewals := p.store.count("Renew")
		time.Sleep(lease)
		if n := p.store.count("Renew") - renewals; n != 0 {
			t.Errorf("%d renewals of a lost claim", n)
		}
		p.seen.want(t, "lease lost", 1)
		wantErr(t, c.Complete(t.Context(), nil), dedup.ErrLeaseLost)
	})
}

// While a process is paused past its lease, another takes the key over.
func TestTakeoverAfterThePauseOfAnOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaused(t)
		var fence uint64
		_, err := do(t, p.a, "k", func(ctx context.Context) (string, error) {
			attempt, _ := dedup.FromContext(ctx)
			other := p.takeover(t)
			wantErr(t, context.Cause(ctx), dedup.ErrLeaseLost)
			fence = attempt.Fence()
			if other.Attempt != 2 || other.Fence() <= fence {
				t.Errorf("attempt %d with fence %d after %d", other.Attempt, other.Fence(), fence)
			}
			return "", context.Cause(ctx)
		})
		wantErr(t, err, dedup.ErrLeaseLost)
		if rec := wantState(t, p.store, "k", dedup.StateInProgress); rec.Attempt != 2 {
			t.Fatalf("the new owner's claim was touched: %+v", rec)
		}
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
		if !dedup.OutcomeUnknown(err) || dedup.CanRetry(err) || !errors.Is(err, dedup.ErrLeaseLost) {
			t.Errorf("got %v", err)
		}
		if rec := wantState(t, store, "k", dedup.StateInProgress); rec.Attempt != 2 {
			t.Errorf("the new owner's claim was touched: %+v", rec)
		}
	})
}

// A nil return of a handler whose context was canceled for the loss may mean "I was
// told to stop": without an effect, "succeeded" would lose the message.
func TestLostHandlerThatReturnsNilIsNotRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		store.setBefore(only("Renew", down))
		res, err := do(t, d, "k", func(ctx context.Context) (string, error) { <-ctx.Done(); return "v", nil })
		wantErr(t, err, dedup.ErrLeaseLost)
		if res.Value != "v" || res.Outcome != dedup.Acquired {
			t.Fatalf("%+v", res)
		}
		wantState(t, store, "k", dedup.StateInProgress)
		if store.count("Finish") != 0 {
			t.Fatal("something was written")
		}
		time.Sleep(lease - valid) // the store's lease outlives ours by the margin
		res, err = do(t, d, "k", returns("again"))
		if err != nil || res.Attempt != 2 {
			t.Fatalf("%+v, %v", res, err)
		}
	})
}

// The same, of a handler that knows that its effect has landed.
func TestLostHandlerThatSaysLandedIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaused(t)
		var other *dedup.Claim
		_, err := do(t, p.a, "k", func(ctx context.Context) (string, error) {
			other = p.takeover(t)
			if !dedup.Landed(ctx) {
				t.Error("Landed outside an attempt")
			}
			return "first", nil
		})
		wantErr(t, err, dedup.ErrLeaseLost)
		if rec := wantState(t, p.store, "k", dedup.StateSucceeded); string(rec.Result) != "first" {
			t.Fatalf("%+v", rec)
		}
		wantErr(t, other.Complete(t.Context(), []byte("second")), dedup.ErrLeaseLost)
		if other.Stored == nil || string(other.Stored.Result) != "first" {
			t.Fatalf("the new owner found %+v", other.Stored)
		}
	})
}

// completedLate completes a claim whose key b owns by now, before a knows.
func completedLate(t *testing.T, use func(*dedup.Claim)) (recorded bool, err error) {
	t.Helper()
	p := newPaused(t)
	c := acquire(t, p.a, "k")
	use(c)
	time.Sleep(lease)
	acquire(t, p.b, "k")
	err = c.Complete(t.Context(), []byte("late"))
	return lookup(t, p.store, "k").State == dedup.StateSucceeded, err
}

func TestLateCompleteCountsUnlessTheFenceWasRead(t *testing.T) {
	for name, row := range map[string]struct {
		use  func(*dedup.Claim)
		want bool
	}{
		// The effect happened, and no downstream refused it: recording it spares a third run.
		"fence not read": {func(*dedup.Claim) {}, true},
		// The downstream may have refused the old fence: that is not an effect.
		"fence read": {func(c *dedup.Claim) { c.Fence() }, false},
		"fence read, but landed": {func(c *dedup.Claim) {
			c.Fence()
			ctx, stop := c.KeepAlive(context.Background())
			defer stop()
			dedup.Landed(ctx)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				recorded, err := completedLate(t, row.use)
				wantErr(t, err, dedup.ErrLeaseLost)
				if recorded != row.want {
					t.Fatalf("recorded %t, want %t", recorded, row.want)
				}
			})
		})
	}
}

// The fence is to be had in one way only, or its being read would go unnoticed.
func TestFenceCannotBeReadBehindTheClaimsBack(t *testing.T) {
	d := newDeduper(t, dedup.Memory(10), nil)
	c := acquire(t, d, "k")
	if c.Record.Fence != 0 {
		t.Fatal("Record tells the fence of an acquired claim")
	}
	first := c.Fence()
	if err := c.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if again := acquire(t, d, "k"); first == 0 || again.Fence() <= first || claim(t, d, "k").Fence() != 0 {
		t.Fatalf("fences %d, then %d", first, again.Fence())
	}
}

// An outage that outlasts the lease ends in "unknown". When the store is back, the
// effect that had landed in time is put on record by calling Complete again.
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
				if !dedup.OutcomeUnknown(err) {
					t.Fatalf("during the outage: %v", err)
				}
				store.setBefore(nil)
				if err := c.Complete(t.Context(), []byte("v")); err != nil {
					t.Fatalf("after the outage: %v", err)
				}
				wantState(t, store, "k", dedup.StateSucceeded)
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
				wantErr(t, end(old), dedup.ErrLeaseLost)
				wantErr(t, end(old), dedup.ErrLeaseLost) // told again, not asked again
				p.seen.want(t, "lease lost", 1)
				if rec := wantState(t, p.store, "k", dedup.StateInProgress); rec.Attempt != 2 {
					t.Fatalf("%+v", rec)
				}
				if err := current.Complete(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}
