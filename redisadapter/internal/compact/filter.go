package compact

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/redisadapter/internal/wire"
)

const (
	// filterBits are the bits that are kept of a bucket. With 235 members, one absent key in nine
	// meets a bit that is set, and asks the server as a member would.
	filterBits = 2048
	// filterShards bounds what a process keeps: 16 MiB of bits in each of two generations.
	filterShards = 1 << 16
	// filterAfter is how often a bucket is asked before it is read as a whole, which costs the
	// server as much as that many single questions.
	filterAfter = 10
	// filterMembers is the largest number of members of a bucket that is kept.
	filterMembers = 1024
	// filterLife is how long bits are believed. Nobody adds to the buckets, but somebody may have
	// restored the data of a server that was empty.
	filterLife = time.Minute
	// filterGap is how long bits are used without a new reading of the server's clock that shows
	// their generation to be closed.
	filterGap = wire.ClockLimit
)

// closedBucketFilter is a filter of the buckets of generations that nobody adds to any more. It
// knows that most new keys are not in a bucket, so their claims need not ask. A bucket that is
// rarely read is never in the server's caches, and asking it costs as much as the claim itself.
//
// For every other key the server is asked. So a member that is taken out of a bucket, or lost,
// makes no difference.
type closedBucketFilter struct {
	mu   sync.Mutex
	gens [2]atomic.Pointer[filteredGeneration]
	life time.Duration
}

// filteredGeneration has the buckets of one generation, by shard.
type filteredGeneration struct {
	generation int64
	since      time.Time
	confirmed  atomic.Int64 // when the generation was last found closed, after since
	buckets    []filteredBucket
}

type filteredBucket struct {
	asked atomic.Uint32 // since it was last read, or a read was tried
	bits  atomic.Pointer[bucketBits]
}

// bucketBits has a bit for each value of the lower bits of a digest that is a member.
type bucketBits [filterBits / 64]uint64

func (s *bucketBits) bit(member int64) (word *uint64, mask uint64) {
	i := uint64(member) % filterBits
	return &s[i/64], 1 << (i % 64)
}

// of returns what is known of a bucket, nil when there are too many shards.
func (f *closedBucketFilter) of(generation int64, p bucketPosition, shards uint64) *filteredBucket {
	if shards > filterShards {
		return nil
	}
	slot := &f.gens[generation&1]
	current := func(g *filteredGeneration) bool {
		return g != nil && g.generation == generation && time.Since(g.since) < f.life
	}
	g := slot.Load()
	if !current(g) {
		f.mu.Lock()
		if g = slot.Load(); !current(g) {
			g = &filteredGeneration{generation: generation, since: time.Now(),
				buckets: make([]filteredBucket, shards)}
			slot.Store(g)
		}
		f.mu.Unlock()
	}
	return &g.buckets[p.shard]
}

// recheck drops the bits of generations that are not closed by a reading. The clock of the server
// has then been set back, and its clients add to those buckets again:
//
//	a process reads a bucket of the generation before, and keeps its bits;
//	the clock steps back over the edge; another one completes a key, in that bucket;
//	the clock is put right; the bits still say that the key is not there.
//
// A process that has had no reading for a while may have missed both steps, and drops its
// bits, too. A read that is under way stores its bits in what has been dropped, so nobody uses
// them.
func (b *Layout) recheck(at wire.Reading) {
	if !at.Known() {
		return
	}
	for i := range b.filter.gens {
		slot := &b.filter.gens[i]
		g := slot.Load()
		if g == nil {
			continue
		}
		age := time.Since(g.since)
		if !b.closed(at, g.generation) || age-time.Duration(g.confirmed.Load()) > filterGap {
			slot.CompareAndSwap(g, nil)
			continue
		}
		g.confirmed.Store(int64(age))
	}
}

// lacks reports whether the bucket is known not to have the digest.
func (b *filteredBucket) lacks(member int64) bool {
	bits := b.bits.Load()
	if bits == nil {
		return false
	}
	word, mask := bits.bit(member)
	return *word&mask == 0
}

// due counts a look at the bucket, and reports whether it should be read as a whole.
func (b *filteredBucket) due() bool {
	return b.bits.Load() == nil && b.asked.Add(1) >= filterAfter
}

// keep keeps what was read. A bucket with too many members, or with one that is not a number, rules
// nothing out.
func (b *filteredBucket) keep(members []string) {
	bits := new(bucketBits)
	for _, text := range members {
		member, err := strconv.ParseInt(text, 10, 64)
		if err != nil || len(members) > filterMembers {
			for i := range bits {
				bits[i] = ^uint64(0)
			}
			break
		}
		word, mask := bits.bit(member)
		*word |= mask
	}
	b.bits.Store(bits)
}

// closed reports whether nobody adds to a generation any more. A plain command names the generation
// of a moment that has passed. It counts only if it was answered less than one skew after the end
// of that generation, by the clock of its server; scripts use that clock, too. It may be behind
// ours by another skew.
func (b *Layout) closed(at wire.Reading, generation int64) bool {
	return at.Known() && at.Millis() >= (generation+1)*b.window+2*b.skew
}

// tooLate reports whether an add to a generation that was answered at the moment at may have been
// executed when others already took the generation for closed.
func (b *Layout) tooLate(generation int64, at time.Time) bool {
	return at.UnixMilli() >= (generation+1)*b.window+b.skew
}
