package bloom

import (
	"math"
	"sync/atomic"
)

// generation holds the ids of one slice of time in layers of bits, each twice the size of the one
// before. Only the last one takes new ids; all of them are looked at. Bits are only ever added.
type generation struct {
	index  int64
	layers atomic.Pointer[[]*layer] // nil until the first id
	// every Check reads what is above, and every Add writes what is below
	_     [64]byte
	fresh atomic.Uint64 // ids that set a new bit, since it was made
	fill  atomic.Uint64 // bits of a float64: of all layers, as last sampled
	// bits of a float64: false positives of this generation, as last sampled
	rate    atomic.Uint64
	through uint64 // under Filter.mu: up to where the source was fed
}

func (g *generation) all() []*layer {
	if p := g.layers.Load(); p != nil {
		return *p
	}
	return nil
}

// has contains no call for Blocked, so the processor requests the blocks of all generations before
// the first one has arrived.
func (g *generation) has(d digest, m *mask) bool {
	for _, l := range g.all() {
		if len(l.blocks) == 0 {
			if l.classic.has(d) {
				return true
			}
		} else if b := l.block(d); b.half(m) && b.rest(d) {
			return true
		}
	}
	return false
}

func (g *generation) bytes() (n uint64) {
	for _, l := range g.all() {
		n += l.bytes()
	}
	return n
}

func (g *generation) estimated() float64 { return math.Float64frombits(g.rate.Load()) }

// sample estimates from the bits that are there, never from what was planned. last is the rate of
// the layer that takes new ids, keys the number of ids in all.
func (g *generation) sample() (last, keys float64) {
	var set, total float64
	passes := 1.0
	for _, l := range g.all() {
		fill, rate := l.sample()
		size := float64(l.words())
		set, total = set+fill*size, total+size
		passes *= 1 - rate
		last = rate
		keys += l.keys(fill)
	}
	if total > 0 {
		g.fill.Store(math.Float64bits(set / total))
	}
	g.rate.Store(math.Float64bits(1 - passes))
	return last, keys
}
