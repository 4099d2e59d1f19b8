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
	"github.com/onceward/onceward/bloom"
)

// rateKeys is the largest window that rates are counted over: they do not depend on it.
const rateKeys = 1_000_000

// rates: how often an id that was never added is Maybe, next to what was planned.
func (e *env) rates() []harness.Group {
	var all []harness.Group
	for _, goal := range []float64{1e-2, 1e-3, 1e-4} {
		all = append(all, group("false positives", goal,
			fmt.Sprintf("false positives, planned %g", goal),
			func(context.Context) ([]harness.Row, error) {
				return e.measureRate(goal)
			}))
	}
	return all
}

func (e *env) measureRate(goal float64) ([]harness.Row, error) {
	o := options(min(rateKeys, e.most()))
	o.FalsePositives = goal
	f, err := filled(o)
	if err != nil {
		return nil, err
	}
	asked := uint64(float64(e.hits) / goal)
	observed, planned := float64(maybes(f, asked))/float64(asked), f.Plan().FalsePositives
	row := func(what string, value float64, against string, other float64,
		most harness.Goal) harness.Row {
		return harness.Compared(fmt.Sprintf("false positives at a goal of %g, %s", goal, what),
			what, value*1e6, "in a million", against, other*1e6, most)
	}
	return []harness.Row{
		row("observed", observed, "planned", planned, harness.AtMost(1.5, 0)),
		row("estimated from the bits", f.Stats().Estimated, "observed", observed, harness.Goal{}),
	}, nil
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

// rotation: what a Check and an Add meet when a slice of time is over.
func (e *env) rotation() []harness.Group {
	return []harness.Group{group("rotation", float64(e.most()),
		fmt.Sprintf("rotation, %s ids", harness.Short(e.most())), e.measureRotation)}
}

// Sides of the rows of a rotation.
const (
	rotating = "the Check that rotates"
	first    = "the first Add of a generation, which allocates it"
	beside   = "the slowest Check of another goroutine meanwhile"
	quiet    = "the slowest of as many Checks without rotation"
)

func (e *env) measureRotation(ctx context.Context) (rows []harness.Row, err error) {
	var clock atomic.Int64 // stands until it is moved
	o := options(e.most())
	o.Clock = func() time.Duration { return time.Duration(clock.Load()) }
	f, err := filled(o)
	if err != nil {
		return nil, err
	}
	took := map[string][]time.Duration{}
	add := func(what string, d time.Duration) { took[what] = append(took[what], d) }
	for n := range 20 * e.rounds {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		most, checks := slowest(f, func() {
			clock.Add(int64(window / bloom.DefaultSlices))
			add(rotating, timeOf(func() { f.Check(unknown(uint64(n))) }))
			add(first, timeOf(func() { f.Add(id(uint64(n))) }))
		})
		add(beside, most)
		most, _ = slowest(f, func() {
			for n := range checks { // about as long
				f.Check(unknown(n))
			}
		})
		add(quiet, most)
	}
	for _, side := range []string{rotating, first, beside, quiet} {
		all := slices.Sorted(slices.Values(took[side]))
		row := func(what string, d time.Duration, goal harness.Goal) {
			name := fmt.Sprintf("rotation, %s, %s of %d", side, what, len(all))
			rows = append(rows, harness.Figure(name, side, float64(d.Nanoseconds())/1e3,
				"us", goal))
		}
		row("median", harness.Percentile(all, 0.5), harness.Goal{})
		row("slowest", all[len(all)-1],
			harness.When(side == rotating || side == beside, harness.ValueAtMost(1000, 0, "us")))
	}
	return rows, nil
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
func (e *env) snapshots() []harness.Group {
	return []harness.Group{group("snapshot", float64(e.most()),
		fmt.Sprintf("save and load, %s ids", harness.Short(e.most())), e.measureSnapshots)}
}

func (e *env) measureSnapshots(ctx context.Context) (rows []harness.Row, err error) {
	f, err := filled(stored(e.most()))
	if err != nil {
		return nil, err
	}
	file, err := os.CreateTemp(e.dir, "onceward-bench")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()
	steps := []struct {
		name string
		goal harness.Goal
		do   func() error
	}{
		{"save to a file", harness.ValueAtMost(3, 0, "s"), func() error { return saveTo(file, f) }},
		{"load from a file", harness.ValueAtMost(3, 0, "s"), func() error {
			return e.loadFrom(file)
		}},
		{"added one by one from memory (Rebuild)", harness.Goal{}, func() error {
			return e.rebuild(ctx)
		}},
	}
	took := make([][]float64, len(steps))
	for range e.rounds {
		for i, step := range steps {
			var failed error
			took[i] = append(took[i], timeOf(func() { failed = step.do() }).Seconds())
			if failed != nil {
				return nil, failed
			}
		}
	}
	size, err := file.Seek(0, io.SeekEnd)
	for i, step := range steps {
		of := fmt.Sprintf("file of %.0f MB", float64(size)/1e6)
		if i == len(steps)-1 {
			of = "ids of a window"
		}
		row := harness.Figure(fmt.Sprintf("snapshot of a plan for %s ids, %s, %s",
			harness.Short(e.most()), step.name, of), step.name, harness.Median(took[i]),
			"s", step.goal)
		row.Rounds = e.rounds
		rows = append(rows, row)
	}
	return rows, err
}

func saveTo(file *os.File, f *bloom.Filter) error {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := f.Save(file); err != nil {
		return err
	}
	return file.Sync()
}

// loadFrom reads into a new filter, which has to be covered by it but for the newest generation.
func (e *env) loadFrom(file *os.File) error {
	f, err := bloom.New(stored(e.most()))
	if err != nil {
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	f.Begin(bloom.Source{Name: source})
	covered, err := f.Load(bufio.NewReaderSize(file, 1<<20), bloom.Source{Name: source})
	if want := f.Plan().Generations - 1; err == nil && len(covered) != want {
		return fmt.Errorf("covered by the snapshot: %v, want %d", covered, want)
	}
	return err
}

// rebuild gives a new filter all ids of a window.
func (e *env) rebuild(ctx context.Context) error {
	f, err := bloom.New(stored(e.most()))
	if err != nil {
		return err
	}
	_, err = f.Rebuild(ctx, bloom.Source{Name: source},
		func(_ context.Context, yield func(int64, [16]byte) error) error {
			for n := range uint64(e.most()) {
				if err := yield(-int64(n%bloom.DefaultSlices), id(n)); err != nil {
					return err
				}
			}
			return nil
		}, nil)
	return err
}
