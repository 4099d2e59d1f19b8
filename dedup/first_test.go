package dedup_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// onlyNew is an option.
func onlyNew(r *dedup.Request) { r.OnlyNew = true }

func firstReq(key string) dedup.Request {
	r := keyed(key)
	r.OnlyNew = true
	return r
}

// wantLeft insists that a claim with OnlyNew left a free key alone.
func wantLeft(t *testing.T, c *dedup.Claim, attempt int) {
	t.Helper()
	require.Equal(t, dedup.InFlight, c.Outcome)
	assert.Equal(t, attempt, c.Attempt)
	assert.Equal(t, attempt, c.Record.Attempt)
	assert.LessOrEqual(t, c.Record.Remaining, time.Duration(0))
}

// tried releases a key after an attempt that counts.
func tried(t *testing.T, d *dedup.Deduper, key string) {
	t.Helper()
	require.NoError(t, acquire(t, d, key).Release(t.Context()))
}

func TestOnlyNewLeavesWhatWasTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		tried(t, d, "k")
		for range 5 {
			wantLeft(t, claim(t, d, "k", onlyNew), 1)
			wantLeft(t, claimBatch(t, d, firstReq("k"))[0], 1)
		}
		_, err := dedup.Do(t.Context(), d, "k", mustNotRun(t), onlyNew)
		require.ErrorIs(t, err, dedup.ErrInFlight)
		assert.Equal(t, 2, acquire(t, d, "k").Attempt)
		c := claim(t, d, "k", onlyNew)
		assert.Equal(t, dedup.InFlight, c.Outcome, "of a live claim")
		assert.Positive(t, c.Record.Remaining)
		time.Sleep(2 * lease)
		wantLeft(t, claim(t, d, "k", onlyNew), 2) // lapsed
	})
}

// A key counts as new if every attempt so far was given back as not attempted.
func TestOnlyNewGetsWhatWasNeverBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeduper(t, hook(), nil)
		for range 3 {
			claims := claimBatch(t, d, firstReq("k"))
			require.Equal(t, dedup.Acquired, claims[0].Outcome)
			errs := d.CompleteBatch(t.Context(),
				[]dedup.Completion{{Claim: claims[0], Err: errNet, NotAttempted: true}})
			require.Nil(t, errs)
		}
	})
}

// A call without OnlyNew does not end with the answer to a call with OnlyNew, but asks itself. A
// call with OnlyNew does not ask again.
func TestOnlyNewIsNotSharedAway(t *testing.T) {
	for name, row := range map[string]struct {
		leader, follower func(*dedup.Request)
		led, followed    driver.Outcome
		calls            int
	}{
		"first, then any": {onlyNew, dedup.WithScope(""), dedup.InFlight,
			dedup.Acquired, 2},
		"first, then first": {onlyNew, onlyNew, dedup.InFlight, dedup.InFlight, 1},
		"any, then first": {dedup.WithScope(""), onlyNew, dedup.Acquired,
			dedup.InFlight, 1},
		"first, then takes over": {onlyNew, consumed(6, true), dedup.InFlight, dedup.Acquired, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := hook()
				d := newDeduper(t, store, nil)
				tried(t, d, "k")
				store.forgetCalls()
				store.setBefore(only("Claim", func(call) error {
					time.Sleep(time.Second)
					return nil
				}))
				leader := inBackground(t, d, row.leader)
				synctest.Wait()
				follower := inBackground(t, d, row.follower)
				require.Equal(t, row.led, (<-leader).Outcome)
				require.Equal(t, row.followed, (<-follower).Outcome)
				assert.Equal(t, row.calls, store.count("Claim"))
			})
		})
	}
}

// Many OnlyNew calls of a newer generation share one answer. They do not ask one after the other,
// because none of them would take the claim over.
func TestFirstCallsShareWhatTheyLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		acquire(t, d, "k", consumed(5, false))
		store.forgetCalls()
		store.setBefore(only("Claim", func(call) error { time.Sleep(time.Second); return nil }))
		var claims []<-chan *dedup.Claim
		for range 100 {
			claims = append(claims, inBackground(t, d, func(r *dedup.Request) {
				consumed(6, true)(r)
				r.OnlyNew = true
			}))
		}
		for _, done := range claims {
			wantLeft(t, <-done, 1)
		}
		assert.Equal(t, 1, store.count("Claim"), "calls to the store")
	})
}

