package kafkaadapter

import (
	"context"
	"runtime"
	"testing"
	"time"
)

func TestProgress(t *testing.T) {
	var free chan struct{}
	handler := func(_ context.Context, m *Message) error {
		if m.ID == "stuck" {
			<-free
		}
		return nil
	}
	inBubble(t, 2, handler, func(_ *rig, c *Config) {
		c.HighWater, c.LowWater, free = 4, 1, make(chan struct{})
	}, func(r *rig) {
		r.after(time.Second)
		want := func(want ...Progress) {
			t.Helper()
			got := r.a.Progress()
			if len(got) != len(want) {
				t.Fatalf("%+v", got)
			}
			for i := range got {
				want[i].Topic = topic
				got[i].Age, got[i].PausedFor = got[i].Age.Round(10*time.Millisecond),
					got[i].PausedFor.Round(10*time.Millisecond)
				if got[i] != want[i] {
					t.Errorf("got  %+v\nwant %+v", got[i], want[i])
				}
			}
		}
		idle := Progress{Partition: 1, Received: -1, Watermark: -1, Oldest: -1}
		want(Progress{Received: -1, Watermark: -1, Oldest: -1}, idle)

		r.group.add(message("a", "a"), message("stuck", "s"), message("b", "b"))
		r.after(time.Second)
		want(Progress{Received: 2, Watermark: 1, Lag: 2, InFlight: 2, Unfinished: 1, Oldest: 1,
			Age: time.Second}, idle)

		r.group.add(message("c", "c"), message("d", "d"), message("e", "e"))
		r.after(2 * time.Second)
		want(Progress{Received: 5, Watermark: 1, Lag: 5, InFlight: 5, Unfinished: 1, Oldest: 1,
			Age: 3 * time.Second, Backlogged: true, PausedFor: 1980 * time.Millisecond}, idle)

		close(free)
		r.after(time.Second)
		want(Progress{Received: 5, Watermark: 6, Oldest: -1, PausedFor: 1980 * time.Millisecond},
			idle)

		r.outage()
		r.group.add(at(1, 7, message("f", "f")))
		r.after(5 * time.Second)
		if got := r.a.Progress()[1]; !got.StoreDown || got.Backlogged || got.Lag != 8 {
			t.Errorf("%+v, want a store that is down", got)
		}
		r.heal()
		r.stop()
		r.after(time.Minute)
		want()
	})
}

// A partition that is being paused holds its gate and then asks who can pause it. Whoever
// reads the progress meanwhile must not wait for the gate with that lock in hand.
func TestProgressDuringPause(t *testing.T) {
	inBubble(t, 1, takes(time.Second), func(r *rig, c *Config) {
		c.HighWater, c.LowWater = 4, 1
		c.Observer.Paused = func(string, int32, bool) {
			go r.a.Progress()
			for range 1000 { // it has begun
				runtime.Gosched()
			}
			// On a busy machine whoever has the lock may be off its processor for a while.
			for range 5_000_000 {
				if r.a.mu.TryLock() {
					r.a.mu.Unlock()
					return
				}
				runtime.Gosched()
			}
			r.note("locked")
		}
	}, func(r *rig) {
		r.group.add(ids(8)...)
		r.after(time.Minute)
		if len(r.noted()) > 0 {
			t.Errorf("Progress waits for the gate while it holds the adapter's lock: %q", r.noted())
		}
	})
}
