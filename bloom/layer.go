package bloom

import (
	"math"
	"math/bits"
	"sync/atomic"
)

// sampleBlocks is how many blocks an estimate looks at.
const sampleBlocks = 4096

// layer is one split-block Bloom filter without a lock (Putze, Sanders and Singler, "Cache-, hash- and
// space-efficient Bloom filters"; the form of Impala and Parquet, with words of 64 bits): an id has
// one block, and in it one bit in each of the eight words.
type layer struct {
	blocks uint64
	words  []atomic.Uint64
}

func newLayer(bits uint64) *layer {
	blocks := bits / blockBits
	return &layer{blocks: blocks, words: make([]atomic.Uint64, blocks*blockWords)}
}

func (l *layer) bytes() uint64 { return uint64(len(l.words)) * 8 }

// block is the range of words that d sets its bits in.
func (l *layer) block(d digest) []atomic.Uint64 {
	at, _ := bits.Mul64(d.block, l.blocks)
	return l.words[at*blockWords:][:blockWords:blockWords]
}

// add sets the bits of d and reports whether one of them was new. What is set already is not
// written again: many goroutines read these lines.
func (l *layer) add(d digest) (fresh bool) {
	words := l.block(d)
	for i := range words {
		bit := uint64(1) << (d.bits >> (6 * i) & 63)
		if words[i].Load()&bit == 0 {
			words[i].Or(bit)
			fresh = true
		}
	}
	return fresh
}

func (l *layer) has(d digest) bool {
	words := l.block(d)
	for i := range words {
		if words[i].Load()>>(d.bits>>(6*i)&63)&1 == 0 {
			return false
		}
	}
	return true
}

// sample looks at up to sampleBlocks blocks, evenly spread: the share of bits that are set, and how
// often an id that was never added has all of its own. The rate is counted block by block and
// not computed from the fill, so it holds for ids that are spread unevenly as well.
func (l *layer) sample() (fill, rate float64) {
	step := max(1, l.blocks/sampleBlocks)
	looked := 0.0
	for at := uint64(0); at < l.blocks; at += step {
		hit := 1.0
		for i := range blockWords {
			share := float64(bits.OnesCount64(l.words[at*blockWords+uint64(i)].Load())) / 64
			fill += share / blockWords
			hit *= share
		}
		rate += hit
		looked++
	}
	return fill / looked, rate / looked
}

// keys is how many ids make such a fill.
func (l *layer) keys(fill float64) float64 {
	fill = min(fill, 1-1.0/float64(l.blocks*blockBits+1)) // a full one says "at least"
	return float64(l.blocks) * math.Log(1-fill) / math.Log(63.0/64)
}
