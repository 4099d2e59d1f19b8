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
// Offsets are committed over a client of their own. sarama's session makes one attempt to commit,
// does not tell what became of it, and waits for the fetches of its connection. Over a client of
// their own commits are repeated until the coordinator has confirmed them, told to
// Observer.Committed and CommitFailed, and an answer that fences this member off ends its
// partitions at once.
//
// # Topics that are deleted and created again
//
// Kafka forgets a group's offsets with a topic, but fetches and commits of sarama name a topic by
// its name alone. A consumer that does not look at the topic's UUID continues with the old offset:
// it skips the first messages of the new topic, or commits the old offset into it. So the UUIDs are
// looked at every second and before every commit. When one has changed, nothing more is committed
// for that topic, the session ends, Observer.GroupError is told kafkaadapter.ErrTopicRecreated, and
// the next session reads the new topic from its start, whatever Consumer.Offsets.Initial says.
//
// The look and the commit are two requests to the group's coordinator, one after the other. A topic
// that is replaced between them takes the commit. So every commit carries the UUID in its metadata,
// and a partition whose offset carries another UUID is read from its start. Messages of the new
// topic that were read before the change was noticed are found done by their ids; with ids made of
// positions they may run twice.
//
// Brokers before 2.8 have no UUIDs, which Observer.GroupError is told once: stop the whole group
// before a topic is deleted there. A subscribed topic that does not exist is left out, and the
// others are consumed, until it exists.
package kafkasarama
