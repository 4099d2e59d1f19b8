// Package kafkaadapter has what a program needs from Onceward to consume Kafka with any client
// library: [Message], [Handler], [Config], ids, dead letters and [Observer]. The effect of every
// message happens once: an offset is committed only after the message's effect and its record have
// landed.
//
//	err := kafkasarama.Consume(ctx, brokers, "payments", []string{"charges"}, nil,
//		kafkaadapter.Config{Deduper: d, Handler: handle})
//
// The packages below it are for one client each:
//
//   - [kafkasarama]: IBM/sarama
//   - [kafkafranz]: twmb/franz-go, also KIP-848 groups and share groups
//   - [kafkasegmentio]: segmentio/kafka-go
//   - [kafkaconfluent]: confluentinc/confluent-kafka-go on librdkafka, with cgo
//
// Package [txn] is for handlers whose only effects are messages to the same cluster.
//
// There are two modes. With Config.Deduper every message is claimed by its id, in batches, before
// its handler runs, and recorded before its offset may be committed: level Claimed. With
// Config.Unclaimed the handler records the message in the transaction of its own effect, for
// example with sqladapter's MarkTx, and the consumer takes care of order, watermark and commits:
// level Atomic.
//
// Messages of one Kafka key are handled in order, messages of different keys at the same time. A
// message that has to wait, because it is in flight in another process or is retried after an
// error, holds up its own key and no other. Offsets are committed up to the first message that is
// not finished.
//
// A message is never skipped. A message cannot be processed when it failed for good, its id was
// used with another payload, it has no valid id, it is uncertain, its record cannot be read, or its
// attempts are used up. It then goes to Config.Park, or stops the consumer with an
// [*UnprocessableError]. Where the Deduper has a Resolve, the consumer asks it about an uncertain
// message instead, on a worker and for as long as the answer is open. That call waits up to the
// Deduper's Config.Wait for another process that asks. A message that stays in flight elsewhere
// goes to Config.Park, too, if there is one (Attempts.BusyTimeout).
//
// [DeadLetters] makes a Park that sends such messages to a dead-letter topic, with acks of all
// replicas, and with id, position, attempts and reason in headers. While that topic is down,
// messages of the same key wait, and nothing is lost. [Replay] prepares a letter for another run,
// in which its message does not look new. [RetryAfter] lets a handler say when a failed message is
// handled again.
//
// # Ids
//
// The id comes from Config.ID. A message without an id is identified by its position if
// Config.Positions is set. Otherwise it cannot be processed, except with Config.Unclaimed, where
// its handler gets it. A partition whose first messages all have no id stops the consumer, unless
// Allow.NoID is set. The key of a message is not an id ([KafkaKey] says when it is one). [Hashed]
// turns any id into one that a Deduper accepts.
//
// A key is scoped by the consumer group and the message's first topic, see [ScopeOf]: when two
// topics, or two groups, have the same ids, each has an effect of its own. A message that comes
// through a retry topic, is replayed, or was mirrored keeps its record, with Config.RetryTopics and
// Config.TopicName.
//
// # Retry topics
//
// A message that fails is retried in its place by default: messages of its key wait, and so does
// the offset. With Attempts.Delayed it goes to the first of these topics after its first failure,
// and to the next one after each failure there. After the last one it goes to Park, with an error
// that wraps [ErrAttempts]. It waits in each topic for the topic's delay, which must be shorter
// than the Deduper's Hold, because the steps of an attempt are remembered only for that long. Order
// by key is lost: the messages behind it run at once. A message that fails with an error of
// [RetryAfter] is retried in its place.
//
// The letter carries id, scope, first topic, position and attempts. So it is claimed under the same
// key, and dedup.DownstreamKey and the count of attempts stay the same. The message's offset is
// committed after the brokers have acknowledged the letter. A crash between the acknowledgement and
// the commit sends the letter twice, which is harmless because of its record. A message that is too
// large for the topic is retried in its place. Only consumers with this setting may write to these
// topics. Every driver's Consume subscribes to them; a program that makes the client does so
// itself.
//
// # Owned partitions
//
// With Config.Own a member owns the partitions that it is assigned, and a new key needs no claim of
// its own. The Deduper's store must be one that knows the owners of partitions: it decides which
// keys an owner may begin. A partition is acquired before its first message is claimed, and
// released after its last record and its last commit. After a crash nobody works on it before
// Acquire gives it to another member. The brokers are asked for the number of partitions at each
// assignment. Owning.Partitioner says in which partition a key's records lie.
//
// Ownership is for topics whose messages have keys. In a topic of several partitions a message
// without a key may lie in any of them. Each such message is misplaced. Then the Deduper claims
// every message of the topic and looks for it in all partitions, which is slower than no ownership
// at all. The same happens with a Partitioner that is not the producers', and for one window after
// partitions were added. When partitions are added, a member of a cooperative group that keeps a
// partition continues to use the old number until the partition is assigned anew. Until then, keys
// that have moved to this partition count as misplaced.
//
// A partition that is lost (somebody else took it, or Redis was away for longer than the lease) is
// not given up. Its handlers are canceled at once: the cause of their contexts wraps
// [dedup.ErrLeaseLost] and the cause of the Ownership's context. None of its messages begins before
// it has been acquired again. The other partitions do not notice. If the group has given the
// partition away, the group will say so; if the member left the session, the group would rebalance
// for every short outage of Redis.
//
// The Deduper's Window must exceed the topic's retention (Kafka's default is 7 days);
// [CheckWindow] reports whether it does.
//
// [kafkasarama]: https://pkg.go.dev/github.com/onceward/onceward/kafkaadapter/kafkasarama
// [kafkafranz]: https://pkg.go.dev/github.com/onceward/onceward/kafkaadapter/kafkafranz
// [kafkasegmentio]: https://pkg.go.dev/github.com/onceward/onceward/kafkaadapter/kafkasegmentio
// [kafkaconfluent]: https://pkg.go.dev/github.com/onceward/onceward/kafkaadapter/kafkaconfluent
// [txn]: https://pkg.go.dev/github.com/onceward/onceward/kafkaadapter/txn
package kafkaadapter
