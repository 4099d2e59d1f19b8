package kafkasarama

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
)

// A message that is done already is skipped, with the cause of its return, and committed.
func TestDuplicateIsSkipped(t *testing.T) {
	var causes []driver.Cause
	inBubble(t, 1, nil, func(_ *rig, c *kafkaadapter.Config) {
		c.Observer.Skipped = func(_ *kafkaadapter.Message, cause driver.Cause, _ time.Duration) {
			causes = append(causes, cause)
		}
	}, func(r *rig) {
		r.group.add(message("x", "a"))
		r.after(time.Second)
		r.group.add(message("x", "a"), message("x", "b"))
		r.after(time.Second)
		r.wantRuns("x", 1)
		r.wantCommitted(3)
		assert.Equal(t, []driver.Cause{driver.ProducerRetry, driver.ProducerRetry}, causes)
	})
}

// The same id twice in a batch runs once: the second message is in flight as long as the first one
// runs, and then a duplicate. Their Kafka keys make no difference.
func TestSameIDTwiceInABatch(t *testing.T) {
	for _, keys := range [][2]string{{"a", "a"}, {"a", "b"}, {"", ""}} {
		t.Run(keys[0]+"-"+keys[1], func(t *testing.T) {
			handler := func(context.Context, *kafkaadapter.Message) error {
				<-time.After(5 * time.Second)
				return nil
			}
			inBubble(t, 1, handler, nil, func(r *rig) {
				r.group.add(message("x", keys[0]), message("x", keys[1]), message("y", "c"))
				r.after(4 * time.Second)
				r.wantCommitted(0)
				r.after(10 * time.Second)
				r.wantRuns("x", 1)
				r.wantCommitted(3)
			})
		})
	}
}

// A message that another process handles is not done: nothing is committed from it on
// until it is, and its key waits while others go on.
func TestInFlightElsewhereIsNotDone(t *testing.T) {
	var waited atomic.Int32
	inBubble(t, 1, nil, func(_ *rig, c *kafkaadapter.Config) {
		c.Observer.Waiting = func(m *kafkaadapter.Message) {
			if m.ID == "x" {
				waited.Add(1)
			}
		}
	}, func(r *rig) {
		other := r.claimElsewhere(r.otherProcess(), "x")
		_, stop := other.KeepAlive(context.Background())
		defer stop()
		r.group.add(message("x", "a"), message("behind", "a"), message("other", "b"))
		r.after(3 * lease)
		r.wantRuns("x", 0)
		r.wantRuns("behind", 0)
		r.wantRuns("other", 1)
		r.wantCommitted(0)
		assert.GreaterOrEqual(t, waited.Load(), int32(2))
		require.NoError(r.t, other.Complete(context.Background(), nil))
		r.after(5 * time.Second)
		r.wantRuns("x", 0)
		r.wantRuns("behind", 1)
		r.wantCommitted(3)
	})
}

// When its owner dies, a message is taken over after the lease has lapsed, and not before.
func TestDeadOwnerIsTakenOver(t *testing.T) {
	inBubble(t, 1, nil, nil, func(r *rig) {
		r.claimElsewhere(r.otherProcess(), "x")
		r.group.add(message("x", "a"))
		r.after(lease - time.Second)
		r.wantRuns("x", 0)
		r.wantCommitted(0)
		r.after(2 * time.Second)
		r.wantRuns("x", 1)
		r.wantCommitted(1)
	})
}

// A Deduper that waits for a key in flight must not hold a worker: the owner of the key may be
// waiting for that worker.
func TestWaitingDeduperHoldsNoWorker(t *testing.T) {
	handler := func(context.Context, *kafkaadapter.Message) error {
		<-time.After(time.Second)
		return nil
	}
	inBubble(t, 1, handler, func(r *rig, c *kafkaadapter.Config) {
		c.Tuning.Workers = 1
		c.Deduper, _ = dedup.New(r.store,
			dedup.Config{Namespace: "t", Window: time.Hour, LeaseTTL: lease, Wait: time.Hour})
	}, func(r *rig) {
		other := r.claimElsewhere(r.otherProcess(), "x")
		_, stop := other.KeepAlive(context.Background())
		defer stop()
		r.group.add(message("x", "a"), message("y", "b"))
		r.after(5 * time.Second)
		r.wantRuns("y", 1)
		_ = other.Complete(context.Background(), nil)
	})
}

