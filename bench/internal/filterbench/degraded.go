package filterbench

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bloom"
)

// degraded measures what an overloaded filter can still prove. If it called an added id new, the
// id's effect would happen a second time.
func (e *env) degraded(all *harness.Groups) {
	e.overloaded(all, "10x the plan, no more memory", 1)
	e.overloaded(all, "10x the plan, up to 20x the memory", 20)
}

func share(n, of int) float64 { return 100 * float64(n) / float64(of) }

func (e *env) overloaded(all *harness.Groups, name string, memory uint64) {
	all.Add("degraded", 0, name, func(_ context.Context, s *harness.Setup) {
		o := options(min(40_000, e.most()))
		plan := must.Get(o.Plan())
		o.MaxBytes = int64(memory * plan.Bytes)
		f, _ := open(o)
		n := int(10 * plan.SliceKeys)
		each(id, f.Add)(0, uint64(n))
		fed, fresh := answersOf(f, n, id), answersOf(f, n, unknown)
		grown := float64(f.Stats().Bytes) / float64(plan.Bytes/uint64(plan.Generations))
		of := func(what, side string, value float64, unit string) *harness.Row {
			return s.Figure(name+": "+what, side, value, unit)
		}
		of("ids that were fed and are New", "fed", float64(fed[bloom.ProvenNew]), "ids").
			Wants("<= 0 ids")
		of("new ids that are New", "new", share(fresh[bloom.ProvenNew], n), "%")
		of("new ids that are Maybe", "maybe", share(fresh[bloom.Maybe], n), "%")
		of("new ids that are Unknown(Saturated)", "unknown", share(fresh[bloom.Unknown], n), "%")
		of("memory of the generation", "memory", grown, "times the plan")
	})
}

func answersOf(f *bloom.Filter, n int, id func(uint64) [16]byte) (count [3]int) {
	for i := range n {
		answer, _ := f.Check(id(uint64(i)))
		count[answer]++
	}
	return count
}

// rates measures how often a Check of an id that was never added returns Maybe, compared with the
// plan.
func (e *env) rates(all *harness.Groups) {
	const estimated = "estimated from the bits"
	for _, goal := range []float64{1e-2, 1e-3, 1e-4} {
		name := fmt.Sprintf("false positives at a goal of %g, ", goal)
		all.Add("false positives", 0, fmt.Sprintf("false positives, planned %g", goal),
			func(_ context.Context, s *harness.Setup) {
				o := options(min(1_000_000, e.most())) // the rates do not depend on the size
				o.FalsePositives = goal
				f, asked := filled(o), int(float64(e.hits)/goal)
				observed := 1e4 * share(answersOf(f, asked, unknown)[bloom.Maybe], asked)
				s.Figure(name+"observed", "observed", observed, "in a million").
					Next("planned", 1e6*f.Plan().FalsePositives).Wants("<= 1.5x")
				s.Figure(name+estimated, estimated, 1e6*f.Stats().Estimated, "in a million").
					Next("observed", observed)
			}).X = goal
	}
}

const (
	rotating = "the Check that rotates"
	first    = "the first Add of a generation, which allocates it"
	parallel = "the slowest Check of another goroutine meanwhile"
	quiet    = "the slowest of as many Checks without rotation"
)

// rotation measures how long a Check and an Add take when a slice of time ends.
func (e *env) rotation(all *harness.Groups) {
	title := fmt.Sprintf("rotation, %s ids", harness.Short(e.most()))
	all.Add("rotation", e.most(), title, e.measureRotation)
}

func (e *env) measureRotation(ctx context.Context, s *harness.Setup) {
	var clock atomic.Int64 // only the benchmark moves it
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
		most, _ = slowest(f, func() { answersOf(f, checks, unknown) }) // takes about as long
		add(quiet, most)
	}
	for _, side := range []string{rotating, first, parallel, quiet} {
		all := slices.Sorted(slices.Values(took[side]))
		row := func(which string, d time.Duration) *harness.Row {
			return s.Figure(fmt.Sprintf("rotation, %s, %s of %d", side, which, len(all)), side,
				float64(d.Nanoseconds())/1e3, "us")
		}
		row("median", harness.Percentile(all, 0.5))
		row("slowest", all[len(all)-1]).
			Wants(harness.When(side == rotating || side == parallel, "<= 1000 us"))
	}
}

// slowest calls Check in another goroutine while do runs. It returns the longest call and the
// number of calls.
func slowest(f *bloom.Filter, do func()) (most time.Duration, checks int) {
	var over atomic.Bool
	var other sync.WaitGroup
	begun := make(chan struct{})
	other.Go(func() {
		close(begun)
		for checks == 0 || !over.Load() {
			most = max(most, timeOf(func() { f.Check(unknown(uint64(checks))) }))
			checks++
		}
	})
	<-begun
	do()
	over.Store(true)
	other.Wait()
	return most, checks
}

func timeOf(do func()) time.Duration {
	began := time.Now()
	do()
	return time.Since(began)
}

// snapshots measures how long it takes to save and to load all ids of a window, and to add them one
// by one.
func (e *env) snapshots(all *harness.Groups) {
	title := fmt.Sprintf("save and load, %s ids", harness.Short(e.most()))
	all.Add("snapshot", e.most(), title, func(ctx context.Context, s *harness.Setup) {
		f := filled(stored(e.most()))
		file := must.Get(os.CreateTemp("", "onceward-bench"))
		s.Defer(func() error { return errors.Join(file.Close(), os.Remove(file.Name())) })
		const most = "<= 3 s"
		steps := []struct {
			name, of string // of is empty for the file
			goal     harness.Goal
			do       func()
			took     []float64
		}{
			{name: "save to a file", goal: most, do: func() {
				must.Get(file.Seek(0, io.SeekStart))
				must.Do(f.Save(file))
				must.Do(file.Sync())
			}},
			{name: "load from a file", goal: most, do: func() { e.loadFrom(file) }},
			{name: "added one by one from memory (Rebuild)", of: "ids of a window",
				do: func() { e.rebuild(ctx) }},
		}
		for range e.rounds {
			for i, step := range steps {
				steps[i].took = append(step.took, timeOf(step.do).Seconds())
			}
		}
		size := fmt.Sprintf("file of %.0f MB", float64(must.Get(file.Seek(0, io.SeekEnd)))/1e6)
		for _, step := range steps {
			s.Figure(fmt.Sprintf("snapshot of a plan for %s ids, %s, %s", harness.Short(e.most()),
				step.name, cmp.Or(step.of, size)), step.name, harness.Median(step.took), "s").
				Wants(step.goal).Rounds = e.rounds
		}
	})
}

// loadFrom loads a new filter. The snapshot must cover all generations except the newest.
func (e *env) loadFrom(file *os.File) {
	f := must.Get(bloom.New(stored(e.most())))
	must.Get(file.Seek(0, io.SeekStart))
	f.Begin(source)
	covered := must.Get(f.Load(bufio.NewReaderSize(file, 1<<20), source))
	want := f.Plan().Generations - 1
	must.True(len(covered) == want, "covered by the snapshot: %v, want %d", covered, want)
}

func (e *env) rebuild(ctx context.Context) {
	f := must.Get(bloom.New(stored(e.most())))
	must.Get(f.Rebuild(ctx, source,
		func(_ context.Context, yield func(int64, [16]byte) error) error {
			for n := range uint64(e.most()) {
				if err := yield(-int64(n%bloom.DefaultSlices), id(n)); err != nil {
					return err
				}
			}
			return nil
		}, nil))
}
