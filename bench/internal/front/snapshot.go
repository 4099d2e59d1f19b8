package front

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bloom"
)

// snapshots: how long it takes to write all ids of a window to a file, to read them again, and to be
// told of them one by one.
func (e *Env) snapshots() []harness.Group {
	return []harness.Group{{
		Workload: "snapshot", X: float64(e.most()), Title: fmt.Sprintf("save and load, %s ids", short(e.most())), Measure: e.measureSnapshots,
	}}
}

// stored are the options of a filter that can be saved: its clock is in the generation 1.
func (e *Env) stored() bloom.Options {
	o := options(e.most())
	o.Secret, o.KeyID = []byte("0123456789abcdef"), "bench"
	o.Clock = func() time.Duration { return window/bloom.DefaultSlices + time.Second }
	return o
}

func (e *Env) measureSnapshots(ctx context.Context) (rows []harness.Row, err error) {
	f, err := filled(e.stored())
	if err != nil {
		return nil, err
	}
	file, err := os.CreateTemp(e.Dir, "bloombench")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()
	var save, load, told []float64
	for range e.Rounds {
		took, err := seconds(
			func() error { return saveTo(file, f) },
			func() error { return e.loadFrom(file) },
			func() error { return e.tell(ctx) },
		)
		if err != nil {
			return nil, err
		}
		save, load, told = append(save, took[0]), append(load, took[1]), append(told, took[2])
	}
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	beside := fmt.Sprintf("file of %.0f MB", float64(size)/1e6)
	return []harness.Row{
		e.snapshotRow("save to a file", beside, save, harness.ValueAtMost(3, 0, "s")),
		e.snapshotRow("load from a file", beside, load, harness.ValueAtMost(3, 0, "s")),
		e.snapshotRow("told one by one from memory (Rebuild)", "ids of a window", told, harness.Goal{}),
	}, nil
}

func seconds(do ...func() error) (took []float64, err error) {
	for _, do := range do {
		began := time.Now()
		if err := do(); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began).Seconds())
	}
	return took, nil
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
func (e *Env) loadFrom(file *os.File) error {
	f, err := bloom.New(e.stored())
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

// tell gives a new filter all ids of a window.
func (e *Env) tell(ctx context.Context) error {
	f, err := bloom.New(e.stored())
	if err != nil {
		return err
	}
	_, err = f.Rebuild(ctx, bloom.Source{Name: source}, func(_ context.Context, yield func(int64, [16]byte) error) error {
		for n := range uint64(e.most()) {
			if err := yield(-int64(n%bloom.DefaultSlices), id(n)); err != nil {
				return err
			}
		}
		return nil
	}, nil)
	return err
}

func (e *Env) snapshotRow(side, against string, took []float64, goal harness.Goal) harness.Row {
	r := harness.Row{
		Name: fmt.Sprintf("snapshot of a plan for %s ids, %s, %s", short(e.most()), side, against), Workload: "snapshot", Side: side, X: float64(e.most()),
		Value: harness.Median(took), Unit: "s", Rounds: len(took), Goal: goal.String(),
	}
	r.OK = goal.Reached(r.Value, 0)
	return r
}
