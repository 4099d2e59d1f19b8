package kafkasarama

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
)

// parking has the reason for each message that was parked, by id.
type parking map[string]error

func (p parking) park(_ context.Context, m *kafkaadapter.Message, reason error) error {
	p[m.ID] = reason
	return nil
}

// want requires that only the message id was parked, for this reason.
func (p parking) want(t *testing.T, id string, reason error) {
	t.Helper()
	assert.Len(t, p, 1)
	assert.ErrorIs(t, p[id], reason)
}

// capped limits the attempts of a consumer, and parks messages that reach the limit.
func capped(parked parking, limit int) func(*rig, *kafkaadapter.Config) {
	return func(r *rig, c *kafkaadapter.Config) {
		c.Attempts.Max, c.Park = limit, parked.park
		r.group.finished = nil // a message that was given up is not on record as done
	}
}

func failing(ids ...string) kafkaadapter.Handler {
	return func(_ context.Context, m *kafkaadapter.Message) error {
		for _, id := range ids {
			if m.ID == id {
				return fmt.Errorf("run %d: %w", m.Attempt, errBroken)
			}
		}
		return nil
	}
}

// attempts returns how many attempts the store has counted.
func (r *rig) attempts(id string) int {
	r.t.Helper()
	rec, err := r.dedup.Lookup(context.Background(), id, scoped)
	require.NoError(r.t, err)
	return rec.Attempt
}

func TestMaxAttemptsParksWhatKeepsFailing(t *testing.T) {
	parked := parking{}
	inBubble(t, 1, failing("bad"), capped(parked, 3), func(r *rig) {
		r.group.add(message("bad", "k"), message("behind", "k"), message("other", "o"))
		r.after(time.Minute)
		r.wantRuns("bad", 3)
		r.wantRuns("behind", 1)
		r.wantRuns("other", 1)
		r.wantCommitted(3)
		parked.want(t, "bad", kafkaadapter.ErrAttempts)
		require.ErrorIs(r.t, parked["bad"], errBroken)
		r.wantFree("bad") // given up on, not failed for good
	})
}

// Without Park the consumer stops: never a silent skip.
func TestMaxAttemptsStopsWithoutPark(t *testing.T) {
	inBubble(t, 1, failing("bad"), func(_ *rig, c *kafkaadapter.Config) {
		c.Attempts.Max = 2
	}, func(r *rig) {
		r.group.add(message("bad", "k"))
		r.after(time.Minute)
		var stopped *kafkaadapter.UnprocessableError
		err := r.wantEnd()
		require.ErrorAs(r.t, err, &stopped)
		require.ErrorIs(r.t, err, kafkaadapter.ErrAttempts)
		r.wantRuns("bad", 2)
		r.wantCommitted(0)
	})
}

// An attempt that kills its process is counted, too. When the limit is reached, the next process
// does not run the message.
func TestMaxAttemptsCountsProcessesThatDied(t *testing.T) {
	for _, deaths := range []int{1, 2, 3} {
		t.Run(fmt.Sprint(deaths), func(t *testing.T) {
			parked := parking{}
			inBubble(t, 1, nil, func(r *rig, c *kafkaadapter.Config) {
				capped(parked, 3)(r, c)
				for range deaths {
					r.claimElsewhere(r.otherProcess(), "x")
					r.after(lease)
				}
			}, func(r *rig) {
				r.group.add(message("x", "k"))
				r.after(time.Minute)
				r.wantCommitted(1)
				if deaths < 3 {
					assert.Empty(t, parked)
					r.wantRuns("x", 1)
					return
				}
				parked.want(t, "x", kafkaadapter.ErrAttempts)
				r.wantRuns("x", 0)
			})
		})
	}
}

// A message that waits for its turn, through any number of rebalances, has not been tried.
func TestUnstartedMessagesAreNotCounted(t *testing.T) {
	parked := parking{}
	var free chan struct{} // made in the bubble
	handler := func(ctx context.Context, m *kafkaadapter.Message) error {
		if m.ID != "slow" {
			assert.Equal(t, 1, m.Attempt, m.ID+" runs for the first time")
			return nil
		}
		select {
		case <-free:
			return nil
		case <-ctx.Done(): // the drain has ended; the message is not at fault
			return ctx.Err()
		}
	}
	inBubble(t, 1, handler, func(r *rig, c *kafkaadapter.Config) {
		capped(parked, 2)(r, c)
		c.Tuning.Drain, free = time.Second, make(chan struct{})
	}, func(r *rig) {
		r.group.add(message("slow", "k"), message("behind", "k"))
		for range 5 {
			r.after(5 * time.Second)
			r.group.rebalance()
		}
		r.after(5 * time.Second)
		for _, id := range []string{"slow", "behind"} {
			assert.Equal(t, 1, r.attempts(id), "attempts of "+id)
		}
		close(free)
		r.after(5 * time.Second)
		r.wantRuns("behind", 1)
		r.wantCommitted(2)
		assert.Empty(t, parked)
	})
}

