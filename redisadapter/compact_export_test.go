package redisadapter

import (
	"context"
	"math"
	"time"

	"github.com/onceward/onceward/dedup"
)

// KeysPerBucket is how many members a bucket is planned to have.
const KeysPerBucket = keysPerBucket

// SetClock makes a store believe that the server's clock is so far ahead of ours, until
// the next reading.
func SetClock(s *Store, ahead, by time.Duration) {
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	now := time.Now() // one moment for both, however long it takes to get here
	s.clock.est = estimate{server: now.Add(ahead), received: now, error: by}
}

// Idle makes a store as old as if it had been idle for d: what it knows of the server's clock, and
// what it has read of buckets.
func Idle(s *Store, d time.Duration) {
	s.clock.asking.Lock()
	s.clock.tried = s.clock.tried.Add(-d)
	s.clock.asking.Unlock()
	s.clock.mu.Lock()
	s.clock.est.server, s.clock.est.received = s.clock.est.server.Add(-d),
		s.clock.est.received.Add(-d)
	s.clock.mu.Unlock()
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
	return s.buckets.closed(reading{at: at}, generation.UnixMilli()/s.buckets.window)
}
