// Package filterbench measures package bloom, and what is built with it, next to what people use
// instead: the time of one answer, memory, false positives, rotation, snapshots, and what is left
// of it when it is overloaded or attacked.
package filterbench

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/bench/internal/work"
	"github.com/onceward/onceward/bloom"
	"github.com/onceward/onceward/sqladapter"
)

// Suite is the Bloom filter and what is built on it.
var Suite = harness.Suite{
	Area: "bloom", About: "the Bloom filter and what is built on it next to what people use",
	Full:  harness.Scale{Rounds: 5, Budget: 150 * time.Millisecond},
	Quick: harness.Scale{Rounds: 3, Budget: 20 * time.Millisecond},
	Redis: server.Durable, // as docs/redis.md asks for
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
	// ids of a window that filters are planned for, ascending; the last one counts most
	sizes  []int
	budget time.Duration // of one timing
	rounds int           // of what is not timed in turn
	hits   int           // false positives that a rate is counted from, as expected by the plan
	// redis is the server of owned partitions, and with records of the layered composition. A
	// workload without its server is left out.
	redis   *server.Redis
	records *server.Database
	// fresh sets that a stream without duplicates fills in each owned partition; 0: none
	freshSets int
	marks     int    // keys of a partition that are loaded; 0: not measured
	dir       string // where snapshots are written; empty: the system's folder for temporary files

	built  map[int]*built
	effect func(side, key string) // of a test: what ran
}

func (e *env) most() int { return e.sizes[len(e.sizes)-1] }

func (e *env) groups() (all harness.Groups) {
	families := []func(*harness.Groups){e.answers, e.memory, e.rates, e.rotation, e.snapshots,
		e.degraded}
	if e.redis != nil && e.records != nil {
		families = append(families, e.layered, e.front)
	}
	if e.redis != nil {
		families = append(families, e.owned)
	}
	if e.redis != nil && e.marks > 0 {
		families = append(families, e.load)
	}
	for _, add := range families {
		add(&all)
	}
	return all
}

// window is that of all filters here: four slices of 1000 s.
const window = 4000 * time.Second

const batchIDs = work.Typical

// id is the n-th one: the same each time, and its bits say nothing about those of the next.
func id(n uint64) (b [16]byte) {
	binary.LittleEndian.PutUint64(b[:], n*0x9e3779b97f4a7c15)
	binary.LittleEndian.PutUint64(b[8:], n)
	return b
}

func unknown(n uint64) [16]byte { return id(n | 1<<62) }

func options(keys int) bloom.Options {
	return bloom.Options{Window: window, Rate: float64(keys) / window.Seconds()}
}

// stored are the options of a filter that can be saved: its clock is in the generation 1.
func stored(keys int) bloom.Options {
	o := options(keys)
	o.Secret, o.KeyID = []byte("0123456789abcdef"), "bench"
	o.Clock = func() time.Duration { return window/bloom.DefaultSlices + time.Second }
	return o
}

const source = "bench"

// open is a filter whose source is known to be empty and that learns of everything from here on.
func open(o bloom.Options) (*bloom.Filter, *bloom.Feed) {
	f := must.Get(bloom.New(o))
	feed := f.Begin(bloom.Source{Name: source})
	for gen := range int64(f.Plan().Generations) {
		must.Do(feed.Covered(-gen, 0))
	}
	must.Do(feed.Open(time.Now().Add(time.Hour)))
	return f, feed
}

// filled is an open filter as full as planned: every generation has what it is planned for, id n in
// generation -(n mod generations). The ids below the number that the window was planned for are
// thus spread over all of them.
func filled(o bloom.Options) *bloom.Filter {
	f, feed := open(o)
	p := f.Plan()
	all := uint64(p.Generations)
	for n := range p.SliceKeys * all {
		must.Do(feed.Add(-int64(n%all), id(n)))
	}
	return f
}
