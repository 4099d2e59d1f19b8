package kafkaadapter

import (
	"context"
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
	inBubble(t, 2, handler, func(_ *rig, c *Config) { c.HighWater, c.LowWater, free = 4, 1, make(chan struct{}) }, func(r *rig) {
		r.after(time.Second)
		want := func(want ...Progress) {
			t.Helper()
			got := r.a.Progress()
			if len(got) != len(want) {
				t.Fatalf("%+v", got)
			}
			for i := range got {
				want[i].Topic = topic
				got[i].Age, got[i].PausedFor = got[i].Age.Round(10*time.Millisecond), got[i].PausedFor.Round(10*time.Millisecond)
				if got[i] != want[i] {
					t.Errorf("got  %+v\nwant %+v", got[i], want[i])
				}
			}
		}
		idle := Progress{Partition: 1, Received: -1, Watermark: -1, Oldest: -1}
		want(Progress{Received: -1, Watermark: -1, Oldest: -1}, idle)

		r.group.add(message("a", "a"), message("stuck", "s"), message("b", "b"))
		r.after(time.Second)
		want(Progress{Received: 2, Watermark: 1, Lag: 2, InFlight: 2, Unfinished: 1, Oldest: 1, Age: time.Second}, idle)

		r.group.add(message("c", "c"), message("d", "d"), message("e", "e"))
		r.after(2 * time.Second)
		want(Progress{Received: 5, Watermark: 1, Lag: 5, InFlight: 5, Unfinished: 1, Oldest: 1, Age: 3 * time.Second, Backlogged: true, PausedFor: 2 * time.Second}, idle)

		close(free)
		r.after(time.Second)
		want(Progress{Received: 5, Watermark: 6, Oldest: -1, PausedFor: 2 * time.Second}, idle)

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
