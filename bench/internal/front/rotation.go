package front

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bloom"
)

// rotation: what a Check and an Add meet when a slice of time is over.
func (e *Env) rotation() []harness.Group {
	return []harness.Group{{
		Workload: "rotation", X: float64(e.most()), Title: fmt.Sprintf("rotation, %s ids", short(e.most())), Measure: e.measureRotation,
	}}
}

// hand is a clock that stands until it is moved.
type hand struct{ ns atomic.Int64 }

func (h *hand) now() time.Duration { return time.Duration(h.ns.Load()) }

// Who meets a rotation, and who does not.
const (
	rotating = "the Check that rotates"
	first    = "the first Add of a generation, which allocates it"
	beside   = "the slowest Check of another goroutine meanwhile"
	quiet    = "the slowest of as many Checks without rotation"
)

func (e *Env) measureRotation(ctx context.Context) ([]harness.Row, error) {
	clock := &hand{}
	o := options(e.most())
	o.Clock = clock.now
	f, err := filled(o)
	if err != nil {
		return nil, err
	}
	took := map[string][]time.Duration{}
	for n := range 20 * e.Rounds {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		most, checks := slowest(f, func() {
			clock.ns.Add(int64(window / bloom.DefaultSlices))
			took[rotating] = append(took[rotating], timeOf(func() { f.Check(unknown(uint64(n))) }))
			took[first] = append(took[first], timeOf(func() { f.Add(id(uint64(n))) }))
		})
		took[beside] = append(took[beside], most)
		most, _ = slowest(f, func() {
			for n := range checks { // about as long
				f.Check(unknown(n))
			}
		})
		took[quiet] = append(took[quiet], most)
	}
	var rows []harness.Row
	for _, side := range []string{rotating, first, beside, quiet} {
		goal := harness.Goal{}
		if side == rotating || side == beside {
			goal = harness.ValueAtMost(1000, 0, "us")
		}
		rows = append(rows, e.rotationRows(side, took[side], goal)...)
	}
	return rows, nil
}

// slowest is the longest of the Checks that another goroutine makes while do runs, and their number.
func slowest(f *bloom.Filter, do func()) (most time.Duration, checks uint64) {
	var over atomic.Bool
	begun, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		close(begun)
		for checks == 0 || !over.Load() {
			most = max(most, timeOf(func() { f.Check(unknown(checks)) }))
			checks++
		}
	}()
	<-begun
	do()
	over.Store(true)
	<-ended
	return most, checks
}

func timeOf(do func()) time.Duration {
	began := time.Now()
	do()
	return time.Since(began)
}

// rotationRows are the median and the worst of all rotations.
func (e *Env) rotationRows(side string, took []time.Duration, goal harness.Goal) []harness.Row {
	slices.Sort(took)
	row := func(what string, d time.Duration, goal harness.Goal) harness.Row {
		r := harness.Row{
			Name: fmt.Sprintf("rotation, %s, %s of %d", side, what, len(took)), Workload: "rotation", Side: side, X: float64(e.most()),
			Value: float64(d.Nanoseconds()) / 1e3, Unit: "us", Rounds: 1, Goal: goal.String(),
		}
		r.OK = goal.Reached(r.Value, 0)
		return r
	}
	return []harness.Row{row("median", harness.Percentile(took, 0.5), harness.Goal{}), row("slowest", took[len(took)-1], goal)}
}