// If the last attempt has called MarkIrreversible, giving up must not record it as failed, because
// nobody knows. The next claimer with a resolver asks.
func TestGivingUpLeavesMarkIrreversibleUncertain(t *testing.T) {
	parked := parking{}
	handler := func(ctx context.Context, m *kafkaadapter.Message) error {
		if m.Attempt == 2 {
			assert.NoError(t, dedup.MarkIrreversible(ctx))
		}
		return errBroken
	}
	inBubble(t, 1, handler, capped(parked, 2), func(r *rig) {
		r.group.add(message("x", "k"))
		r.after(time.Minute)
		r.wantRuns("x", 2)
		r.wantCommitted(1)
		parked.want(t, "x", kafkaadapter.ErrAttempts)
		rec, err := r.dedup.Lookup(context.Background(), "x", scoped)
		require.NoError(r.t, err)
		assert.Equal(t, driver.StateUncertain, rec.State)
	})
}

// In Observe mode a message that is done runs, although other processes have used up its attempts.
func TestMaxAttemptsDoesNotHoldBackAnObserver(t *testing.T) {
	parked := parking{}
	inBubble(t, 1, nil, func(r *rig, c *kafkaadapter.Config) {
		capped(parked, 2)(r, c)
		for range 3 {
			r.claimElsewhere(r.otherProcess(), "x")
			r.after(lease)
		}
		done := r.claimElsewhere(r.otherProcess(), "x")
		require.NoError(t, done.Complete(context.Background(), nil))
		d, err := dedup.New(r.store, dedup.Config{Namespace: "t", Window: time.Hour,
			LeaseTTL: lease, Hold: time.Hour, Mode: dedup.Observe})
		require.NoError(t, err)
		c.Deduper = d
	}, func(r *rig) {
		r.group.add(message("x", "k"))
		r.after(time.Minute)
		r.wantRuns("x", 1)
		r.wantCommitted(1)
	})
}

// A message that stays in flight elsewhere is parked, so that its partition continues.
func TestBusyTimeout(t *testing.T) {
	parked := parking{}
	inBubble(t, 1, nil, func(r *rig, c *kafkaadapter.Config) {
		c.Park, c.Attempts.BusyTimeout = parked.park, 5*time.Minute
		r.group.finished = nil
	}, func(r *rig) {
		_, stop := r.claimElsewhere(r.otherProcess(), "x").KeepAlive(context.Background())
		defer stop()
		r.group.add(message("x", "k"), message("y", "k"))
		r.after(4 * time.Minute)
		r.wantCommitted(0)
		r.outage() // the time of an outage does not count
		r.after(2 * time.Second)
		r.heal()
		r.after(4 * time.Minute)
		r.wantCommitted(0)
		r.after(2 * time.Minute)
		r.wantRuns("x", 0)
		r.wantRuns("y", 1)
		r.wantCommitted(2)
		parked.want(t, "x", kafkaadapter.ErrBusy)
		r.wantHeld("x") // the owner's claim is its own
	})
}

// endsDoubted is the time after which the first two batches of completions are known to be in
// doubt.
const endsDoubted = 2500 * time.Millisecond

// finishFails drops completions: the store grants claims and records nothing.
func finishFails(call deduptest.Call) deduptest.Fault {
	if call.Op == deduptest.OpFinish {
		return deduptest.Fault{Kind: deduptest.DropRequest}
	}
	return deduptest.Fault{}
}

// Effects that cannot be recorded do not pile up.
func TestUnrecordedEffectsAreBounded(t *testing.T) {
	const workers = 4
	handler := func(context.Context, *kafkaadapter.Message) error {
		<-time.After(50 * time.Millisecond)
		return nil
	}
	inBubble(t, 1, handler, func(r *rig, c *kafkaadapter.Config) {
		c.Tuning.Workers = workers
	}, func(r *rig) {
		r.store.SetPlan(finishFails)
		r.group.add(ids(300)...)
		r.after(endsDoubted)
		before := r.totalRuns()
		r.after(lease / 2) // of those in doubt
		assert.Equal(t, before, r.totalRuns(), "effects, and none of them on record")
		r.wantCommitted(0)
		r.heal()
		r.after(time.Minute)
		for _, m := range ids(300) {
			r.wantRuns(idIn(m), 1)
		}
		r.wantCommitted(300)
	})
}

// A message that waits because too many effects are in doubt is not claimed meanwhile: thousands
// of renewals would keep the store from recording them.
func TestNothingIsClaimedAheadOfDoubts(t *testing.T) {
	const messages, ahead, batch, workers = 1000, 16, 16, 4
	inBubble(t, 1, takes(50*time.Millisecond), func(_ *rig, c *kafkaadapter.Config) {
		c.Tuning.Workers, c.Tuning.ClaimAhead, c.Tuning.BatchMax = workers, ahead, batch
	}, func(r *rig) {
		r.store.SetPlan(finishFails)
		r.group.add(ids(messages)...)
		r.after(endsDoubted)
		ran := r.totalRuns()
		r.after(lease / 4)
		assert.LessOrEqual(t, r.inProgress(messages), ran+ahead+batch+workers, "claims")
		r.heal()
		r.after(time.Minute)
		r.wantCommitted(messages)
	})
}
