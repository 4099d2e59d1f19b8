package bloom

import (
	"encoding/binary"
	"math"
	"math/bits"
	"sync"

	peer "github.com/bits-and-blooms/bloom/v3"
)

// classic is a Bloom filter of bits-and-blooms behind a lock. The k bits of an id may lie anywhere.
// The library's own hash has no key, so it gets the SipHash of the id, which nobody can choose.
type classic struct {
	mu    sync.RWMutex
	f     *peer.BloomFilter
	words []uint64 // the bits of f
}

func newClassic(size uint64, hashes int) *classic {
	words := make([]uint64, size/64)
	return &classic{f: peer.FromWithM(words, uint(size), uint(hashes)), words: words}
}

// key returns the digest as bytes.
func (d digest) key() (b [16]byte) {
	binary.LittleEndian.PutUint64(b[:], d.block)
	binary.LittleEndian.PutUint64(b[8:], d.bits)
	return b
}

// add sets the bits of d and reports whether one of them was new.
func (c *classic) add(d digest) (fresh bool) {
	key := d.key()
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.f.TestAndAdd(key[:])
}

func (c *classic) has(d digest) bool {
	key := d.key()
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.f.Test(key[:])
}

// sample returns the share of bits that are set, and how often an id that was never added has all
// of its bits set. It looks at about as many words as a sample of blocks has.
func (c *classic) sample() (fill, rate float64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	step := max(1, len(c.words)/(sampleBlocks*blockWords))
	set, looked := 0, 0
	for at := 0; at < len(c.words); at += step {
		set += bits.OnesCount64(c.words[at])
		looked++
	}
	fill = float64(set) / float64(64*looked)
	return fill, math.Pow(fill, float64(c.f.K()))
}

// keys estimates how many ids were added from fill, the share of bits that are set.
func (c *classic) keys(fill float64) float64 {
	size := float64(c.f.Cap())
	fill = min(fill, 1-1/(size+1)) // if all bits are set, the least that it can be
	return -size / float64(c.f.K()) * math.Log(1-fill)
}

func (c *classic) load(at int, words []uint64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	copy(words, c.words[at:])
}

func (c *classic) or(at int, words []uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, word := range words {
		c.words[at+i] |= word
	}
}

// classicBits returns the number of bits per key that reach the goal, and how many of them a key
// sets (Bloom's formula:
// https://en.wikipedia.org/wiki/Bloom_filter#Optimal_number_of_hash_functions).
func classicBits(goal float64) (perKey float64, hashes int) {
	hashes = max(1, int(math.Round(-math.Log2(goal))))
	// The rounded k is not quite the best one, so compute the bits that are enough for it.
	return -float64(hashes) / math.Log(1-math.Pow(goal, 1/float64(hashes))), hashes
}

// classicRate returns the expected rate of false positives.
func classicRate(perKey float64, hashes int) float64 {
	return math.Pow(1-math.Exp(-float64(hashes)/perKey), float64(hashes))
}
