package flow_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceward/onceward/kafkaadapter/internal/flow"
)

// valve records what a Gate asks of the client, and objects to what is no transition.
type valve struct {
	t      *testing.T
	level  int
	paused bool
	calls  []string
}

func (v *valve) Level() int { return v.level }
func (v *valve) Pause()     { v.turn(true, "pause") }
func (v *valve) Resume()    { v.turn(false, "resume") }

func (v *valve) turn(paused bool, call string) {
	v.t.Helper()
	if v.paused == paused {
		v.t.Errorf("%s without a transition", call)
	}
	v.paused = paused
	v.calls = append(v.calls, call)
}

func (v *valve) gate(low, high int) *flow.Gate {
	v.t.Helper()
	g, err := flow.NewGate(flow.GateConfig{Low: low, High: high, Level: v.Level, Pause: v.Pause,
		Resume: v.Resume})
	if err != nil {
		v.t.Fatal(err)
	}
	return g
}

func TestGateBetweenItsMarks(t *testing.T) {
	v := &valve{t: t}
	g := v.gate(3, 10)
	for _, step := range []struct {
		level  int
		paused bool
	}{{0, false}, {9, false}, {10, true}, {25, true}, {10, true}, {4, true}, {3, false}, {9, false},
		{10, true}, {0, false}} {
		v.level = step.level
		g.Check()
		if v.paused != step.paused {
			t.Fatalf("at %d: paused %v, want %v", step.level, v.paused, step.paused)
		}
	}
	if want := []string{"pause", "resume", "pause", "resume"}; !slices.Equal(v.calls, want) {
		t.Errorf("calls %v", v.calls)
	}
}

// Whoever finishes never pauses: the reader may be about to wait for just that.
func TestGateEases(t *testing.T) {
	v := &valve{t: t, level: 12}
	g := v.gate(3, 10)
	g.Ease()
	g.Check()
	v.level = 4
	g.Ease()
	if want := []string{"pause"}; !slices.Equal(v.calls, want) {
		t.Errorf("calls %v, want %v", v.calls, want)
	}
	v.level = 3
	g.Ease()
	g.Ease()
	if want := []string{"pause", "resume"}; !slices.Equal(v.calls, want) {
		t.Errorf("calls %v, want %v", v.calls, want)
	}
}

func TestGateWaitsForItsLastReason(t *testing.T) {
	v := &valve{t: t}
	g := v.gate(3, 10)
	g.Hold(flow.StoreDown)
	g.Hold(flow.StoreDown)
	v.level = 12
	g.Check()
	if got := g.Reasons(); got != flow.Backlog|flow.StoreDown ||
		got.String() != "backlog+store down" {
		t.Errorf("reasons are %v", got)
	}
	g.Release(flow.StoreDown)
	if !v.paused || g.Reasons() != flow.Backlog {
		t.Error("resumed into a full backlog")
	}
	g.Hold(flow.StoreDown)
	v.level = 0
	g.Check()
	if !v.paused {
		t.Error("resumed while the store is down")
	}
	g.Release(flow.StoreDown)
	g.Release(flow.StoreDown)
	if v.paused || g.Reasons() != 0 || g.Reasons().String() != "none" {
		t.Errorf("still paused for %v", g.Reasons())
	}
	if want := []string{"pause", "resume"}; !slices.Equal(v.calls, want) {
		t.Errorf("calls %v", v.calls)
	}
}

func TestGateCloseResumes(t *testing.T) {
	v := &valve{t: t, level: 99}
	g := v.gate(3, 10)
	g.Check()
	g.Hold(flow.StoreDown)
	g.Close()
	if v.paused {
		t.Error("the partition was left paused")
	}
	g.Close()
	g.Check()
	g.Hold(flow.StoreDown)
	g.Release(flow.StoreDown)
	if want := []string{"pause", "resume"}; !slices.Equal(v.calls, want) {
		t.Errorf("a closed gate went on: %v", v.calls)
	}
}

func TestGateThatNeverPausedClosesInSilence(t *testing.T) {
	v := &valve{t: t}
	v.gate(1, 2).Close()
	if len(v.calls) != 0 {
		t.Errorf("calls %v", v.calls)
	}
}

func TestGateCountsPausedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &valve{t: t}
		g := v.gate(3, 10)
		time.Sleep(time.Hour)
		g.Hold(flow.StoreDown)
		time.Sleep(time.Second)
		v.level = 10
		g.Check()
		time.Sleep(time.Second)
		if got := g.Paused(); got != 2*time.Second {
			t.Errorf("paused for %v so far, want 2s", got)
		}
		g.Release(flow.StoreDown)
		time.Sleep(time.Second)
		v.level = 0
		g.Check()
		time.Sleep(time.Hour)
		g.Hold(flow.StoreDown)
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
	var tr flow.Tracker
	slots := []flow.Slot{track(t, &tr, 0), track(t, &tr, 1)}
	v := &valve{t: t}
	reading, finished := make(chan struct{}), make(chan struct{})
	first := true
	g, err := flow.NewGate(flow.GateConfig{High: 2, Pause: v.Pause, Resume: v.Resume,
		Level: func() int {
			level := tr.Len()
			if first {
				first = false
				close(reading)
				select { // the workers may get past the reader here, if the gate lets them
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
	if v.paused || g.Reasons() != 0 {
		t.Fatal("everything is finished, and the partition is paused for ever")
	}
}

func TestGateConfig(t *testing.T) {
	level, do := func() int { return 0 }, func() {}
	for _, row := range []struct {
		name string
		cfg  flow.GateConfig
		want string
	}{
		{"no level", flow.GateConfig{Pause: do, Resume: do}, "Level"},
		{"no pause", flow.GateConfig{Level: level, Resume: do}, "Pause"},
		{"no resume", flow.GateConfig{Level: level, Pause: do}, "Resume"},
		{"negative high", flow.GateConfig{Level: level, Pause: do, Resume: do, High: -1}, "High"},
		{"negative low", flow.GateConfig{Level: level, Pause: do, Resume: do, Low: -1}, "Low"},
		{"low at high", flow.GateConfig{Level: level, Pause: do, Resume: do, Low: 5, High: 5},
			"Low"},
		{"low above the default",
			flow.GateConfig{Level: level, Pause: do, Resume: do, Low: flow.DefaultHigh}, "Low"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g, err := flow.NewGate(row.cfg)
			if err == nil || g != nil || !strings.HasPrefix(err.Error(), "flow: ") ||
				!strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want an error that names %s", err, row.want)
			}
		})
	}
	g, err := flow.NewGate(flow.GateConfig{Level: level, Pause: do, Resume: do, High: 1})
	if err != nil || g == nil {
		t.Errorf("a high mark of one: %v", err)
	}
}

func TestReasonNames(t *testing.T) {
	if got := (flow.StoreDown | 0x40).String(); got != "store down+Reason(0x40)" {
		t.Errorf("got %q", got)
	}
}