// In an outage the partition is paused, nothing new runs and nothing is marked; then it
// continues.
func TestStoreOutageFailsClosed(t *testing.T) {
	var mu sync.Mutex
	var pauses []bool
	inBubble(t, 1, nil, func(_ *rig, c *kafkaadapter.Config) {
		c.Observer.Paused = func(_ string, _ int32, on bool) {
			mu.Lock()
			defer mu.Unlock()
			pauses = append(pauses, on)
		}
	}, func(r *rig) {
		r.group.add(message("before", "a"))
		r.after(time.Second)
		r.outage()
		r.group.add(ids(3)...)
		r.after(time.Minute)
		assert.True(t, r.group.isPaused(0), "not paused during the outage")
		r.wantRuns("id0", 0)
		r.wantCommitted(1)
		r.group.add(message("later", "a"))
		r.heal()
		r.after(10 * time.Second)
		r.wantRuns("id0", 1)
		r.wantRuns("later", 1)
		r.wantCommitted(5)
		mu.Lock()
		defer mu.Unlock()
		assert.Equal(t, []bool{true, false}, pauses)
	})
}

// If the store does not answer for one item of a batch, the batch waits. Only that item is claimed
// again, and each message runs once.
func TestUnknownItemIsAskedAgain(t *testing.T) {
	inBubble(t, 1, nil, nil, func(r *rig) {
		r.store.SetPlan(func(c deduptest.Call) deduptest.Fault {
			if c.Op == deduptest.OpClaim && c.Number <= 6 {
				return deduptest.Fault{Kind: deduptest.FailItem, Item: 0}
			}
			return deduptest.Fault{}
		})
		r.group.add(ids(4)...)
		r.after(30 * time.Second)
		for _, id := range []string{"id0", "id1", "id2", "id3"} {
			r.wantRuns(id, 1)
		}
		r.wantCommitted(4)
	})
}

// The outage begins while a handler runs. Its effect cannot be recorded, so the message is not
// marked. The store decides later: if it grants the message again, nobody else has run it since,
// and the effect that happened here is recorded.
func TestEffectThatCannotBeRecordedIsNotDone(t *testing.T) {
	handler := func(context.Context, *kafkaadapter.Message) error {
		<-time.After(2 * time.Second)
		return nil
	}
	inBubble(t, 1, handler, nil, func(r *rig) {
		r.group.add(message("x", "a"))
		r.after(time.Second)
		r.outage()
		r.after(3 * lease)
		r.wantRuns("x", 1)
		r.wantCommitted(0)
		r.heal()
		r.after(10 * time.Second)
		r.wantRuns("x", 1)
		r.wantCommitted(1)
	})
}

// The same, but another process has run the message meanwhile and has failed for good: its record
// stays.
func TestEffectThatCouldNotBeRecordedFindsAnother(t *testing.T) {
	handler := func(context.Context, *kafkaadapter.Message) error {
		<-time.After(2 * time.Second)
		return nil
	}
	var cut *deduptest.Faulty // only between the consumer and the store
	inBubble(t, 1, handler, func(r *rig, c *kafkaadapter.Config) {
		cut = deduptest.NewFaulty(r.store, nil)
		c.Deduper = r.over(cut, nil)
	}, func(r *rig) {
		r.group.add(message("x", "a"))
		r.after(time.Second)
		cut.SetPlan(func(deduptest.Call) deduptest.Fault {
			return deduptest.Fault{Kind: deduptest.DropRequest}
		})
		r.after(3 * lease)
		require.NoError(t, r.claimElsewhere(r.dedup, "x").Fail(context.Background(), errBroken))
		cut.SetPlan(nil)
		r.after(10 * time.Second)
		r.wantRuns("x", 1)
		r.wantCommitted(1)
	})
}

// The record is written, but the store's reply is lost: the message runs once.
func TestLostReplyOfARecordRunsNothingTwice(t *testing.T) {
	inBubble(t, 1, nil, nil, func(r *rig) {
		r.store.SetPlan(deduptest.Script(deduptest.OpFinish,
			deduptest.Fault{Kind: deduptest.DropReply}))
		r.group.add(message("x", "a"))
		r.after(10 * time.Second)
		r.wantRuns("x", 1)
		r.wantCommitted(1)
	})
}

