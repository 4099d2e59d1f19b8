package dedup_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/layered"
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

// takesTime gives every call to either store a time of its own.
func (l *layers) takesTime() {
	slow := func(call) error { time.Sleep(time.Millisecond); return nil }
	l.leases.setBefore(slow)
	l.records.setBefore(slow)
}

// In these orders of writes nothing is lost when the process dies between two of them.
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
			first, err := d.Mark(t.Context(), "k")
			require.NoError(t, err)
			require.True(t, first)
		}, []string{"leases Claim", "store Finish", "leases Finish"}},
		"failure": {func(t *testing.T, _ *layers, d *dedup.Deduper) {
			require.NoError(t, acquire(t, d, "k").Fail(t.Context(), errNet))
		}, []string{"leases Claim", "leases Finish"}},
		"release": {func(t *testing.T, _ *layers, d *dedup.Deduper) {
			require.NoError(t, acquire(t, d, "k").Release(t.Context()))
		}, []string{"leases Claim", "leases Finish"}},
		"forget": {func(t *testing.T, _ *layers, d *dedup.Deduper) {
			require.NoError(t, d.Forget(t.Context(), "k"))
		}, []string{"store Forget", "leases Forget"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLayers(t)
				d := l.deduper(nil)
				l.takesTime()
				row.do(t, l, d)
				assert.Equal(t, row.want, l.writes())
			})
		})
	}
}

// For a mark, or a late end, leases hold no claim of the caller. When the process dies right after
// the store has the record, the key is claimed again before the filter has seen the record.
func TestLayeredUnclaimedEndsAreKnown(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, l *layers, d *dedup.Deduper){
		"mark": func(t *testing.T, _ *layers, d *dedup.Deduper) {
			_, err := d.Mark(t.Context(), "k")
			require.NoError(t, err)
		},
		"late": func(t *testing.T, l *layers, d *dedup.Deduper) {
			c := acquire(t, d, "k")
			time.Sleep(2*hot + 2*hotLease) // leases have forgotten it
			wantState(t, l.leases.hooked, "k", driver.StateAbsent)
			l.records.setAfter(only("Finish", func(call) error { return errNet }))
			err := c.Complete(t.Context(), nil)
			require.True(t, dedup.OutcomeUnknown(err), err)
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
				wantState(t, l.records, "k", driver.StateSucceeded)
				require.Equal(t, dedup.Duplicate, claim(t, l.deduper(nil), "k").Outcome)
			})
		})
	}
}

// A mark is the first only once, even if it is sent again, and never overwrites a failure.
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
			first, err := d.Mark(t.Context(), "k")
			assert.NoError(t, err, "mark %d", n)
			assert.Equal(t, want, first, "mark %d", n)
		}
		l.leases.setBefore(nil)
		require.NoError(t, acquire(t, d, "failed").Fail(t.Context(), errNet))
		first, err := d.Mark(t.Context(), "failed")
		assert.NoError(t, err)
		assert.False(t, first, "what has failed is marked")
		wantState(t, l.records, "failed", driver.StateAbsent)
	})
}

// A handler that has read its fence, and has lost its claim, must not record that its effect has
// happened.
func TestLayeredRefusedEffectIsNotRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLayers(t)
		d := l.deduper(nil)
		c := acquire(t, d, "k")
		_ = c.Fence()
		time.Sleep(hotLease / 2)
		l.leases.flush() // the claim is lost, too
		other := acquire(t, l.deduper(nil), "k")
		require.ErrorIs(t, c.Complete(t.Context(), nil), dedup.ErrLeaseLost)
		wantState(t, l.records, "k", driver.StateAbsent)
		complete(t, other)
	})
}

// Two owners end one key: the row of the store decides, and the other owner gets ErrLeaseLost.
func TestLayeredRowDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLayers(t)
		c := acquire(t, l.deduper(nil), "k")
		l.leases.flush()
		other := acquire(t, l.deduper(nil), "k")
		complete(t, other)
		require.ErrorIs(t, c.Complete(t.Context(), []byte("late")), dedup.ErrLeaseLost)
		require.NotNil(t, c.Stored)
		assert.Equal(t, "result", string(c.Stored.Result))
		wantState(t, l.leases.hooked, "k", driver.StateSucceeded)
	})
}

// Failures for good and uncertain keys are only in leases. So leases remember them for the whole
// window, and not only for the hot window.
func TestLayeredLeasesKeepForTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLayers(t)
		d := l.deduper(nil)
		require.NoError(t, acquire(t, d, "failed").Fail(t.Context(), errors.New("no such account")))
		for _, key := range []string{"released", "lapsed"} {
			c := acquire(t, d, key)
			ctx, stop := c.KeepAlive(t.Context())
			require.NoError(t, dedup.MarkIrreversible(ctx))
			stop()
			if key == "released" {
				require.NoError(t, c.Release(t.Context()))
			}
		}
		c := acquire(t, d, "late")
		time.Sleep(3 * hotLease)
		complete(t, c)
		time.Sleep(999 * time.Hour)
		require.Equal(t, dedup.Duplicate, claim(t, d, "failed").Outcome)
		require.Equal(t, dedup.Uncertain, claim(t, d, "released").Outcome)
		require.Equal(t, dedup.Uncertain, claim(t, d, "lapsed").Outcome)
		l.forgetCalls()
		require.Equal(t, dedup.Duplicate, claim(t, d, "late").Outcome)
		l.wantCalls("what ended late", 1, 0)
	})
}

