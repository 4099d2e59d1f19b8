// Package owned runs keys without a claim for each, in partitions that have one owner at a time.
//
// A consumer of a partitioned stream that holds a partition knows which of its keys are new. A
// filter proves that a key is new (package bloom): the owner feeds every mark of the partition to
// the filter, and has loaded the marks of earlier owners into it. New keys are begun with their
// whole batch in one script, and marked in another. The other keys, those that the filter cannot
// prove new or that somebody has begun before, are claimed at an ordinary store, the inner one, as
// without this package. [Store] is a [dedup.Store], so you put a [dedup.Deduper] over it.
// Origin.Source and Origin.Partition of its requests name the partition.
//
//	inner, err := redisadapter.New(ctx, client, redisadapter.Options{Prefix: "pay", WrappedBy: owned.Name})
//	store, err := owned.New(ctx, client, inner, opts) // owned.Init was called once, by hand
//	own, err := store.Acquire(ctx, owned.Partition{Source: "group/topic", Number: 7, Count: 32})
//	d, err := dedup.New(store, dedup.Config{Namespace: "pay", Window: opts.Window, Hold: opts.Hold, LeaseTTL: opts.Lease / 3, SeenOnly: true})
//	// claim, run and complete batches of partition 7 as long as own.Context() lasts
//	err = own.Release(ctx)
//
// # Guarantee
//
// Owned is level Claimed without a claim per key. A key's effect runs twice only if
//
//  1. its process died, or lost the partition, after the effect and before the mark's answer. That
//     concerns at most the keys in flight: one batch if you work by hand, and at most
//     Options.InFlight messages of a partition in the Kafka adapter;
//  2. a paused owner's handler continues past its lease, unless the effect checks the fence;
//  3. Redis lost an acknowledged write at failover;
//  4. Options.TakeOverOlderGeneration took the partition from an owner whose handler was still
//     running.
//
// The guarantee breaks, and nobody notices, if one id is produced under two keys that different
// partitions get within a window, or if a tool writes these keys in Redis. It also breaks if Redis'
// clock jumps ahead: the window is then shorter by the length of the jump, and the rotation of
// generations stands still until the time has come to which the clock jumped. And it breaks in this
// order: the reply to a key's mark is lost, a Forget forgets the key, and the retry of the mark
// marks it again.
//
// # After a crash
//
// The partition can be acquired when its lease is over. The ids of the keys that the owner had
// begun and not marked are on record. These keys are suspects: only the inner store grants them,
// and the attempt that was begun counts as an attempt. So a key that kills its process reaches its
// cap, and its neighbors do not. A clean [Ownership.Release] leaves no suspects: keys that still
// run become claims of the inner store first.
//
// # Records
//
// A finished key is known only to be done: results, failures and fingerprints are refused. A mark
// is 63 bits of a digest under Options.Secret. The probability that a key that is looked for in the
// sets matches another key's mark is the number of marks in the window divided by 2^63. The sets
// are asked only for keys that the filter cannot prove new.
//
// # Which keys
//
// The key alone must determine its partition. The count of partitions is on record. When the count
// grows, keys move to other partitions. Every key is then claimed at the inner store for as long as
// Window plus Hold. Records without a key have no partition of their own; a topic of such records
// gains nothing here.
package owned
