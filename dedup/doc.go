// Package dedup makes the effect of a message, webhook or request happen once, when the same one
// can arrive twice.
//
//	d, err := dedup.New(store, dedup.Config{Namespace: "payments",
//		Window: 24 * time.Hour, LeaseTTL: 30 * time.Second})
//	...
//	receipt, err := dedup.Do(ctx, d, event.ID, func(ctx context.Context) (string, error) {
//		return charge(ctx, event) // the effect
//	})
//	if !dedup.CanAck(err) { // do not acknowledge
//		return err
//	}
//
// A key names one logical operation. It is claimed before the effect, under a lease, and
// recorded as done after it, for a window. A duplicate that arrives in between finds the key in
// flight. A later one gets the stored result.
//
//	          claim                    complete
//	absent ---------> in progress --------------> succeeded | failed
//	                   |      ^
//	           release |      | claim, or takeover when the lease has lapsed:
//	                   v      | attempt + 1, a larger fence
//	                   released
//
// [Do] does all of it around a function, and [CanAck] reports whether the message may then be
// acknowledged. [Deduper.ClaimBatch] and [Deduper.CompleteBatch] are its two halves, for
// consumers that commit offsets; [Deduper.Claim] is for a single key. [Deduper.Seen] and
// [Deduper.Mark] are the simplest receiver.
//
// # Guarantees
//
// At most one owner runs a key at a time, and nothing is lost: a key is recorded only after its
// effect, and a state that the store could not answer is an error, never "done". Delivery stays
// at least once. A duplicate that arrives after the window runs again. Within the window the
// effect can run twice in four cases:
//
//   - The process dies after the effect and before the record.
//   - A handler that was paused outlives its lease, and the effect does not refuse an old
//     fence.
//   - A request takes the key over from a live owner of an older generation
//     (Request.TakeOverOlderGeneration).
//   - The store loses what it had acknowledged.
//
// Where that must not happen, put record and effect into one transaction: package [sqladapter].
// Where that is not possible, call [MarkIrreversible] before the part that cannot be undone, and
// let Config.Resolve ask the downstream.
//
// # Calls
//
// A nil Deduper, ctx or function, and a bad key, scope, label or window, is an [*InputError],
// and nothing is sent. After [Deduper.Close] every call but the end of a claim answers
// [ErrClosed]. An error for which [OutcomeUnknown] is true means that the store could not be
// asked, or that ctx ended. While the store cannot be asked, all calls but Seen, Lookup and
// Forget are repeated a few times. Single calls of concurrent callers share round trips. All is
// safe for concurrent use.
//
// # Stores
//
// A [Store] keeps claims and records: [Memory] in this process, package [redisadapter] in Redis,
// package [sqlstore] in a database, and package [layered] in two of them. Package [driver] is the
// contract for a store of your own, and package [deduptest] tests a store against it. This package
// depends on the standard library alone.
//
// # Receivers
//
// Packages that call a Deduper: [kafkaadapter] for Kafka, [queue] for brokers that acknowledge
// single messages, [httpadapter] for requests with an Idempotency-Key, and [webhook].
//
// [sqladapter]: https://pkg.go.dev/github.com/onceward/onceward/sqladapter
// [redisadapter]: https://pkg.go.dev/github.com/onceward/onceward/redisadapter
// [sqlstore]: https://pkg.go.dev/github.com/onceward/onceward/sqladapter/sqlstore
// [layered]: https://pkg.go.dev/github.com/onceward/onceward/dedup/layered
// [deduptest]: https://pkg.go.dev/github.com/onceward/onceward/dedup/deduptest
// [kafkaadapter]: https://pkg.go.dev/github.com/onceward/onceward/kafkaadapter
// [queue]: https://pkg.go.dev/github.com/onceward/onceward/queue
// [httpadapter]: https://pkg.go.dev/github.com/onceward/onceward/httpadapter
// [webhook]: https://pkg.go.dev/github.com/onceward/onceward/httpadapter/webhook
package dedup
