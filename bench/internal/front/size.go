package front

import (
	"context"
	"fmt"
	"runtime"

	"github.com/onceward/onceward/bench/internal/harness"
)

// memory: what an id of the window costs.
func (e *Env) memory() []harness.Group {
	return []harness.Group{{
		Workload: "memory", X: float64(e.most()), Title: fmt.Sprintf("bytes per id of the window, %s ids", short(e.most())), Measure: e.measureMemory,
	}}
}

func (e *Env) measureMemory(context.Context) ([]harness.Row, error) {
	e.built = nil // is not to be counted
	keys := e.most()
	f, feed, err := open(options(keys))
	if err != nil {
		return nil, err
	}
	empty := heap()
	if err := fill(f, feed); err != nil {
		return nil, err
	}
	ours := e.memoryRow(float64(heap()-empty), "onceward, all generations full")
	planned := float64(f.Plan().Bytes) / float64(keys)
	ours.Against, ours.AgainstValue, ours.Ratio = "plan", planned, ours.Value/planned
	ours.Spread, ours.Goal = [2]float64{ours.Ratio, ours.Ratio}, "<= 1.05x"
	ours.OK = harness.AtMost(1.05, 0).Reached(ours.Value, ours.Ratio)
	runtime.KeepAlive(f)
	rows := []harness.Row{ours}
	for _, peer := range []struct {
		name string
		fill func() any
	}{
		{slicedSide, func() any { s := newSlicedBloom(f.Plan()); s.fill(f.Plan()); return s }},
		{bloomSide, func() any { l := newLockedBloom(keys); addAll(keys, l.add); return l }},
		{mapSide, func() any { l := newLockedMap(); addAll(keys, l.add); return l }},
	} {
		empty := heap()
		filled := peer.fill()
		rows = append(rows, e.memoryRow(float64(heap()-empty), peer.name))
		runtime.KeepAlive(filled)
	}
	return rows, nil
}

func addAll(keys int, add func([16]byte)) {
	for n := range uint64(keys) {
		add(id(n))
	}
}

func (e *Env) memoryRow(bytes float64, side string) harness.Row {
	return harness.Row{
		Name: "memory, bytes per id of the window", Workload: "memory", Side: side, X: float64(e.most()),
		Value: bytes / float64(e.most()), Unit: "bytes", Rounds: 1, OK: true,
	}
}

// heap is what is alive.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // what the first one has freed is swept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
