package redisadapter

import (
	"context"
	"math"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// KeysPerBucket is how many members a bucket is planned to have.
const KeysPerBucket = keysPerBucket

// SetClock makes a store believe that the server's clock is so far ahead of ours, until
// the next reading.
func SetClock(s *Store, ahead, by time.Duration) {
	s.clock.Mu.Lock()
	defer s.clock.Mu.Unlock()
	now := time.Now() // one moment for both, however long it takes to get here
	s.clock.Est = wire.Estimate{Server: now.Add(ahead), Received: now, Error: by}
}

// Idle makes a store as old as if it had been idle for d: what it knows of the server's clock, and
// what it has read of buckets.
func Idle(s *Store, d time.Duration) {
	s.clock.Asking.Lock()
	s.clock.Tried = s.clock.Tried.Add(-d)
	s.clock.Asking.Unlock()
	s.clock.Mu.Lock()
	s.clock.Est.Server, s.clock.Est.Received = s.clock.Est.Server.Add(-d),
		s.clock.Est.Received.Add(-d)
	s.clock.Mu.Unlock()
	for i := range s.buckets.filter.gens {
		slot := &s.buckets.filter.gens[i]
		if g := slot.Load(); g != nil {
			older := &filteredGeneration{generation: g.generation, since: g.since.Add(-d),
				buckets: g.buckets}
			older.confirmed.Store(g.confirmed.Load())
			slot.Store(older)
		}
	}
}

// LooksAtBuckets returns what a watcher does once a minute.
func LooksAtBuckets(s *Store) func(context.Context) {
	w := &watcher{s: s}
	return func(ctx context.Context) {
		w.sampled = time.Time{}
		w.checkFill(ctx)
	}
}

// Truncate keeps so many bits of the digests of a store.
func Truncate(s *Store, bits int) { s.buckets.mask = 1<<bits - 1 }

// DropByScript never drops a lease by a plain command.
func DropByScript(s *Store) { s.buckets.dropBy = math.MaxInt64 }

// LookEverywhere makes a store ask the server also for what it knows not to be there.
func LookEverywhere(s *Store) { s.buckets.filter.life = 0 }

// Bucket is the key of the bucket in which a key finished at a time, and Member what it
// holds then.
func Bucket(s *Store, id dedup.ID, at time.Time) string {
	return string(s.buckets.appendBucket(nil, s.buckets.place(id), at.UnixMilli()/s.buckets.window))
}

// Member is the digest of a key.
func Member(s *Store, id dedup.ID) int64 { return s.buckets.place(id).member }

// Skew is by how much the clocks of two servers may differ.
func Skew(s *Store) time.Duration { return time.Duration(s.buckets.skew) * time.Millisecond }

// AddCounts reports whether an add to the generation of a moment counts that is answered
// at another, and Closed, whether somebody who reads that time takes it for closed.
func AddCounts(s *Store, generation, at time.Time) bool {
	return !s.buckets.tooLate(generation.UnixMilli()/s.buckets.window, at)
}

// Closed: see AddCounts.
func Closed(s *Store, generation, at time.Time) bool {
	return s.buckets.closed(wire.Reading{At: at}, generation.UnixMilli()/s.buckets.window)
}
