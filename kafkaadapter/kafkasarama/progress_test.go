package kafkasarama

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/kafkaadapter"
)

func TestProgress(t *testing.T) {
	var free chan struct{}
	handler := func(_ context.Context, m *kafkaadapter.Message) error {
		if m.ID == "stuck" {
			<-free
		}
		return nil
	}
	inBubble(t, 2, handler, func(_ *rig, c *kafkaadapter.Config) {
		c.Tuning.HighWater, c.Tuning.LowWater, free = 4, 1, make(chan struct{})
	}, func(r *rig) {
		r.after(time.Second)
		type progress = kafkaadapter.Progress
		want := func(want ...progress) {
			t.Helper()
			got := r.consumer.Progress()
			require.Len(r.t, got, len(want))
			for i := range got {
				want[i].Topic = topic
				got[i].Age, got[i].PausedFor = got[i].Age.Round(10*time.Millisecond),
					got[i].PausedFor.Round(10*time.Millisecond)
				assert.Equal(t, want[i], got[i])
			}
		}
		idle := progress{Partition: 1, Received: -1, Watermark: -1, Oldest: -1}
		want(progress{Received: -1, Watermark: -1, Oldest: -1}, idle)

		r.group.add(message("a", "a"), message("stuck", "s"), message("b", "b"))
		r.after(time.Second)
		want(progress{Received: 2, Watermark: 1, Lag: 2, InFlight: 2, Unfinished: 1, Oldest: 1,
			Age: time.Second}, idle)

		r.group.add(message("c", "c"), message("d", "d"), message("e", "e"))
		r.after(2 * time.Second)
		want(progress{Received: 5, Watermark: 1, Lag: 5, InFlight: 5, Unfinished: 1, Oldest: 1,
			Age: 3 * time.Second, Backlogged: true, PausedFor: 1980 * time.Millisecond}, idle)

		close(free)
		r.after(time.Second)
		want(progress{Received: 5, Watermark: 6, Oldest: -1, PausedFor: 1980 * time.Millisecond},
			idle)

		r.outage()
		r.group.add(at(1, 7, message("f", "f")))
		r.after(5 * time.Second)
		got := r.consumer.Progress()[1]
		assert.True(t, got.StoreDown && !got.Backlogged && got.Lag == 1, "%+v", got)
		r.heal()
		r.stop()
		r.after(time.Minute)
		want()
	})
}
