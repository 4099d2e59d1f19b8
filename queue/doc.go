// Package queue handles the messages of any broker that acknowledges single messages, so that the
// effect of each happens once: NATS JetStream, Redis Streams and others. A message is acknowledged
// only after its effect and its record have landed. For Kafka, where an offset acknowledges
// everything before it, see package kafkaadapter, whose names and rules this package shares.
//
//	consumer, err := queue.New(queue.Config{Deduper: d, Handler: ship})
//	if err != nil {
//		return err
//	}
//	return consumer.Run(ctx, source) // of an adapter
//
// An adapter for a broker makes a [Delivery] of a message: its id, and functions that acknowledge
// it, have it delivered again, and keep it for the broker while it is at work. Adapters are modules
// of their own, on the client that users of that broker use: natsqueue, pubsubqueue, rabbitqueue,
// redisqueue, sqsqueue. Package queuetest proves an adapter of yours.
//
// # Outcomes
//
//   - Its handler returned nil: it is recorded, then acknowledged.
//   - It is a duplicate of something done, or of a failure that was parked: it is acknowledged.
//   - It failed for good (dedup.Permanent), its id was used with another payload, it has no id, it
//     is uncertain and nobody can be asked, or its attempts are used up: it is parked, recorded,
//     then acknowledged. Without a Park the consumer stops with an [*UnprocessableError].
//   - Its handler failed, or it is in flight elsewhere: it is delivered again after a backoff.
//   - The store cannot be asked: it waits, and the broker is told that it is at work.
//   - The record of its effect could not be confirmed: it is delivered again, and the store says
//     then whether it is done.
//
// # Modes
//
// With Config.Deduper every message is claimed before its handler runs and recorded after it: mode
// Claimed. With Config.Unclaimed the handler records the message in the transaction of its own
// effect, with sqladapter's Do: mode Atomic. The Deduper's Window must exceed the longest time
// after which a message can be redelivered: the broker's retention, or that of a dead-letter queue
// which is sent back.
//
// A broker's own limit of deliveries drops or moves messages that have merely waited: set it well
// above Attempts.Max, or to none.
package queue
