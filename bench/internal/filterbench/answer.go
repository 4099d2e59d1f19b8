package filterbench

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	peer "github.com/bits-and-blooms/bloom/v3"

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

// built is what is asked: filters and peers that know the same ids, and the memory that each took.
type built struct {
	filter, classic *bloom.Filter
	bloom           *lockedBloom
	exact           *lockedMap
	bytes           map[string]uint64
}

// of fills a filter and its peers once.
func (e *env) of(keys int) (*built, error) {
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
		{bloomSide, func() error {
			b.bloom = newLockedBloom(keys)
			addAll(keys, b.bloom.add)
			return nil
		}},
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
func (e *env) answers() []harness.Group {
	var all []harness.Group
	for _, what := range []string{hit, miss, add} {
		for i, many := range []string{"1 goroutine", "2 goroutines"} {
			goroutines := i + 1
			for _, keys := range e.sizes {
				if goroutines > 1 && keys != e.most() {
					continue
				}
				family := what + ", " + many
				name := fmt.Sprintf("%s, plan for %s ids, %s", what, harness.Short(keys), many)
				all = append(all, harness.Group{
					Workload: family, X: float64(keys),
					Title: fmt.Sprintf("%s, %s ids", family, harness.Short(keys)),
					Open: func(_ context.Context, s *harness.Setup) error {
						return e.openAnswer(s, name, what, goroutines, keys)
					},
				})
			}
		}
	}
	return all
}

// What is asked.
const (
	hit  = "known ids"
	miss = "new ids"
	add  = "ids added"
)

func (e *env) openAnswer(s *harness.Setup, name, what string, goroutines, keys int) error {
	if what == add {
		s.Sides = e.adders(goroutines, keys)
		s.Pair(answerPairs(name, goroutines, keys == e.most(), addSide, bloomSide, mapSide)...)
		return nil
	}
	b, err := e.of(keys)
	if err != nil {
		return err
	}
	ask := func(n uint64) [16]byte { return id(n % uint64(keys)) }
	if what == miss {
		ask = unknown
	}
	each := func(name string, one func([16]byte)) harness.Side {
		return e.timed(name, goroutines, 0, func() job {
			return func(from, n uint64) {
				for i := range n {
					one(ask(from + i))
				}
			}
		})
	}
	s.Sides = []harness.Side{
		each(checkSide, func(id [16]byte) { b.filter.Check(id) }),
		each(whereSide, func(id [16]byte) { b.filter.Where(id) }),
		e.timed(batchSide, goroutines, 0, func() job { return inBatches(b.filter, ask) }),
		each(classicSide, func(id [16]byte) { b.classic.Where(id) }),
		each(bloomSide, func(id [16]byte) { b.bloom.has(id) }),
		each(mapSide, func(id [16]byte) { b.exact.has(id) }),
	}
	s.Pair(answerPairs(name, goroutines, keys == e.most(), checkSide, whereSide, batchSide,
		classicSide, bloomSide, mapSide)...)
	return nil
}

// answerPairs asks the goals of the largest filter. One goroutine is measured by the processor time
// that it takes, which other programs on the machine change least; two by how long they take
// together.
func answerPairs(name string, goroutines int, goals bool, side string,
	more ...string) []harness.Pair {
	metric := harness.CPUNanos
	if goroutines > 1 {
		metric = harness.Nanos
	}
	pairs := []harness.Pair{
		{Name: name, Side: side, Against: bloomSide, Metric: metric},
		{Name: name, Side: side, Against: mapSide, Metric: metric},
		{Name: name + ", allocations", Side: side, Metric: harness.Allocs,
			Goal: harness.ValueAtMost(0.01, 0, "allocations")},
	}
	if goals {
		pairs[0].Goal, pairs[1].Goal = harness.AtMost(1, 0), harness.AtMost(1, 0)
		pairs = append(pairs, harness.Pair{Name: name + ", time", Side: side, Metric: metric,
			Goal: harness.ValueAtMost(80, 0, "ns")})
	}
	for _, other := range more {
		pairs = append(pairs, harness.Pair{Name: name + ", for comparison", Side: other,
			Against: side, Metric: metric})
	}
	return pairs
}

// adders begin every timing empty; a timing is not longer than what a generation is planned for.
func (e *env) adders(goroutines, keys int) []harness.Side {
	each := func(name string, empty func() func([16]byte)) harness.Side {
		return e.timed(name, goroutines, uint64(keys)/bloom.DefaultSlices, func() job {
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

// job does n things, of which the first is the from-th of all.
type job func(from, n uint64)

func inBatches(f *bloom.Filter, ask func(uint64) [16]byte) job {
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
func (e *env) timed(name string, goroutines int, most uint64, begin func() job) harness.Side {
	n, from := uint64(2000), uint64(0)
	return harness.Side{Name: name, External: func(context.Context) (harness.Sample, error) {
		if most > 0 {
			n = min(n, most)
		}
		do := begin()
		runtime.GC()
		s := together(do, from, n, goroutines)
		from += n // what was asked is in a cache
		n = max(2000, uint64(s.Rate*e.budget.Seconds()))
		return s, nil
	}}
}

// together shares n out among goroutines.
func together(do job, from, n uint64, goroutines int) harness.Sample {
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
	// No server is asked, so neither reading fails.
	before, _ := harness.Meter{}.Read(context.Background())
	close(start)
	done.Wait()
	after, _ := harness.Meter{}.Read(context.Background())
	s := before.To(after, int(n)) //nolint:gosec // as many as a timing has
	s.BusyUS = 0
	return s
}

// lockedBloom is what articles show: one filter for all time, behind a mutex. It forgets nothing,
// and knows nothing of what it was not told.
type lockedBloom struct {
	mu sync.Mutex
	f  *peer.BloomFilter
}

func newLockedBloom(keys int) *lockedBloom {
	const falsePositives = 1e-3 // that all are planned for, where nothing else is said
	return &lockedBloom{f: peer.NewWithEstimates(uint(keys), falsePositives)}
}

func (l *lockedBloom) add(id [16]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.f.Add(id[:])
}

func (l *lockedBloom) has(id [16]byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f.Test(id[:])
}

// lockedMap is exact.
type lockedMap struct {
	mu sync.Mutex
	m  map[[16]byte]struct{}
}

func newLockedMap() *lockedMap { return &lockedMap{m: make(map[[16]byte]struct{})} }

func (l *lockedMap) add(id [16]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.m[id] = struct{}{}
}

func (l *lockedMap) has(id [16]byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.m[id]
	return ok
}

// Sides of the memory rows that are not asked under the same name.
const (
	blockedMemory = "onceward, all generations full"
	classicMemory = "onceward Kind Classic, all generations full"
)

// memory: what an id of the window costs.
func (e *env) memory() []harness.Group {
	return []harness.Group{group("memory", float64(e.most()),
		fmt.Sprintf("bytes per id of the window, %s ids", harness.Short(e.most())),
		e.measureMemory)}
}

func (e *env) measureMemory(context.Context) ([]harness.Row, error) {
	b, err := e.of(e.most())
	if err != nil {
		return nil, err
	}
	e.built = nil // this was the last to need them
	const name, unit = "memory, bytes per id of the window", "bytes"
	each := func(bytes uint64) float64 { return float64(bytes) / float64(e.most()) }
	planned := func(side string, plan bloom.Plan) harness.Row {
		return harness.Compared(name, side, each(b.bytes[side]), unit, "plan", each(plan.Bytes),
			harness.AtMost(1.05, 0))
	}
	return []harness.Row{
		planned(blockedMemory, b.filter.Plan()), planned(classicMemory, b.classic.Plan()),
		harness.Figure(name, bloomSide, each(b.bytes[bloomSide]), unit, harness.Goal{}),
		harness.Figure(name, mapSide, each(b.bytes[mapSide]), unit, harness.Goal{}),
	}, nil
}

// heap is what is alive.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // what the first one has freed is swept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
