package dedup_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceward/onceward/dedup"
)

func cached(bytes int) func(*dedup.Config) {
	return func(c *dedup.Config) { c.CacheBytes = bytes }
}

// asks counts the calls to the store that fn makes.
func asks(store *hooked, fn func()) int {
	store.forgetCalls()
	fn()
	return store.count()
}

func TestCacheAnswersDuplicatesForAMinute(t *testing.T) {
	learn := map[string]func(*testing.T, *dedup.Deduper, *dedup.Deduper){
		"own end": func(t *testing.T, d, _ *dedup.Deduper) {
			if _, err := do(t, d, "k", returns("v")); err != nil {
				t.Fatal(err)
			}
		},
		"duplicate": func(t *testing.T, d, other *dedup.Deduper) {
			if _, err := do(t, other, "k", returns("v")); err != nil {
				t.Fatal(err)
			}
			wantOutcome(t, claim(t, d, "k"), dedup.Duplicate)
		},
		"batch": func(t *testing.T, d, other *dedup.Deduper) {
			if _, err := do(t, other, "k", returns("v")); err != nil {
				t.Fatal(err)
			}
			wantOutcome(t, claimBatch(t, d, keyed("k"))[0], dedup.Duplicate)
		},
		"seen": func(t *testing.T, d, other *dedup.Deduper) {
			if _, err := do(t, other, "k", returns("v")); err != nil {
				t.Fatal(err)
			}
			seen(t, d, "k")
		},
	}
	for name, learn := range learn {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := hook()
				d, other := newDeduper(t, store, cached(64<<10)), newDeduper(t, store, nil)
				learn(t, d, other)
				replay := func() {
					t.Helper()
					res, err := do(t, d, "k", mustNotRun(t))
					if err != nil || res.Value != "v" || res.Outcome != dedup.Duplicate || !seen(t, d, "k") {
						t.Errorf("%+v, %v", res, err)
					}
				}
				time.Sleep(time.Minute - time.Millisecond)
				if n := asks(store, replay); n != 0 {
					t.Errorf("%d calls to the store within a minute", n)
				}
				time.Sleep(time.Millisecond)
				if n := asks(store, replay); n == 0 {
					t.Error("the store was not asked after a minute")
				}
			})
		})
	}
}

func TestCacheEntryEndsBeforeItsRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, func(c *dedup.Config) {
			c.CacheBytes, c.Window, c.LeaseTTL = 64<<10, 20*time.Second, 10*time.Second
		})
		other := newDeduper(t, store, func(c *dedup.Config) { c.Window = 20 * time.Second })
		mark(t, other, "other")
		store.setAfter(func(call) error { time.Sleep(time.Second); return nil }) // the record is older than its answer
		mark(t, d, "own")
		time.Sleep(14 * time.Second)
		wantOutcome(t, claim(t, d, "other"), dedup.Duplicate) // five seconds left, when it was asked
		store.setAfter(nil)
		time.Sleep(4 * time.Second)
		acquire(t, d, "own")
		acquire(t, d, "other")
	})
}

// Nothing but what is finished may be answered from memory.
func TestCacheHoldsNothingUnfinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d, other := newDeduper(t, store, cached(64<<10)), newDeduper(t, store, nil)
		c := acquire(t, other, "k")
		wantOutcome(t, claim(t, d, "k"), dedup.InFlight)
		seen(t, d, "k")
		if n := asks(store, func() { wantOutcome(t, claim(t, d, "k"), dedup.InFlight) }); n != 1 {
			t.Errorf("in flight: %d calls", n)
		}
		if err := c.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		again := acquire(t, d, "k")
		if err := again.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		acquire(t, d, "k")
	})
}

func TestCacheReplaysFailuresAndMismatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, cached(64<<10))
		_, _ = do(t, d, "failed", func(context.Context) (string, error) { return "", dedup.Permanent(errNet) })
		mark(t, d, "bound", dedup.WithFingerprint([]byte("a")))
		n := asks(store, func() {
			c := claim(t, d, "failed")
			if err := c.Err(); err == nil || err.Error() != "dedup: failed for good earlier: connection reset" {
				t.Errorf("%v", err)
			}
			wantOutcome(t, claim(t, d, "bound", dedup.WithFingerprint([]byte("a"))), dedup.Duplicate)
			wantOutcome(t, claim(t, d, "bound"), dedup.Duplicate)
			odd := claim(t, d, "bound", dedup.WithFingerprint([]byte("b")))
			wantOutcome(t, odd, dedup.Mismatch)
			if odd.Cause != dedup.KeyReuse {
				t.Errorf("%v", odd.Cause)
			}
			_, err := d.Seen(t.Context(), "bound", dedup.WithFingerprint([]byte("b")))
			wantErr(t, err, dedup.ErrMismatch)
		})
		if n != 0 {
			t.Errorf("%d calls to the store", n)
		}
	})
}

