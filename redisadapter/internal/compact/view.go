package compact

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// generations are those that must be searched to know that a key is not done: the generations of
// the window before now, and those to which somebody may be adding.
type generations struct{ first, last int64 }

// view returns the generations to search at a reading of the server's clock, whose moment passed at
// most the reading's error ago. Nearly always these are two. The skew on both sides is for the
// clocks of other servers: an add may use one that is ahead, or behind.
func (b *Layout) view(at wire.Reading) generations {
	if !at.Known() {
		return generations{} // covers nothing: the server answers with its time
	}
	late := at.At.Add(at.Error).UnixMilli() + 1
	return generations{first: max(at.Millis()-b.window-b.skew, 0) / b.window,
		last: (late + b.skew) / b.window}
}

// covers reports whether a view is still enough when the server's clock may have reached at.
func (v generations) covers(b *Layout, at time.Time) bool {
	return at.UnixMilli()+b.skew < (v.last+1)*b.window
}

// generation returns the generation to which a change adds at a reading: that of the moment which
// has certainly passed. Views reach back by the skew, too, so the member is remembered for a window
// from now, if the reading is exact.
func (b *Layout) generation(at wire.Reading) int64 { return at.Millis() / b.window }

// exact reports whether a reading is good enough to name a generation.
func (b *Layout) exact(at wire.Reading) bool {
	return at.Known() && at.Error.Milliseconds() < b.skew
}

// remembered returns how long the views of all processes still include a generation.
func (b *Layout) remembered(at wire.Reading, generation int64) time.Duration {
	return redisscript.FromMillis((generation+2)*b.window+b.skew-at.Millis()) - at.Error
}

// finite remembers to which buckets of the newest two generations this process has given an expiry.
// If that is lost, the next add to each bucket has two more commands.
type finite struct {
	mu   sync.Mutex
	gens [2]atomic.Pointer[endBits]
}

type endBits struct {
	generation int64
	shards     []atomic.Uint64 // a bit each
}

// has reports whether the bucket is known to have its expiry.
func (f *finite) has(generation int64, shard uint64) bool {
	e := f.gens[generation&1].Load()
	return e != nil && e.generation == generation && e.shards[shard/64].Load()&(1<<(shard%64)) != 0
}

// note remembers that the bucket has its expiry, unless the generation is an old one.
func (f *finite) note(generation int64, shard, shards uint64) {
	slot := &f.gens[generation&1]
	e := slot.Load()
	if e == nil || e.generation < generation {
		f.mu.Lock()
		if e = slot.Load(); e == nil || e.generation < generation {
			e = &endBits{generation, make([]atomic.Uint64, (shards+63)/64)}
			slot.Store(e)
		}
		f.mu.Unlock()
	}
	if e.generation == generation {
		e.shards[shard/64].Or(1 << (shard % 64))
	}
}
