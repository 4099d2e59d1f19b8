// Package kafkasarama consumes Kafka with sarama so that the effect of every message happens once:
// an offset is committed only after the message's effect and its record have landed. Package
// kafkaadapter says what all clients have in common.
//
//	err := kafkasarama.Consume(ctx, brokers, "payments", []string{"charges"}, nil,
//		kafkaadapter.Config{Deduper: d, Handler: handle})
//
// [Consume] makes everything that a consumer needs, with safe settings. Where a sarama.Client and a
// sarama.ConsumerGroup exist already, use [New], [Consumer.CheckConfig] and [Consumer.Run].
//
// # Commits
//
// Offsets are committed over a separate client. sarama's session makes one attempt to commit, does
// not report the result, and waits for the fetches of its connection. Over a separate client,
// commits are repeated until the coordinator has confirmed them, and reported to Observer.Committed
// and CommitFailed. An answer that fences this member off ends its partitions at once.
//
// # Topics that are deleted and created again
//
// Kafka deletes a group's offsets with a topic, but sarama's fetches and commits identify a topic
// by its name alone. A consumer that does not check the topic's UUID continues with the old offset:
// it skips the first messages of the new topic, or commits the old offset into it. So the consumer
// checks the UUIDs every second and before every commit. When one has changed, nothing more is
// committed for that topic, the session ends, and Observer.GroupError is called with
// [kafkaadapter.ErrTopicRecreated]. The next session reads the new topic from its start, whatever
// Consumer.Offsets.Initial says.
//
// The check and the commit are two requests to the group's coordinator, one after the other. If a
// topic is replaced between them, the commit counts for the new topic. So every commit carries the
// UUID in its metadata, and a partition whose offset carries another UUID is read from its start.
// If messages of the new topic were read before the change was noticed, they are read again and
// found done by their ids; with ids made of positions they may run twice.
//
// Brokers before 2.8 have no UUIDs, which Observer.GroupError reports once: stop the whole group
// before a topic is deleted there. While a subscribed topic does not exist, it is left out and the
// others are consumed.
package kafkasarama
