package front

import (
	"context"
	"fmt"
	"runtime"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bloom"
)

// Sides of the memory rows that are not asked under the same name.
const (
	blockedMemory = "onceward, all generations full"
	classicMemory = "onceward Kind Classic, all generations full"
)

// memory: what an id of the window costs.
func (e *Env) memory() []harness.Group {
	return []harness.Group{{
		Workload: "memory", X: float64(e.most()), Title: fmt.Sprintf("bytes per id of the window, %s ids", short(e.most())), Measure: e.measureMemory,
	}}
}

func (e *Env) measureMemory(context.Context) ([]harness.Row, error) {
	b, err := e.of(e.most())
	if err != nil {
		return nil, err
	}
	rows := []harness.Row{
		e.besidePlan(e.memoryRow(b, blockedMemory), b.filter.Plan()), e.besidePlan(e.memoryRow(b, classicMemory), b.classic.Plan()),
		e.memoryRow(b, bloomSide), e.memoryRow(b, mapSide),
	}
	e.built = nil // it was the last to need them
	return rows, nil
}

func (e *Env) memoryRow(b *built, side string) harness.Row {
	return harness.Row{
		Name: "memory, bytes per id of the window", Workload: "memory", Side: side, X: float64(e.most()),
		Value: float64(b.bytes[side]) / float64(e.most()), Unit: "bytes", Rounds: 1, OK: true,
	}
}

func (e *Env) besidePlan(row harness.Row, plan bloom.Plan) harness.Row {
	row.Against, row.AgainstValue = "plan", float64(plan.Bytes)/float64(e.most())
	row.Ratio = row.Value / row.AgainstValue
	row.Spread = [2]float64{row.Ratio, row.Ratio}
	most := harness.AtMost(1.05, 0)
	row.Goal, row.OK = most.String(), most.Reached(row.Value, row.Ratio)
	return row
}

// heap is what is alive.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // what the first one has freed is swept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
