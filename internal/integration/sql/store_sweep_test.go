package sql_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/sqladapter/sqlstore"
)

// forEachStore runs a test on one engine of each kind.
func forEachStore(t *testing.T, test func(t *testing.T, e storeEngine)) {
	for _, e := range storeEngines() {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			test(t, e)
		})
	}
}

// sweepUntil sweeps until it has found this much.
func sweepUntil(t *testing.T, store *sqlstore.Store, want sqlstore.SweepResult) {
	t.Helper()
	var sum sqlstore.SweepResult
	for t.Context().Err() == nil && sum != want {
		swept, err := store.Sweep(t.Context(), 10)
		require.NoError(t, err)
		sum.Removed += swept.Removed
		sum.Released += swept.Released
		sum.Uncertain += swept.Uncertain
		require.LessOrEqual(t, sum.Removed, want.Removed)
		require.LessOrEqual(t, sum.Released, want.Released)
		require.LessOrEqual(t, sum.Uncertain, want.Uncertain)
	}
}

// short is a lease that lapses during a test.
const short = 50 * time.Millisecond

// TestSweep lets records lapse and expire, among others that must stay.
func TestSweep(t *testing.T) {
	forEachStore(t, func(t *testing.T, e storeEngine) {
		store, _, _ := openStore(t, e)
		lapsing := func(danger bool) driver.ClaimRequest {
			req := mustAcquire(t, store, randomID())
			change := driver.Renewal{ID: req.ID, Token: req.Token, Lease: short, Hold: time.Hour,
				Irreversible: danger, Window: time.Hour, Steps: []byte("charge")}
			a := store.Renew(t.Context(), []driver.Renewal{change})[0]
			require.True(t, a.Held, "Renew: %+v", a)
			return req
		}
		live, released, done := mustAcquire(t, store, randomID()),
			mustAcquire(t, store, randomID()), mustAcquire(t, store, randomID())
		end(t, store, driver.Finish{ID: released.ID, Token: released.Token,
			State: driver.StateReleased, Hold: time.Hour})
		end(t, store, driver.Finish{ID: done.ID, Token: done.Token, State: driver.StateSucceeded,
			Window: time.Hour})
		expired := mustAcquire(t, store, randomID())
		end(t, store, driver.Finish{ID: expired.ID, Token: expired.Token,
			State: driver.StateSucceeded, Window: short, Result: []byte("x")})
		plain, dangerous := lapsing(false), lapsing(true)

		sweepUntil(t, store, sqlstore.SweepResult{Removed: 1, Released: 1, Uncertain: 1})
		for id, want := range map[driver.ID]driver.State{
			live.ID: driver.StateInProgress, released.ID: driver.StateReleased,
			done.ID:    driver.StateSucceeded,
			expired.ID: driver.StateAbsent, plain.ID: driver.StateReleased,
			dangerous.ID: driver.StateUncertain,
		} {
			assert.Equal(t, want, lookupOne(t, store, id).State, "after the sweep")
		}
		for _, req := range []driver.ClaimRequest{plain, dangerous} {
			rec := lookupOne(t, store, req.ID)
			assert.Equal(t, 1, rec.Attempt, "a claim that was given back is left")
			assert.NotZero(t, rec.Fence, "a claim that was given back is left")
			assert.Equal(t, "charge", string(rec.Steps), "a claim that was given back is left")
			assert.GreaterOrEqual(t, rec.Remaining, time.Minute,
				"a claim that was given back is left")
			late := driver.Finish{ID: req.ID, Token: req.Token, State: driver.StateReleased,
				NotAttempted: true}
			a := store.Finish(t.Context(), []driver.Finish{late})[0]
			require.NoError(t, a.Err, "the end of an owner whose claim was given back")
			assert.False(t, a.Held, "the end of an owner whose claim was given back")
			assert.False(t, a.Written, "the end of an owner whose claim was given back")
			renewal := driver.Renewal{ID: req.ID, Token: req.Token, Lease: time.Hour}
			a = store.Renew(t.Context(), []driver.Renewal{renewal})[0]
			require.NoError(t, a.Err, "the renewal of an owner whose claim was given back")
			assert.False(t, a.Held, "the renewal of an owner whose claim was given back")
			got := lookupOne(t, store, req.ID)
			assert.Equal(t, rec.Attempt, got.Attempt, "its owner has changed it")
			assert.Equal(t, rec.State, got.State, "its owner has changed it")
		}
		next := driver.ClaimRequest{ID: plain.ID, Token: randomToken(), Lease: time.Hour}
		assert.Equal(t, 2, wantAcquired(t, store, next).Attempt, "the claim after it is attempt")
	})
}

