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
func (e *env) of(keys int) *built {
	if b := e.built[keys]; b != nil {
		return b
	}
	b := &built{bytes: make(map[string]uint64)}
	fill := func(side string, fill func()) {
		before := heap()
		fill()
		b.bytes[side] = heap() - before
	}
	addAll := func(add func([16]byte)) {
		for n := range uint64(keys) {
			add(id(n))
		}
	}
	o := options(keys)
	fill(blockedMemory, func() { b.filter = filled(o) })
	o.Kind = bloom.Classic
	fill(classicMemory, func() { b.classic = filled(o) })
	fill(bloomSide, func() { b.bloom = newLockedBloom(keys); addAll(b.bloom.add) })
	fill(mapSide, func() { b.exact = newLockedMap(); addAll(b.exact.add) })
	if e.built == nil {
		e.built = make(map[int]*built)
	}
	e.built[keys] = b
	return b
}

// Questions that are asked.
const (
	hit  = "known ids"
	miss = "new ids"
	add  = "ids added"
)

// answers: how long one answer takes, by the size of the filter, and for two goroutines.
func (e *env) answers(all *harness.Groups) {
	for _, question := range []string{hit, miss, add} {
		for i, many := range []string{"1 goroutine", "2 goroutines"} {
			for _, keys := range e.sizes {
				if i > 0 && keys != e.most() {
					continue
				}
				family, ids := question+", "+many, harness.Short(keys)+" ids"
				all.Add(family, keys, family+", "+ids, func(_ context.Context, s *harness.Setup) {
					name := question + ", plan for " + ids + ", " + many
					answer{e, s, name, i + 1, keys}.open(question)
				})
			}
		}
	}
}

type answer struct {
	*env
	*harness.Setup

	name             string
	goroutines, keys int
}

func (a answer) open(question string) {
	if question == add {
		a.openAdd()
		return
	}
	b := a.of(a.keys)
	ask := func(n uint64) [16]byte { return id(n % uint64(a.keys)) }
	if question == miss {
		ask = unknown
	}
	asked := func(name string, one func([16]byte)) {
		a.timed(name, 0, func() job { return each(ask, one) })
	}
	asked(checkSide, func(id [16]byte) { b.filter.Check(id) })
	asked(whereSide, func(id [16]byte) { b.filter.Where(id) })
	a.timed(batchSide, 0, func() job { return inBatches(b.filter, ask) })
	asked(classicSide, func(id [16]byte) { b.classic.Where(id) })
	asked(bloomSide, func(id [16]byte) { b.bloom.has(id) })
	asked(mapSide, func(id [16]byte) { b.exact.has(id) })
	a.compare(checkSide, whereSide, batchSide, classicSide, bloomSide, mapSide)
}

// openAdd begins every timing empty, and adds at most what a generation is planned for.
func (a answer) openAdd() {
	added := func(name string, empty func() func([16]byte)) {
		a.timed(name, uint64(a.keys)/bloom.DefaultSlices, func() job { return each(id, empty()) })
	}
	added(addSide, func() func([16]byte) {
		f, _ := open(options(a.keys))
		return f.Add
	})
	added(bloomSide, func() func([16]byte) { return newLockedBloom(a.keys).add })
	added(mapSide, func() func([16]byte) { return newLockedMap().add })
	a.compare(addSide, bloomSide, mapSide)
}

// compare asks the goals of the largest filter. One goroutine is measured by the processor time
// that it takes, which other programs on the machine change least; two by how long they take
// together.
func (a answer) compare(side string, more ...string) {
	a.Metric = harness.CPUNanos
	if a.goroutines > 1 {
		a.Metric = harness.Nanos
	}
	goals := a.keys == a.most()
	for _, peer := range []string{bloomSide, mapSide} {
		a.Compare(side, peer).Called(a.name).Wants(harness.When(goals, "<= 1x"))
	}
	a.Compare(side, "").Called(a.name + ", allocations").In(harness.Allocs).
		Wants("<= 0.01 allocations")
	if goals {
		a.Compare(side, "").Called(a.name + ", time").Wants("<= 80 ns")
	}
	for _, other := range more {
		a.Compare(other, side).Called(a.name + ", for comparison")
	}
}

// job does n things, of which the first is the from-th of all.
type job func(from, n uint64)

func each(id func(uint64) [16]byte, do func([16]byte)) job {
	return func(from, n uint64) {
		for i := range n {
			do(id(from + i))
		}
	}
}

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

// timed is a side that measures begin's work on all goroutines, at most so many things in one
// timing (0: no bound). The first timing says how many fill the budget.
func (a answer) timed(name string, most uint64, begin func() job) {
	n, from := uint64(2000), uint64(0)
	a.External(name, func(ctx context.Context) harness.Sample {
		if most > 0 {
			n = min(n, most)
		}
		do := begin()
		runtime.GC()
		s := together(ctx, do, from, n, a.goroutines)
		from += n // what was asked is in a cache
		n = max(2000, uint64(s.Rate*a.budget.Seconds()))
		return s
	})
}

func together(ctx context.Context, do job, from, n uint64, goroutines int) harness.Sample {
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
	before := harness.Meter{}.Read(ctx)
	close(start)
	done.Wait()
	s := before.To(harness.Meter{}.Read(ctx), int(n)) // as many as a timing has
	s.BusyUS = 0
	return s
}

// lockedBloom is what articles show: one filter behind a mutex, which never forgets.
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
func (e *env) memory(all *harness.Groups) {
	title := fmt.Sprintf("bytes per id of the window, %s ids", harness.Short(e.most()))
	all.Add("memory", e.most(), title, func(_ context.Context, s *harness.Setup) {
		const name, unit = "memory, bytes per id of the window", "bytes"
		b := e.of(e.most())
		e.built = nil // this was the last to need them
		of := func(bytes uint64) float64 { return float64(bytes) / float64(e.most()) }
		for _, side := range []string{blockedMemory, classicMemory, bloomSide, mapSide} {
			row := s.Figure(name, side, of(b.bytes[side]), unit)
			f := map[string]*bloom.Filter{blockedMemory: b.filter, classicMemory: b.classic}[side]
			if f != nil {
				row.Next("plan", of(f.Plan().Bytes)).Wants("<= 1.05x")
			}
		}
	})
}

func heap() uint64 {
	runtime.GC()
	runtime.GC() // what the first one has freed is swept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
