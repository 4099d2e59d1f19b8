package filterbench

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"

	"github.com/dchest/siphash"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bloom"
)

// degradedKeys is the most that filters are planned for that get too much.
const degradedKeys = 40_000

// degraded: what is left of a filter that is overloaded, attacked, emptied or read from a snapshot
// that was damaged. An id that was fed and is called new would be a second effect.
func (e *env) degraded() (all []harness.Group) {
	keys := min(degradedKeys, e.most())
	add := func(title string, measure func(rows figures, keys int)) {
		all = append(all, harness.Group{Workload: "degraded", Title: title,
			Open: func(_ context.Context, s *harness.Setup) { measure(figures{s}, keys) }})
	}
	add("ten times the plan, no more memory", func(rows figures, keys int) {
		overloaded(rows, "10x the plan, no more memory", keys, 1)
	})
	add("ten times the plan, 20 times the memory", func(rows figures, keys int) {
		overloaded(rows, "10x the plan, up to 20x the memory", keys, 20)
	})
	add("crafted ids", crafted)
	add("emptied", emptied)
	add("damaged snapshot", damaged)
	return all
}

// figures are the rows of a group that measures by itself.
type figures struct{ *harness.Setup }

func (f figures) add(name, side string, value float64, unit string, goal harness.Goal) {
	f.Row(harness.Figure(name, side, value, unit, goal))
}

func share(n, of int) float64 { return 100 * float64(n) / float64(of) }

var noGoal harness.Goal

func none(unit string) harness.Goal { return harness.ValueAtMost(0, 0, unit) }

// overloaded fills the newest generation with ten times its plan.
func overloaded(rows figures, name string, keys int, memory uint64) {
	o := options(keys)
	plan := must.Get(o.Plan())
	o.MaxBytes = int64(memory * plan.Bytes)
	f, _ := open(o)
	n := int(10 * plan.SliceKeys)
	for i := range n {
		f.Add(id(uint64(i)))
	}
	fed, fresh := answersOf(f, n, id), answersOf(f, n, unknown)
	grown := float64(f.Stats().Bytes) / float64(plan.Bytes/uint64(plan.Generations))
	rows.add(name+": ids that were fed and are New", "fed", float64(fed[bloom.ProvenNew]), "ids",
		none("ids"))
	rows.add(name+": new ids that are New", "new", share(fresh[bloom.ProvenNew], n), "%", noGoal)
	rows.add(name+": new ids that are Maybe", "maybe", share(fresh[bloom.Maybe], n), "%", noGoal)
	rows.add(name+": new ids that are Unknown(Saturated)", "unknown",
		share(fresh[bloom.Unknown], n), "%", noGoal)
	rows.add(name+": memory of the generation", "memory", grown, "times the plan", noGoal)
}

func answersOf(f *bloom.Filter, n int, id func(uint64) [16]byte) (count [3]int) {
	for i := range n {
		answer, _ := f.Check(id(uint64(i)))
		count[answer]++
	}
	return count
}

// crafted counts victims after an attacker, who knows one secret, had ids of his choice added.
func crafted(rows figures, keys int) {
	const victims = 16
	known := [16]byte{}
	o := options(keys)
	plan := must.Get(o.Plan())
	var ids [][16]byte
	for n := range uint64(victims) {
		ids = append(ids, craft(known, unknown(n), plan.Bits/512, n<<32)...)
	}
	rows.add("crafted ids that make one victim Maybe", "attacker", float64(len(ids))/victims, "ids",
		noGoal)
	under := func(name string, secret []byte, goal harness.Goal) {
		o.Secret = secret
		f, _ := open(o)
		for _, id := range ids {
			f.Add(id)
		}
		maybe := answersOf(f, victims, unknown)[bloom.Maybe]
		rows.add(name, "victims", share(maybe, victims), "%", goal)
	}
	under("victims that are Maybe, secret known to the attacker", known[:], noGoal)
	under("victims that are Maybe, random secret (default)", nil, none("%"))
}

// emptied is a process that begins again, with and without a feed that is loading.
func emptied(rows figures, keys int) {
	f := must.Get(bloom.New(options(keys)))
	before := answersOf(f, keys, id)
	f.Begin(bloom.Source{Name: source})
	loading := answersOf(f, keys, id)
	const fed = "ids that were fed to another process and are New"
	rows.add("emptied, no feed: "+fed, "no feed", float64(before[bloom.ProvenNew]), "ids",
		none("ids"))
	rows.add("emptied, loading: "+fed, "loading", float64(loading[bloom.ProvenNew]), "ids",
		none("ids"))
}

// damaged flips a byte of a snapshot at a time.
func damaged(rows figures, _ int) {
	const flips = 400
	o := stored(400)
	var good bytes.Buffer
	must.Do(filled(o).Save(&good))
	g := must.Get(bloom.New(o))
	g.Begin(bloom.Source{Name: source})
	random, accepted := rand.New(rand.NewPCG(1, 2)), 0
	for range flips {
		bad := bytes.Clone(good.Bytes())
		bad[random.IntN(len(bad))] ^= byte(1 + random.IntN(255))
		if _, err := g.Load(bytes.NewReader(bad), bloom.Source{Name: source}); err == nil {
			accepted++
		}
	}
	// The one that was not damaged is loaded.
	must.Get(g.Load(bytes.NewReader(good.Bytes()), bloom.Source{Name: source}))
	rows.add(fmt.Sprintf("snapshots with a byte changed that were accepted, of %d", flips),
		"damaged", float64(accepted), "snapshots", none("snapshots"))
}

// positions is where an id has its bits in a generation. An attacker who knows the secret computes
// it, because the source of package bloom is public.
type positions struct{ block, bits uint64 }

func positionsOf(secret, id [16]byte, blocks uint64) positions {
	first, second := siphash.Hash128(binary.LittleEndian.Uint64(secret[:]),
		binary.LittleEndian.Uint64(secret[8:]), id[:])
	block, _ := bits.Mul64(first, blocks)
	return positions{block: block, bits: second}
}

// shared is the set of words in which two ids of one block have the same bit.
func (s positions) shared(other positions) (words uint8) {
	for i := range 8 {
		if s.block == other.block && (s.bits^other.bits)>>(6*i)&63 == 0 {
			words |= 1 << i
		}
	}
	return words
}

// craft searches ids that together set all bits of victim in a generation of so many blocks, each
// of them at least one more.
func craft(secret, victim [16]byte, blocks, from uint64) (ids [][16]byte) {
	target, have := positionsOf(secret, victim, blocks), uint8(0)
	for n := from; have != 0xff; n++ {
		more := positionsOf(secret, id(n), blocks).shared(target)
		if more&^have != 0 {
			have |= more
			ids = append(ids, id(n))
		}
	}
	return ids
}
