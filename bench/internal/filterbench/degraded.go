package filterbench

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dchest/siphash"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bloom"
)

// degraded: what is left of a filter that is overloaded, attacked, emptied or read from a snapshot
// that was damaged. An id that was fed and is called new would be a second effect.
func (e *env) degraded(all *harness.Groups) {
	keys := min(40_000, e.most())
	add := func(title string, measure func(s *harness.Setup, keys int)) {
		all.Add("degraded", 0, title,
			func(_ context.Context, s *harness.Setup) { measure(s, keys) })
	}
	add("ten times the plan, no more memory", overloaded("10x the plan, no more memory", 1))
	add("ten times the plan, 20 times the memory",
		overloaded("10x the plan, up to 20x the memory", 20))
	add("crafted ids", crafted)
	add("emptied", emptied)
	add("damaged snapshot", damaged)
}

// none of what is counted may be there.
func none(s *harness.Setup, name, side string, count int, unit string) {
	s.Figure(name, side, float64(count), unit).Wants(harness.Goal("<= 0 " + unit))
}

func share(n, of int) float64 { return 100 * float64(n) / float64(of) }

func overloaded(name string, memory uint64) func(s *harness.Setup, keys int) {
	return func(s *harness.Setup, keys int) {
		o := options(keys)
		plan := must.Get(o.Plan())
		o.MaxBytes = int64(memory * plan.Bytes)
		f, _ := open(o)
		n := int(10 * plan.SliceKeys)
		each(id, f.Add)(0, uint64(n))
		fed, fresh := answersOf(f, n, id), answersOf(f, n, unknown)
		grown := float64(f.Stats().Bytes) / float64(plan.Bytes/uint64(plan.Generations))
		none(s, name+": ids that were fed and are New", "fed", fed[bloom.ProvenNew], "ids")
		of := func(answer, side string, count int) {
			s.Figure(name+": new ids that are "+answer, side, share(count, n), "%")
		}
		of("New", "new", fresh[bloom.ProvenNew])
		of("Maybe", "maybe", fresh[bloom.Maybe])
		of("Unknown(Saturated)", "unknown", fresh[bloom.Unknown])
		s.Figure(name+": memory of the generation", "memory", grown, "times the plan")
	}
}

func answersOf(f *bloom.Filter, n int, id func(uint64) [16]byte) (count [3]int) {
	for i := range n {
		answer, _ := f.Check(id(uint64(i)))
		count[answer]++
	}
	return count
}

// crafted counts victims after an attacker, who knows one secret, had ids of his choice added.
func crafted(s *harness.Setup, keys int) {
	const victims = 16
	known := [16]byte{}
	o := options(keys)
	plan := must.Get(o.Plan())
	var ids [][16]byte
	for n := range uint64(victims) {
		ids = append(ids, craft(known, unknown(n), plan.Bits/512, n<<32)...)
	}
	s.Figure("crafted ids that make one victim Maybe", "attacker", float64(len(ids))/victims, "ids")
	under := func(name string, secret []byte) *harness.Row {
		o.Secret = secret
		f, _ := open(o)
		for _, id := range ids {
			f.Add(id)
		}
		maybe := answersOf(f, victims, unknown)[bloom.Maybe]
		return s.Figure(name, "victims", share(maybe, victims), "%")
	}
	under("victims that are Maybe, secret known to the attacker", known[:])
	under("victims that are Maybe, random secret (default)", nil).Wants("<= 0 %")
}

// emptied is a process that begins again, with and without a feed that is loading.
func emptied(s *harness.Setup, keys int) {
	f := must.Get(bloom.New(options(keys)))
	before := answersOf(f, keys, id)
	f.Begin(source)
	loading := answersOf(f, keys, id)
	const fed = "ids that were fed to another process and are New"
	none(s, "emptied, no feed: "+fed, "no feed", before[bloom.ProvenNew], "ids")
	none(s, "emptied, loading: "+fed, "loading", loading[bloom.ProvenNew], "ids")
}

