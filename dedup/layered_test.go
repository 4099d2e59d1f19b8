package dedup_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/layered"
)

// The filter saves lookups: a new key costs only its claim.
func TestLayeredSavesLookups(t *testing.T) {
	for name, row := range map[string]struct {
		filter bool
		asked  int
	}{"with a filter": {true, 0}, "without": {false, 100}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLayers(t)
				l.unfiltered = !row.filter
				d := l.deduper(nil)
				var reqs []dedup.Request
				for n := range 100 {
					reqs = append(reqs, keyed(fmt.Sprint(n)))
				}
				claims := claimBatch(t, d, reqs...)
				asked := 0
				for _, c := range l.records.of("Lookup") {
					asked += c.items
				}
				assert.Equal(t, row.asked, asked)
				assert.Equal(t, 1, l.leases.count())
				saved := 0
				for _, e := range l.told.of("filtered") {
					saved += e.Saved
				}
				assert.Equal(t, saved == 100, row.filter, "lookups are told to be saved")
				done := make([]dedup.Completion, len(claims))
				for i, c := range claims {
					require.Equal(t, dedup.Acquired, c.Outcome)
					done[i] = dedup.Completion{Claim: c}
				}
				require.Nil(t, d.CompleteBatch(t.Context(), done))
				l.forgetCalls()
				for _, c := range claimBatch(t, d, reqs...) {
					require.Equal(t, dedup.Duplicate, c.Outcome)
				}
				l.wantCalls("hot duplicates", 1, 0)
			})
		})
	}
}

// After the hot window the store remembers a key. Once it was asked, leases remember it again.
func TestLayeredRemembersForTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLayers(t)
		d := l.deduper(nil)
		complete(t, acquire(t, d, "k", dedup.WithFingerprint([]byte("payload"))))
		time.Sleep(24 * time.Hour)
		wantState(t, l.leases.hooked, "k", driver.StateAbsent)
		require.Equal(t, dedup.Mismatch,
			claim(t, d, "k", dedup.WithFingerprint([]byte("another"))).Outcome)
		l.wantVerdict("maybe", "", 0, dedup.Mismatch)
		time.Sleep(24 * time.Hour)
		l.forgetCalls()
		c := claim(t, d, "k", dedup.WithFingerprint([]byte("payload")))
		require.Equal(t, dedup.Duplicate, c.Outcome)
		assert.Equal(t, "result", string(c.Record.Result), "the duplicate")
		assert.GreaterOrEqual(t, c.Record.Age, 48*time.Hour)
		l.wantVerdict("maybe", "", 0, dedup.Duplicate)
		l.wantCalls("a cold duplicate", 2, 1)
		l.forgetCalls()
		require.Equal(t, dedup.Mismatch,
			claim(t, d, "k", dedup.WithFingerprint([]byte("another"))).Outcome)
		c = claim(t, d, "k")
		require.Equal(t, dedup.Duplicate, c.Outcome)
		l.wantCalls("it is hot again", 2, 0)
		assert.Equal(t, "result", string(c.Record.Result), "the hot duplicate")
		assert.Equal(t, 0, l.filter.wrong, "answers of the filter are told to be wrong")
	})
}

