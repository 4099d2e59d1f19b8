// Package filterbench measures package bloom, and what is built with it, next to what people use
// instead: the time of one answer, memory, false positives, rotation, snapshots, and how it behaves
// when it is overloaded.
package filterbench

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"time"

	peer "github.com/bits-and-blooms/bloom/v3"
	"github.com/dustin/go-humanize/english"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/bench/internal/work"
	"github.com/onceward/onceward/bloom"
	"github.com/onceward/onceward/sqladapter"
)

// Suite measures the Bloom filter and what is built on it.
var Suite = harness.Suite{
	Area: "bloom", About: "the Bloom filter and what is built on it next to what people use",
	Full:  harness.Scale{Rounds: 5, Budget: 150 * time.Millisecond},
	Quick: harness.Scale{Rounds: 3, Budget: 20 * time.Millisecond},
	Redis: server.Durable, // as docs/reference/redis.md recommends
	Open: func(ctx context.Context, o harness.Options, b *harness.Bench) {
		e := &env{sizes: []int{100_000, 1_000_000, 10_000_000}, budget: o.Budget,
			rounds: o.Rounds, hits: 1000, freshSets: 4, marks: 10_000_000}
		if o.Quick {
			e.sizes, e.hits, e.freshSets, e.marks = []int{20_000, 200_000}, 100, 1, 200_000
		}
		b.Modules = []string{"bits-and-blooms", "go-redis", "pgx"}
		if o.Redis == server.None {
			b.LeaveOut("owned partitions and the layered composition, without Redis")
		} else {
			e.redis = server.Open(ctx, b, o.Redis)
			e.records = server.OpenDatabase(ctx, b, sqladapter.Postgres, o.Postgres)
		}
		if e.records != nil {
			b.Meter.ServerCPU = e.records.CPU()
		}
		b.Groups = e.groups()
	},
}

type env struct {
	sizes  []int         // of windows, in ids, ascending; the last one counts most
	budget time.Duration // of one timing
	rounds int           // of measurements that are not timed in turn
	hits   int           // false positives that the plan expects while a rate is counted
	// redis is the server of owned partitions and of the layered composition, whose records are in
	// records. A workload without its server is left out.
	redis   *server.Redis
	records *server.Database
	// fresh sets that a stream without duplicates fills in each owned partition; 0: none
	freshSets int
	marks     int // keys of a partition that are loaded

	built  map[int]*built
	effect func(side, key string) // for a test: which effects ran
}

func (e *env) most() int { return e.sizes[len(e.sizes)-1] }

func (e *env) groups() (all harness.Groups) {
	families := []func(*harness.Groups){e.answers, e.memory, e.rates, e.rotation, e.snapshots,
		e.degraded}
	if e.redis != nil && e.records != nil {
		families = append(families, e.layered, e.front)
	}
	if e.redis != nil {
		families = append(families, e.owned, e.load)
	}
	for _, add := range families {
		add(&all)
	}
	return all
}

// window is the window of all filters here: four slices of 1000 s.
const window = 4000 * time.Second

const batchIDs = work.Typical

// id returns the n-th id. It is the same in every run, and its bits look unrelated to those of id
// n+1.
func id(n uint64) (b [16]byte) {
	binary.LittleEndian.PutUint64(b[:], n*0x9e3779b97f4a7c15)
	binary.LittleEndian.PutUint64(b[8:], n)
	return b
}

func unknown(n uint64) [16]byte { return id(n | 1<<62) }

func options(keys int) bloom.Options {
	return bloom.Options{Window: window, Rate: float64(keys) / window.Seconds()}
}

// stored returns the options of a filter that can be saved: its clock is in generation 1.
func stored(keys int) bloom.Options {
	o := options(keys)
	o.Secret, o.KeyID = []byte("0123456789abcdef"), "bench"
	o.Clock = func() time.Duration { return window/bloom.DefaultSlices + time.Second }
	return o
}

var source = bloom.Source{Name: "bench"}

// open returns a filter whose source is known to be empty, and that learns everything from here on.
func open(o bloom.Options) (*bloom.Filter, *bloom.Feed) {
	f := must.Get(bloom.New(o))
	feed := f.Begin(source)
	for gen := range int64(f.Plan().Generations) {
		must.Do(feed.Covered(-gen, 0))
	}
	must.Do(feed.Open(time.Now().Add(time.Hour)))
	return f, feed
}

// filled is an open filter that is as full as planned. Every generation has the ids that it is
// planned for: id n is in generation -(n mod generations). So the ids below the window's planned
// number are spread over all generations.
func filled(o bloom.Options) *bloom.Filter {
	f, feed := open(o)
	p := f.Plan()
	all := uint64(p.Generations)
	for n := range p.SliceKeys * all {
		must.Do(feed.Add(-int64(n%all), id(n)))
	}
	return f
}

const (
	checkSide   = "onceward Check"
	whereSide   = "onceward Where, which reads no clock"
	batchSide   = "onceward WhereAll, 256 ids"
	addSide     = "onceward Add"
	classicSide = "onceward Where, Kind Classic"
	bloomSide   = "bits-and-blooms + Mutex"
	mapSide     = "exact map + Mutex"
)

// built holds filters and peers that know the same ids, and the memory that each of them takes.
type built struct {
	filter, classic *bloom.Filter
	bloom, exact    locked
	bytes           map[string]uint64
}

// of returns a filter and its peers that hold this many keys. It fills them at the first call.
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
	o := options(keys)
	fill(blockedMemory, func() { b.filter = filled(o) })
	o.Kind = bloom.Classic
	fill(classicMemory, func() { b.classic = filled(o) })
	all := func(add func([16]byte)) { each(id, add)(0, uint64(keys)) }
	fill(bloomSide, func() { b.bloom = newLockedBloom(keys); all(b.bloom.add) })
	fill(mapSide, func() { b.exact = newLockedMap(); all(b.exact.add) })
	if e.built == nil {
		e.built = make(map[int]*built)
	}
	e.built[keys] = b
	return b
}

