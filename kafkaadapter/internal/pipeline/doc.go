// Package pipeline is the part of a Kafka consumer that needs no broker: it knows which messages
// were received and which are finished, which message runs next, and when to commit. A client's
// adapter feeds it and gives it a few functions. It imports no client and no store, so that all of
// it is tested in fake time.
//
// One claim (one partition, from its assignment to its revocation) runs like this:
//
//	batch, err := intake.Next(ctx, batch[:0])   // what has already been fetched
//	slot, err := tracker.Track(offset)          // for each, in receive order, first of all
//	backpressure.Check()                        // once per batch: too much in flight pauses
//	err := queues.SubmitAll(items, key)         // never blocks; same key in order
//	... process(ctx, item) Decision ...         // on a worker: effect, then record, then:
//	if slot.Done() { committer.Finished(1); backpressure.Ease() }
//
// and ends like this:
//
//	left := queues.Drain(drainCtx)              // running ones may end; the rest comes back
//	err := committer.Remove(ctx, topic, part)   // last mark and commit of this claim
//	backpressure.Close()                        // never leave a partition paused
//
// The order that must hold is effect, record, Done, mark, commit. A late commit costs a redelivery,
// which is skipped because of the record; an early commit loses a message. So a Slot is finished
// only when its message is done, durably parked, or the duplicate of one that is done. The package
// never finishes a Slot by itself.
//
// The pieces know nothing of each other, except that a [Committer] reads [Tracker]s:
//
//   - [Tracker]: offsets received and finished; the contiguous watermark between.
//   - [KeyQueues]: same key in order, different keys in parallel, waiting keys parked.
//   - [Intake]: batches out of a channel without waiting for what is not there.
//   - [Committer]: marks and commits, off the message path, again while in doubt.
//   - [Backpressure]: pauses and resumes a partition, for several reasons at once.
package pipeline
