package filterbench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bloom"
)

// rateKeys is the largest window that rates are counted over: they do not depend on it.
const rateKeys = 1_000_000

// rates: how often an id that was never added is Maybe, next to what was planned.
func (e *env) rates() (all []harness.Group) {
	for _, goal := range []float64{1e-2, 1e-3, 1e-4} {
		all = append(all, harness.Group{Workload: "false positives", X: goal,
			Title: fmt.Sprintf("false positives, planned %g", goal),
			Open:  func(_ context.Context, s *harness.Setup) { e.measureRate(s, goal) }})
	}
	return all
}

func (e *env) measureRate(s *harness.Setup, goal float64) {
	o := options(min(rateKeys, e.most()))
	o.FalsePositives = goal
	f := filled(o)
	asked := uint64(float64(e.hits) / goal)
	observed, planned := float64(maybes(f, asked))/float64(asked), f.Plan().FalsePositives
	row := func(side string, value float64, against string, other float64, most harness.Goal) {
		s.Row(harness.Compared(fmt.Sprintf("false positives at a goal of %g, %s", goal, side),
			side, value*1e6, "in a million", against, other*1e6, most))
	}
	row("observed", observed, "planned", planned, harness.AtMost(1.5, 0))
	row("estimated from the bits", f.Stats().Estimated, "observed", observed, noGoal)
}

// maybes counts the answers Maybe of n ids that nobody added.
func maybes(f *bloom.Filter, n uint64) (wrong int) {
	batch := make([]bloom.Query, batchIDs)
	for at := uint64(0); at < n; at += batchIDs {
		for i := range batch {
			batch[i].ID = unknown(at + uint64(i))
		}
		some := batch[:min(batchIDs, n-at)]
		f.WhereAll(some)
		for _, q := range some {
			if q.Answer == bloom.Maybe {
				wrong++
			}
		}
	}
	return wrong
}

// Sides of the rows of a rotation.
const (
	rotating = "the Check that rotates"
	first    = "the first Add of a generation, which allocates it"
	parallel = "the slowest Check of another goroutine meanwhile"
	quiet    = "the slowest of as many Checks without rotation"
)

// rotation: what a Check and an Add meet when a slice of time is over.
func (e *env) rotation() harness.Group {
	return harness.Group{Workload: "rotation", X: float64(e.most()), Open: e.measureRotation,
		Title: fmt.Sprintf("rotation, %s ids", harness.Short(e.most()))}
}

func (e *env) measureRotation(ctx context.Context, s *harness.Setup) {
	var clock atomic.Int64 // stands until it is moved
	o := options(e.most())
	o.Clock = func() time.Duration { return time.Duration(clock.Load()) }
	f := filled(o)
	took := map[string][]time.Duration{}
	add := func(side string, d time.Duration) { took[side] = append(took[side], d) }
	for n := range 20 * e.rounds {
		must.Do(context.Cause(ctx))
		most, checks := slowest(f, func() {
			clock.Add(int64(window / bloom.DefaultSlices))
			add(rotating, timeOf(func() { f.Check(unknown(uint64(n))) }))
			add(first, timeOf(func() { f.Add(id(uint64(n))) }))
		})
		add(parallel, most)
		most, _ = slowest(f, func() {
			for n := range checks { // about as long
				f.Check(unknown(n))
			}
		})
		add(quiet, most)
	}
	for _, side := range []string{rotating, first, parallel, quiet} {
		all := slices.Sorted(slices.Values(took[side]))
		row := func(which string, d time.Duration, goal harness.Goal) {
			s.Row(harness.Figure(fmt.Sprintf("rotation, %s, %s of %d", side, which, len(all)),
				side, float64(d.Nanoseconds())/1e3, "us", goal))
		}
		row("median", harness.Percentile(all, 0.5), noGoal)
		row("slowest", all[len(all)-1], harness.When(side == rotating || side == parallel,
			harness.ValueAtMost(1000, 0, "us")))
	}
}

// slowest is the longest of the Checks that another goroutine makes while do runs, and their
// number.
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

// snapshots: how long it takes to write all ids of a window to a file, to read them again, and to
// add them one by one.
func (e *env) snapshots() harness.Group {
	return harness.Group{Workload: "snapshot", X: float64(e.most()), Open: e.measureSnapshots,
		Title: fmt.Sprintf("save and load, %s ids", harness.Short(e.most()))}
}

func (e *env) measureSnapshots(ctx context.Context, s *harness.Setup) {
	f := filled(stored(e.most()))
	file := must.Get(os.CreateTemp(e.dir, "onceward-bench"))
	s.Defer(func() error { return errors.Join(file.Close(), os.Remove(file.Name())) })
	most := harness.ValueAtMost(3, 0, "s")
	steps := []struct {
		name string
		goal harness.Goal
		do   func()
	}{
		{"save to a file", most, func() { saveTo(file, f) }},
		{"load from a file", most, func() { e.loadFrom(file) }},
		{"added one by one from memory (Rebuild)", noGoal, func() { e.rebuild(ctx) }},
	}
	took := make([][]float64, len(steps))
	for range e.rounds {
		for i, step := range steps {
			took[i] = append(took[i], timeOf(step.do).Seconds())
		}
	}
	of := fmt.Sprintf("file of %.0f MB", float64(must.Get(file.Seek(0, io.SeekEnd)))/1e6)
	for i, step := range steps {
		if i == len(steps)-1 {
			of = "ids of a window"
		}
		row := harness.Figure(fmt.Sprintf("snapshot of a plan for %s ids, %s, %s",
			harness.Short(e.most()), step.name, of), step.name, harness.Median(took[i]),
			"s", step.goal)
		row.Rounds = e.rounds
		s.Row(row)
	}
}

func saveTo(file *os.File, f *bloom.Filter) {
	must.Get(file.Seek(0, io.SeekStart))
	must.Do(f.Save(file))
	must.Do(file.Sync())
}

// loadFrom reads into a new filter, which has to be covered by it but for the newest generation.
func (e *env) loadFrom(file *os.File) {
	f := must.Get(bloom.New(stored(e.most())))
	must.Get(file.Seek(0, io.SeekStart))
	f.Begin(bloom.Source{Name: source})
	covered := must.Get(f.Load(bufio.NewReaderSize(file, 1<<20), bloom.Source{Name: source}))
	want := f.Plan().Generations - 1
	must.True(len(covered) == want, "covered by the snapshot: %v, want %d", covered, want)
}

// rebuild gives a new filter all ids of a window.
func (e *env) rebuild(ctx context.Context) {
	f := must.Get(bloom.New(stored(e.most())))
	must.Get(f.Rebuild(ctx, bloom.Source{Name: source},
		func(_ context.Context, yield func(int64, [16]byte) error) error {
			for n := range uint64(e.most()) {
				if err := yield(-int64(n%bloom.DefaultSlices), id(n)); err != nil {
					return err
				}
			}
			return nil
		}, nil))
}