func TestHandlerSlowerThanTheLease(t *testing.T) {
	handler := func(ctx context.Context, _ *kafkaadapter.Message) error {
		select {
		case <-time.After(5 * lease):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	inBubble(t, 1, handler, nil, func(r *rig) {
		r.group.add(message("x", "a"))
		r.after(4 * lease)
		r.wantHeld("x")
		r.wantCommitted(0)
		r.after(2 * lease)
		r.wantRuns("x", 1)
		r.wantCommitted(1)
	})
}

// A handler that loses its lease is canceled. Whatever it returns, the message is not done by that.
func TestLostLease(t *testing.T) {
	for name, answer := range map[string]error{"nil": nil, "error": errBroken,
		"permanent": dedup.Permanent(errBroken)} {
		t.Run(name, func(t *testing.T) {
			var cause error
			var calls atomic.Int32
			handler := func(ctx context.Context, _ *kafkaadapter.Message) error {
				if calls.Add(1) > 1 {
					return nil
				}
				<-ctx.Done()
				cause = context.Cause(ctx)
				return answer
			}
			inBubble(t, 1, handler, nil, func(r *rig) {
				r.group.add(message("x", "a"))
				r.after(time.Second)
				r.outage() // no renewal, so the lease ends
				r.after(lease)
				require.ErrorIs(r.t, cause, dedup.ErrLeaseLost)
				r.wantCommitted(0)
				r.heal()
				other := r.wantElsewhere("x", dedup.Acquired)
				r.after(5 * time.Second)
				r.wantCommitted(0) // it runs elsewhere now
				r.wantRuns("x", 1)
				_ = other.Release(context.Background())
				r.after(5 * time.Second)
				r.wantRuns("x", 2)
				r.wantCommitted(1)
				r.wantRunning()
			})
		})
	}
}

// A message whose lease is lost while it is queued is claimed again, or found done, before it runs.
func TestLeaseLostInTheQueue(t *testing.T) {
	handler := func(_ context.Context, m *kafkaadapter.Message) error {
		if m.ID == "slow" {
			<-time.After(5 * lease)
		}
		return nil
	}
	inBubble(t, 1, handler, nil, func(r *rig) {
		r.group.add(message("slow", "a"), message("taken", "a"), message("free", "a"))
		r.after(time.Second)
		r.outage()
		r.after(2 * lease)
		r.heal()
		other := r.claimElsewhere(r.otherProcess(), "taken")
		require.NoError(r.t, other.Complete(context.Background(), nil))
		r.after(10 * lease)
		r.wantRuns("taken", 0)
		r.wantRuns("free", 1)
		r.wantCommitted(3)
	})
}

// Messages that queue behind a slow one keep their claims meanwhile.
func TestQueuedClaimsAreKept(t *testing.T) {
	handler := func(_ context.Context, m *kafkaadapter.Message) error {
		if m.ID == "slow" {
			<-time.After(5 * lease)
		}
		return nil
	}
	inBubble(t, 1, handler, nil, func(r *rig) {
		r.group.add(message("slow", "a"), message("queued", "a"))
		r.after(4 * lease)
		r.wantHeld("queued")
		r.after(2 * lease)
		r.wantRuns("queued", 1)
		r.wantCommitted(2)
	})
}

// When its Deduper is closed, the consumer stops: the Deduper would never answer again.
func TestClosedDeduperStopsTheConsumer(t *testing.T) {
	for _, queued := range []bool{false, true} {
		inBubble(t, 1, func(_ context.Context, m *kafkaadapter.Message) error {
			if m.ID == "slow" {
				<-time.After(time.Second)
				return errBroken // to be claimed again
			}
			return nil
		}, nil, func(r *rig) {
			if queued {
				r.group.add(message("slow", "a"))
				r.after(500 * time.Millisecond)
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			go func() { _ = r.dedup.Close(ctx) }()
			r.after(10 * time.Millisecond)
			if !queued {
				r.group.add(message("x", "a"))
			}
			r.after(30 * time.Second)
			require.ErrorIs(r.t, r.wantEnd(), dedup.ErrClosed)
			r.wantCommitted(0)
		})
	}
}

// Scope is part of the key: two groups have an effect each.
func TestScopeSeparatesGroups(t *testing.T) {
	inBubble(t, 1, nil, func(r *rig, c *kafkaadapter.Config) {
		c.Scope = "mine"
		r.group.finished = nil
	}, func(r *rig) {
		other := r.claimElsewhere(r.otherProcess(), "x") // without a scope
		_ = other.Complete(context.Background(), nil)
		r.group.add(message("x", "a"))
		r.after(time.Second)
		r.wantRuns("x", 1)
		r.wantCommitted(1)
	})
}

// slowLog takes a second for every line.
type slowLog struct{ slog.Handler }

func (h slowLog) Enabled(context.Context, slog.Level) bool { return true }
func (h slowLog) Handle(context.Context, slog.Record) error {
	<-time.After(time.Second)
	return nil
}

// The queues have stopped, and the consumer is still logging that. A message that it takes
// meanwhile is not claimed again and again.
func TestStoppedQueuesAreFedNoMore(t *testing.T) {
	inBubble(t, 1, failForGood, func(_ *rig, c *kafkaadapter.Config) {
		c.Logger = slog.New(slowLog{slog.DiscardHandler})
	}, func(r *rig) {
		r.store.SetPlan(func(call deduptest.Call) deduptest.Fault {
			if call.Op == deduptest.OpClaim && call.Number > 100 {
				assert.Fail(t, "the store is asked forever")
				return deduptest.Fault{Kind: deduptest.Hang}
			}
			return deduptest.Fault{}
		})
		r.group.add(message("bad", "k"))
		<-time.After(500 * time.Millisecond)
		r.group.add(message("x", "a"), message("y", "b"))
		r.after(time.Minute)
		var stopped *kafkaadapter.UnprocessableError
		require.ErrorAs(r.t, r.wantEnd(), &stopped)
		r.wantFree("x")
		r.wantFree("y")
	})
}
