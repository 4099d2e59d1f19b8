package kafkasarama

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/kafkaadapter"
)

// A commit that fails is made again, also when nothing more arrives.
func TestLostCommitIsRepeated(t *testing.T) {
	inBubble(t, 1, nil, nil, func(r *rig) {
		r.coordinator.refuse(1, io.EOF)
		r.group.add(message("last", "a"))
		r.after(2 * 250 * time.Millisecond)
		r.wantCommitted(1)
	})
}

// A coordinator that refuses commits for longer than the committer's minute, while
// heartbeats go on.
func TestCommitIsRepeatedForLong(t *testing.T) {
	inBubble(t, 1, nil, nil, func(r *rig) {
		r.coordinator.refuse(4*60*30, sarama.ErrOffsetsLoadInProgress) // half an hour of commits
		r.group.add(message("last", "a"))
		r.after(29 * time.Minute)
		r.wantCommitted(0)
		r.after(2 * time.Minute)
		r.wantCommitted(1)
	})
}

// CommitCount commits before CommitEvery is over.
func TestCommitCount(t *testing.T) {
	inBubble(t, 1, nil, func(_ *rig, c *kafkaadapter.Config) {
		c.Tuning.CommitEvery, c.Tuning.CommitCount = time.Hour, 5
	}, func(r *rig) {
		r.group.add(ids(4)...)
		r.after(time.Minute)
		r.wantCommitted(0)
		r.group.add(message("fifth", "a"))
		r.after(time.Second)
		r.wantCommitted(5)
	})
}

// All that is finished is committed when the partition goes, whatever the interval.
func TestLastCommit(t *testing.T) {
	inBubble(t, 1, nil, func(_ *rig, c *kafkaadapter.Config) {
		c.Tuning.CommitEvery = time.Hour
	}, func(r *rig) {
		r.group.add(ids(3)...)
		r.after(time.Minute)
		r.wantCommitted(0)
		r.coordinator.refuse(1, io.EOF) // it is made twice, for the first may be lost
		r.stop()
		r.wantStop()
		r.wantCommitted(3)
	})
}

// Offsets have gaps (transactions, compaction), and a log does not begin at zero.
func TestGapsInOffsets(t *testing.T) {
	handler := func(_ context.Context, m *kafkaadapter.Message) error {
		if m.ID == "b" {
			<-time.After(10 * time.Second)
		}
		return nil
	}
	inBubble(t, 1, handler, nil, func(r *rig) {
		r.group.add(at(0, 100, message("a", "")), at(0, 107, message("b", "")),
			at(0, 5000, message("c", "")))
		r.after(5 * time.Second)
		r.wantCommitted(101)
		r.after(10 * time.Second)
		r.wantCommitted(5001)
	})
}

// One message is stuck: pausing the partition bounds the messages in flight above it. Other
// partitions are not paused.
func TestHighWaterPauses(t *testing.T) {
	stuck := make(chan struct{})
	handler := func(_ context.Context, m *kafkaadapter.Message) error {
		if m.ID == "stuck" {
			<-stuck
		}
		return nil
	}
	inBubble(t, 2, handler, func(_ *rig, c *kafkaadapter.Config) {
		stuck = make(chan struct{})
		c.Tuning.HighWater, c.Tuning.LowWater, c.Tuning.BatchMax = 20, 10, 5
	}, func(r *rig) {
		r.group.add(message("stuck", "a"))
		r.group.add(ids(200)...)
		r.after(time.Minute)
		assert.True(t, r.group.isPaused(0))
		delivered := 0
		for _, m := range ids(200) {
			delivered += r.times(idIn(m))
		}
		assert.True(t, 19 <= delivered && delivered <= 40,
			"%d messages were handled behind the stuck one, want about HighWater", delivered)
		r.group.add(at(1, 0, message("elsewhere", "a")))
		r.after(time.Second)
		r.wantRuns("elsewhere", 1)
		r.wantCommitted(0)
		close(stuck)
		r.after(time.Minute)
		r.wantCommitted(201)
		assert.False(t, r.group.isPaused(0), "still paused")
	})
}

// A partition whose handlers keep up is not paused for having come to the high mark once:
// it would be fetched again only after a poll of the others has come back.
func TestHighWaterOfAFastPartition(t *testing.T) {
	for takes, want := range map[time.Duration]bool{time.Millisecond: false,
		10 * time.Second: true} {
		t.Run(takes.String(), func(t *testing.T) {
			handler := func(context.Context, *kafkaadapter.Message) error {
				<-time.After(takes)
				return nil
			}
			var paused atomic.Bool
			inBubble(t, 1, handler, func(_ *rig, c *kafkaadapter.Config) {
				c.Tuning.HighWater, c.Tuning.LowWater = 20, 10
				c.Tuning.BatchMax, c.Tuning.Workers = 5, 10
				c.Observer.Paused = func(string, int32, bool) { paused.Store(true) }
			}, func(r *rig) {
				r.group.add(ids(200)...)
				r.after(time.Hour)
				r.wantCommitted(200)
			})
			assert.Equal(t, want, paused.Load(), "paused")
		})
	}
}
