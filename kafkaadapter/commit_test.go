package kafkaadapter

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// A commit that fails without a word is made again, also when nothing more arrives.
func TestLostCommitIsRepeated(t *testing.T) {
	inBubble(t, 1, nil, func(_ *rig, c *Config) {
		c.CommitEvery = 250 * time.Millisecond
	}, func(r *rig) {
		r.group.swallow = 1
		r.group.add(message("last", "a"))
		r.after(2 * 250 * time.Millisecond)
		r.wantCommitted(1)
	})
}

// A coordinator that refuses commits for longer than the committer's minute, while
// heartbeats go on.
func TestCommitIsRepeatedForLong(t *testing.T) {
	inBubble(t, 1, nil, nil, func(r *rig) {
		r.group.swallow = 4 * 60 * 30 // half an hour of commits
		r.group.add(message("last", "a"))
		r.after(29 * time.Minute)
		r.wantCommitted(0)
		r.after(2 * time.Minute)
		r.wantCommitted(1)
	})
}

// CommitCount commits before CommitEvery is over.
func TestCommitCount(t *testing.T) {
	inBubble(t, 1, nil, func(_ *rig, c *Config) {
		c.CommitEvery, c.CommitCount = time.Hour, 5
	}, func(r *rig) {
		r.group.add(ids(4)...)
		r.after(time.Minute)
		r.wantCommitted(0)
		r.group.add(message("fifth", "a"))
		r.after(time.Second)
		r.wantCommitted(5)
	})
}

// What is finished is committed when the partition goes, whatever the interval.
func TestLastCommit(t *testing.T) {
	inBubble(t, 1, nil, func(_ *rig, c *Config) { c.CommitEvery = time.Hour }, func(r *rig) {
		r.group.add(ids(3)...)
		r.after(time.Minute)
		r.wantCommitted(0)
		r.group.swallow = 1 // and made twice, for the first may be lost
		r.stop()
		if err := r.wantEnd(); err != nil {
			t.Errorf("Run: %v", err)
		}
		r.wantCommitted(3)
	})
}

// Offsets have gaps (transactions, compaction), and a log does not begin at zero.
func TestGapsInOffsets(t *testing.T) {
	handler := func(_ context.Context, m *Message) error {
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

// One stuck message: what is in flight above it is bounded by pausing the partition, and
// other partitions are not.
func TestHighWaterPauses(t *testing.T) {
	stuck := make(chan struct{})
	handler := func(_ context.Context, m *Message) error {
		if m.ID == "stuck" {
			<-stuck
		}
		return nil
	}
	inBubble(t, 2, handler, func(_ *rig, c *Config) {
		stuck = make(chan struct{})
		c.HighWater, c.LowWater, c.BatchMax = 20, 10, 5
	}, func(r *rig) {
		r.group.add(message("stuck", "a"))
		r.group.add(ids(200)...)
		r.after(time.Minute)
		if !r.group.isPaused(0) {
			t.Error("not paused")
		}
		delivered := 0
		for _, m := range ids(200) {
			delivered += r.times(idIn(m))
		}
		if delivered < 19 || delivered > 40 {
			t.Errorf("%d messages were handled behind the stuck one, want about HighWater",
				delivered)
		}
		r.group.add(at(1, 0, message("elsewhere", "a")))
		r.after(time.Second)
		r.wantRuns("elsewhere", 1)
		r.wantCommitted(0)
		close(stuck)
		r.after(time.Minute)
		r.wantCommitted(201)
		if r.group.isPaused(0) {
			t.Error("still paused")
		}
	})
}

// A partition whose handlers keep up is not paused for having come to the high mark once:
// it would be fetched again only after a poll of the others has come back.
func TestHighWaterOfAFastPartition(t *testing.T) {
	for takes, want := range map[time.Duration]bool{time.Millisecond: false,
		10 * time.Second: true} {
		t.Run(takes.String(), func(t *testing.T) {
			handler := func(context.Context, *Message) error {
				<-time.After(takes)
				return nil
			}
			var paused atomic.Bool
			inBubble(t, 1, handler, func(_ *rig, c *Config) {
				c.HighWater, c.LowWater, c.BatchMax, c.Workers = 20, 10, 5, 10
				c.Observer.Paused = func(string, int32, bool) { paused.Store(true) }
			}, func(r *rig) {
				r.group.add(ids(200)...)
				r.after(time.Hour)
				r.wantCommitted(200)
			})
			if paused.Load() != want {
				t.Errorf("paused: %t", paused.Load())
			}
		})
	}
}

// With Consume alone nobody can pause the partition: it is not read instead, and what is
// in flight stays bounded.
func TestConsumeAloneStopsReading(t *testing.T) {
	stuck := make(chan struct{})
	handler := func(_ context.Context, m *Message) error {
		if m.ID == "stuck" {
			<-stuck
		}
		return nil
	}
	var paused []bool
	inBubble(t, 1, handler, func(_ *rig, c *Config) {
		stuck = make(chan struct{})
		c.HighWater, c.LowWater, c.BatchMax = 20, 10, 5
		c.Observer.Paused = func(_ string, _ int32, on bool) { paused = append(paused, on) }
	}, func(r *rig) {
		r.stop()
		if err := r.wantEnd(); err != nil {
			r.t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		consumed := make(chan error, 1)
		go func() { consumed <- r.group.Consume(ctx, []string{topic}, r.a) }()
		r.group.add(message("stuck", "a"))
		r.group.add(ids(100)...)
		r.after(time.Minute)
		n := 0
		for _, m := range ids(100) {
			n += r.times(idIn(m))
		}
		if n < 19 || n > 30 {
			t.Errorf("%d messages were handled behind the stuck one, want about HighWater", n)
		}
		if !slices.Equal(paused, []bool{true}) {
			t.Errorf("paused %v", paused)
		}
		close(stuck)
		r.after(time.Minute)
		r.wantCommitted(101)
		stop()
		r.after(time.Second)
		if err := <-consumed; err != nil {
			t.Errorf("Consume: %v", err)
		}
	})
}
