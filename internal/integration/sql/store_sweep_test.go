package sql_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
		if err != nil {
			t.Fatal(err)
		}
		sum.Removed += swept.Removed
		sum.Released += swept.Released
		sum.Uncertain += swept.Uncertain
		if sum.Removed > want.Removed || sum.Released > want.Released ||
			sum.Uncertain > want.Uncertain {
			t.Fatalf("swept %+v, want %+v", sum, want)
		}
	}
}

// short is a lease that lapses while a test looks on.
const short = 50 * time.Millisecond

// TestSweep lets everything lapse or expire that can, beside what must stay.
func TestSweep(t *testing.T) {
	forEachStore(t, func(t *testing.T, e storeEngine) {
		store, _, _ := openStore(t, e)
		lapsing := func(danger bool) driver.ClaimRequest {
			req := mustAcquire(t, store, randomID())
			change := driver.Renewal{ID: req.ID, Token: req.Token, Lease: short, Hold: time.Hour,
				Irreversible: danger, Window: time.Hour, Steps: []byte("charge")}
			if a := store.Renew(t.Context(), []driver.Renewal{change})[0]; !a.Held {
				t.Fatalf("Renew: %+v", a)
			}
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
			if rec := lookupOne(t, store, id); rec.State != want {
				t.Errorf("after the sweep: %v, want %v", rec.State, want)
			}
		}
		for _, req := range []driver.ClaimRequest{plain, dangerous} {
			rec := lookupOne(t, store, req.ID)
			if rec.Attempt != 1 || rec.Fence == 0 || string(rec.Steps) != "charge" ||
				rec.Remaining < time.Minute {
				t.Errorf("a claim that was given back is left with %+v", rec)
			}
			late := driver.Finish{ID: req.ID, Token: req.Token, State: driver.StateReleased,
				NotAttempted: true}
			if a := store.Finish(t.Context(), []driver.Finish{late})[0]; a.Held || a.Written ||
				a.Err != nil {
				t.Errorf("the end of an owner whose claim was given back: %+v", a)
			}
			renewal := driver.Renewal{ID: req.ID, Token: req.Token, Lease: time.Hour}
			if a := store.Renew(t.Context(), []driver.Renewal{renewal})[0]; a.Held || a.Err != nil {
				t.Errorf("the renewal of an owner whose claim was given back: %+v", a)
			}
			if a := lookupOne(t, store, req.ID); a.Attempt != rec.Attempt || a.State != rec.State {
				t.Errorf("its owner has changed it from %+v to %+v", rec, a)
			}
		}
		next := driver.ClaimRequest{ID: plain.ID, Token: randomToken(), Lease: time.Hour}
		if rec := wantAcquired(t, store, next); rec.Attempt != 2 {
			t.Errorf("the claim after it is attempt %d", rec.Attempt)
		}
	})
}

func end(t *testing.T, store dedup.Store, c driver.Finish) {
	t.Helper()
	if a := store.Finish(t.Context(), []driver.Finish{c})[0]; !a.Held || !a.Written {
		t.Fatalf("Finish: %+v", a)
	}
}

// TestSweepNeverALiveLease lets owners renew short leases in a tight loop, while sweepers
// do nothing else. An owner may lose a claim that has lapsed, on a slow machine; one
// that answers before its lease can have ended must still have it.
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
					if err != nil && ctx.Err() == nil {
						t.Errorf("Sweep: %v", err)
					}
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
		// One that is left to lapse shows that the sweepers were at work.
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
	held := time.Time{} // when what has last made the lease was sent
	for range rounds {
		if held.IsZero() {
			token = randomToken()
			held = time.Now()
			req := driver.ClaimRequest{ID: id, Token: token, Lease: short, Hold: time.Hour}
			if a := store.Claim(t.Context(), []driver.ClaimRequest{req})[0]; a.Err != nil ||
				a.Outcome != dedup.Acquired {
				t.Errorf("Claim: %v, %v", a.Outcome, a.Err)
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
			if !errors.Is(err, errStopped) {
				t.Errorf("RunSweeper: %v", err)
			}
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
	if removed.Load() != n {
		t.Errorf("%d keys were removed, of %d", removed.Load(), n)
	}
}

var errStopped = errors.New("stopped by the test")