// A process dies when the store has the record and before leases are told. The next claim finds
// the record, whatever the filter knows.
func TestLayeredCrashBetweenTheEnds(t *testing.T) {
	for name, row := range map[string]struct {
		danger bool
		wait   time.Duration
		state  driver.State // in leases, when the message is redelivered
	}{
		"lapsed":          {false, 2 * hotLease, driver.StateInProgress},
		"uncertain":       {true, 2 * hotLease, driver.StateUncertain},
		"hold is over":    {false, 2*hot + hotLease, driver.StateAbsent},
		"uncertain, cold": {true, 3 * hot, driver.StateUncertain},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLayers(t)
				l.filter.lags(hot / 2)
				d := l.deduper(nil)
				c := acquire(t, d, "k")
				ctx, stop := c.KeepAlive(t.Context())
				if row.danger {
					require.NoError(t, dedup.MarkIrreversible(ctx))
				}
				l.crashes(true)
				complete(t, c) // it was held when the store wrote the record
				stop()
				l.crashes(false)
				time.Sleep(row.wait)
				wantState(t, l.leases.hooked, "k", row.state)
				next := claim(t, l.deduper(nil), "k")
				require.Equal(t, dedup.Duplicate, next.Outcome)
				assert.Equal(t, "result", string(next.Record.Result))
				wantState(t, l.leases.hooked, "k", driver.StateSucceeded)
				l.forgetCalls()
				require.Equal(t, dedup.Duplicate, claim(t, d, "k").Outcome)
				l.wantCalls("it is hot again", 1, 0)
			})
		})
	}
}

// If the hold were shorter than the hot window, leases would forget a claim before the filter
// has caught up with its end.
func TestLayeredHoldCoversTheHotWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLayers(t)
		l.filter.lags(hot / 2)
		cfg := dedup.Config{Namespace: "test", Window: 1000 * time.Hour, LeaseTTL: hotLease}
		cfg.Hold = hot - 1
		_, err := dedup.New(l.store(), cfg)
		wantInput(t, err, "Config.Hold")
		cfg.Hold, cfg.LeaseTTL = 0, hotLease+1
		_, err = dedup.New(l.store(), cfg)
		wantInput(t, err, "Config.LeaseTTL")
		store, err := layered.New(hook(), hook(), layered.Config{HotWindow: 6 * time.Hour,
			LeaseTTL: hotLease})
		require.NoError(t, err)
		cfg.LeaseTTL = hotLease
		assert.Equal(t, 6*time.Hour, newDeduper(t, store, func(c *dedup.Config) {
			*c = cfg
		}).Config().Hold)

		d := l.deduper(nil)
		c := acquire(t, d, "k")
		l.crashes(true)
		complete(t, c)
		l.crashes(false)
		time.Sleep(hot / 4)
		require.Equal(t, dedup.Duplicate, claim(t, d, "k").Outcome)
	})
}

// Leases lose everything. They then know no end from before the loss, and no end of a claim that
// was made before it. Only a filter that has caught up with all those ends may say that a key is
// new. In each row the filter has not caught up yet, or has just done so.
func TestLayeredAfterALoss(t *testing.T) {
	const flushed, ended = 10 * time.Second, 50 * time.Second
	for name, row := range map[string]struct {
		at, lag time.Duration // when it is redelivered, and how far the filter is behind
		reason  string
	}{
		// Leases remember nothing from before the loss.
		"at once":       {ended + time.Second, 0, "hot_forgot"},
		"a lease later": {flushed + hotLease, 0, "hot_forgot"},
		"the scan began before the end": {20 * time.Minute,
			20*time.Minute - ended + time.Second, "expired"},
		"the scan began just after the end": {20 * time.Minute,
			20*time.Minute - ended - time.Second, "expired"},
		"the scan has it": {20 * time.Minute, 10 * time.Minute, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLayers(t)
				d := l.deduper(nil)
				c := acquire(t, d, "k")
				time.Sleep(flushed)
				l.leases.flush()
				time.Sleep(ended - flushed)
				l.crashes(true) // so that the end does not reach leases
				complete(t, c)
				l.crashes(false)
				time.Sleep(row.at - ended)
				l.filter.lags(row.lag)
				next := claim(t, d, "k")
				require.Equal(t, dedup.Duplicate, next.Outcome)
				verdict := "unknown"
				if row.reason == "" {
					verdict = "maybe"
				}
				l.wantVerdict(verdict, row.reason, 0, dedup.Duplicate)
			})
		})
	}
}

