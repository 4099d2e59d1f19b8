package pipeline_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/kafkaadapter/internal/pipeline"
)

// fakeClient records what a Backpressure asks of the client, and objects to a call that changes
// nothing.
type fakeClient struct {
	t      *testing.T
	level  int
	paused bool
	calls  []string
}

func (c *fakeClient) Level() int { return c.level }
func (c *fakeClient) Pause()     { c.note(true, "pause") }
func (c *fakeClient) Resume()    { c.note(false, "resume") }

func (c *fakeClient) note(paused bool, call string) {
	c.t.Helper()
	assert.NotEqual(c.t, paused, c.paused, "%s without a transition", call)
	c.paused = paused
	c.calls = append(c.calls, call)
}

func (c *fakeClient) backpressure(low, high int) *pipeline.Backpressure {
	c.t.Helper()
	return pipeline.NewBackpressure(pipeline.BackpressureConfig{Low: low, High: high,
		Level: c.Level, Pause: c.Pause,
		Resume: c.Resume})
}

func TestGateBetweenItsMarks(t *testing.T) {
	c := &fakeClient{t: t}
	g := c.backpressure(3, 10)
	for _, step := range []struct {
		level  int
		paused bool
	}{{0, false}, {9, false}, {10, true}, {25, true}, {10, true}, {4, true}, {3, false}, {9, false},
		{10, true}, {0, false}} {
		c.level = step.level
		g.Check()
		require.Equal(t, step.paused, c.paused, "at %d", step.level)
	}
	assert.Equal(t, []string{"pause", "resume", "pause", "resume"}, c.calls)
}

// Ease, which is called after a message is finished, never pauses.
func TestGateEases(t *testing.T) {
	c := &fakeClient{t: t, level: 12}
	g := c.backpressure(3, 10)
	g.Ease()
	g.Check()
	c.level = 4
	g.Ease()
	assert.Equal(t, []string{"pause"}, c.calls)
	c.level = 3
	g.Ease()
	g.Ease()
	assert.Equal(t, []string{"pause", "resume"}, c.calls)
}

func TestGateWaitsForItsLastReason(t *testing.T) {
	c := &fakeClient{t: t}
	g := c.backpressure(3, 10)
	g.Hold(pipeline.StoreDown)
	g.Hold(pipeline.StoreDown)
	c.level = 12
	g.Check()
	assert.Equal(t, pipeline.Backlog|pipeline.StoreDown, g.Reasons())
	g.Release(pipeline.StoreDown)
	assert.True(t, c.paused && g.Reasons() == pipeline.Backlog, "resumed into a full backlog")
	g.Hold(pipeline.StoreDown)
	c.level = 0
	g.Check()
	assert.True(t, c.paused, "resumed while the store is down")
	g.Release(pipeline.StoreDown)
	g.Release(pipeline.StoreDown)
	assert.False(t, c.paused, "still paused for %b", g.Reasons())
	assert.Zero(t, g.Reasons())
	assert.Equal(t, []string{"pause", "resume"}, c.calls)
}

func TestGateCloseResumes(t *testing.T) {
	c := &fakeClient{t: t, level: 99}
	g := c.backpressure(3, 10)
	g.Check()
	g.Hold(pipeline.StoreDown)
	g.Close()
	assert.False(t, c.paused, "the partition was left paused")
	g.Close()
	g.Check()
	g.Hold(pipeline.StoreDown)
	g.Release(pipeline.StoreDown)
	assert.Equal(t, []string{"pause", "resume"}, c.calls, "a closed Backpressure calls")
}

func TestGateThatNeverPausedClosesInSilence(t *testing.T) {
	c := &fakeClient{t: t}
	c.backpressure(1, 2).Close()
	assert.Empty(t, c.calls)
}

func TestGateCountsPausedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &fakeClient{t: t}
		g := c.backpressure(3, 10)
		time.Sleep(time.Hour)
		g.Hold(pipeline.StoreDown)
		time.Sleep(time.Second)
		c.level = 10
		g.Check()
		time.Sleep(time.Second)
		assert.Equal(t, 2*time.Second, g.Paused(), "so far")
		g.Release(pipeline.StoreDown)
		time.Sleep(time.Second)
		c.level = 0
		g.Check()
		time.Sleep(time.Hour)
		g.Hold(pipeline.StoreDown)
		time.Sleep(time.Second)
		g.Close()
		time.Sleep(time.Hour)
		assert.Equal(t, 4*time.Second, g.Paused(), "in all")
	})
}

// Check must not pause the partition for a level that it read before the workers finished
// everything: no worker would be left to resume the partition.
func TestGateNeverSticksOnAnOldLevel(t *testing.T) {
	var tr pipeline.Tracker
	slots := []pipeline.Slot{track(t, &tr, 0), track(t, &tr, 1)}
	c := &fakeClient{t: t}
	reading, finished := make(chan struct{}), make(chan struct{})
	first := true
	g := pipeline.NewBackpressure(pipeline.BackpressureConfig{High: 2, Low: 1,
		Pause: c.Pause, Resume: c.Resume,
		Level: func() int {
			level := tr.Len()
			if first {
				first = false
				close(reading)
				select { // the workers may get past the reader here, if the backpressure lets them
				case <-finished:
				case <-time.After(20 * time.Millisecond):
				}
			}
			return level
		}})
	var wg sync.WaitGroup
	wg.Go(g.Check) // the reader finds both in flight
	<-reading
	wg.Go(func() {
		for _, slot := range slots {
			slot.Done()
			g.Ease()
		}
		close(finished)
	})
	wg.Wait()
	require.False(t, c.paused, "everything is finished, and the partition is paused forever")
	require.Zero(t, g.Reasons())
}
