// Package dedup makes the effect of a message, webhook or request happen once, when the same one
// can arrive twice.
//
// A key names one logical operation. Before the effect the key is claimed, under a lease; after
// it the key is recorded as done, for a window. Whoever comes meanwhile finds it in flight,
// whoever comes later finds it done and gets the stored result.
//
//	          claim                    complete
//	absent ---------> in progress --------------> succeeded | failed
//	                   |      ^
//	           release |      | claim, or takeover when the lease has lapsed:
//	                   v      | attempt + 1, a larger fence
//	                   released
//
// [Do] does all of it around a function, and [CanAck] says of its error whether the message may
// be acknowledged. [Deduper.Claim] and [Deduper.ClaimBatch] are the two halves by hand, for
// consumers that commit offsets. [Deduper.Seen] and [Deduper.Mark] are the simplest receiver.
//
// # Guarantees
//
// At most one owner runs a key at a time, and nothing is lost: a key is recorded only after its
// effect, and a state that the store could not answer is an error, never "done". Delivery stays
// at least once. A duplicate that arrives after the window runs again. Within it the effect can
// run twice in four cases:
//
//   - The process dies after the effect and before the record.
//   - A handler that was paused outlives its lease, and the effect does not refuse an old fence.
//   - A request takes the key over from a live owner of an older generation
//     (Request.TakeOverOlderGeneration).
//   - The store loses what it had acknowledged.
//
// Where that must not happen, put record and effect into one transaction: package sqladapter.
// Where that is not possible, call [MarkIrreversible] before the part that cannot be undone, and
// give the Deduper a Config.Resolve that asks the downstream.
//
// # Calls
//
// A bad ctx, key, scope, label or window is an [*InputError], and nothing is sent. After
// [Deduper.Close] all but ends of claims is [ErrClosed]. An error for which [OutcomeUnknown] is
// true means that the store could not be asked, or that ctx ended. Single calls of concurrent
// callers share round trips, and are repeated a few times while the store cannot be asked. All
// is safe for concurrent use.
//
// # Stores
//
// A [Store] keeps claims and records: [Memory] in this process, package redisadapter in Redis,
// package sqladapter in a database, and package layered in two of them. Package driver is the
// contract for writing another, and has the names that only stores and tools need. Package
// deduptest proves one. This package depends on the standard library alone.
package dedup
