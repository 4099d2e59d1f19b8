package driver

import (
	"context"
	"time"
)

// Limiter is a [Store] that refuses some of what the contract allows.
type Limiter interface {
	// Limits are the same for the life of the store.
	Limits() Limits
}

// Limits are what dedup.New has to know of a store, because the end that a store would refuse comes
// only after the effect has happened. The zero Limits belong to a store without limits.
type Limits struct {
	// Window is the one window of all keys, and zero means any: New wants this Config.Window.
	Window   time.Duration
	MaxLease time.Duration // MaxLease is the longest Config.LeaseTTL; zero means any.
	// MinHold is the shortest Config.Hold, and MaxHold the longest, where zero means any. The
	// default of Config.Hold is MinHold at least.
	MinHold, MaxHold time.Duration
	// NoResults says that the result of a success is not kept: New wants Config.SeenOnly.
	NoResults bool
	// NoFailures says that a failure for good is not kept. An error made by dedup.Permanent then
	// releases the claim, and the message may be redelivered.
	NoFailures bool
}

// LimitsOf returns the limits of a store: none if it is not a [Limiter].
func LimitsOf(store Store) Limits {
	if s, ok := store.(Limiter); ok {
		return s.Limits()
	}
	return Limits{}
}

// FinishClaimer is a [Store] that ends and claims in one round trip. Deduper.CompleteAndClaim uses
// it, and so do single calls, when an end and a claim share a batch.
type FinishClaimer interface {
	// FinishClaim is Finish and Claim. Neither list is empty. If an ID is in both lists, the answer
	// to its claim may be the one from before its end.
	FinishClaim(ctx context.Context, ends []Finish, reqs []ClaimRequest) (ended,
		claimed []Answer)
}

// ForgetCounter is a [Store] that lets the caches of other processes notice a Forget.
type ForgetCounter interface {
	// Forgets returns a number that changes with every Forget, of any process, that was answered
	// with nil. It never returns to an old value. Each Deduper with a cache
	// (dedup.Config.CacheBytes) asks for it at most twice a second. A number that differs from
	// the last one empties the cache. Without the method no entry of a cache lives longer than a
	// minute.
	Forgets(ctx context.Context) (uint64, error)
}

// Waker is a [Store] that tells waiters of other processes when a key has ended, for
// dedup.Config.Wait. News that is lost costs latency alone, because waiters also ask. A wrapper
// of a store that is not a Waker answers errors.ErrUnsupported.
type Waker interface {
	// Wake tells everybody who listens to one of the IDs: at most 256, which may repeat.
	Wake(ctx context.Context, ids []ID) error
	// Listen calls woken whenever the ID is woken, by any process, from when Listen has returned
	// until stop is called, and perhaps once more. It is also called when news may have been lost.
	// woken may call stop, and neither blocks.
	Listen(ctx context.Context, id ID, woken func()) (stop func(), err error)
}

// Resolvable is a [Store] that finds its uncertain keys, and gives them to a caller that asks about
// them. Package resolver needs it. A wrapper need not forward it.
type Resolvable interface {
	Store
	// Uncertain returns a page of the keys that are uncertain, and the cursor of the next page,
	// which is empty after the last one. The first page has an empty cursor. A key that is
	// uncertain from the first page to the last is listed at least once. limit bounds the page;
	// zero is the store's choice.
	Uncertain(ctx context.Context, cursor string, limit int) (page []UncertainRecord, next string,
		err error)
	// ClaimUncertain claims a key only if it is uncertain, and does not count as an attempt:
	// Attempt, Origin and Label stay those of the attempt in doubt. For any other key that Claim
	// would answer with [Acquired], it answers [InFlight] and the Record as it is.
	ClaimUncertain(ctx context.Context, req ClaimRequest) Answer
}

// UncertainRecord is an uncertain key.
type UncertainRecord struct {
	// ID of the key: stores know its digest only. Its DownstreamKey is that of the attempt.
	ID ID
	// Record of the key: Attempt is the number of the attempt in doubt, Steps are the steps that
	// this attempt has finished, and Label and Origin are those of its claim.
	Record Record
	// Asked counts the claims since the point of no return was declared, including those with
	// TakeUncertain.
	Asked int
	// Age is how long ago the point of no return was declared.
	Age time.Duration
	// Rested is how long ago the newest claim ended.
	Rested time.Duration
}

// Recycler is a [Store] that reuses its answers.
type Recycler interface {
	// Recycle takes back a slice of answers that the store returned, which nobody reads any
	// more. Memory that the answers point to, such as Record.Result, stays in use. Not every
	// slice comes back. It is called by several goroutines at a time.
	Recycle(answers []Answer)
}
