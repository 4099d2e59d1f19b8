// Package kafkasegmentio consumes Kafka with segmentio/kafka-go so that the effect of every message
// happens once: an offset is committed only after the message's effect and its record have landed.
// Package kafkaadapter documents what all clients have in common: messages, ids and dead letters
// are the same with each of them.
//
//	err := kafkasegmentio.Consume(ctx, brokers, "payments", []string{"charges"},
//		kafkasegmentio.Options{}, kafkaadapter.Config{Deduper: d, Handler: handle})
//
// It uses kafka-go for the membership in classic groups, the connections and the formats. It does
// not use kafka.Reader, which moves to another offset when one is gone, and delivers messages of
// transactions that were aborted. Here an offset that is out of range is an error: it is reported
// to Observer.GroupError, and the partition is tried again now and then, until its log has the
// offset. [kafkaadapter.Allow].Skip accepts the gap.
//
// A group without a committed offset begins at the oldest message. Each partition is fetched by
// itself, on a connection of its own while others are fetched.
//
// A topic that is deleted and created again under a running consumer is noticed within some
// seconds, by its UUID. Observer.GroupError is called with [kafkaadapter.ErrTopicRecreated], and
// the new topic is read from its start. Brokers before 2.8 have no UUIDs, which Observer.GroupError
// reports: stop the group before a topic is deleted there. kafka-go looks for partitions in a way
// that lets brokers create a missing topic, so turn auto.create.topics.enable off where topics are
// deleted.
//
// kafka-go has no static members, cooperative rebalances or KIP-848 groups, so they are missing
// here.
package kafkasegmentio
