package kafkasarama

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
)

// A backlog is not claimed as fast as it is fetched: all claims that wait must be renewed, and
// thousands of renewals leave the store no time for completions. With 20,000 messages, a lease of
// 2 s and six partitions nothing was completed any more.
func TestClaimsAheadAreBounded(t *testing.T) {
	const messages, ahead, batch, workers = 2000, 64, 32, 8
	var blocked chan struct{} // made inside the bubble: with another one fake time stops
	handler := func(ctx context.Context, _ *kafkaadapter.Message) error {
		select {
		case <-blocked:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	change := func(_ *rig, c *kafkaadapter.Config) {
		blocked = make(chan struct{})
		c.Tuning.Workers, c.Tuning.BatchMax, c.Tuning.ClaimAhead = workers, batch, ahead
	}
	inBubble(t, 1, handler, change, func(r *rig) {
		r.group.add(ids(messages)...)
		r.after(2 * lease)
		assert.LessOrEqual(t, r.inProgress(messages), ahead+batch+workers, "claims")
		close(blocked)
		r.after(time.Minute)
		r.wantCommitted(messages)
	})
}

// inProgress counts the claims that the store holds.
func (r *rig) inProgress(n int) (held int) {
	r.t.Helper()
	for _, m := range ids(n) {
		rec, err := r.dedup.Lookup(context.Background(), idIn(m), scoped)
		require.NoError(r.t, err)
		if rec.State == driver.StateInProgress {
			held++
		}
	}
	return held
}

// A key that takes forever, with more messages behind it than may be claimed ahead,
// does not stop the others.
func TestFullBacklogOfOneKeyDoesNotStopOthers(t *testing.T) {
	const ahead = 16
	handler := func(ctx context.Context, m *kafkaadapter.Message) error {
		if string(m.Key) == "slow" {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return nil
	}
	change := func(_ *rig, c *kafkaadapter.Config) {
		c.Tuning.BatchMax, c.Tuning.ClaimAhead = 8, ahead
	}
	inBubble(t, 1, handler, change, func(r *rig) {
		var messages []*sarama.ConsumerMessage
		for i := range 4 * ahead {
			messages = append(messages, message(fmt.Sprint("slow", i), "slow"))
		}
		messages = append(messages, message("quick", "other"))
		r.group.add(messages...)
		r.after(20 * time.Second)
		r.wantRuns("quick", 1)
		r.stop()
		r.after(time.Minute) // the drain ends the slow one
	})
}

// The same, while other messages are in flight elsewhere and are claimed again all the time.
func TestFullBacklogAmongPollsDoesNotStopOthers(t *testing.T) {
	const ahead = 16
	handler := func(ctx context.Context, m *kafkaadapter.Message) error {
		if string(m.Key) == "slow" {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return nil
	}
	inBubble(t, 1, handler, func(_ *rig, c *kafkaadapter.Config) {
		c.Tuning.BatchMax, c.Tuning.ClaimAhead = 8, ahead
		c.Attempts.RetryBase, c.Attempts.RetryMax = 50*time.Millisecond, 50*time.Millisecond
	}, func(r *rig) {
		var messages []*sarama.ConsumerMessage
		for i := range 2 * ahead {
			messages = append(messages, message(fmt.Sprint("slow", i), "slow"))
		}
		for i := range 8 {
			id := fmt.Sprint("elsewhere", i)
			_, stop := r.claimElsewhere(r.otherProcess(), id).KeepAlive(context.Background())
			defer stop()
			messages = append([]*sarama.ConsumerMessage{message(id, id)}, messages...)
		}
		r.group.add(append(messages, message("quick", "other"))...)
		r.after(20 * time.Second)
		r.wantRuns("quick", 1)
		r.stop()
		r.after(time.Minute)
	})
}

// The same, while other messages fail, are claimed again, and leave the queue again and again.
func TestFullBacklogAmongRetriesDoesNotStopOthers(t *testing.T) {
	const ahead = 16
	handler := func(ctx context.Context, m *kafkaadapter.Message) error {
		switch {
		case string(m.Key) == "slow":
			<-ctx.Done()
			return context.Cause(ctx)
		case m.ID == "quick":
			return nil
		}
		return errBroken
	}
	inBubble(t, 1, handler, func(_ *rig, c *kafkaadapter.Config) {
		c.Tuning.BatchMax, c.Tuning.ClaimAhead = 8, ahead
		c.Attempts.RetryBase, c.Attempts.RetryMax = 50*time.Millisecond, 50*time.Millisecond
	}, func(r *rig) {
		messages := ids(8)
		for i := range 2 * ahead {
			messages = append(messages, message(fmt.Sprint("slow", i), "slow"))
		}
		r.group.add(append(messages, message("quick", "other"))...)
		r.after(20 * time.Second)
		r.wantRuns("quick", 1)
		r.stop()
		r.after(time.Minute)
	})
}

// Each of two queues waits for a message that the other one has claimed. The claims behind a
// waiting message are given back, or both would wait forever. If giving back fails, these claims
// are not renewed any more.
func TestQueuesDoNotWaitForEachOther(t *testing.T) {
	for _, c := range []struct {
		order kafkaadapter.Order
		lost  bool // releases do not reach the store
	}{{kafkaadapter.ByKey, false}, {kafkaadapter.ByPartition, false}, {kafkaadapter.ByKey, true}} {
		inBubble(t, 1, nil, func(_ *rig, cfg *kafkaadapter.Config) {
			cfg.Order = c.order
		}, func(r *rig) {
			// The other process holds x behind y, for as long as y is not free.
			other := r.otherProcess()
			x := r.claimElsewhere(other, "x")
			_, stop := x.KeepAlive(context.Background())
			defer stop()
			finished := make(chan struct{})
			go func() {
				defer close(finished)
				for {
					<-time.After(time.Second)
					if y := r.claimElsewhere(other, "y"); y.Outcome == dedup.Acquired {
						_ = y.Complete(context.Background(), nil)
						_ = x.Complete(context.Background(), nil)
						return
					}
				}
			}()
			r.group.add(message("x", "k"), message("y", "k"))
			if c.lost {
				r.store.SetPlan(func(call deduptest.Call) deduptest.Fault {
					if call.Op == deduptest.OpFinish {
						return deduptest.Fault{Kind: deduptest.DropRequest}
					}
					return deduptest.Fault{}
				})
				r.after(6 * time.Second)
				r.heal()
			}
			r.after(30 * time.Second)
			select {
			case <-finished:
			default:
				require.Fail(r.t, "both wait for each other", c)
			}
			r.wantRuns("x", 0)
			r.wantRuns("y", 0)
			r.wantCommitted(2)
		})
	}
}
