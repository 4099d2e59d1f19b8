package kafkaadapter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter/internal/flow"
	"github.com/onceward/onceward/kafkaadapter/internal/partition"
)

// takes is a handler that takes so long, or until its context ends.
func takes(d time.Duration) Handler {
	return func(ctx context.Context, _ *Message) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// deaf is a handler that takes so long, whatever its context says.
func deaf(d time.Duration) Handler {
	return func(context.Context, *Message) error {
		<-time.After(d)
		return nil
	}
}

// revoked notes the arguments of Observer.Revoked.
func revoked(r *rig, c *Config) {
	c.Observer.Revoked = func(_ string, partition int32, returned, abandoned int) {
		r.note(fmt.Sprintf("partition %d: %d returned, %d abandoned", partition, returned,
			abandoned))
	}
}

// A handler that ends within the drain budget is recorded and committed before the
// partition is given up; what was not started is given back at once, and is no later
// attempt of it.
func TestRevokeLetsHandlersEnd(t *testing.T) {
	inBubble(t, 1, takes(5*time.Second), func(r *rig, c *Config) {
		c.Workers = 1
		revoked(r, c)
	}, func(r *rig) {
		r.group.add(message("runs", "a"), message("queued", "b"), message("behind", "a"))
		r.after(time.Second)
		r.wantHeld("queued")
		r.stop()
		r.after(time.Second)
		r.wantHeld("runs")
		for _, id := range []string{"queued", "behind"} {
			if n := r.attempts(id); n != 0 {
				t.Errorf("%s is at attempt %d, and was not tried", id, n)
			}
			r.wantFree(id)
		}
		r.wantCommitted(0)
		r.after(4 * time.Second)
		if err := r.wantEnd(); err != nil {
			t.Errorf("Run: %v", err)
		}
		r.wantRuns("runs", 1)
		r.wantRuns("queued", 0)
		r.wantCommitted(1)
		if want := []string{"partition 0: 2 returned, 0 abandoned"}; !slices.Equal(r.noted(),
			want) {
			t.Errorf("observed %q, want %q", r.noted(), want)
		}
	})
}

// A handler that listens is cancelled when the drain budget is used up, and its message
// given back.
func TestRevokeCancelsWhatTakesTooLong(t *testing.T) {
	var cause error
	slow := takes(time.Minute)
	handler := func(ctx context.Context, m *Message) error {
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
		if err := r.wantEnd(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if !errors.Is(cause, flow.ErrDrained) {
			t.Errorf("cancelled with %v", cause)
		}
		r.wantFree("slow")
		r.wantCommitted(0)
		if want := []string{"partition 0: 1 returned, 0 abandoned"}; !slices.Equal(r.noted(),
			want) {
			t.Errorf("observed %q, want %q", r.noted(), want)
		}
	})
}

// A handler that does not listen is left behind, in time, under a lease that is renewed
// for as long as it runs. It records what it did, and marks nothing.
func TestAbandonedHandlerKeepsItsLease(t *testing.T) {
	inBubble(t, 1, deaf(5*time.Minute), revoked, func(r *rig) {
		r.group.add(message("deaf", "a"))
		r.after(time.Second)
		r.stop()
		r.after(9 * time.Second)
		r.wantRunning()
		r.after(2 * time.Second)
		if err := r.wantEnd(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if want := []string{"partition 0: 0 returned, 1 abandoned"}; !slices.Equal(r.noted(),
			want) {
			t.Errorf("observed %q, want %q", r.noted(), want)
		}
		r.after(4 * time.Minute)
		r.wantHeld("deaf")
		r.after(2 * time.Minute)
		if c := r.claimElsewhere(r.otherProcess(), "deaf"); c.Outcome != dedup.Duplicate {
			t.Errorf("deaf is %v elsewhere, want it done", c.Outcome)
		}
		r.wantCommitted(0)
	})
}

// An abandoned handler that fails in the end gives its claim back, whichever way.
func TestAbandonedHandlerLetsGoAtItsEnd(t *testing.T) {
	for name, end := range map[string]struct {
		err  error
		park func(context.Context, *Message, error) error
	}{
		"error":     {err: errBroken},
		"permanent": {err: dedup.Permanent(errBroken)},
		"permanent held": {err: dedup.Permanent(errBroken),
			park: func(context.Context, *Message, error) error { return errBroken }},
	} {
		t.Run(name, func(t *testing.T) {
			handler := func(context.Context, *Message) error {
				<-time.After(time.Minute)
				return end.err
			}
			inBubble(t, 1, handler, func(_ *rig, c *Config) { c.Park = end.park }, func(r *rig) {
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

// A message that is being parked when its partition goes: nobody comes back for its
// claim, which must not be renewed for ever.
func TestParkThatIsAbandonedLetsGo(t *testing.T) {
	handler := func(context.Context, *Message) error { return dedup.Permanent(errBroken) }
	inBubble(t, 1, handler, func(_ *rig, c *Config) {
		c.Park = func(context.Context, *Message, error) error {
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

// A rebalance: the same member gets its partition again, and with it what was not
// committed; nothing runs twice.
func TestRebalanceDeliversAgain(t *testing.T) {
	var causes []driver.Cause
	handler := func(_ context.Context, m *Message) error {
		if m.ID == "id1" {
			<-time.After(20 * time.Second)
		}
		return nil
	}
	inBubble(t, 1, handler, func(_ *rig, c *Config) {
		c.Observer.Skipped = func(_ *Message, cause driver.Cause, _ time.Duration) {
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
		if r.group.joins != 2 {
			t.Errorf("joined %d times, want twice", r.group.joins)
		}
		// id1 was finished by its abandoned handler.
		for _, cause := range causes {
			if cause != driver.RebalanceReplay {
				t.Errorf("skipped for %v, want %v", cause, driver.RebalanceReplay)
			}
		}
		if len(causes) != 4 {
			t.Errorf("skipped %d, want 4", len(causes))
		}
	})
}

// Cooperative: a partition is revoked and comes back while the session and the other
// partition go on. What the old claim left behind marks nothing in the new one.
func TestRevokedAndAssignedAgainInOneSession(t *testing.T) {
	handler := func(_ context.Context, m *Message) error {
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
		if !old.returned() {
			r.t.Fatal("the claim did not end within the drain budget")
		}
		r.group.add(at(1, 1, message("meanwhile", "c")))
		r.group.session.start(0)
		r.after(5 * time.Second)
		r.wantCommitted(0)
		r.wantRuns("meanwhile", 1)
		if n := r.group.committedTo(1); n != 2 {
			t.Errorf("partition 1 is committed to %d, want 2", n)
		}
		r.after(time.Minute)
		r.wantRuns("deaf", 1)
		r.wantRuns("x", 1)
		r.wantCommitted(2)
		if r.group.joins != 1 {
			t.Errorf("joined %d times, want once", r.group.joins)
		}
		if want := []string{"partition 0: 0 returned, 1 abandoned"}; !slices.Equal(r.noted(),
			want) {
			t.Errorf("observed %q, want %q", r.noted(), want)
		}
	})
}

// Two claims of one partition at once would commit over each other's heads.
func TestSecondClaimOfAPartitionIsRefused(t *testing.T) {
	inBubble(t, 1, deaf(time.Second), nil, func(r *rig) {
		r.group.add(message("x", "a"))
		r.after(500 * time.Millisecond)
		second := &fakeClaim{session: r.group.session, messages: make(chan *sarama.ConsumerMessage)}
		if err := r.a.ConsumeClaim(r.group.session, second); !errors.Is(err, flow.ErrTracked) {
			t.Errorf("the second claim: %v", err)
		}
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
		if !r.group.isPaused(0) {
			r.t.Fatal("not paused during the outage")
		}
		r.stop()
		r.after(partition.Handover)
		if err := r.wantEnd(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if r.group.isPaused(0) {
			t.Error("left paused: the next claim would start so")
		}
		if want := []string{"partition 0: 3 returned, 0 abandoned"}; !slices.Equal(r.noted(),
			want) {
			t.Errorf("observed %q, want %q", r.noted(), want)
		}
		r.heal()
		r.wantRuns("id0", 0)
		r.wantFree("id0")
	})
}

// The partition goes while its batch is on the way to the store: what was won is given
// back, not started.
func TestRevokeDuringAClaim(t *testing.T) {
	inBubble(t, 1, nil, func(r *rig, c *Config) {
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
		if err := r.wantEnd(); err != nil {
			t.Errorf("Run: %v", err)
		}
		for _, id := range []string{"id0", "id1", "id2"} {
			r.wantRuns(id, 0)
			r.wantFree(id)
		}
		if want := []string{"partition 0: 3 returned, 0 abandoned"}; !slices.Equal(r.noted(),
			want) {
			t.Errorf("observed %q, want %q", r.noted(), want)
		}
	})
}

// A claim that is cancelled because the partition goes is no outage of the store.
func TestRevokeIsNoOutage(t *testing.T) {
	inBubble(t, 1, nil, func(r *rig, c *Config) {
		revoked(r, c)
		c.Observer.Paused = func(string, int32, bool) { r.note("paused") }
		r.store.SetPlan(func(deduptest.Call) deduptest.Fault {
			return deduptest.Fault{Kind: deduptest.Hang}
		})
	}, func(r *rig) {
		r.group.add(ids(3)...)
		r.after(time.Second)
		r.stop()
		if err := r.wantEnd(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if want := []string{"partition 0: 3 returned, 0 abandoned"}; !slices.Equal(r.noted(),
			want) {
			t.Errorf("observed %q, want %q", r.noted(), want)
		}
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
	inBubble(t, 1, nil, func(r *rig, _ *Config) {
		release = make(chan struct{})
		r.group.onCommit = func() {
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
		r.after(2*partition.CommitTimeout + 100*time.Millisecond)
		if err := r.wantEnd(); err != nil {
			t.Errorf("Run: %v", err)
		}
		close(release)
		r.wantRuns("y", 1)
	})
}

// The store answers a question, with the claim, when the partition is gone already. Nobody
// would come back for it, and it would be renewed for ever.
func TestClaimThatIsWonAfterTheEndIsGivenBack(t *testing.T) {
	for name, order := range map[string]Order{"by key": ByKey, "by partition": ByPartition} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, nil, func(_ *rig, c *Config) {
				c.Order, c.Drain = order, 100*time.Millisecond
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
				if err := elsewhere.Release(context.Background()); err != nil {
					t.Fatal(err)
				}
				r.after(3 * time.Second) // somebody asks now
				r.stop()
				r.after(time.Second)
				if err := r.wantEnd(); err != nil {
					t.Error(err)
				}
				r.heal() // what hangs is sent again
				r.after(3 * lease)
				r.wantRuns("x", 0)
				r.wantFree("x")
			})
		})
	}
}

// An effect whose record met an outage has happened: who gets its claim again after the
// partition has gone records it, and does not give it to somebody else to run.
func TestEffectAppliedEffectIsRecordedAfterTheEnd(t *testing.T) {
	inBubble(t, 1, nil, func(_ *rig, c *Config) { c.Drain = 100 * time.Millisecond }, func(r *rig) {
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
		r.after(3 * time.Second) // the lease is lost, and somebody asks
		r.stop()
		r.after(2 * time.Second)
		r.heal()
		r.after(3 * lease)
		r.wantRuns("x", 1)
		if c := r.claimElsewhere(r.otherProcess(), "x"); c.Outcome != dedup.Duplicate {
			t.Errorf("x is %v elsewhere, want it done", c.Outcome)
		}
	})
}
