package front

import (
	"context"
	"fmt"
	"runtime"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bloom"
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
	var rows []harness.Row
	for _, side := range []struct {
		name string
		o    bloom.Options
	}{{"onceward, all generations full", options(keys)}, {"onceward Kind Classic, all generations full", classic(keys)}} {
		row, err := e.filterMemory(side.name, side.o)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	for _, peer := range []struct {
		name string
		fill func() any
	}{
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

// filterMemory is beside what Plan says.
func (e *Env) filterMemory(name string, o bloom.Options) (harness.Row, error) {
	empty := heap()
	f, err := filled(o)
	if err != nil {
		return harness.Row{}, err
	}
	row := e.memoryRow(float64(heap()-empty), name)
	row.Against, row.AgainstValue = "plan", float64(f.Plan().Bytes)/float64(e.most())
	row.Ratio = row.Value / row.AgainstValue
	row.Spread = [2]float64{row.Ratio, row.Ratio}
	most := harness.AtMost(1.05, 0)
	row.Goal, row.OK = most.String(), most.Reached(row.Value, row.Ratio)
	runtime.KeepAlive(f)
	return row, nil
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
