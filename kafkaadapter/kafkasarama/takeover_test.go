package kafkasarama

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
)

// crashedMember claims an id as a member of the group that has died since, and leaves the
// lease behind.
func (r *rig) crashedMember(id string, generation int32, change func(*dedup.Request)) {
	r.t.Helper()
	c, err := r.otherProcess().Claim(context.Background(), id, scoped, func(q *dedup.Request) {
		q.Origin = driver.Origin{Source: "g/" + topic, Partition: 0, Offset: 0,
			Generation: generation}
		if change != nil {
			change(q)
		}
	})
	require.NoError(r.t, err)
	require.Equal(r.t, dedup.Acquired, c.Outcome)
}

func TestTakeOverOlderGeneration(t *testing.T) {
	for name, row := range map[string]struct {
		optIn      bool
		generation int32 // of the dead member; the fake group's first session has 1
		change     func(*dedup.Request)
		atOnce     bool
	}{
		"older":         {optIn: true, generation: 1, atOnce: true},
		"not asked for": {generation: 1},
		"the same":      {optIn: true, generation: 2},
		"newer":         {optIn: true, generation: 3},
		"other partition": {optIn: true, generation: 1, change: func(q *dedup.Request) {
			q.Origin.Partition = 7
		}},
		"other group": {optIn: true, generation: 1, change: func(q *dedup.Request) {
			q.Origin.Source = "h/" + topic
		}},
		"unknown origin": {optIn: true, generation: 1, change: func(q *dedup.Request) {
			q.Origin = driver.Origin{}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, nil, func(_ *rig, c *kafkaadapter.Config) {
				c.Allow.TakeOver = row.optIn
			}, func(r *rig) {
				r.after(time.Second)
				r.group.rebalance()
				r.after(3 * time.Second)
				r.crashedMember("x", row.generation, row.change)
				r.group.add(message("x", "k"))
				r.after(lease / 2)
				r.wantRuns("x", map[bool]int{true: 1}[row.atOnce])
				r.after(lease)
				r.wantRuns("x", 1)
				r.wantCommitted(1)
			})
		})
	}
}

// A handler that does not stop keeps its claim, even when its own process gets the partition back:
// a slow message must not get one more handler in each rebalance.
func TestOwnAbandonedHandlerIsNotTakenOver(t *testing.T) {
	var free chan struct{}
	handler := func(context.Context, *kafkaadapter.Message) error {
		<-free
		return nil
	}
	inBubble(t, 1, handler, func(_ *rig, c *kafkaadapter.Config) {
		c.Allow.TakeOver, c.Tuning.Drain, free = true, time.Second, make(chan struct{})
	}, func(r *rig) {
		r.group.add(message("slow", "k"))
		for range 4 {
			r.after(5 * time.Second)
			r.group.rebalance()
		}
		r.after(5 * time.Second)
		r.wantRuns("slow", 1)
		close(free)
		r.after(time.Minute)
		r.wantRuns("slow", 1)
		r.wantCommitted(1)
	})
}

// A member that keeps its partition continues under a newer generation; the claims it has
// made before are its own.
func TestKeptPartitionDoesNotTakeItselfOver(t *testing.T) {
	var free chan struct{}
	var once sync.Once
	handler := func(context.Context, *kafkaadapter.Message) error {
		once.Do(func() { <-free })
		return nil
	}
	inBubble(t, 1, handler, func(_ *rig, c *kafkaadapter.Config) {
		c.Allow.TakeOver, free = true, make(chan struct{})
	}, func(r *rig) {
		r.group.add(message("x", "k"))
		r.after(time.Second)
		r.group.change(func() { r.group.session.generation += 3 }) // a cooperative rebalance
		r.group.add(message("x", "other"))
		r.after(3 * time.Second)
		r.wantRuns("x", 1)
		close(free)
		r.after(10 * time.Second)
		r.wantRuns("x", 1)
		r.wantCommitted(2)
	})
}
