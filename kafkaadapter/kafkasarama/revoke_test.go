package kafkasarama

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/internal/pipeline"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// takes returns a handler that takes d, or until its context ends.
func takes(d time.Duration) kafkaadapter.Handler {
	return func(ctx context.Context, _ *kafkaadapter.Message) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// deaf returns a handler that takes d and ignores its context.
func deaf(d time.Duration) kafkaadapter.Handler {
	return func(context.Context, *kafkaadapter.Message) error {
		<-time.After(d)
		return nil
	}
}

// revoked notes the arguments of Observer.Revoked.
func revoked(r *rig, c *kafkaadapter.Config) {
	c.Observer.Revoked = func(_ string, partition int32, returned, abandoned int) {
		r.note(fmt.Sprintf("partition %d: %d returned, %d abandoned", partition, returned,
			abandoned))
	}
}

// A handler that ends within the drain budget is recorded and committed before the partition is
// given up. A message that was not started is given back at once, and no attempt of it is counted.
func TestRevokeLetsHandlersEnd(t *testing.T) {
	inBubble(t, 1, takes(5*time.Second), func(r *rig, c *kafkaadapter.Config) {
		c.Tuning.Workers = 1
		revoked(r, c)
	}, func(r *rig) {
		r.group.add(message("runs", "a"), message("queued", "b"), message("behind", "a"))
		r.after(time.Second)
		r.wantHeld("queued")
		r.stop()
		r.after(time.Second)
		r.wantHeld("runs")
		for _, id := range []string{"queued", "behind"} {
			assert.Zero(t, r.attempts(id), id+" was not tried")
			r.wantFree(id)
		}
		r.wantCommitted(0)
		r.after(4 * time.Second)
		r.wantStop()
		r.wantRuns("runs", 1)
		r.wantRuns("queued", 0)
		r.wantCommitted(1)
		r.wantNoted("partition 0: 2 returned, 0 abandoned")
	})
}

// A handler that obeys its context is canceled when the drain budget is used up, and its message is
// given back.
func TestRevokeCancelsWhatTakesTooLong(t *testing.T) {
	var cause error
	slow := takes(time.Minute)
	handler := func(ctx context.Context, m *kafkaadapter.Message) error {
		err := slow(ctx, m)
		cause = context.Cause(ctx)
		return err
	}
	inBubble(t, 1, handler, revoked, func(r *rig) {
		r.group.add(message("slow", "a"))
		r.after(time.Second)
		r.stop()
		r.after(9 * time.Second)
		r.wantHeld("slow")
		r.after(time.Second)
		r.wantStop()
		require.ErrorIs(r.t, cause, pipeline.ErrDrained)
		r.wantFree("slow")
		r.wantCommitted(0)
		r.wantNoted("partition 0: 1 returned, 0 abandoned")
	})
}

// A handler that ignores its context is left behind after the drain budget. Its lease is renewed as
// long as it runs. Then its effect is recorded, and nothing is marked.
func TestAbandonedHandlerKeepsItsLease(t *testing.T) {
	inBubble(t, 1, deaf(5*time.Minute), revoked, func(r *rig) {
		r.group.add(message("deaf", "a"))
		r.after(time.Second)
		r.stop()
		r.after(9 * time.Second)
		r.wantRunning()
		r.after(2 * time.Second)
		r.wantStop()
		r.wantNoted("partition 0: 0 returned, 1 abandoned")
		r.after(4 * time.Minute)
		r.wantHeld("deaf")
		r.after(2 * time.Minute)
		r.wantElsewhere("deaf", dedup.Duplicate)
		r.wantCommitted(0)
	})
}

// However an abandoned handler fails in the end, its claim is given back.
func TestAbandonedHandlerLetsGoAtItsEnd(t *testing.T) {
	for name, end := range map[string]struct {
		err  error
		park func(context.Context, *kafkaadapter.Message, error) error
	}{
		"error":     {err: errBroken},
		"permanent": {err: dedup.Permanent(errBroken)},
		"permanent held": {err: dedup.Permanent(errBroken),
			park: func(context.Context, *kafkaadapter.Message, error) error { return errBroken }},
	} {
		t.Run(name, func(t *testing.T) {
			handler := func(context.Context, *kafkaadapter.Message) error {
				<-time.After(time.Minute)
				return end.err
			}
			inBubble(t, 1, handler, func(_ *rig, c *kafkaadapter.Config) {
				c.Park = end.park
			}, func(r *rig) {
				r.group.add(message("x", "a"))
				r.after(time.Second)
				r.stop()
				r.after(time.Minute)
				r.wantFree("x")
				r.wantCommitted(0)
			})
		})
	}
}

// A partition is revoked while a message is being parked. Its claim must not be renewed forever.
func TestParkThatIsAbandonedLetsGo(t *testing.T) {
	inBubble(t, 1, failForGood, func(_ *rig, c *kafkaadapter.Config) {
		c.Park = func(context.Context, *kafkaadapter.Message, error) error {
			<-time.After(time.Minute)
			return errBroken
		}
	}, func(r *rig) {
		r.group.add(message("x", "a"))
		r.after(time.Second)
		r.stop()
		r.after(30 * time.Second)
		r.wantHeld("x")
		r.after(time.Minute)
		r.wantFree("x")
		r.wantCommitted(0)
	})
}

// After a rebalance the same member gets its partition again, with the messages that were not
// committed. Nothing runs twice.
func TestRebalanceDeliversAgain(t *testing.T) {
	var causes []driver.Cause
	handler := func(_ context.Context, m *kafkaadapter.Message) error {
		if m.ID == "id1" {
			<-time.After(20 * time.Second)
		}
		return nil
	}
	inBubble(t, 1, handler, func(_ *rig, c *kafkaadapter.Config) {
		c.Observer.Skipped = func(_ *kafkaadapter.Message, cause driver.Cause, _ time.Duration) {
			causes = append(causes, cause)
		}
	}, func(r *rig) {
		r.group.add(ids(5)...)
		r.after(5 * time.Second)
		r.wantCommitted(1)
		r.group.rebalance()
		r.after(time.Minute)
		for _, id := range []string{"id0", "id1", "id2", "id3", "id4"} {
			r.wantRuns(id, 1)
		}
		r.wantCommitted(5)
		assert.Equal(t, 2, r.group.joins, "sessions")
		// id1 was finished by its abandoned handler.
		assert.Equal(t, slices.Repeat([]driver.Cause{driver.RebalanceReplay}, 4), causes)
	})
}

// Cooperative: a partition is revoked and comes back while the session and the other partition
// continue. Leftovers of the old claim mark nothing in the new one.
func TestRevokedAndAssignedAgainInOneSession(t *testing.T) {
	handler := func(_ context.Context, m *kafkaadapter.Message) error {
		if m.ID == "deaf" {
			<-time.After(30 * time.Second)
		}
		return nil
	}
	inBubble(t, 2, handler, revoked, func(r *rig) {
		r.group.add(message("deaf", "a"), message("x", "b"), at(1, 0, message("other", "c")))
		r.after(time.Second)
		old := r.group.session.claims[0]
		old.revoke(errFakeRevoked)
		r.after(11 * time.Second)
		require.True(r.t, old.returned(), "the claim did not end within the drain budget")
		r.group.add(at(1, 1, message("meanwhile", "c")))
		r.group.session.start(0)
		r.after(5 * time.Second)
		r.wantCommitted(0)
		r.wantRuns("meanwhile", 1)
		assert.EqualValues(t, 2, r.group.committedTo(1), "partition 1")
		r.after(time.Minute)
		r.wantRuns("deaf", 1)
		r.wantRuns("x", 1)
		r.wantCommitted(2)
		assert.Equal(t, 1, r.group.joins, "sessions")
		r.wantNoted("partition 0: 0 returned, 1 abandoned")
	})
}

// Two claims of one partition at a time would overwrite each other's commits.
func TestSecondClaimOfAPartitionIsRefused(t *testing.T) {
	inBubble(t, 1, deaf(time.Second), nil, func(r *rig) {
		r.group.add(message("x", "a"))
		r.after(500 * time.Millisecond)
		second := &fakeClaim{session: r.group.session, initial: sarama.OffsetOldest,
			messages: make(chan *sarama.ConsumerMessage)}
		err := handler{r.consumer}.ConsumeClaim(r.group.session, second)
		require.ErrorIs(r.t, err, pipeline.ErrTracked)
		r.after(5 * time.Second)
		r.wantCommitted(1)
	})
}

// The partition goes during an outage, with messages that were never claimed.
func TestRevokeDuringAnOutage(t *testing.T) {
	inBubble(t, 1, nil, revoked, func(r *rig) {
		r.outage()
		r.group.add(ids(3)...)
		r.after(5 * time.Second)
		require.True(r.t, r.group.isPaused(0))
		r.stop()
		r.after(r.consumer.engine.Handover())
		r.wantStop()
		assert.False(t, r.group.isPaused(0), "the next claim would start paused")
		r.wantNoted("partition 0: 3 returned, 0 abandoned")
		r.heal()
		r.wantRuns("id0", 0)
		r.wantFree("id0")
	})
}

// The partition goes while its batch is on the way to the store: messages that were won are
// given back, not started.
func TestRevokeDuringAClaim(t *testing.T) {
	inBubble(t, 1, nil, func(r *rig, c *kafkaadapter.Config) {
		slow := &slowStore{Store: r.store, took: 3 * time.Second}
		c.Deduper, _ = dedup.New(slow,
			dedup.Config{Namespace: "t", Window: time.Hour, LeaseTTL: time.Minute,
				StoreTimeout: 5 * time.Second})
		revoked(r, c)
	}, func(r *rig) {
		r.group.add(ids(3)...)
		r.after(time.Second)
		r.stop()
		r.after(4 * time.Second)
		r.wantStop()
		for _, id := range []string{"id0", "id1", "id2"} {
			r.wantRuns(id, 0)
			r.wantFree(id)
		}
		r.wantNoted("partition 0: 3 returned, 0 abandoned")
	})
}

// A claim that is canceled because the partition goes is not an outage of the store.
func TestRevokeIsNoOutage(t *testing.T) {
	inBubble(t, 1, nil, func(r *rig, c *kafkaadapter.Config) {
		revoked(r, c)
		c.Observer.Paused = func(string, int32, bool) { r.note("paused") }
		r.store.SetPlan(func(deduptest.Call) deduptest.Fault {
			return deduptest.Fault{Kind: deduptest.Hang}
		})
	}, func(r *rig) {
		r.group.add(ids(3)...)
		r.after(time.Second)
		r.stop()
		r.wantStop()
		r.wantNoted("partition 0: 3 returned, 0 abandoned")
		r.after(lease) // what the Deduper gives back has hung too
	})
}

// slowStore takes its time to claim, whatever the context says.
type slowStore struct {
	dedup.Store
	took time.Duration
}

func (s *slowStore) Claim(_ context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	<-time.After(s.took)
	return s.Store.Claim(context.Background(), reqs)
}

// A commit that hangs must not keep the group from rebalancing.
func TestHangingCommitIsGivenUp(t *testing.T) {
	var hang atomic.Bool
	release := make(chan struct{})
	inBubble(t, 1, nil, func(r *rig, _ *kafkaadapter.Config) {
		release = make(chan struct{})
		r.coordinator.onCommit = func() {
			if hang.Load() {
				<-release
			}
		}
	}, func(r *rig) {
		r.group.add(message("x", "a"))
		r.after(time.Second)
		hang.Store(true)
		r.group.add(message("y", "a"))
		r.after(time.Second)
		r.stop()
		r.after(2*kafkadriver.CommitTimeout + 100*time.Millisecond)
		r.wantStop()
		close(release)
		r.wantRuns("y", 1)
	})
}

// The store grants a claim when the partition is gone already. The claim is given back: otherwise
// it would be renewed forever.
func TestClaimThatIsWonAfterTheEndIsGivenBack(t *testing.T) {
	for name, order := range map[string]kafkaadapter.Order{"by key": kafkaadapter.ByKey,
		"by partition": kafkaadapter.ByPartition} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, nil, func(_ *rig, c *kafkaadapter.Config) {
				c.Order, c.Tuning.Drain = order, 100*time.Millisecond
			}, func(r *rig) {
				elsewhere := r.claimElsewhere(r.otherProcess(), "x")
				r.group.add(message("x", "k"))
				r.after(time.Second)
				r.store.SetPlan(func(call deduptest.Call) deduptest.Fault {
					if call.Op == deduptest.OpClaim {
						return deduptest.Fault{Kind: deduptest.Hang}
					}
					return deduptest.Fault{}
				})
				require.NoError(t, elsewhere.Release(context.Background()))
				r.after(3 * time.Second) // the consumer is asking the store now
				r.stop()
				r.after(time.Second)
				r.wantStop()
				r.heal() // what hangs is sent again
				r.after(3 * lease)
				r.wantRuns("x", 0)
				r.wantFree("x")
			})
		})
	}
}

// An effect has happened, but it could not be recorded in an outage. A worker that gets the claim
// again after the partition has gone records the effect, and does not let another process run it.
func TestEffectAppliedEffectIsRecordedAfterTheEnd(t *testing.T) {
	inBubble(t, 1, nil, func(_ *rig, c *kafkaadapter.Config) {
		c.Tuning.Drain = 100 * time.Millisecond
	}, func(r *rig) {
		r.store.SetPlan(func(call deduptest.Call) deduptest.Fault {
			if call.Op == deduptest.OpFinish || call.Op == deduptest.OpRenew {
				return deduptest.Fault{Kind: deduptest.DropRequest}
			}
			return deduptest.Fault{}
		})
		r.group.add(message("x", "k"))
		r.after(lease - time.Second) // the effect has happened
		r.store.SetPlan(func(deduptest.Call) deduptest.Fault {
			return deduptest.Fault{Kind: deduptest.Hang}
		})
		r.after(3 * time.Second) // the lease is lost, and a worker claims again
		r.stop()
		r.after(2 * time.Second)
		r.heal()
		r.after(3 * lease)
		r.wantRuns("x", 1)
		r.wantElsewhere("x", dedup.Duplicate)
	})
}
