// Package kafkaconfluent consumes Kafka with confluent-kafka-go (librdkafka) so that the effect of
// every message happens once: an offset is committed only after the message's effect and its record
// have landed. Package kafkaadapter documents what all clients have in common: messages, ids and
// dead letters are the same with each of them.
//
//	err := kafkaconfluent.Consume(ctx, brokers, "payments", []string{"charges"}, nil,
//		kafkaadapter.Config{Deduper: d, Handler: handle})
//
// The client needs cgo; librdkafka is linked statically. Its groups are eager by default. For
// cooperative groups set partition.assignment.strategy to cooperative-sticky. KIP-848 groups, with
// group.protocol set to consumer, are a preview in librdkafka 2.11.
//
// librdkafka reports a rebalance inside a poll, and polls no other partition meanwhile: while a
// revoked partition is drained, the others of this member get no new messages.
//
// librdkafka does not report the generation of the group, so Allow.TakeOver is refused, and
// duplicates after a rebalance count as redelivered by the broker.
//
// librdkafka notices new partitions when it asks for metadata again, after
// topic.metadata.refresh.interval.ms, 5 minutes by default. The member that assigns partitions
// leaves a new topic out if its broker has not heard of it yet. After 5 s the members that have no
// partition of a topic ask the group whether any member has one, and join again if none has.
//
// A topic that is deleted and created again under a running consumer is noticed within some
// seconds, by its UUID. The consumer then closes the client, calls Observer.GroupError with
// [kafkaadapter.ErrTopicRecreated], and reads the new topic from its start with another client.
// Commits carry the UUID in their metadata. Brokers before 2.8 have no UUIDs, which
// Observer.GroupError reports: stop the group before a topic is deleted there.
package kafkaconfluent