func end(t *testing.T, store dedup.Store, c driver.Finish) {
	t.Helper()
	a := store.Finish(t.Context(), []driver.Finish{c})[0]
	require.True(t, a.Held, "%v", a)
	require.True(t, a.Written, "%v", a)
}

// TestSweepNeverALiveLease lets owners renew short leases in a tight loop, while sweepers
// do nothing else. On a slow machine an owner may lose a claim that has lapsed. A claim whose lease
// cannot have ended yet must not be lost.
func TestSweepNeverALiveLease(t *testing.T) {
	const keys, sweepers, rounds = 4, 2, 60
	forEachStore(t, func(t *testing.T, e storeEngine) {
		store, _, _ := openStore(t, e)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		var sweeps, released atomic.Int64
		for range sweepers {
			running.Go(func() {
				for ctx.Err() == nil {
					swept, err := store.Sweep(ctx, 10)
					assert.False(t, err != nil && ctx.Err() == nil, "Sweep: %v", err)
					sweeps.Add(1)
					released.Add(int64(swept.Released))
				}
			})
		}
		var owners sync.WaitGroup
		for range keys {
			owners.Go(func() { renewInATightLoop(t, store, rounds) })
		}
		owners.Wait()
		// A lease that is not renewed lapses, and shows that the sweepers work.
		left := driver.ClaimRequest{ID: randomID(), Token: randomToken(), Lease: short,
			Hold: time.Hour}
		wantAcquired(t, store, left)
		for t.Context().Err() == nil && lookupOne(t, store, left.ID).State != driver.StateReleased {
		}
		stop()
		running.Wait()
		t.Logf("%d sweeps, %d claims given back", sweeps.Load(), released.Load())
	})
}

// renewInATightLoop reports a claim that is lost before its lease can have ended.
func renewInATightLoop(t *testing.T, store dedup.Store, rounds int) {
	id := randomID()
	var token driver.Token
	held := time.Time{} // when the request that last made the lease was sent
	for range rounds {
		if held.IsZero() {
			token = randomToken()
			held = time.Now()
			req := driver.ClaimRequest{ID: id, Token: token, Lease: short, Hold: time.Hour}
			a := store.Claim(t.Context(), []driver.ClaimRequest{req})[0]
			if !assert.NoError(t, a.Err) || !assert.Equal(t, dedup.Acquired, a.Outcome) {
				return
			}
		}
		sent := time.Now()
		a := store.Renew(t.Context(),
			[]driver.Renewal{{ID: id, Token: token, Lease: short, Hold: time.Hour}})[0]
		switch {
		case a.Err != nil:
			t.Errorf("Renew: %v", a.Err)
			return
		case a.Held:
			held = sent
		case time.Since(held) < short:
			t.Errorf("a claim was lost %v after its lease of %v began, and is %v", time.Since(held),
				short, a.Record.State)
			return
		default:
			held = time.Time{}
		}
	}
}

// TestRunSweeper runs several at once, and stops them.
func TestRunSweeper(t *testing.T) {
	store, _, _ := openStore(t, storeSQLite)
	ctx, stop := context.WithCancelCause(t.Context())
	var running sync.WaitGroup
	var removed atomic.Int64
	for range 3 {
		running.Go(func() {
			err := store.RunSweeper(ctx, sqlstore.SweeperConfig{
				Every: time.Millisecond, Limit: 2,
				Swept:  func(s sqlstore.SweepResult) { removed.Add(int64(s.Removed)) },
				Failed: func(err error) { t.Errorf("sweep: %v", err) },
			})
			assert.ErrorIs(t, err, errStopped)
		})
	}
	const n = 7
	for range n {
		req := mustAcquire(t, store, randomID())
		end(t, store, driver.Finish{ID: req.ID, Token: req.Token, State: driver.StateReleased,
			Hold: short})
	}
	for t.Context().Err() == nil && removed.Load() < n {
		lookupOne(t, store, randomID())
	}
	stop(errStopped)
	running.Wait()
	assert.EqualValues(t, n, removed.Load())
}

var errStopped = errors.New("stopped by the test")
