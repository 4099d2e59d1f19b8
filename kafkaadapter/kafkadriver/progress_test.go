package kafkadriver

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/internal/pipeline"
)

// A partition that is being paused holds the lock of its backpressure while it asks the client to
// pause it. Progress must not hold the engine's lock while it waits for that lock.
func TestProgressDuringPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := engineOf(t, func(c *kafkaadapter.Config) {
			c.Tuning.HighWater, c.Tuning.LowWater = 4, 1
			c.Handler = func(context.Context, *kafkaadapter.Message) error {
				<-time.After(time.Second)
				return nil
			}
		})
		require.NoError(t, err)
		committer, err := pipeline.NewCommitter(pipeline.CommitterConfig{
			Interval: time.Hour, Count: 1000,
			Repeat: time.Minute, Mark: func(string, int32, int64) {}, Commit: func() {},
			Confirmed: func(string, int32) (int64, bool) { return 0, false }})
		require.NoError(t, err)
		var paused, locked atomic.Int32
		ctx, cancel := context.WithCancel(t.Context())
		p, err := e.Assign(Assignment{Topic: "orders", Context: ctx, Committer: committer,
			Halt: func() {}, Pause: func(bool) {
				paused.Add(1)
				go e.Progress()
				for range 1000 { // until Progress has begun
					runtime.Gosched()
				}
				// On a busy machine the goroutine that has the lock may be off its processor for
				// a while.
				for range 5_000_000 {
					if e.shown.mu.TryLock() {
						e.shown.mu.Unlock()
						return
					}
					runtime.Gosched()
				}
				locked.Add(1)
			}})
		require.NoError(t, err)
		committer.Start()
		require.NoError(t, p.Start())
		messages := make([]kafkaadapter.Message, 8)
		for i := range messages {
			messages[i].Offset, messages[i].ID = int64(i), string(rune('a'+i))
			messages[i].SetHeaders(kafkaadapter.Headers{{Key: "message-id",
				Value: []byte{byte('a' + i)}}})
		}
		require.NoError(t, p.Take(messages))
		time.Sleep(time.Minute)
		assert.Positive(t, paused.Load())
		assert.Zero(t, locked.Load(), "Progress waits for the backpressure with the engine's lock")
		cancel()
		require.NoError(t, p.End())
		require.Error(t, committer.Stop(ctx), "nothing is ever confirmed")
	})
}
