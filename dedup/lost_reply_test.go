package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/dedup/driver"
)

// faultSequences are all ways in which three sends in a row can suffer.
func faultSequences() [][]deduptest.Fault {
	kinds := []deduptest.Kind{deduptest.Pass, deduptest.DropRequest, deduptest.DropReply,
		deduptest.HangReply}
	var all [][]deduptest.Fault
	for _, a := range kinds {
		for _, b := range kinds {
			for _, c := range kinds {
				all = append(all, []deduptest.Fault{{Kind: a}, {Kind: b}, {Kind: c}})
			}
		}
	}
	return all
}

// Our own claim, executed behind a lost reply, is never taken for a duplicate or for another
// owner's. The message would wait for a worker that does not exist.
func TestOwnClaimIsRecognisedAfterLostReplies(t *testing.T) {
	for _, faults := range faultSequences() {
		t.Run(fmt.Sprint(faults), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := deduptest.NewFaulty(dedup.Memory(10),
					deduptest.Script(deduptest.OpClaim, faults...))
				d := newDeduper(t, store, nil)
				res, err := do(t, d, "k", returns("v"))
				require.NoError(t, err)
				require.Equal(t, dedup.Acquired, res.Outcome)
				require.Equal(t, 1, res.Attempt)
			})
		})
	}
}

func TestOwnRecordIsRecognisedAfterLostReplies(t *testing.T) {
	for _, faults := range faultSequences() {
		t.Run(fmt.Sprint(faults), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, end := range []error{nil, dedup.Permanent(errors.New("no")),
					errors.New("again")} {
					store := deduptest.NewFaulty(dedup.Memory(10),
						deduptest.Script(deduptest.OpFinish, faults...))
					seen := &journal{}
					d := newDeduper(t, store, func(c *dedup.Config) {
						c.Observer = seen.observer()
					})
					_, err := do(t, d, "k", func(context.Context) (string, error) {
						return "v", end
					})
					require.ErrorIs(t, err, end, "how the handler ended")
					require.NotErrorIs(t, err, dedup.ErrLeaseLost)
					require.False(t, dedup.OutcomeUnknown(err), "how the handler ended")
					seen.want(t, "ended", 1)
					seen.want(t, "lease lost", 0)
				}
			})
		})
	}
}

// A thousand claims over a network that loses a third of everything: each is ours, or
// unknown; its effect happens once; its record is confirmed or unknown.
func TestNoOwnClaimIsReportedAsForeign(t *testing.T) {
	for _, size := range []int{1, 50} {
		t.Run(fmt.Sprint("batches of ", size), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { claimsOverABadNetwork(t, size) })
		})
	}
}

func claimsOverABadNetwork(t *testing.T, size int) {
	inner := dedup.Memory(10_000)
	store := deduptest.NewFaulty(inner, deduptest.Seeded(1, 1.0/3))
	d := newDeduper(t, store, nil)
	outcomes := map[driver.Outcome]int{}
	for n := range 1000 / size {
		reqs := make([]dedup.Request, size)
		for i := range reqs {
			reqs[i].Key = fmt.Sprint("k", n, "-", i)
		}
		claims, err := d.ClaimBatch(t.Context(), reqs)
		require.NoError(t, err)
		var done []dedup.Completion
		for _, c := range claims {
			outcomes[c.Outcome]++
			if c.Outcome == dedup.Acquired {
				done = append(done, dedup.Completion{Claim: c})
			}
		}
		for i, err := range d.CompleteBatch(t.Context(), done) {
			assert.NoError(t, err, "completing %q", done[i].Claim.Key)
		}
		for _, item := range done {
			wantState(t, inner, item.Claim.Key, driver.StateSucceeded)
		}
	}
	assert.LessOrEqual(t, outcomes[dedup.Duplicate]+outcomes[dedup.InFlight], 0)
	assert.GreaterOrEqual(t, outcomes[dedup.Acquired], 970)
	assert.GreaterOrEqual(t, store.Stats().LostReplies, 100, "lost replies")
}

// Until the lease ends, only the record prevents a second run after the effect. After that, another
// owner may have the key.
func TestCompleteIsRetriedWithItsTokenUntilTheLeaseEndsAndNotLater(t *testing.T) {
	ends := map[string]func(*dedup.Deduper, *dedup.Claim) error{
		"complete": func(_ *dedup.Deduper, c *dedup.Claim) error {
			return c.Complete(context.Background(), nil)
		},
		"fail": func(_ *dedup.Deduper, c *dedup.Claim) error {
			return c.Fail(context.Background(), errNet)
		},
		"batch": func(d *dedup.Deduper, c *dedup.Claim) error {
			return d.CompleteBatch(context.Background(), []dedup.Completion{{Claim: c}})[0]
		},
	}
	for name, end := range ends {
		for _, kept := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", kept ", kept), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := hook()
					d := newDeduper(t, store, nil)
					start := time.Now()
					c := acquire(t, d, "k")
					if kept {
						_, stop := c.KeepAlive(t.Context())
						defer stop()
					}
					store.setBefore(only("Finish", down))
					err := end(d, c)
					require.True(t, dedup.OutcomeUnknown(err), err)
					require.ErrorIs(t, err, errNet)
					wantRetries(t, store.of("Finish"), start)
				})
			})
		}
	}
}

func wantRetries(t *testing.T, sent []call, start time.Time) {
	t.Helper()
	assert.GreaterOrEqual(t, len(sent), 40, "renewals sent")
	for _, c := range sent {
		assert.Less(t, c.at.Sub(start), valid)
		assert.Equal(t, sent[0].token, c.token)
	}
	assert.GreaterOrEqual(t, sent[len(sent)-1].at.Sub(start), valid-time.Second,
		"it gave up too early")
}

// A release only frees the key before its lease ends, so it does not hold its caller up.
func TestReleaseIsTriedAFewTimesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		store.setBefore(only("Finish", down))
		start := time.Now()
		errBusy := errors.New("busy")
		_, err := do(t, d, "k", func(context.Context) (string, error) { return "", errBusy })
		require.Same(t, errBusy, err, "nothing is to be added")
		require.Equal(t, 4, store.count("Finish"))
		require.LessOrEqual(t, time.Since(start), time.Second)
	})
}

// A refusal that would be the same the next time is not repeated.
func TestCompleteThatCannotSucceedIsNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		c := acquire(t, d, "k")
		store.setBefore(only("Finish", func(call) error { return driver.ErrUnreadable }))
		err := c.Complete(t.Context(), nil)
		require.ErrorIs(t, err, driver.ErrUnreadable)
		require.False(t, dedup.OutcomeUnknown(err))
		require.Equal(t, 1, store.count("Finish"))
	})
}

// A caller that gives up on Complete gets an error at once, and can call it again.
func TestCompleteFollowsItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		store.prompt = true
		d := newDeduper(t, store, nil)
		c := acquire(t, d, "k")
		store.setBefore(only("Finish", func(call) error {
			time.Sleep(1500 * time.Millisecond)
			return nil
		}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		result := []byte("v")
		err := c.Complete(ctx, result)
		result[0] = 'X' // its slice is the caller's again
		require.True(t, dedup.OutcomeUnknown(err))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(start))
		store.setBefore(nil)
		time.Sleep(time.Second) // what was on its way has arrived
		require.Equal(t, "v", string(wantState(t, store, "k", driver.StateSucceeded).Result))
		require.NoError(t, c.Complete(t.Context(), []byte("v")))
		require.Equal(t, "v", string(wantState(t, store, "k", driver.StateSucceeded).Result))
	})
}