// The loss happens while the claim is under way, so an answer from before that loss proves
// nothing.
func TestLayeredLossDuringTheClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLayers(t)
		l.filter.lags(hot / 2)
		d := l.deduper(nil)
		l.once(d, "k")
		time.Sleep(10 * time.Minute)
		l.leases.setBefore(only("Claim", func(call) error { l.leases.flush(); return nil }))
		require.Equal(t, dedup.Duplicate, claim(t, d, "k").Outcome)
		l.wantVerdict("unknown", "hot_forgot", 0, dedup.Duplicate)
	})
}

// If leases do not report for how long they remember, the filter is not used.
func TestLayeredLeasesThatDoNotTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLayers(t)
		l.untold = true
		d := l.deduper(nil)
		l.once(d, "k")
		l.wantVerdict("unknown", "hot_unknown", 0, dedup.Acquired)
		assert.Equal(t, 1, l.records.count("Lookup"))
		assert.Equal(t, 0, l.filter.asked)
	})
}

// A filter that lags by the hot window or more saves nothing, and does no harm.
func TestLayeredFilterFallsBehind(t *testing.T) {
	for lag, verdict := range map[time.Duration]string{
		0:                              "new",
		hot - hotLease - hotMargin:     "new",
		hot - hotLease - hotMargin + 1: "unknown",
		hot - hotMargin:                "unknown",
		hot:                            "unknown",
		hot - hotLease - hotMargin - time.Duration(1): "new",
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLayers(t)
			l.filter.lags(lag)
			acquire(t, l.deduper(nil), "k")
			saved, reason := 1, ""
			if verdict == "unknown" {
				saved, reason = 0, "expired"
			}
			l.wantVerdict(verdict, reason, saved, dedup.Acquired)
		})
	}
}

// Maybe is never taken for a duplicate: the store decides, and tells the filter that it was wrong.
func TestLayeredMaybeIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLayers(t)
		id, err := driver.NewID("test", "", "k")
		require.NoError(t, err)
		l.filter.bits = map[driver.ID]bool{id: true}
		d := l.deduper(nil)
		l.once(d, "k")
		l.wantVerdict("maybe", "", 0, dedup.Acquired)
		assert.Equal(t, 1, l.filter.wrong)
		assert.Equal(t, 1, l.records.count("Lookup"))
	})
}

// The key of a second attempt is looked up, whatever the filter says, because the first attempt may
// have written its record.
func TestLayeredSecondAttemptIsLookedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLayers(t)
		d := l.deduper(nil)
		require.NoError(t, acquire(t, d, "k").Release(t.Context()))
		c := acquire(t, d, "k")
		assert.Equal(t, 2, c.Attempt)
		assert.Equal(t, 1, l.records.count("Lookup"))
	})
}

// The reply to the claim is lost, and the next send finds it as Mine. The key is looked up, because
// the time of the first answer is not known.
func TestLayeredMineIsLookedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLayers(t)
		l.leases.setAfter(only("Claim", func(c call) error {
			if c.nth == 1 {
				return errNet
			}
			return nil
		}))
		acquire(t, l.deduper(nil), "k")
		assert.Equal(t, 1, l.records.count("Lookup"))
	})
}

// The store does not answer a lookup: nothing runs, and no attempt is used up.
func TestLayeredStoreIsDown(t *testing.T) {
	for name, fault := range map[string]error{"retryable": errNet,
		"for good": driver.ErrUnreadable} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLayers(t)
				l.filter.lags(2 * hot)
				d := l.deduper(nil)
				l.records.setBefore(only("Lookup", func(call) error { return fault }))
				_, err := d.Claim(t.Context(), "k")
				require.Equal(t, errors.Is(fault, errNet), dedup.OutcomeUnknown(err))
				require.ErrorIs(t, err, fault)
				synctest.Wait()
				l.records.setBefore(nil)
				assert.Equal(t, 1, acquire(t, d, "k").Attempt)
			})
		})
	}
}
