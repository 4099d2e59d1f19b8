// Package queue handles the messages of any broker that acknowledges single messages, so that the
// effect of each happens once: NATS JetStream, Redis Streams and others. A message is acknowledged
// only after its effect has happened and its record is stored. For Kafka, where an offset
// acknowledges everything before it, see package [kafkaadapter], whose names and rules this package
// shares.
//
//	consumer, err := queue.New(queue.Config{Deduper: d, Handler: ship})
//	if err != nil {
//		return err
//	}
//	return consumer.Run(ctx, source) // of an adapter
//
// An adapter for a broker makes a [Delivery] of a message: its id, and functions that acknowledge
// it, ask for its redelivery, and tell the broker that it is still being worked on. Adapters are
// modules of their own, on the client that users of that broker use: [natsqueue], [pubsubqueue],
// [rabbitqueue], [redisqueue], [sqsqueue]. Package [queuetest] tests an adapter of your own.
//
// # Outcomes
//
//   - The handler returned nil: the message is recorded, then acknowledged.
//   - The message is a duplicate of one that is done, or of one that failed and was parked: it is
//     acknowledged.
//   - The message failed for good ([dedup.Permanent]), its attempts are used up, its id was used
//     with another payload, or it has no id. Or it is uncertain and nobody can be asked, or its
//     record cannot be read. It is parked, recorded, then acknowledged. Without a Park the consumer
//     stops with an [*UnprocessableError].
//   - The handler failed, or the message is in flight elsewhere: it is delivered again after a
//     backoff.
//   - The store cannot be asked: the message waits, and the broker is told that it is at work.
//   - The record of the effect could not be confirmed: the message is delivered again, and then the
//     store says whether it is done.
//
// # Levels
//
// With Config.Deduper every message is claimed before its handler runs and recorded after it: level
// Claimed. With Config.Unclaimed the handler records the message in the transaction of its own
// effect, with sqladapter's Do: level Atomic. The Deduper's Window must exceed the longest time
// after which a message can be redelivered: the retention of the queue, or of a dead-letter queue
// whose messages you send back.
//
// A broker's own limit of deliveries also counts the deliveries of a message that only waited, and
// then drops or moves it. Set that limit well above Attempts.Max, or to none.
//
// [kafkaadapter]: https://pkg.go.dev/github.com/onceward/onceward/kafkaadapter
// [natsqueue]: https://pkg.go.dev/github.com/onceward/onceward/queue/natsqueue
// [pubsubqueue]: https://pkg.go.dev/github.com/onceward/onceward/queue/pubsubqueue
// [rabbitqueue]: https://pkg.go.dev/github.com/onceward/onceward/queue/rabbitqueue
// [redisqueue]: https://pkg.go.dev/github.com/onceward/onceward/queue/redisqueue
// [sqsqueue]: https://pkg.go.dev/github.com/onceward/onceward/queue/sqsqueue
// [queuetest]: https://pkg.go.dev/github.com/onceward/onceward/queue/queuetest
package queue
