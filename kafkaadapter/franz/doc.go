// Package franz consumes Kafka with franz-go so that the effect of every message happens
// once: an offset is committed only after the message's effect and its record have landed.
// It is the twin of package kafkaadapter, on the same core: what is said there of claims,
// order, retries, dead letters and rebalances holds here, and records, ids and dead letters
// of one are those of the other.
//
//	c, err := franz.New(franz.Config{Deduper: d, Handler: handle})
//	if err != nil {
//		return err
//	}
//	return c.Run(ctx,
//		kgo.SeedBrokers(brokers...),
//		kgo.ConsumerGroup("payments"),
//		kgo.ConsumeTopics("charges"),
//	)
//
// A key is scoped by the consumer group and the message's first topic, see [ScopeOf].
//
// There are two compositions. With Config.Deduper every message is claimed by its id, in
// batches, before its handler runs, and recorded before its offset may be committed (level
// Claimed of package dedup's documentation). With Config.Unclaimed the handler records the
// message in the transaction of its own effect, for example with sqladapter's MarkTx, and
// the consumer cares for order, watermark and commit alone (level Atomic).
//
// Messages of one Kafka key are handled in order, messages of different keys at the same
// time. A message that has to wait holds up its own key and no other. Offsets are committed
// up to the first message that is not finished, with the leader epoch of the last one.
// A message is never skipped: one that cannot be processed goes to Config.Park, such as
// that of [DeadLetters], or stops the consumer with an [*UnprocessableError].
//
// A topic that is deleted and created again under a running consumer is noticed within some
// seconds, by its UUID: the client is closed, Observer.GroupError is told [ErrTopicGone], and
// another client reads the new topic from its start. A commit names the topic by its UUID from
// Apache Kafka 4.2 on, so the old offset never comes into the new topic. With older brokers it may
// when a topic is replaced within the second before a commit: the UUID in the commit's metadata
// tells, and the partition begins at the start of the new topic. Brokers before 2.8 have no UUIDs,
// which Observer.GroupError is told: stop the group before a topic is deleted there. A [Share] gets
// another client likewise; where its group reads a new topic from is up to share.auto.offset.reset.
//
// What is better here than with sarama: commits have their own connection, typed answers and
// no configuration; fetching is several times as fast; KIP-848 groups. For these add
//
//	kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer())
//
// to the options, with brokers of 4.0 (kgo recommends 4.3); kgo falls back to a classic group
// elsewhere.
//
// With Config.Own a member owns its partitions, and new keys need no claim: see "Owned
// partitions" in the documentation of package kafkaadapter. The number of partitions is asked for
// with Run's client.
//
// [Share] consumes as a member of a share group (KIP-932): no offsets and no order, but as many
// members as there is work for. The broker delivers a message a few times, and archives it then;
// see ShareConfig.Deliveries.
//
// The Deduper's Window must exceed the topic's retention (Kafka's default is 7 days).
package franz
