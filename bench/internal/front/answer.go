package front

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bloom"
)

// Names of the sides.
const (
	checkSide   = "onceward Check"
	whereSide   = "onceward Where, which reads no clock"
	batchSide   = "onceward WhereAll, 256 ids"
	addSide     = "onceward Add"
	classicSide = "onceward Where, Kind Classic"
	bloomSide   = "bits-and-blooms + Mutex"
	mapSide     = "exact map + Mutex"
)

// batchIDs is how many ids WhereAll is asked for at once.
const batchIDs = 256

// built is what is asked: filters and peers that know the same ids, and the memory that each took.
type built struct {
	filter, classic *bloom.Filter
	bloom           *lockedBloom
	exact           *lockedMap
	bytes           map[string]uint64
}

// of fills a filter and its peers once.
func (e *Env) of(keys int) (*built, error) {
	if b := e.built[keys]; b != nil {
		return b, nil
	}
	b := &built{bytes: make(map[string]uint64)}
	for _, step := range []struct {
		side string
		fill func() error
	}{
		{blockedMemory, func() (err error) { b.filter, err = filled(options(keys)); return err }},
		{classicMemory, func() (err error) { b.classic, err = filled(classic(keys)); return err }},
		{bloomSide, func() error { b.bloom = newLockedBloom(keys); addAll(keys, b.bloom.add); return nil }},
		{mapSide, func() error { b.exact = newLockedMap(); addAll(keys, b.exact.add); return nil }},
	} {
		before := heap()
		if err := step.fill(); err != nil {
			return nil, err
		}
		b.bytes[step.side] = heap() - before
	}
	if e.built == nil {
		e.built = make(map[int]*built)
	}
	e.built[keys] = b
	return b, nil
}

func addAll(keys int, add func([16]byte)) {
	for n := range uint64(keys) {
		add(id(n))
	}
}

// answers: how long one answer takes, by the size of the filter, and for two goroutines.
func (e *Env) answers() []harness.Group {
	var all []harness.Group
	for _, what := range []string{hit, miss, add} {
		for _, goroutines := range []int{1, 2} {
			for _, keys := range e.Sizes {
				if goroutines > 1 && keys != e.most() {
					continue
				}
				family := what + ", " + many(goroutines)
				all = append(all, harness.Group{
					Workload: family, X: float64(keys), Title: fmt.Sprintf("%s, %s ids", family, short(keys)),
					Open: func(context.Context) (harness.Setup, error) { return e.openAnswer(what, goroutines, keys) },
				})
			}
		}
	}
	return all
}

func many(goroutines int) string {
	if goroutines == 1 {
		return "1 goroutine"
	}
	return fmt.Sprintf("%d goroutines", goroutines)
}

// What is asked.
const (
	hit  = "known ids"
	miss = "new ids"
	add  = "ids added"
)

func (e *Env) openAnswer(what string, goroutines, keys int) (harness.Setup, error) {
	name := fmt.Sprintf("%s, plan for %s ids, %s", what, short(keys), many(goroutines))
	if what == add {
		return harness.Setup{Sides: e.adders(goroutines, keys), Pairs: answerPairs(name, goroutines, keys == e.most(), addSide, bloomSide, mapSide)}, nil
	}
	b, err := e.of(keys)
	if err != nil {
		return harness.Setup{}, err
	}
	ask := func(n uint64) [16]byte { return id(n % uint64(keys)) }
	if what == miss {
		ask = unknown
	}
	each := func(name string, one func([16]byte)) harness.Side {
		return e.timed(name, goroutines, 0, func() work {
			return func(from, n uint64) {
				for i := range n {
					one(ask(from + i))
				}
			}
		})
	}
	sides := []harness.Side{
		each(checkSide, func(id [16]byte) { b.filter.Check(id) }),
		each(whereSide, func(id [16]byte) { b.filter.Where(id) }),
		e.timed(batchSide, goroutines, 0, func() work { return inBatches(b.filter, ask) }),
		each(classicSide, func(id [16]byte) { b.classic.Where(id) }),
		each(bloomSide, func(id [16]byte) { b.bloom.has(id) }),
		each(mapSide, func(id [16]byte) { b.exact.has(id) }),
	}
	return harness.Setup{Sides: sides, Pairs: answerPairs(name, goroutines, keys == e.most(), checkSide, whereSide, batchSide, classicSide, bloomSide, mapSide)}, nil
}

