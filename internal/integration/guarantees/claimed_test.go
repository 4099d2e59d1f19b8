package guarantees_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/dedup/driver"
)

var claimedRow = row{
	holds: map[string]func(*testing.T){
		"one runner at a time":              oneRunner,
		"done is remembered for the window": remembered,
		"nothing is lost": func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				report := deduptest.Storm(t, subject(newTally()),
					deduptest.StormConfig{Messages: 300, Rate: 0.1, Seed: 8})
				assert.GreaterOrEqual(t, report.Faults, 100,
					"too few to show that nothing is lost")
				assert.NotEmpty(t, report.Doubled,
					"too few to show that nothing is lost")
			})
		},
	},
	doubles: map[string]func(*testing.T){
		"a crash after the effect and before its record":                                             crashBeforeRecord,
		"a handler that fails or is canceled after part of its effect":                               cancelledHandler,
		"a paused handler that outlives its lease, unless the effect checks the fence":               pausedHandler,
		"With `TakeOverOlderGeneration`, a rebalance while a handler still runs":                     rebalance,
		"Redis losing an acknowledged write, at failover or at a crash without `appendfsync always`": func(t *testing.T) { failover(t, claimedThroughFailover) },
	},
}

// oneRunner: handlers take many leases, and no two runs of a message overlap.
func oneRunner(t *testing.T) {
	eachStore(t, func(t *testing.T, store dedup.Store) {
		n := newTally()
		var all sync.WaitGroup
		var mu sync.Mutex
		running := map[string]int{}
		step := func(k string, by int) {
			mu.Lock()
			defer mu.Unlock()
			running[k] += by
			assert.LessOrEqual(t, running[k], 1, "%d runners of %s", running[k], k)
		}
		for range 4 {
			w := newWorker(t, store)
			for _, k := range []string{"a", "b", "c"} {
				all.Go(func() {
					w.deliver(k, func(context.Context) (string, error) {
						step(k, 1)
						time.Sleep(5 * lease)
						n.add(k)
						step(k, -1)
						return "", nil
					})
				})
			}
		}
		all.Wait()
		for _, k := range []string{"a", "b", "c"} {
			n.want(t, k, 1, "all four got it during the first run or after it")
		}
	})
}

func remembered(t *testing.T) {
	eachStore(t, func(t *testing.T, store dedup.Store) {
		n := newTally()
		w := newWorker(t, store)
		effect := func(context.Context) (string, error) { n.add("m"); return "v", nil }
		w.deliver("m", effect)
		time.Sleep(window - time.Minute)
		res := w.deliver("m", effect)
		assert.Equal(t, dedup.Duplicate, res.Outcome, "within the window: %+v", res)
		assert.Equal(t, "v", res.Value, "within the window: %+v", res)
		n.want(t, "m", 1, "the window has not ended")
		time.Sleep(2 * time.Minute)
		w.deliver("m", effect)
		n.want(t, "m", 2, "the window has ended")
	})
}

// cancelledHandler: the sender hangs up, or the handler fails, after the first half of an effect.
// The claim is released, and the next delivery begins from the start.
func cancelledHandler(t *testing.T) {
	eachStore(t, func(t *testing.T, store dedup.Store) {
		n, w := newTally(), newWorker(t, store)
		again := func(key string) {
			w.deliver(key, func(context.Context) (string, error) { n.add(key); return "", nil })
			n.want(t, key, 2, "its first half ran in both attempts")
		}
		ctx, hangUp := context.WithCancel(t.Context())
		_, err := dedup.Do(ctx, w.d, "cancelled", func(ctx context.Context) (string, error) {
			n.add("cancelled")
			hangUp()
			<-ctx.Done()
			return "", ctx.Err()
		})
		require.ErrorIs(t, err, context.Canceled)
		again("cancelled")

		broken := errors.New("the second half failed")
		_, err = dedup.Do(t.Context(), w.d, "failed", func(context.Context) (string, error) {
			n.add("failed")
			return "", broken
		})
		require.ErrorIs(t, err, broken)
		again("failed")
	})
}