// In a batch, a repetition without OnlyNew is claimed by itself and is not an alias.
func TestOnlyNewInABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeduper(t, hook(), nil)
		for _, key := range []string{"a", "b"} {
			tried(t, d, key)
		}
		claims := claimBatch(t, d, firstReq("a"), keyed("a"), firstReq("b"), firstReq("b"),
			keyed("c"), firstReq("c"))
		wantLeft(t, claims[0], 1)
		require.Equal(t, dedup.Acquired, claims[1].Outcome)
		wantLeft(t, claims[2], 1)
		wantLeft(t, claims[3], 1)
		require.Equal(t, dedup.Acquired, claims[4].Outcome)
		require.Equal(t, dedup.InFlight, claims[5].Outcome)
		aliases := []*dedup.Claim{nil, nil, nil, claims[2], nil, claims[4]}
		for i, c := range claims {
			assert.Same(t, aliases[i], c.Alias, "item %d is an alias", i)
		}
		assert.Equal(t, 2, claims[1].Attempt)
	})
}

// A call with OnlyNew does not wait for a key that nobody holds.
func TestOnlyNewDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeduper(t, hook(), func(c *dedup.Config) { c.Wait = time.Minute })
		tried(t, d, "k")
		start := time.Now()
		wantLeft(t, claim(t, d, "k", onlyNew), 1)
		assert.LessOrEqual(t, time.Since(start), time.Duration(0))
	})
}

// Observe runs the messages that Enforce would skip. A message that is left to a later call is not
// skipped: it is claimed again, and then it runs under a claim that records it.
func TestOnlyNewIsNotOverruled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, told := hook(), &journal{}
		d := newDeduper(t, store, observing(told))
		tried(t, d, "k")
		wantLeft(t, claim(t, d, "k", onlyNew), 1)
		wantLeft(t, claimBatch(t, d, firstReq("k"), firstReq("k"))[1], 1)
		told.want(t, "would skip", 0)
		rec := lookup(t, store, "k")
		assert.Equal(t, driver.StateReleased, rec.State, "it was counted")
		assert.Equal(t, 1, rec.Attempt)
		c := acquire(t, d, "k")
		assert.Equal(t, dedup.Acquired, c.Observed, "asked again")
		assert.Equal(t, 2, c.Attempt)
		c = claim(t, d, "k", onlyNew)
		assert.Equal(t, dedup.Acquired, c.Outcome, "of a live claim")
		assert.Equal(t, dedup.InFlight, c.Observed)
		told.want(t, "would skip", 1)
	})
}

// FailOpen is for a store that does not answer. That OnlyNew leaves a key alone is an answer.
func TestOnlyNewDoesNotFailOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, told := hook(), &journal{}
		d := newDeduper(t, store, failingOpen(told))
		tried(t, d, "k")
		wantLeft(t, claim(t, d, "k", onlyNew), 1)
		told.want(t, "failed open", 0)
		store.setBefore(down)
		require.Equal(t, dedup.Acquired, claim(t, d, "k", onlyNew).Outcome)
		told.want(t, "failed open", 1)
	})
}

// To resolve an uncertain key is an attempt, too. So OnlyNew does not resolve, and a call that may
// resolve does not share the answer of a call that may not.
func TestOnlyNewDoesNotResolve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		asked := 0
		d := newDeduper(t, store, func(c *dedup.Config) {
			c.Resolve = func(context.Context, string, dedup.Record) (dedup.Resolution, error) {
				asked++
				return dedup.Happened(nil), nil
			}
		})
		c := acquire(t, d, "k")
		ctx, stop := c.KeepAlive(t.Context())
		require.NoError(t, dedup.MarkIrreversible(ctx))
		stop()
		require.NoError(t, c.Release(t.Context()))
		require.Equal(t, dedup.Uncertain, claim(t, d, "k", onlyNew).Outcome)
		assert.Equal(t, 1, lookup(t, store, "k").Attempt)
		assert.LessOrEqual(t, asked, 0)
		store.setBefore(only("Claim", func(call) error { time.Sleep(time.Second); return nil }))
		leader := inBackground(t, d, onlyNew)
		synctest.Wait()
		require.Equal(t, dedup.Duplicate, claim(t, d, "k").Outcome)
		require.Equal(t, dedup.Uncertain, (<-leader).Outcome)
	})
}
