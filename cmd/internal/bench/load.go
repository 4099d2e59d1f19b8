package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/cmd/internal/progress"
)

// Report is what --json writes.
type Report struct {
	Server   string  `json:"server"`
	Workers  int     `json:"workers"`
	Seconds  float64 `json:"seconds"`
	New      int     `json:"new"`
	Dups     int     `json:"duplicates"`
	PerSec   float64 `json:"messages_per_second"`
	P50MS    float64 `json:"p50_ms"`
	P99MS    float64 `json:"p99_ms"`
	P999MS   float64 `json:"p999_ms"`
	MaxMS    float64 `json:"max_ms"`
	EndedBy  string  `json:"ended_by"` // time, max_keys or memory
	Failures int     `json:"failures"`
	// Errors are the distinct texts of the failures.
	Errors []string `json:"errors,omitempty"`
}

// worker sends messages one after another.
type worker struct {
	took   []time.Duration
	fresh  int
	dups   int
	failed int
	texts  map[string]bool
	done   []string // keys that may be sent again
}

// remembered is how many keys a worker may send again.
const remembered = 1024

// look is the time between two questions whether a server is full.
const look = time.Second

// measure sends messages until one of the limits ends the run.
func (o *Options) measure(ctx context.Context, t target, meter *progress.Meter) (*Report, error) {
	sending, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	timer := time.AfterFunc(o.For, func() { stop(errTime) })
	defer timer.Stop()
	var budget atomic.Int64
	budget.Store(int64(o.MaxKeys))
	workers := make([]worker, o.Workers)
	began := time.Now()
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			workers[i].run(sending, o, t, fmt.Sprintf("w%d-", i), &budget, stop)
		})
	}
	var guard sync.WaitGroup
	guard.Go(func() { o.guard(sending, t, meter, stop) })
	all.Wait()
	stop(errKeys)
	guard.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return o.report(t, workers, time.Since(began), context.Cause(sending)), nil
}

// The reasons why a run ends.
var (
	errTime   = errors.New("time")
	errKeys   = errors.New("max_keys")
	errMemory = errors.New("memory")
)

// guard ends the run when the server is full.
func (o *Options) guard(ctx context.Context, t target, meter *progress.Meter,
	stop context.CancelCauseFunc) {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			meter.Add(1)
			if full, err := t.full(ctx); err == nil && full && !o.Force {
				stop(errMemory)
			}
		}
	}
}

// run sends messages until ctx ends, or until the budget of keys is used up.
func (w *worker) run(ctx context.Context, o *Options, t target, name string, budget *atomic.Int64,
	stop context.CancelCauseFunc) {
	w.texts = make(map[string]bool)
	random := rand.New(rand.NewPCG(1, uint64(len(name)))) //nolint:gosec // which keys come twice
	for n := 0; ctx.Err() == nil; n++ {
		again := len(w.done) > 0 && random.Float64() < o.Dup
		key := fmt.Sprint(name, n)
		if again {
			key = w.done[random.IntN(len(w.done))]
		} else if budget.Add(-1) < 0 {
			stop(errKeys)
			return
		}
		sent := time.Now()
		// The end of ctx does not interrupt a message, because that would leave its claim behind.
		duplicate, err := t.send(context.WithoutCancel(ctx), key)
		if err == nil && duplicate != again {
			err = fmt.Errorf("a key was taken for a duplicate: %t; it is one: %t", duplicate, again)
		}
		w.took = append(w.took, time.Since(sent))
		w.count(key, again, err)
	}
}

func (w *worker) count(key string, again bool, err error) {
	switch {
	case err != nil:
		w.failed++
		w.texts[err.Error()] = true
	case again:
		w.dups++
	default:
		w.fresh++
		if w.done = append(w.done, key); len(w.done) > remembered {
			w.done = w.done[1:]
		}
	}
}

// report adds up the results of the workers.
func (o *Options) report(t target, workers []worker, took time.Duration, cause error) *Report {
	r := &Report{Server: t.title(), Workers: len(workers), Seconds: took.Seconds(),
		EndedBy: cause.Error()}
	var all []time.Duration
	texts := make(map[string]bool)
	for i := range workers {
		w := &workers[i]
		all = append(all, w.took...)
		r.New, r.Dups, r.Failures = r.New+w.fresh, r.Dups+w.dups, r.Failures+w.failed
		maps.Copy(texts, w.texts)
	}
	for _, text := range slices.Sorted(maps.Keys(texts)) {
		r.Errors = append(r.Errors, o.Server.Hide(text))
	}
	r.PerSec = float64(r.New+r.Dups) / took.Seconds()
	slices.Sort(all)
	r.P50MS, r.P99MS, r.P999MS, r.MaxMS = quantile(all, 0.5), quantile(all, 0.99),
		quantile(all, 0.999), quantile(all, 1)
	return r
}

// quantile is a quantile in milliseconds.
func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	at := min(int(q*float64(len(sorted))), len(sorted)-1)
	return float64(sorted[at].Microseconds()) / 1000
}

// write writes the report. It returns an error if messages have failed.
func (r *Report) write(s *cli.Streams, asJSON bool) error {
	err := s.Report(r, asJSON, r.print)
	if err == nil && r.Failures > 0 {
		err = fmt.Errorf("%d %w", r.Failures, errFailed)
	}
	return err
}

// print writes the report for people.
func (r *Report) print(s *cli.Streams) error {
	err := s.Fields([2]string{"server", r.Server},
		[2]string{"messages/s", fmt.Sprintf("%.0f with %d workers", r.PerSec, r.Workers)},
		[2]string{"latency", fmt.Sprintf("p50 %.2f ms, p99 %.2f ms, p99.9 %.2f ms, max %.2f ms",
			r.P50MS, r.P99MS, r.P999MS, r.MaxMS)},
		[2]string{"messages", fmt.Sprintf("%d new, %d duplicates, %d failed", r.New, r.Dups,
			r.Failures)},
		[2]string{"ended by", fmt.Sprintf("%s, after %.1f s", r.EndedBy, r.Seconds)})
	for _, text := range r.Errors {
		err = errors.Join(err, s.Lines(2, "ERROR "+text))
	}
	return err
}
