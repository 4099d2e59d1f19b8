package dedup_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceward/onceward/dedup"
)

func seen(t *testing.T, d *dedup.Deduper, key string, opts ...dedup.Option) bool {
	t.Helper()
	ok, err := d.Seen(t.Context(), key, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

func mark(t *testing.T, d *dedup.Deduper, key string, opts ...dedup.Option) bool {
	t.Helper()
	first, err := d.Mark(t.Context(), key, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return first
}

func TestMarkedIsSeenUntilTheWindowEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := &journal{}
		d := newDeduper(t, dedup.Memory(10), func(c *dedup.Config) { c.Observer = told.observer() })
		if seen(t, d, "k") || !mark(t, d, "k") || !seen(t, d, "k") || mark(t, d, "k") {
			t.Fatal("not seen, first, seen, not first")
		}
		if seen(t, d, "k", dedup.WithScope("other")) {
			t.Error("seen in another scope")
		}
		time.Sleep(time.Hour)
		if seen(t, d, "k") || !mark(t, d, "k") {
			t.Error("remembered beyond the window")
		}
		told.want(t, "ended", 2)      // marks that were the first
		told.want(t, "lease lost", 0) // a Mark has no lease to lose
		told.want(t, "claimed", 4)
	})
}

func TestMarkIsFirstOnceAmongMany(t *testing.T) {
	store := dedup.Memory(10)
	var firsts atomic.Int32
	var wg sync.WaitGroup
	for range 4 {
		d := newDeduper(t, store, nil)
		for range 50 {
			wg.Go(func() {
				if first, err := d.Mark(t.Context(), "k"); err != nil {
					t.Error(err)
				} else if first {
					firsts.Add(1)
				}
			})
		}
	}
	wg.Wait()
	if n := firsts.Load(); n != 1 {
		t.Errorf("%d callers were the first", n)
	}
}

// The reply that said "first" is lost: the retry finds its own work.
func TestMarkIsFirstAfterALostReply(t *testing.T) {
	for lost := range 4 {
		t.Run(fmt.Sprint(lost, " replies lost"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := hook()
				d := newDeduper(t, store, nil)
				store.setAfter(lostTimes("Finish", lost))
				if !mark(t, d, "k") || store.count() != lost+1 {
					t.Errorf("not the first, after %d calls", store.count())
				}
				if mark(t, d, "k") {
					t.Error("first twice")
				}
			})
		})
	}
}

func TestMarkTellsThatTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, told := hook(), &journal{}
		d := newDeduper(t, store, func(c *dedup.Config) { c.Observer = told.observer() })
		store.setBefore(down)
		first, err := d.Mark(t.Context(), "k")
		if first || !dedup.OutcomeUnknown(err) || !errors.Is(err, errNet) {
			t.Errorf("%t, %v", first, err)
		}
		if _, err := d.Seen(t.Context(), "k"); !dedup.OutcomeUnknown(err) {
			t.Errorf("Seen: %v", err)
		}
		if _, err := d.Lookup(t.Context(), "k"); !dedup.OutcomeUnknown(err) {
			t.Errorf("Lookup: %v", err)
		}
		if err := d.Forget(t.Context(), "k"); !dedup.OutcomeUnknown(err) {
			t.Errorf("Forget: %v", err)
		}
		told.want(t, "store error", 4+3)
	})
}

// Seen and Mark during a claim of somebody else.
func TestMarkOverAClaimInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dedup.Memory(10)
		a, b := newDeduper(t, store, nil), newDeduper(t, store, nil)
		c := acquire(t, a, "k")
		if seen(t, b, "k") {
			t.Error("what is only in flight is not seen")
		}
		if !mark(t, b, "k") || !seen(t, b, "k") {
			t.Error("the mark was not kept")
		}
		wantErr(t, c.Complete(t.Context(), []byte("late")), dedup.ErrLeaseLost)
		if rec := wantState(t, store, "k", dedup.StateSucceeded); rec.Result != nil || c.Stored == nil {
			t.Errorf("%+v", rec)
		}
	})
}

func TestMarkChangesNothingThatIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dedup.Memory(10)
		d := newDeduper(t, store, nil)
		if _, err := do(t, d, "done", returns("v")); err != nil {
			t.Fatal(err)
		}
		if err := acquire(t, d, "failed").Fail(t.Context(), errNet); err != nil {
			t.Fatal(err)
		}
		if mark(t, d, "done") || mark(t, d, "failed") {
			t.Error("first, over a record")
		}
		if !seen(t, d, "done") || !seen(t, d, "failed") {
			t.Error("not seen")
		}
		if rec := wantState(t, store, "done", dedup.StateSucceeded); string(rec.Result) != "v" {
			t.Errorf("%+v", rec)
		}
		wantState(t, store, "failed", dedup.StateFailed)
	})
}

func TestSeenComparesFingerprints(t *testing.T) {
	d := newDeduper(t, dedup.Memory(10), nil)
	mark(t, d, "k", dedup.WithFingerprint([]byte("a")))
	if !seen(t, d, "k", dedup.WithFingerprint([]byte("a"))) || !seen(t, d, "k") {
		t.Error("not seen")
	}
	_, err := d.Seen(t.Context(), "k", dedup.WithFingerprint([]byte("b")))
	wantErr(t, err, dedup.ErrMismatch)
}

// Nobody knows whether an uncertain key is done: running it is not the answer.
func TestSeenDoesNotSendAnUncertainKeyToItsEffect(t *testing.T) {
	d := newDeduper(t, uncertain{dedup.Memory(1)}, nil)
	_, err := d.Seen(t.Context(), "k")
	wantErr(t, err, dedup.ErrUncertain)
}

func TestLookupReadsAndChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, func(c *dedup.Config) { c.KeepLabels = true })
		rec, err := d.Lookup(t.Context(), "k")
		if err != nil || rec.State != dedup.StateAbsent {
			t.Fatalf("%+v, %v", rec, err)
		}
		origin := dedup.Origin{Source: "orders", Partition: 3, Offset: 7, Generation: 2}
		c := acquire(t, d, "k", dedup.WithOrigin(origin), dedup.WithLabel("order 7"))
		time.Sleep(time.Second)
		rec, err = d.Lookup(t.Context(), "k")
		if err != nil || rec.State != dedup.StateInProgress || rec.Remaining != lease-time.Second || rec.Attempt != 1 {
			t.Fatalf("%+v, %v", rec, err)
		}
		if rec.Origin.Digest() != origin.Digest() || rec.Origin.Offset != 7 || rec.Label != "order 7" {
			t.Fatalf("%+v", rec)
		}
		if err := c.Complete(t.Context(), []byte("v")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		rec, err = d.Lookup(t.Context(), "k")
		if err != nil || rec.State != dedup.StateSucceeded || string(rec.Result) != "v" || rec.Age != time.Minute || rec.Remaining != 59*time.Minute {
			t.Fatalf("%+v, %v", rec, err)
		}
	})
}

// Labels are clear text: kept only where the deployment says so.
func TestLabelsAreNotKeptByDefault(t *testing.T) {
	store := dedup.Memory(10)
	d := newDeduper(t, store, nil)
	mark(t, d, "k", dedup.WithLabel("jane@example.com"))
	if rec := lookup(t, store, "k"); rec.Label != "" {
		t.Errorf("%+v", rec)
	}
}

func TestForgetMakesAKeyClaimableAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeduper(t, dedup.Memory(10), nil)
		for name, end := range map[string]func(*dedup.Claim) error{
			"done":     func(c *dedup.Claim) error { return c.Complete(t.Context(), nil) },
			"failed":   func(c *dedup.Claim) error { return c.Fail(t.Context(), errNet) },
			"released": func(c *dedup.Claim) error { return c.Release(t.Context()) },
			"lapsed":   func(*dedup.Claim) error { time.Sleep(lease); return nil },
		} {
			c := acquire(t, d, name)
			if err := end(c); err != nil {
				t.Fatal(err)
			}
			if err := d.Forget(t.Context(), name); err != nil {
				t.Errorf("forgetting a %s key: %v", name, err)
			}
			if again := acquire(t, d, name); again.Attempt != 1 || again.Fence() <= c.Fence() {
				t.Errorf("after a %s key: attempt %d, fence %d after %d", name, again.Attempt, again.Fence(), c.Fence())
			}
		}
		if err := d.Forget(t.Context(), "never seen"); err != nil {
			t.Error(err)
		}
	})
}

func TestForgetRefusesALiveClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := dedup.Memory(10)
		a, b := newDeduper(t, store, nil), newDeduper(t, store, nil)
		c := acquire(t, a, "k")
		for _, d := range []*dedup.Deduper{a, b} {
			err := d.Forget(t.Context(), "k")
			wantErr(t, err, dedup.ErrInFlight)
			if dedup.OutcomeUnknown(err) {
				t.Error("the outcome is known")
			}
		}
		if err := c.Complete(t.Context(), nil); err != nil {
			t.Fatalf("the live owner was disturbed: %v", err)
		}
	})
}

// An owner from before the Forget wakes up and completes: it writes nothing, whether
// the key is absent or claimed again by then.
func TestForgottenOwnerWritesNothing(t *testing.T) {
	for _, claimed := range []bool{false, true} {
		t.Run(fmt.Sprint("claimed again ", claimed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := dedup.Memory(10)
				a, b := newDeduper(t, store, nil), newDeduper(t, store, nil)
				old := acquire(t, a, "k")
				time.Sleep(lease)
				if err := b.Forget(t.Context(), "k"); err != nil {
					t.Fatal(err)
				}
				want := dedup.StateAbsent
				if claimed {
					acquire(t, b, "k")
					want = dedup.StateInProgress
				}
				wantErr(t, old.Complete(t.Context(), []byte("old")), dedup.ErrLeaseLost)
				wantState(t, store, "k", want)
			})
		})
	}
}

// Thousands of callers who ask for one key get the answers of few look-ups, and nobody who
// asks for another one waits for them to be served one by one.
func TestSeenOfAHotKeyIsSharedInTheCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, trip = 4000, 2 * time.Millisecond
		store := hook()
		d := newDeduper(t, store, nil)
		markWithKey(t, d, "hot")
		store.setBefore(only("Lookup", func(call) error { time.Sleep(trip); return nil }))
		store.forgetCalls()
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				if seen, err := d.Seen(t.Context(), "hot"); !seen || err != nil {
					t.Errorf("hot: %t, %v", seen, err)
				}
			})
		}
		synctest.Wait()
		start := time.Now()
		if seen, err := d.Seen(t.Context(), "cold"); seen || err != nil {
			t.Errorf("cold: %t, %v", seen, err)
		}
		if waited := time.Since(start); waited > 10*trip {
			t.Errorf("another key's caller waited %v", waited)
		}
		wg.Wait()
		if n := store.count("Lookup"); n > callers/40 {
			t.Errorf("%d look-ups", n)
		}
	})
}
