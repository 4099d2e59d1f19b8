package dedup_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceward/onceward/dedup"
)

// writes lists what was written to either store, in order.
func (l *layers) writes() (order []string) {
	type write struct {
		at   time.Time
		name string
	}
	var all []write
	for name, h := range map[string]*hooked{"leases": l.leases.hooked, "store": l.records} {
		for _, c := range h.of("Claim", "Renew", "Finish", "Forget") {
			all = append(all, write{c.at, name + " " + c.method})
		}
	}
	slices.SortFunc(all, func(a, b write) int { return a.at.Compare(b.at) })
	for _, w := range all {
		order = append(order, w.name)
	}
	return order
}

// takesTime lets every call to either store be told apart by its time.
func (l *layers) takesTime() {
	slow := func(call) error { time.Sleep(time.Millisecond); return nil }
	l.leases.setBefore(slow)
	l.records.setBefore(slow)
}

// The orders that lose nothing when the process dies between two writes.
func TestLayeredOrderOfWrites(t *testing.T) {
	for name, row := range map[string]struct {
		do   func(t *testing.T, l *layers, d *dedup.Deduper)
		want []string
	}{
		"success": {func(t *testing.T, l *layers, d *dedup.Deduper) {
			l.once(d, "k")
		}, []string{"leases Claim", "store Finish", "leases Finish"}},
		"success of who has read its fence": {func(t *testing.T, _ *layers, d *dedup.Deduper) {
			c := acquire(t, d, "k")
			_ = c.Fence()
			complete(t, c)
		}, []string{"leases Claim", "leases Renew", "store Finish", "leases Finish"}},
		"late": {func(t *testing.T, _ *layers, d *dedup.Deduper) {
			c := acquire(t, d, "k")
			time.Sleep(2 * hotLease)
			complete(t, c) // nobody took over, and so it is still held
		}, []string{"leases Claim", "leases Finish", "store Finish"}},
		"mark": {func(t *testing.T, _ *layers, d *dedup.Deduper) {
			if first, err := d.Mark(t.Context(), "k"); err != nil || !first {
				t.Fatal(first, err)
			}
		}, []string{"leases Claim", "store Finish", "leases Finish"}},
		"failure": {func(t *testing.T, _ *layers, d *dedup.Deduper) {
			if err := acquire(t, d, "k").Fail(t.Context(), errNet); err != nil {
				t.Fatal(err)
			}
		}, []string{"leases Claim", "leases Finish"}},
		"release": {func(t *testing.T, _ *layers, d *dedup.Deduper) {
			if err := acquire(t, d, "k").Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}, []string{"leases Claim", "leases Finish"}},
		"forget": {func(t *testing.T, _ *layers, d *dedup.Deduper) {
			if err := d.Forget(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}, []string{"store Forget", "leases Forget"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLayers(t)
				d := l.deduper(nil)
				l.takesTime()
				row.do(t, l, d)
				if got := l.writes(); !slices.Equal(got, row.want) {
					t.Errorf("written %q, want %q", got, row.want)
				}
			})
		})
	}
}

// A mark by somebody without a claim, and an end that is late, are not known to leases from a
// claim of theirs. When the process dies right after the store has it, the key is claimed again
// before the filter has seen the record.
func TestLayeredUnclaimedEndsAreKnown(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, l *layers, d *dedup.Deduper){
		"mark": func(t *testing.T, _ *layers, d *dedup.Deduper) {
			if _, err := d.Mark(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		},
		"late": func(t *testing.T, l *layers, d *dedup.Deduper) {
			c := acquire(t, d, "k")
			time.Sleep(2*hot + 2*hotLease) // leases have forgotten it
			wantState(t, l.leases.hooked, "k", dedup.StateAbsent)
			l.records.setAfter(only("Finish", func(call) error { return errNet }))
			if err := c.Complete(t.Context(), nil); !dedup.OutcomeUnknown(err) {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLayers(t)
				l.filter.lags(hot / 2)
				l.leases.setBefore(only("Finish", func(call) error {
					if l.records.count("Finish") > 0 {
						return errNet
					}
					return nil
				}))
				end(t, l, l.deduper(nil))
				l.leases.setBefore(nil)
				time.Sleep(2 * hotLease)
				wantState(t, l.records, "k", dedup.StateSucceeded)
				wantOutcome(t, claim(t, l.deduper(nil), "k"), dedup.Duplicate)
			})
		})
	}
}

