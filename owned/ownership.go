package owned

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/bloom"
)

// What is wrong with a partition; test with errors.Is.
var (
	// ErrLost: the partition is not ours any more. It is the cause with which Ownership.Context ends.
	ErrLost = errors.New("owned: partition lost")
	// ErrAmnesia: Redis has lost marks of the partition. Nobody acquires it until an operator has
	// called [Boot].
	ErrAmnesia = errors.New("owned: Redis has lost what it knew of the partition")
	// ErrCount: the source has had more partitions than Partition.Count says.
	ErrCount = errors.New("owned: fewer partitions than are on record")
	// ErrReleased is the cause with which Ownership.Context ends after Release.
	ErrReleased = errors.New("owned: partition released")
)

// HeldError: somebody else holds the partition.
type HeldError struct {
	// Remaining is how much longer the lease lasts, unless it is renewed.
	Remaining time.Duration
}

// Error implements error.
func (e *HeldError) Error() string {
	return fmt.Sprintf("owned: partition is held for another %v", e.Remaining)
}

// TEMPORARY, for the two who write this package at the same time; gone by the end.
//
// ownload writes load.go, fold.go, snapshot.go, mapping.go, shared.go in place of pending.go:
//
//	func (s *Store) agree(ctx) error
//	    New: the map record is there (else ErrNotBooted) and has our version, secret digest, key id,
//	    window, hold, slices, buckets.
//	func (s *Store) mapped(ctx, Partition) (version uint64, err error)
//	    Acquire calls it first, and again after OwnRemapped: registers the source, finishes or begins
//	    a change of the count (steps 1-3), ErrCount for a lower one. The map version to claim under.
//	func (s *Store) everywhere(ctx) ([]spot, error)
//	    every partition of every source on record, for Lookup and Forget of an ID alone.
//	func (o *Ownership) load(ctx) error
//	    one try: everything of o's generations is fed to o.feed and said to be Covered. It runs in a
//	    goroutine of own, which repeats it with backoff, and calls o.feed.Open when it is nil. On
//	    ErrAmnesia it has written `lost` before it returns. ctx ends with the ownership. o.head is
//	    what was read after the epoch was raised.
//	func (o *Ownership) fold(ctx) error
//	    called beside renewals, one at a time, only when loaded: folds every set that is not the newest
//	    of its generation (own begins a new set by itself: o.sets[g].Newest++ at 16 Ki members), and
//	    all of those that nothing is written to any more.
//	func (o *Ownership) save(ctx) error
//	    the same, after each generation and once a minute: snapshots of closed generations.
//	func (o *Ownership) elsewhere(ctx, members []int64) ([]elsewhere, error)
//	    the foreign ask of shared mode, in all other partitions.
//	func (o *Ownership) Misplaced(ctx) error       (whole, exported)
//	func Boot(ctx, client, Options) error          (whole, exported)
//
// own provides: s.opts (complete), s.members (of, bucket; touched, done), o.names (keys(), fresh,
// bucket), o.sets (redisscript.OwnGen per generation) under o.mu, o.lose(err) which ends the Context,
// o.self() redisscript.OwnSelf, s.send(ctx, ...Call) []OwnReply (retries nothing, returns when ctx ends
// or Lease/4 has passed), s.readHead(ctx, *names) (*OwnState, error), o.heard(*OwnReply), to be called
// with every reply of o's own partition: seq, clock, shared_until, forgets, Newest.
//
// ownload to own: the filter must be fed and asked with filterKey(member) (filterkey.go), never with the
// ID: the loader has nothing but members. load itself calls o.openFeed() before it returns nil, and covers
// what began meanwhile. fold sets o.sets[g].folding under o.folds and o.mu before members move, and
// raises o.sets[g].Folded after. Snapshots.Store gets one argument more, how long to keep it.
// For the shared path there is also o.outside(ctx, members) below elsewhere, see shared.go.

// spot is a partition on record.
type spot struct {
	place
	names
}

// elsewhere is what the other partitions know of a member.
type elsewhere struct {
	done bool // marked
	live bool // begun under an owner that lives
	runs int  // dead epochs in whose begins it is
}

// Ownership is the right to a partition, from Acquire to Release or to its loss.
type Ownership struct {
	s     *Store
	part  Partition
	names names

	ctx context.Context
	end context.CancelCauseFunc

	filter *bloom.Filter
	feed   *bloom.Feed

	clock atomic.Int64 // ms since 1970, as last heard of the server
	valid atomic.Int64 // until when we hold the partition: monotonic ns since Store.born

	mu          sync.Mutex
	token       [16]byte
	epoch       uint64
	seq         uint64 // the largest heard
	mapver      uint64
	sharedUntil time.Duration // of the server's clock, since 1970
	forgets     uint64
	gen         int64 // the generation that marks are written to
}

// Context ends when the partition is lost (its cause is then [ErrLost], or [ErrAmnesia]) or released
// ([ErrReleased]). Handlers of the partition's messages run under it.
func (o *Ownership) Context() context.Context { return o.ctx }
