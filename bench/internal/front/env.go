// Package front measures package bloom, and what is built with it, beside what people use in its
// place: the time of one answer, memory, false positives, rotation, snapshots, and what is left of
// it when it is overloaded or attacked.
package front

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/onceward/onceward/bench/internal/database"
	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/bloom"
)

// Env is where the workloads run.
type Env struct {
	// Sizes are the ids of a window that filters are planned for, ascending. The last one counts most.
	Sizes []int
	// Budget of one timing.
	Budget time.Duration
	// Rounds of what is not timed in turn.
	Rounds int
	// Hits is how many false positives a rate is counted from, as expected by the plan.
	Hits int
	// Redis is the server of owned partitions, and with Records of the layered composition. What has none is
	// left out.
	Redis   *server.Server
	Records *database.Server
	// FreshSets is how many fresh sets a stream without duplicates fills in each of its owned partitions. 0: none.
	FreshSets int
	// Marks is how many keys of a partition are loaded. 0: not measured.
	Marks int
	// Dir is where snapshots are written; empty: the system's folder for temporary files.
	Dir string

	built  map[int]*built
	effect func(side, key string) // of a test: what ran
}

// most is the largest size.
func (e *Env) most() int { return e.Sizes[len(e.Sizes)-1] }

// Groups are all workloads.
func (e *Env) Groups() []harness.Group {
	var all []harness.Group
	for _, part := range [][]harness.Group{e.answers(), e.memory(), e.rates(), e.rotation(), e.snapshots(), e.degraded(), e.layered(), e.owned(), e.loads()} {
		all = append(all, part...)
	}
	return all
}

// Versions of what takes part.
func (e *Env) Versions(ctx context.Context) (map[string]string, error) {
	versions := harness.Versions(map[string]string{
		"github.com/bits-and-blooms/bloom/v3": "bits-and-blooms", "github.com/redis/go-redis/v9": "go-redis", "github.com/jackc/pgx/v5": "pgx",
	})
	var err error
	if e.Redis != nil {
		if versions["redis"], err = e.Redis.Version(ctx); err != nil {
			return nil, err
		}
	}
	if e.Records != nil {
		versions["PostgreSQL"], err = e.Records.Version(ctx)
	}
	return versions, err
}

// LeftOut says what this Env cannot measure.
func (e *Env) LeftOut() (what []string) {
	if e.Redis == nil || e.Records == nil {
		what = append(what, "the layered composition, without its servers")
	}
	if e.Redis == nil {
		what = append(what, "owned partitions, without Redis")
	}
	return what
}

// CPU tells the processor time of the database. Nil: unknown.
func (e *Env) CPU() func(context.Context) (time.Duration, error) {
	if e.Records == nil {
		return nil
	}
	read, _ := e.Records.CPU()
	return read
}

// window is that of all filters here: four slices of 1000 s.
const window = 4000 * time.Second

// id is the n-th one. The same n gives the same id; where the bits of one are says nothing of the next.
func id(n uint64) (b [16]byte) {
	binary.LittleEndian.PutUint64(b[:], n*0x9e3779b97f4a7c15)
	binary.LittleEndian.PutUint64(b[8:], n)
	return b
}

// unknown is the n-th id that nothing is told of.
func unknown(n uint64) [16]byte { return id(n | 1<<62) }

// options plan a filter for so many ids of a window.
func options(keys int) bloom.Options {
	return bloom.Options{Window: window, Rate: float64(keys) / window.Seconds()}
}

// classic are the same options for the other kind.
func classic(keys int) bloom.Options {
	o := options(keys)
	o.Kind = bloom.Classic
	return o
}

// filled is an open filter as full as planned.
func filled(o bloom.Options) (*bloom.Filter, error) {
	f, feed, err := open(o)
	if err != nil {
		return nil, err
	}
	return f, fill(f, feed)
}

// open is a filter whose source is known to be empty and that is told of everything from here on.
func open(o bloom.Options) (*bloom.Filter, *bloom.Feed, error) {
	f, err := bloom.New(o)
	if err != nil {
		return nil, nil, err
	}
	feed := f.Begin(bloom.Source{Name: source})
	for gen := range int64(f.Plan().Generations) {
		if err := feed.Covered(-gen, 0); err != nil {
			return nil, nil, err
		}
	}
	return f, feed, feed.Open(time.Now().Add(time.Hour))
}

const source = "bench"

// fill gives every generation what it is planned for: id n to generation -(n mod generations).
// The ids below the number that the window was planned for are thus spread over all of them.
func fill(f *bloom.Filter, feed *bloom.Feed) error {
	p := f.Plan()
	all := uint64(p.Generations)
	for n := range p.SliceKeys * all {
		if err := feed.Add(-int64(n%all), id(n)); err != nil {
			return err
		}
	}
	return nil
}