// damaged flips a byte of a snapshot at a time.
func damaged(s *harness.Setup, _ int) {
	const flips = 400
	o := stored(400)
	var good bytes.Buffer
	must.Do(filled(o).Save(&good))
	g := must.Get(bloom.New(o))
	g.Begin(source)
	random, accepted := rand.New(rand.NewPCG(1, 2)), 0
	for range flips {
		bad := bytes.Clone(good.Bytes())
		bad[random.IntN(len(bad))] ^= byte(1 + random.IntN(255))
		if _, err := g.Load(bytes.NewReader(bad), source); err == nil {
			accepted++
		}
	}
	// The one that was not damaged is loaded.
	must.Get(g.Load(bytes.NewReader(good.Bytes()), source))
	none(s, fmt.Sprintf("snapshots with a byte changed that were accepted, of %d", flips),
		"damaged", accepted, "snapshots")
}

// positions is where an id has its bits in a generation of so many blocks. An attacker who knows
// the secret computes it, because the source of package bloom is public.
func positions(secret, id [16]byte, blocks uint64) (block, bit uint64) {
	first, second := siphash.Hash128(binary.LittleEndian.Uint64(secret[:]),
		binary.LittleEndian.Uint64(secret[8:]), id[:])
	block, _ = bits.Mul64(first, blocks)
	return block, second
}

// craft searches ids that together set all bits of victim: one in each of the eight words of its
// block.
func craft(secret, victim [16]byte, blocks, from uint64) (ids [][16]byte) {
	target, wanted := positions(secret, victim, blocks)
	for n, have := from, uint8(0); have != 0xff; n++ {
		block, set := positions(secret, id(n), blocks)
		shared := have
		for i := range 8 {
			if block == target && (set^wanted)>>(6*i)&63 == 0 {
				shared |= 1 << i
			}
		}
		if shared != have {
			have, ids = shared, append(ids, id(n))
		}
	}
	return ids
}

// rates: how often an id that was never added is Maybe, next to what was planned.
func (e *env) rates(all *harness.Groups) {
	const estimated = "estimated from the bits"
	for _, goal := range []float64{1e-2, 1e-3, 1e-4} {
		name := fmt.Sprintf("false positives at a goal of %g, ", goal)
		all.Add("false positives", 0, fmt.Sprintf("false positives, planned %g", goal),
			func(_ context.Context, s *harness.Setup) {
				o := options(min(1_000_000, e.most())) // rates do not depend on it
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

// rotation: what a Check and an Add meet when a slice of time is over.
func (e *env) rotation(all *harness.Groups) {
	title := fmt.Sprintf("rotation, %s ids", harness.Short(e.most()))
	all.Add("rotation", e.most(), title, e.measureRotation)
}

func (e *env) measureRotation(ctx context.Context, s *harness.Setup) {
	var clock atomic.Int64 // stands until it is moved
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
		most, _ = slowest(f, func() { answersOf(f, checks, unknown) }) // about as long
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

// slowest is the longest Check of another goroutine while do runs, and how many it made.
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

// snapshots: how long it takes to save and load all ids of a window, and to add them one by one.
func (e *env) snapshots(all *harness.Groups) {
	title := fmt.Sprintf("save and load, %s ids", harness.Short(e.most()))
	all.Add("snapshot", e.most(), title, e.measureSnapshots)
}

func (e *env) measureSnapshots(ctx context.Context, s *harness.Setup) {
	f := filled(stored(e.most()))
	file := must.Get(os.CreateTemp(e.dir, "onceward-bench"))
	s.Defer(func() error { return errors.Join(file.Close(), os.Remove(file.Name())) })
	const most = "<= 3 s"
	steps := []struct {
		name, of string // of: empty: the file
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
}

// loadFrom reads into a new filter, which has to be covered by it but for the newest generation.
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
