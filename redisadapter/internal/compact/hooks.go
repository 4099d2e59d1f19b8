package compact

import (
	"math"
	"time"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// KeysPerBucket is how many members a bucket is planned to have.
const KeysPerBucket = keysPerBucket

// Idle makes what a layout has read of buckets older by d, for tests.
func (b *Layout) Idle(d time.Duration) {
	for i := range b.filter.gens {
		slot := &b.filter.gens[i]
		if g := slot.Load(); g != nil {
			older := &filteredGeneration{generation: g.generation, since: g.since.Add(-d),
				buckets: g.buckets}
			older.confirmed.Store(g.confirmed.Load())
			slot.Store(older)
		}
	}
}

// Truncate keeps only bits bits of the digests, for tests that want collisions.
func (b *Layout) Truncate(bits int) { b.mask = 1<<bits - 1 }

// DropByScript makes the layout never drop a lease by a plain command, for tests.
func (b *Layout) DropByScript() { b.dropBy = math.MaxInt64 }

// LookEverywhere makes a test ask the server also for keys that the filter knows to be absent.
func (b *Layout) LookEverywhere() { b.filter.life = 0 }

// Bucket returns the key of the bucket in which a key finished at a time.
func (b *Layout) Bucket(id driver.ID, at time.Time) string {
	return string(b.appendBucket(nil, b.place(id), at.UnixMilli()/b.window))
}

// Place returns the shard of a key, and Member what a bucket holds of it.
func (b *Layout) Place(id driver.ID) (shard uint64, member int64) {
	p := b.place(id)
	return p.shard, p.member
}

// Skew is by how much the clocks of two servers may differ.
func (b *Layout) Skew() time.Duration { return time.Duration(b.skew) * time.Millisecond }

// AddCounts reports whether an add to the generation of one moment counts when it is answered at
// another.
func (b *Layout) AddCounts(generation, at time.Time) bool {
	return !b.tooLate(generation.UnixMilli()/b.window, at)
}

// Closed reports whether a process that reads the time at takes the generation of a moment for
// closed.
func (b *Layout) Closed(generation, at time.Time) bool {
	return b.closed(wire.Reading{At: at}, generation.UnixMilli()/b.window)
}