// crashBeforeRecord: a crash between effect and record doubles the effect, and a crash before the
// effect does not. deduptest calls that double explained.
func crashBeforeRecord(t *testing.T) {
	eachStore(t, func(t *testing.T, store dedup.Store) {
		n := newTally()
		for k, f := range map[string]func(w *worker){
			"before the effect": func(w *worker) { w.die(); n.add("before the effect") },
			"after the effect":  func(w *worker) { n.add("after the effect"); w.die() },
		} {
			a := newWorker(t, store)
			a.live(func() {
				_, _ = dedup.Do(t.Context(), a.d, k, func(context.Context) (string, error) {
					f(a)
					return "", nil
				})
			})
			res := newWorker(t, store).deliver(k, func(context.Context) (string, error) {
				n.add(k)
				return "", nil
			})
			assert.Equal(t, 2, res.Attempt, "%s: %+v", k, res)
		}
		n.want(t, "before the effect", 1, "the first process died before it")
		n.want(t, "after the effect", 2, "the first process died between effect and record")
	})
	synctest.Test(t, func(t *testing.T) {
		report := deduptest.Twice(t, subject(newTally()))
		doubled := 0
		for _, in := range report.Doubled {
			assert.True(t, in.Explained, "%+v", in)
			assert.Equal(t, 2, in.Effects, "%+v", in)
			if strings.Contains(in.Story, "crash before Finish") {
				doubled++
			}
		}
		assert.Equal(t, 1, doubled, "%d doubles by a crash before the record: %+v", doubled,
			report.Doubled)
	})
}

var errStale = errors.New("the row has a larger fence")

// pausedHandler: a process is paused in its handler for longer than its lease.
func pausedHandler(t *testing.T) {
	eachStore(t, func(t *testing.T, store dedup.Store) {
		n := newTally()
		var row sync.Mutex
		fence := uint64(0) // of the row that the effect writes
		plain := func(context.Context) error { n.add("plain"); return nil }
		fenced := func(ctx context.Context) error {
			a, _ := dedup.FromContext(ctx)
			row.Lock()
			defer row.Unlock()
			if a.Fence() < fence {
				return errStale
			}
			fence = a.Fence()
			n.add("fenced")
			return nil
		}
		for k, effect := range map[string]func(context.Context) error{"plain": plain,
			"fenced": fenced} {
			a, b := newWorker(t, store), newWorker(t, store)
			var first error
			var one sync.WaitGroup
			one.Go(func() {
				_, first = dedup.Do(t.Context(), a.d, k, func(ctx context.Context) (string, error) {
					a.pause(3 * lease)
					// its context has not ended yet
					return "", effect(context.WithoutCancel(ctx))
				})
			})
			synctest.Wait()
			b.deliver(k, func(ctx context.Context) (string, error) { return "", effect(ctx) })
			one.Wait()
			assert.Error(t, first, "%s: the paused handler acknowledged", k)
		}
		n.want(t, "plain", 2, "the first handler did not know that its lease had ended")
		n.want(t, "fenced", 1, "the row had the fence of the second handler")
	})
}

// rebalance: with the option, the partition's next owner does not wait for the older owner's
// handler.
func rebalance(t *testing.T) {
	eachStore(t, func(t *testing.T, store dedup.Store) {
		n := newTally()
		for k, takes := range map[string]bool{"waits": false, "takes over": true} {
			a, b := newWorker(t, store), newWorker(t, store)
			claim := func(w *worker, generation int32) *dedup.Claim {
				claims, err := w.d.ClaimBatch(t.Context(), []dedup.Request{{
					Key: k, TakeOverOlderGeneration: takes,
					Origin: driver.Origin{Source: "group/topic", Partition: 3,
						Generation: generation},
				}})
				require.NoError(t, err)
				return claims[0]
			}
			older := claim(a, 7)
			newer := claim(b, 8) // the partition has moved, the older handler still runs
			assert.Equal(t, dedup.Acquired, older.Outcome, "%s", k)
			assert.Equal(t,
				map[bool]driver.Outcome{false: dedup.InFlight,
					true: dedup.Acquired}[takes], newer.Outcome, "%s", k)
			n.add(k)
			err := older.Complete(t.Context(), nil)
			assert.Equal(t, takes, errors.Is(err, dedup.ErrLeaseLost), "%s: the older owner got %v",
				k, err)
			if newer.Outcome == dedup.Acquired {
				n.add(k)
			}
		}
		n.want(t, "waits", 1, "the key was in flight elsewhere")
		n.want(t, "takes over", 2, "the older owner's handler was still running")
	})
}
