package pipeline_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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
	if c.paused == paused {
		c.t.Errorf("%s without a transition", call)
	}
	c.paused = paused
	c.calls = append(c.calls, call)
}

func (c *fakeClient) backpressure(low, high int) *pipeline.Backpressure {
	c.t.Helper()
	g, err := pipeline.NewBackpressure(pipeline.BackpressureConfig{Low: low, High: high,
		Level: c.Level, Pause: c.Pause,
		Resume: c.Resume})
	if err != nil {
		c.t.Fatal(err)
	}
	return g
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
		if c.paused != step.paused {
			t.Fatalf("at %d: paused %v, want %v", step.level, c.paused, step.paused)
		}
	}
	if want := []string{"pause", "resume", "pause", "resume"}; !slices.Equal(c.calls, want) {
		t.Errorf("calls %v", c.calls)
	}
}

// Whoever finishes never pauses: the reader may be about to wait for just that.
func TestGateEases(t *testing.T) {
	c := &fakeClient{t: t, level: 12}
	g := c.backpressure(3, 10)
	g.Ease()
	g.Check()
	c.level = 4
	g.Ease()
	if want := []string{"pause"}; !slices.Equal(c.calls, want) {
		t.Errorf("calls %v, want %v", c.calls, want)
	}
	c.level = 3
	g.Ease()
	g.Ease()
	if want := []string{"pause", "resume"}; !slices.Equal(c.calls, want) {
		t.Errorf("calls %v, want %v", c.calls, want)
	}
}

func TestGateWaitsForItsLastReason(t *testing.T) {
	c := &fakeClient{t: t}
	g := c.backpressure(3, 10)
	g.Hold(pipeline.StoreDown)
	g.Hold(pipeline.StoreDown)
	c.level = 12
	g.Check()
	if got := g.Reasons(); got != pipeline.Backlog|pipeline.StoreDown ||
		got.String() != "backlog+store down" {
		t.Errorf("reasons are %v", got)
	}
	g.Release(pipeline.StoreDown)
	if !c.paused || g.Reasons() != pipeline.Backlog {
		t.Error("resumed into a full backlog")
	}
	g.Hold(pipeline.StoreDown)
	c.level = 0
	g.Check()
	if !c.paused {
		t.Error("resumed while the store is down")
	}
	g.Release(pipeline.StoreDown)
	g.Release(pipeline.StoreDown)
	if c.paused || g.Reasons() != 0 || g.Reasons().String() != "none" {
		t.Errorf("still paused for %v", g.Reasons())
	}
	if want := []string{"pause", "resume"}; !slices.Equal(c.calls, want) {
		t.Errorf("calls %v", c.calls)
	}
}

func TestGateCloseResumes(t *testing.T) {
	c := &fakeClient{t: t, level: 99}
	g := c.backpressure(3, 10)
	g.Check()
	g.Hold(pipeline.StoreDown)
	g.Close()
	if c.paused {
		t.Error("the partition was left paused")
	}
	g.Close()
	g.Check()
	g.Hold(pipeline.StoreDown)
	g.Release(pipeline.StoreDown)
	if want := []string{"pause", "resume"}; !slices.Equal(c.calls, want) {
		t.Errorf("a closed Backpressure went on: %v", c.calls)
	}
}

func TestGateThatNeverPausedClosesInSilence(t *testing.T) {
	c := &fakeClient{t: t}
	c.backpressure(1, 2).Close()
	if len(c.calls) != 0 {
		t.Errorf("calls %v", c.calls)
	}
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
		if got := g.Paused(); got != 2*time.Second {
			t.Errorf("paused for %v so far, want 2s", got)
		}
		g.Release(pipeline.StoreDown)
		time.Sleep(time.Second)
		c.level = 0
		g.Check()
		time.Sleep(time.Hour)
		g.Hold(pipeline.StoreDown)
		time.Sleep(time.Second)
		g.Close()
		time.Sleep(time.Hour)
		if got := g.Paused(); got != 4*time.Second {
			t.Errorf("paused for %v in all, want 4s", got)
		}
	})
}

// A level that was read before the workers emptied it must not pause the partition
// after them: nobody would be left to resume it.
func TestGateNeverSticksOnAnOldLevel(t *testing.T) {
	var tr pipeline.Tracker
	slots := []pipeline.Slot{track(t, &tr, 0), track(t, &tr, 1)}
	c := &fakeClient{t: t}
	reading, finished := make(chan struct{}), make(chan struct{})
	first := true
	g, err := pipeline.NewBackpressure(pipeline.BackpressureConfig{High: 2,
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
	if err != nil {
		t.Fatal(err)
	}
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
	if c.paused || g.Reasons() != 0 {
		t.Fatal("everything is finished, and the partition is paused for ever")
	}
}

func TestGateConfig(t *testing.T) {
	level, do := func() int { return 0 }, func() {}
	for _, row := range []struct {
		name string
		cfg  pipeline.BackpressureConfig
		want string
	}{
		{"no level", pipeline.BackpressureConfig{Pause: do, Resume: do}, "Level"},
		{"no pause", pipeline.BackpressureConfig{Level: level, Resume: do}, "Pause"},
		{"no resume", pipeline.BackpressureConfig{Level: level, Pause: do}, "Resume"},
		{"negative high",
			pipeline.BackpressureConfig{Level: level, Pause: do, Resume: do, High: -1}, "High"},
		{"negative low",
			pipeline.BackpressureConfig{Level: level, Pause: do, Resume: do, Low: -1}, "Low"},
		{"low at high", pipeline.BackpressureConfig{Level: level, Pause: do, Resume: do,
			Low: 5, High: 5},
			"Low"},
		{"low above the default",
			pipeline.BackpressureConfig{Level: level, Pause: do, Resume: do,
				Low: pipeline.DefaultHigh}, "Low"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g, err := pipeline.NewBackpressure(row.cfg)
			if err == nil || g != nil || !strings.HasPrefix(err.Error(), "pipeline: ") ||
				!strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want an error that names %s", err, row.want)
			}
		})
	}
	g, err := pipeline.NewBackpressure(pipeline.BackpressureConfig{Level: level, Pause: do,
		Resume: do, High: 1})
	if err != nil || g == nil {
		t.Errorf("a high mark of one: %v", err)
	}
}

func TestReasonNames(t *testing.T) {
	if got := (pipeline.StoreDown | 0x40).String(); got != "store down+Reason(0x40)" {
		t.Errorf("got %q", got)
	}
}
