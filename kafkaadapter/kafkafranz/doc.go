// Package kafkafranz consumes Kafka with franz-go so that the effect of every message happens once:
// an offset is committed only after the message's effect and its record have landed. Package
// kafkaadapter documents what all clients have in common: messages, ids and dead letters are the
// same with each of them.
//
//	err := kafkafranz.Consume(ctx, brokers, "payments", []string{"charges"}, nil,
//		kafkaadapter.Config{Deduper: d, Handler: handle})
//
// With this client commits have their own connection and typed answers and need no configuration,
// fetching is several times as fast as with sarama, and there are KIP-848 groups. For these add
//
//	kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer())
//
// to the options, with brokers of 4.0 (kgo recommends 4.3). With older brokers kgo falls back to a
// classic group. A commit names the leader epoch of the last message before it (KIP-320).
//
// A topic that is deleted and created again under a running consumer is noticed within some
// seconds, by its UUID. The consumer then closes the client, calls Observer.GroupError with
// [kafkaadapter.ErrTopicRecreated], and reads the new topic from its start with another client.
// From Apache Kafka 4.2 on a commit identifies the topic by its UUID, so the old offset never comes
// into the new topic. With older brokers it may come there when a topic is replaced within the
// second before a commit. The UUID in the commit's metadata then shows it, and the partition begins
// at the start of the new topic. Brokers before 2.8 have no UUIDs, which Observer.GroupError
// reports: stop the group before a topic is deleted there. A [Share] gets another client in the
// same way; share.auto.offset.reset decides where its group begins in a new topic.
//
// kgo retries silently. The consumer therefore reports to Observer.GroupError and the log that no
// broker answers, and after about ten seconds that a topic does not exist. It begins as soon as
// they are there.
//
// [Share] consumes as a member of a share group (KIP-932): no offsets and no order, but as many
// members as there is work for. The broker delivers a message a few times, and then archives it;
// see ShareOptions.Deliveries.
package kafkafranz