const (
	hit  = "known ids"
	miss = "new ids"
	add  = "ids added"
)

// answers adds how long one answer takes, by the size of the filter, and for two goroutines.
func (e *env) answers(all *harness.Groups) {
	for _, question := range []string{hit, miss, add} {
		for _, keys := range e.sizes {
			e.ask(all, question, 1, keys)
		}
		e.ask(all, question, 2, e.most())
	}
}

func (e *env) ask(all *harness.Groups, question string, goroutines, keys int) {
	many, ids := english.Plural(goroutines, "goroutine", ""), harness.Short(keys)+" ids"
	family := question + ", " + many
	all.Add(family, keys, family+", "+ids, func(_ context.Context, s *harness.Setup) {
		a := answer{e, s, work.Loop{Budget: e.budget, Goroutines: goroutines}, keys,
			question + ", plan for " + ids + ", " + many}
		switch question {
		case hit:
			a.open(func(n uint64) [16]byte { return id(n % uint64(keys)) })
		case miss:
			a.open(unknown)
		case add:
			a.openAdd()
		}
	})
}

type answer struct {
	*env
	*harness.Setup

	loop work.Loop
	keys int
	name string
}

func (a answer) open(ask func(uint64) [16]byte) {
	b := a.of(a.keys)
	asked := func(name string, one func([16]byte)) {
		a.loop.Side(a.Setup, name, func() work.Job { return each(ask, one) })
	}
	asked(checkSide, func(id [16]byte) { b.filter.Check(id) })
	asked(whereSide, func(id [16]byte) { b.filter.Where(id) })
	a.loop.Side(a.Setup, batchSide, func() work.Job { return inBatches(b.filter, ask) })
	asked(classicSide, func(id [16]byte) { b.classic.Where(id) })
	asked(bloomSide, func(id [16]byte) { b.bloom.has(id) })
	asked(mapSide, func(id [16]byte) { b.exact.has(id) })
	a.compare(checkSide, whereSide, batchSide, classicSide, bloomSide, mapSide)
}

// openAdd starts every timing with an empty filter, and adds at most what a generation is planned
// for.
func (a answer) openAdd() {
	a.loop.Most = uint64(a.keys) / bloom.DefaultSlices
	added := func(name string, empty func() func([16]byte)) {
		a.loop.Side(a.Setup, name, func() work.Job { return each(id, empty()) })
	}
	added(addSide, func() func([16]byte) {
		f, _ := open(options(a.keys))
		return f.Add
	})
	added(bloomSide, func() func([16]byte) { return newLockedBloom(a.keys).add })
	added(mapSide, func() func([16]byte) { return newLockedMap().add })
	a.compare(addSide, bloomSide, mapSide)
}

// compare sets the goals for the largest filter. One goroutine is measured by its processor time,
// which other programs on the machine change least. Two goroutines are measured by their common
// elapsed time.
func (a answer) compare(side string, more ...string) {
	a.Metric = harness.CPUNanos
	if a.loop.Goroutines > 1 {
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

func each(id func(uint64) [16]byte, do func([16]byte)) work.Job {
	return func(from, n uint64) {
		for i := range n {
			do(id(from + i))
		}
	}
}

func inBatches(f *bloom.Filter, ask func(uint64) [16]byte) work.Job {
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

// locked is what articles show: a set behind a mutex, which never forgets.
type locked struct {
	add func(id [16]byte)
	has func(id [16]byte) bool
}

func newLockedBloom(keys int) locked {
	const falsePositives = 1e-3 // planned for all, unless something else is said
	f, mu := peer.NewWithEstimates(uint(keys), falsePositives), &sync.Mutex{}
	return locked{func(id [16]byte) {
		mu.Lock()
		defer mu.Unlock()
		f.Add(id[:])
	}, func(id [16]byte) bool {
		mu.Lock()
		defer mu.Unlock()
		return f.Test(id[:])
	}}
}

func newLockedMap() locked {
	m, mu := make(map[[16]byte]struct{}), &sync.Mutex{}
	return locked{func(id [16]byte) {
		mu.Lock()
		defer mu.Unlock()
		m[id] = struct{}{}
	}, func(id [16]byte) bool {
		mu.Lock()
		defer mu.Unlock()
		_, ok := m[id]
		return ok
	}}
}

// These sides of the memory rows have other names in the rows that ask the filter.
const (
	blockedMemory = "onceward, all generations full"
	classicMemory = "onceward Kind Classic, all generations full"
)

func (e *env) memory(all *harness.Groups) {
	title := fmt.Sprintf("bytes per id of the window, %s ids", harness.Short(e.most()))
	all.Add("memory", e.most(), title, func(_ context.Context, s *harness.Setup) {
		b := e.of(e.most())
		e.built = nil // nothing needs them after this
		of := func(bytes uint64) float64 { return float64(bytes) / float64(e.most()) }
		row := func(side string) *harness.Row {
			return s.Figure("memory, bytes per id of the window", side, of(b.bytes[side]), "bytes")
		}
		row(blockedMemory).Next("plan", of(b.filter.Plan().Bytes)).Wants("<= 1.05x")
		row(classicMemory).Next("plan", of(b.classic.Plan().Bytes)).Wants("<= 1.05x")
		row(bloomSide)
		row(mapSide)
	})
}

func heap() uint64 {
	runtime.GC()
	runtime.GC() // sweep what the first collection has freed
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