// A duplicate keeps growing older while it is in the cache.
func TestAgeGrowsInTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, told := hook(), &journal{}
		d := newDeduper(t, store, func(c *dedup.Config) {
			c.CacheBytes, c.LateAfter, c.Observer = 64<<10, 40*time.Second, told.observer()
		})
		origin := dedup.WithOrigin(dedup.Origin{Source: "orders", Offset: 7})
		if _, err := dedup.Do(t.Context(), d, "k", returns("v"), origin); err != nil {
			t.Fatal(err)
		}
		for _, row := range []struct {
			age   time.Duration
			cause dedup.Cause
		}{{30 * time.Second, dedup.BrokerRedelivery}, {50 * time.Second, dedup.Late}} {
			time.Sleep(row.age - claim(t, d, "k").Record.Age)
			c := claim(t, d, "k", origin)
			if c.Record.Age != row.age || c.Cause != row.cause || c.Record.Remaining != time.Hour-row.age {
				t.Errorf("age %v, cause %q, remaining %v", c.Record.Age, c.Cause, c.Record.Remaining)
			}
		}
		if n := store.count("Claim"); n != 1 {
			t.Errorf("%d claims reached the store", n)
		}
	})
}

func TestLargeResultsAreNotCached(t *testing.T) {
	store := hook()
	d := newDeduper(t, store, cached(64<<10))
	for _, size := range []int{1 << 10, 1<<10 + 1} {
		key := fmt.Sprint(size)
		value := string(make([]byte, size))
		if _, err := do(t, d, key, returns(value)); err != nil {
			t.Fatal(err)
		}
		n := asks(store, func() {
			if res, err := do(t, d, key, mustNotRun(t)); err != nil || res.Value != value {
				t.Errorf("%d bytes, %v", len(res.Value), err)
			}
		})
		if want := size - 1<<10; n != want {
			t.Errorf("%d bytes: %d calls to the store", size, n)
		}
	}
}

func TestForgetClearsTheCache(t *testing.T) {
	store := hook()
	d := newDeduper(t, store, cached(64<<10))
	mark(t, d, "k")
	if err := d.Forget(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	acquire(t, d, "k")
}

// An answer that left the store before the Forget got there must not come back through the
// cache, nor through an attempt that is shared.
func TestAnswerUnderWayAcrossAForgetIsNotKept(t *testing.T) {
	for name, ask := range map[string]func(*testing.T, *dedup.Deduper){
		"claim": func(t *testing.T, d *dedup.Deduper) { _, _ = d.Claim(t.Context(), "k") },
		"batch": func(t *testing.T, d *dedup.Deduper) { _, _ = d.ClaimBatch(t.Context(), []dedup.Request{keyed("k")}) },
		"seen":  func(t *testing.T, d *dedup.Deduper) { _, _ = d.Seen(t.Context(), "k") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := hook()
				d, other := newDeduper(t, store, cached(64<<10)), newDeduper(t, store, nil)
				mark(t, other, "k")
				store.setAfter(func(c call) error {
					if c.method != "Forget" && c.nth == 1 {
						time.Sleep(time.Second)
					}
					return nil
				})
				store.forgetCalls()
				go ask(t, d)
				synctest.Wait()
				if err := d.Forget(t.Context(), "k"); err != nil {
					t.Fatal(err)
				}
				c := acquire(t, d, "k")
				time.Sleep(2 * time.Second)
				if err := c.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
				acquire(t, d, "k")
			})
		})
	}
}

// An end that was written before the Forget and answered after it.
func TestEndUnderWayAcrossAForgetIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, cached(64<<10))
		c := acquire(t, d, "k")
		store.setAfter(only("Finish", func(call) error { time.Sleep(time.Second); return nil }))
		done := make(chan error, 1)
		go func() { done <- c.Complete(t.Context(), nil) }()
		synctest.Wait()
		if err := d.Forget(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		acquire(t, d, "k")
	})
}