// A mark is the first only once, also when it is sent again, and never over a failure.
func TestLayeredMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLayers(t)
		d := l.deduper(nil)
		l.leases.setBefore(only("Finish", func(call) error { return errNet }))
		l.records.setAfter(only("Finish", func(c call) error {
			if c.nth == 1 {
				return errNet
			}
			return nil
		}))
		for n, want := range []bool{true, false} {
			if first, err := d.Mark(t.Context(), "k"); err != nil || first != want {
				t.Errorf("mark %d: first %t, %v", n, first, err)
			}
		}
		l.leases.setBefore(nil)
		if err := acquire(t, d, "failed").Fail(t.Context(), errNet); err != nil {
			t.Fatal(err)
		}
		if first, err := d.Mark(t.Context(), "failed"); err != nil || first {
			t.Errorf("mark of what has failed: first %t, %v", first, err)
		}
		wantState(t, l.records, "failed", dedup.StateAbsent)
	})
}

// A handler that has read its fence, and lost its claim, may not say that its effect has
// happened.
func TestLayeredRefusedEffectIsNotRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLayers(t)
		d := l.deduper(nil)
		c := acquire(t, d, "k")
		_ = c.Fence()
		time.Sleep(hotLease / 2)
		l.leases.flush() // and with it the claim
		other := acquire(t, l.deduper(nil), "k")
		wantErr(t, c.Complete(t.Context(), nil), dedup.ErrLeaseLost)
		wantState(t, l.records, "k", dedup.StateAbsent)
		complete(t, other)
	})
}

// Two end one key: the row of the store decides, and the other one is told.
func TestLayeredRowDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLayers(t)
		c := acquire(t, l.deduper(nil), "k")
		l.leases.flush()
		other := acquire(t, l.deduper(nil), "k")
		complete(t, other)
		wantErr(t, c.Complete(t.Context(), []byte("late")), dedup.ErrLeaseLost)
		if c.Stored == nil || string(c.Stored.Result) != "result" {
			t.Errorf("stored %+v", c.Stored)
		}
		wantState(t, l.leases.hooked, "k", dedup.StateSucceeded)
	})
}

// Failures for good, and keys that somebody has to find out about, are nowhere but in leases:
// they are remembered for the window, not for the hot one.
func TestLayeredLeasesKeepForTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLayers(t)
		d := l.deduper(nil)
		if err := acquire(t, d, "failed").Fail(t.Context(), errors.New("no such account")); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"released", "lapsed"} {
			c := acquire(t, d, key)
			ctx, stop := c.KeepAlive(t.Context())
			if err := dedup.Danger(ctx); err != nil {
				t.Fatal(err)
			}
			stop()
			if key == "released" {
				if err := c.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		c := acquire(t, d, "late")
		time.Sleep(3 * hotLease)
		complete(t, c)
		time.Sleep(999 * time.Hour)
		wantOutcome(t, claim(t, d, "failed"), dedup.Duplicate)
		wantOutcome(t, claim(t, d, "released"), dedup.Uncertain)
		wantOutcome(t, claim(t, d, "lapsed"), dedup.Uncertain)
		l.forgetCalls()
		wantOutcome(t, claim(t, d, "late"), dedup.Duplicate)
		l.wantCalls("what ended late", 1, 0)
	})
}

// Records from a time when the store was used alone are not overwritten.
func TestLayeredOverAStoreThatWasAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLayers(t)
		l.filter.lags(2 * hot)
		alone := newDeduper(t, l.records, func(c *dedup.Config) { c.Window, c.LeaseTTL = 1000*time.Hour, hotLease })
		ctx, stop := acquire(t, alone, "uncertain").KeepAlive(t.Context())
		if err := dedup.Danger(ctx); err != nil {
			t.Fatal(err)
		}
		stop()
		if err := acquire(t, alone, "failed").Fail(t.Context(), errNet); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * hotLease)
		live := acquire(t, alone, "live")
		d := l.deduper(nil)
		for key, want := range map[string]dedup.Outcome{
			"uncertain": dedup.Uncertain, "failed": dedup.Duplicate, "live": dedup.InFlight,
		} {
			wantOutcome(t, claim(t, d, key), want)
		}
		complete(t, live)
		wantOutcome(t, claim(t, d, "live"), dedup.Duplicate)
		if first, err := d.Mark(t.Context(), "uncertain"); err != nil || !first {
			t.Errorf("mark: first %t, %v", first, err)
		}
		wantOutcome(t, claim(t, d, "uncertain"), dedup.Duplicate)
	})
}

func TestLayeredLookupAndForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLayers(t)
		d := l.deduper(nil)
		c := acquire(t, d, "k")
		wantErr(t, d.Forget(t.Context(), "k"), dedup.ErrInFlight)
		if rec, err := d.Lookup(t.Context(), "k"); err != nil || rec.State != dedup.StateInProgress {
			t.Errorf("in flight: %+v, %v", rec, err)
		}
		complete(t, c)
		time.Sleep(24 * time.Hour)
		if rec, err := d.Lookup(t.Context(), "k"); err != nil || rec.State != dedup.StateSucceeded {
			t.Errorf("cold: %+v, %v", rec, err)
		}
		// The store is down between the two: the mark is gone, or nothing is.
		l.leases.setBefore(only("Forget", down))
		if err := d.Forget(t.Context(), "k"); !dedup.OutcomeUnknown(err) {
			t.Errorf("forget: %v", err)
		}
		l.leases.setBefore(nil)
		if err := d.Forget(t.Context(), "k"); err != nil {
			t.Errorf("forget again: %v", err)
		}
		if next := acquire(t, d, "k"); next.Attempt != 1 {
			t.Errorf("attempt %d", next.Attempt)
		}
	})
}

// A cache in another process is emptied by either store's Forget.
func TestLayeredForgets(t *testing.T) {
	leases, records := steady{dedup.Memory(100)}, dedup.Memory(100)
	store, err := dedup.NewLayered(records, dedup.Config{Leases: leases, HotWindow: hot, LeaseTTL: hotLease})
	if err != nil {
		t.Fatal(err)
	}
	teller, ok := store.(interface {
		Forgets(ctx context.Context) (uint64, error)
	})
	if !ok {
		t.Fatal("it does not tell")
	}
	seen := map[uint64]bool{}
	for _, s := range []dedup.Store{store, leases, records, store} {
		n, err := teller.Forgets(t.Context())
		if err != nil || seen[n] {
			t.Errorf("number %d, %v", n, err)
		}
		seen[n] = true
		s.Forget(t.Context(), []dedup.ID{{1}}, time.Minute)
	}
	if store, err = dedup.NewLayered(hook(), dedup.Config{Leases: leases}); err != nil {
		t.Fatal(err)
	}
	if _, ok := store.(interface {
		Forgets(ctx context.Context) (uint64, error)
	}); ok {
		t.Error("it tells of one store alone")
	}
}

func TestLayeredTellsOfTheFilter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLayers(t)
		d := l.deduper(nil)
		for n := range 5 {
			acquire(t, d, string(rune('a'+n)))
			time.Sleep(30 * time.Second)
		}
		l.told.want(t, "filter state", 2) // after one minute and after two
		if e := l.told.of("filter state")[0]; e.Fill != 0.5 || e.Estimated != 0.25 || e.Observed != 0.125 || e.Reason != "loading" {
			t.Errorf("told %+v", e)
		}
		l.filter.state(0.1, 0.2, 0.3, "")
		if e := l.told.of("filter state")[2]; e.Fill != 0.1 || e.Estimated != 0.2 || e.Observed != 0.3 || e.Reason != "" {
			t.Errorf("told %+v", e)
		}
	})
}

// With something to be done in the same write, nothing is.
func TestLayeredRefusesWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLayers(t)
		d := l.deduper(nil)
		c := acquire(t, d, "k")
		l.forgetCalls()
		errs := d.CompleteBatch(t.Context(), []dedup.Completion{{Claim: c, With: "something"}})
		if errs == nil {
			t.Fatal("no error")
		}
		var input *dedup.InputError
		if !errors.As(errs[0], &input) || input.Field != "Completion.With" {
			t.Errorf("error %v", errs[0])
		}
		l.wantCalls("refused", 0, 0)
		complete(t, c)
	})
}