// Records that were written when the store was used without leases are not overwritten.
func TestLayeredOverAStoreThatWasAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLayers(t)
		l.filter.lags(2 * hot)
		alone := newDeduper(t, l.records, func(c *dedup.Config) {
			c.Window, c.LeaseTTL = 1000*time.Hour, hotLease
		})
		ctx, stop := acquire(t, alone, "uncertain").KeepAlive(t.Context())
		require.NoError(t, dedup.MarkIrreversible(ctx))
		stop()
		require.NoError(t, acquire(t, alone, "failed").Fail(t.Context(), errNet))
		time.Sleep(2 * hotLease)
		live := acquire(t, alone, "live")
		d := l.deduper(nil)
		for key, want := range map[string]driver.Outcome{
			"uncertain": dedup.Uncertain, "failed": dedup.Duplicate, "live": dedup.InFlight,
		} {
			require.Equal(t, want, claim(t, d, key).Outcome)
		}
		complete(t, live)
		require.Equal(t, dedup.Duplicate, claim(t, d, "live").Outcome)
		first, err := d.Mark(t.Context(), "uncertain")
		assert.NoError(t, err)
		assert.True(t, first, "the mark")
		require.Equal(t, dedup.Duplicate, claim(t, d, "uncertain").Outcome)
	})
}

func TestLayeredLookupAndForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLayers(t)
		d := l.deduper(nil)
		c := acquire(t, d, "k")
		require.ErrorIs(t, d.Forget(t.Context(), "k"), dedup.ErrInFlight)
		rec, err := d.Lookup(t.Context(), "k")
		require.NoError(t, err)
		assert.Equal(t, driver.StateInProgress, rec.State)
		complete(t, c)
		time.Sleep(24 * time.Hour)
		rec, err = d.Lookup(t.Context(), "k")
		require.NoError(t, err)
		assert.Equal(t, driver.StateSucceeded, rec.State)
		// Leases are down when the store has forgotten the key: Forget fails and can be repeated.
		l.leases.setBefore(only("Forget", down))
		err = d.Forget(t.Context(), "k")
		assert.True(t, dedup.OutcomeUnknown(err), "forget: %v", err)
		l.leases.setBefore(nil)
		assert.NoError(t, d.Forget(t.Context(), "k"), "forget again")
		assert.Equal(t, 1, acquire(t, d, "k").Attempt)
	})
}

// A Forget in either store changes the number, so the caches of other processes are emptied.
func TestLayeredForgets(t *testing.T) {
	leases, records := steady{dedup.Memory(100)}, dedup.Memory(100)
	cfg := layered.Config{HotWindow: hot, LeaseTTL: hotLease}
	store, err := layered.New(leases, records, cfg)
	require.NoError(t, err)
	teller, ok := store.(driver.ForgetCounter)
	require.True(t, ok, "it does not tell")
	seen := map[uint64]bool{}
	for _, s := range []dedup.Store{store, leases, records, store} {
		n, err := teller.Forgets(t.Context())
		require.NoError(t, err, "number %d", n)
		assert.False(t, seen[n], "number %d", n)
		seen[n] = true
		s.Forget(t.Context(), []driver.ID{{1}}, time.Minute)
	}
	store, err = layered.New(leases, hook(), cfg)
	require.NoError(t, err)
	_, ok = store.(driver.ForgetCounter)
	assert.False(t, ok, "it tells of one store alone")
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
		e := l.told.of("filter state")[0]
		assert.Equal(t, 0.5, e.Fill)
		assert.Equal(t, 0.25, e.Estimated)
		assert.Equal(t, 0.125, e.Observed)
		assert.Equal(t, "loading", e.Reason)
		l.filter.state(0.1, 0.2, 0.3, "")
		e = l.told.of("filter state")[2]
		assert.Equal(t, 0.1, e.Fill)
		assert.Equal(t, 0.2, e.Estimated)
		assert.Equal(t, 0.3, e.Observed)
		assert.Empty(t, e.Reason)
	})
}

// Completion.With is refused, and then nothing is written.
func TestLayeredRefusesWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLayers(t)
		d := l.deduper(nil)
		c := acquire(t, d, "k")
		l.forgetCalls()
		errs := d.CompleteBatch(t.Context(), []dedup.Completion{{Claim: c, With: "something"}})
		require.NotNil(t, errs)
		wantInput(t, errs[0], "Completion.With")
		l.wantCalls("refused", 0, 0)
		complete(t, c)
	})
}
