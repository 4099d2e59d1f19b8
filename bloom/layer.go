package bloom

import (
	"math"
	"math/bits"
	"sync/atomic"
)

// sampleBlocks is how many blocks an estimate looks at.
const sampleBlocks = 4096

// layer holds ids in blocks, or in a classic filter if it has no blocks.
//
// Blocks are a split-block Bloom filter without a lock: an id has one block, and in it one bit in
// each of the eight words. The design is that of Putze, Sanders and Singler, "Cache-, hash- and
// space-efficient Bloom filters", in the form of Impala and Parquet, with words of 64 bits.
type layer struct {
	blocks  []block
	classic *classic
}

// block is exactly one cache line, because Go aligns an array of many blocks to a page.
type block [blockWords]atomic.Uint64

func newLayer(bits uint64) *layer { return &layer{blocks: make([]block, bits/blockBits)} }

// newLayer makes a layer of the filter's kind.
func (f *Filter) newLayer(bits uint64) *layer {
	if f.opts.Kind == Classic {
		return &layer{classic: newClassic(bits, f.plan.Hashes)}
	}
	return newLayer(bits)
}

// words returns the number of 64-bit words of the layer.
func (l *layer) words() int {
	if l.classic != nil {
		return len(l.classic.words)
	}
	return len(l.blocks) * blockWords
}

func (l *layer) bytes() uint64 { return uint64(l.words()) * 8 }

// block returns the block in which d sets its bits.
func (l *layer) block(d digest) *block {
	at, _ := bits.Mul64(d.block, uint64(len(l.blocks)))
	return &l.blocks[at]
}

// bit returns the bit that d sets in word i of its block.
func (d digest) bit(i int) uint64 { return 1 << (d.bits >> (6 * i) & 63) }

// add sets the bits of d and reports whether one of them was new. It does not write bits that are
// set already, because many goroutines read these cache lines.
func (l *layer) add(d digest) (fresh bool) {
	if l.classic != nil {
		return l.classic.add(d)
	}
	b := l.block(d)
	for i := range b {
		if bit := d.bit(i); b[i].Load()&bit == 0 {
			b[i].Or(bit)
			fresh = true
		}
	}
	return fresh
}

// touch reads one word of d's block and does not wait for it: see find.
func (l *layer) touch(d digest) {
	if l.classic == nil {
		l.block(d)[0].Load()
	}
}

// mask is the first half of what an id needs in a block, computed once for all generations.
type mask [blockWords / 2]uint64

func (d digest) mask() mask { return mask{d.bit(0), d.bit(1), d.bit(2), d.bit(3)} }

// half looks at four words without a branch between them. In a block that is filled as planned, all
// four bits are set once in a hundred times, so the processor nearly always predicts the one
// branch. It would mispredict a branch for each word in every generation.
func (b *block) half(m *mask) bool {
	return ^b[0].Load()&m[0]|^b[1].Load()&m[1]|^b[2].Load()&m[2]|^b[3].Load()&m[3] == 0
}

// rest looks at the words that half does not.
func (b *block) rest(d digest) bool {
	for i := len(mask{}); i < len(b); i++ {
		if b[i].Load()&d.bit(i) == 0 {
			return false
		}
	}
	return true
}

// sample looks at about sampleBlocks blocks, evenly spread. It returns the share of bits that are
// set, and how often an id that was never added has all of its bits set. The rate is counted
// block by block and not computed from the fill, so it also holds for ids that are spread unevenly.
func (l *layer) sample() (fill, rate float64) {
	if l.classic != nil {
		return l.classic.sample()
	}
	step := max(1, len(l.blocks)/sampleBlocks)
	looked := 0.0
	for at := 0; at < len(l.blocks); at += step {
		hit := 1.0
		for i := range l.blocks[at] {
			share := float64(bits.OnesCount64(l.blocks[at][i].Load())) / 64
			fill += share / blockWords
			hit *= share
		}
		rate += hit
		looked++
	}
	return fill / looked, rate / looked
}

// keys estimates how many ids were added from fill, the share of bits that are set.
func (l *layer) keys(fill float64) float64 {
	if l.classic != nil {
		return l.classic.keys(fill)
	}
	blocks := float64(len(l.blocks))
	fill = min(fill, 1-1/(blocks*blockBits+1)) // if all bits are set, the least that it can be
	return blocks * math.Log(1-fill) / math.Log(63.0/64)
}

// load fills words with those of the layer, from word number at on. Bits may be added meanwhile.
func (l *layer) load(at int, words []uint64) {
	if l.classic != nil {
		l.classic.load(at, words)
		return
	}
	for i := range words {
		words[i] = l.blocks[(at+i)/blockWords][(at+i)%blockWords].Load()
	}
}

// or adds the bits of words to the layer, from word number at on.
func (l *layer) or(at int, words []uint64) {
	if l.classic != nil {
		l.classic.or(at, words)
		return
	}
	for i, word := range words {
		if word != 0 {
			l.blocks[(at+i)/blockWords][(at+i)%blockWords].Or(word)
		}
	}
}

// merge adds the bits of a layer of the same size.
func (l *layer) merge(other *layer) {
	buf := make([]uint64, min(chunk/8, other.words()))
	for at := 0; at < other.words(); at += len(buf) {
		words := buf[:min(len(buf), other.words()-at)]
		other.load(at, words)
		l.or(at, words)
	}
}