// answerPairs asks the goals of the largest filter. One goroutine is measured by the processor time that
// it takes, which other programs on the machine change least; two by how long they take together.
func answerPairs(name string, goroutines int, goals bool, side string, more ...string) []harness.Pair {
	metric := harness.CPUNanos
	if goroutines > 1 {
		metric = harness.Nanos
	}
	pairs := []harness.Pair{
		{Name: name, Side: side, Against: bloomSide, Metric: metric},
		{Name: name, Side: side, Against: mapSide, Metric: metric},
		{Name: name + ", allocations", Side: side, Metric: harness.Allocs, Goal: harness.ValueAtMost(0.01, 0, "allocations")},
	}
	if goals {
		pairs[0].Goal, pairs[1].Goal = harness.AtMost(1, 0), harness.AtMost(1, 0)
		pairs = append(pairs, harness.Pair{Name: name + ", time", Side: side, Metric: metric, Goal: harness.ValueAtMost(80, 0, "ns")})
	}
	for _, other := range more {
		pairs = append(pairs, harness.Pair{Name: name + ", for comparison", Side: other, Against: side, Metric: metric})
	}
	return pairs
}

// adders begin every timing empty; a timing is not longer than what a generation is planned for.
func (e *Env) adders(goroutines, keys int) []harness.Side {
	each := func(name string, empty func() func([16]byte)) harness.Side {
		return e.timed(name, goroutines, uint64(keys)/bloom.DefaultSlices, func() work {
			add := empty()
			return func(from, n uint64) {
				for i := range n {
					add(id(from + i))
				}
			}
		})
	}
	return []harness.Side{
		each(addSide, func() func([16]byte) {
			f, _, err := open(options(keys))
			if err != nil {
				panic(err) // the same options as elsewhere
			}
			return f.Add
		}),
		each(bloomSide, func() func([16]byte) { return newLockedBloom(keys).add }),
		each(mapSide, func() func([16]byte) { return newLockedMap().add }),
	}
}

// work does n things, of which the first is the from-th of all.
type work func(from, n uint64)

func inBatches(f *bloom.Filter, ask func(uint64) [16]byte) work {
	return func(from, n uint64) {
		batch := make([]bloom.Query, batchIDs)
		for ; n > 0; n -= uint64(len(batch)) {
			batch = batch[:min(n, batchIDs)]
			for i := range batch {
				batch[i].ID = ask(from + uint64(i))
			}
			f.WhereAll(batch)
			from += uint64(len(batch))
		}
	}
}

// apart is how far from each other goroutines ask: no two ask for the same.
const apart = 1 << 40

// timed measures begin's work on so many goroutines, at most so many things in one timing (0: no
// bound). The first timing says how many fill the budget.
func (e *Env) timed(name string, goroutines int, most uint64, begin func() work) harness.Side {
	n, from := uint64(2000), uint64(0)
	return harness.Side{Name: name, External: func(context.Context) (harness.Sample, error) {
		if most > 0 {
			n = min(n, most)
		}
		do := begin()
		runtime.GC()
		s := together(do, from, n, goroutines)
		from += n // what was asked is in a cache
		n = max(2000, uint64(s.Rate*e.Budget.Seconds()))
		return s, nil
	}}
}

// together shares n out among goroutines.
func together(do work, from, n uint64, goroutines int) harness.Sample {
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	for g := range uint64(goroutines) {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-start
			do(from+g*apart, n/uint64(goroutines))
		})
	}
	ready.Wait()
	before := read()
	close(start)
	done.Wait()
	after := read()
	each := 1 / float64(n)
	return harness.Sample{
		Rate:     float64(n) / after.at.Sub(before.at).Seconds(),
		ClientUS: float64((after.cpu - before.cpu).Nanoseconds()) / 1e3 * each,
		Allocs:   float64(after.mallocs-before.mallocs) * each,
	}
}

// reading is where clocks and counters stood.
type reading struct {
	at      time.Time
	cpu     time.Duration
	mallocs uint64
}

func read() reading {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return reading{at: time.Now(), cpu: harness.ProcessCPU(), mallocs: m.Mallocs}
}

// short is 10 k or 10 M.
func short(n int) string {
	if n >= 1e6 {
		return fmt.Sprintf("%d M", n/1e6)
	}
	return fmt.Sprintf("%d k", n/1e3)
}
