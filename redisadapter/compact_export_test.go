package redisadapter

import (
	"context"
	"time"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/redisadapter/internal/compact"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// KeysPerBucket is how many members a bucket is planned to have.
const KeysPerBucket = compact.KeysPerBucket

// SetClock makes a store believe, until the next reading, that the server's clock is ahead of ours
// by ahead, and that this may be wrong by by.
func SetClock(s *Store, ahead, by time.Duration) {
	s.engine.Clock.Mu.Lock()
	defer s.engine.Clock.Mu.Unlock()
	now := time.Now() // one moment for both, however long it takes to get here
	s.engine.Clock.Est = wire.Estimate{Server: now.Add(ahead), Received: now, Error: by}
}

// Idle makes what a store knows of the server's clock, and what it has read of buckets, older by d,
// as if it had been idle.
func Idle(s *Store, d time.Duration) {
	s.engine.Clock.Asking.Lock()
	s.engine.Clock.Tried = s.engine.Clock.Tried.Add(-d)
	s.engine.Clock.Asking.Unlock()
	s.engine.Clock.Mu.Lock()
	s.engine.Clock.Est.Server, s.engine.Clock.Est.Received = s.engine.Clock.Est.Server.Add(-d),
		s.engine.Clock.Est.Received.Add(-d)
	s.engine.Clock.Mu.Unlock()
	if s.buckets != nil {
		s.buckets.Idle(d)
	}
}

// LooksAtBuckets returns the check that a watcher makes once a minute.
func LooksAtBuckets(s *Store) func(context.Context) {
	w := &watcher{s: s}
	return func(ctx context.Context) {
		w.fill.Sampled = time.Time{}
		w.checkFill(ctx)
	}
}

// Truncate makes a store use only so many bits of a digest.
func Truncate(s *Store, bits int) { s.buckets.Truncate(bits) }

// DropByScript makes a store drop every lease by a script.
func DropByScript(s *Store) { s.buckets.DropByScript() }

// LookEverywhere makes a store also ask the server for members that it knows to be absent.
func LookEverywhere(s *Store) { s.buckets.LookEverywhere() }

// Bucket returns the key of the bucket to which id is added at a time. The bucket then contains
// Member(s, id).
func Bucket(s *Store, id driver.ID, at time.Time) string {
	return s.buckets.Bucket(id, at)
}

// Member is the digest of a key.
func Member(s *Store, id driver.ID) int64 {
	_, member := s.buckets.Place(id)
	return member
}

// Skew is by how much the clocks of two servers may differ.
func Skew(s *Store) time.Duration { return s.buckets.Skew() }

// AddCounts reports whether an add to the generation of a time counts that is answered at another
// time. Closed reports whether a process that reads that other time finds the generation closed.
func AddCounts(s *Store, generation, at time.Time) bool {
	return s.buckets.AddCounts(generation, at)
}

// Closed: see AddCounts.
func Closed(s *Store, generation, at time.Time) bool {
	return s.buckets.Closed(generation, at)
}

// Shards is the number of shards of the layout Compact, 0 in Full.
func Shards(s *Store) int { return s.opts.Shards() }
