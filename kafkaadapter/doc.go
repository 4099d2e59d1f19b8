// Package kafkaadapter consumes Kafka with sarama so that the effect of every message
// happens once: an offset is committed only after the message's effect and its record
// have landed.
//
// There are two compositions. With Config.Deduper every message is claimed by its id,
// in batches, before its handler runs, and recorded before its offset may be committed
// (level Claimed of the package documentation). With Config.Unclaimed the handler
// records the message in the transaction of its own effect, for example with
// sqladapter's MarkTx, and the adapter cares for order, watermark and commit alone
// (level Atomic).
//
// Messages of one Kafka key are handled in order, messages of different keys at the
// same time. A message that has to wait (in flight in another process, retried after an
// error) holds up its own key and no other. Offsets are committed up to the first
// message that is not finished.
//
// A message is never skipped. One that cannot be processed (failed for good, key reused
// with another payload, without an id, uncertain) goes to Config.Park, or stops the
// consumer with an [*UnprocessableError]. Where the Deduper has a Resolve, an uncertain
// message is asked about instead, on a worker and for as long as the answer is open; that
// call waits up to the Deduper's Config.Wait for another process that asks.
//
// [DeadLetters] makes a Park that sends such messages to a dead-letter topic: with acks of
// all replicas, and with id, position, attempts and reason in headers. While that topic is
// down the message's own key waits, and nothing is lost. [Replay] prepares a letter for
// another run, in which it does not look new. [RetryAfter] lets a handler say when a
// message that failed comes again.
//
// # Topics that are deleted and created again
//
// Kafka forgets a group's offsets with a topic, but fetches and commits of sarama name a topic by
// its name alone. Without a look at the topic's UUID a running consumer goes on with the old
// offset: it skips the first messages of the new topic, or commits the old offset into it. With
// Config.CommitClient, or with Config.Positions and Config.Group, the adapter looks at the UUIDs
// every second and before every commit. When one has changed, nothing is committed for that topic
// any more, the session ends, Observer.GroupError is told [ErrTopicRecreated], and the next session
// reads the new topic from its start, whatever Consumer.Offsets.Initial says.
//
// The look and the commit are two requests to the group's coordinator, one after the other. A topic
// that is replaced between them takes the commit. So every commit carries the UUID in its metadata,
// and a partition whose offset carries another UUID is read from its start. Messages of the new
// topic that were read before the change was noticed are found done by their ids; with ids made of
// positions they may run twice.
//
// A subscribed topic that does not exist is left out, and the others are consumed, until it exists.
//
// Without CommitClient and Positions nobody can be asked, which Run logs as a warning; and brokers
// before 2.8 have no UUIDs, which Observer.GroupError is told once. Stop the whole group before a
// topic is deleted there.
//
// # Ids
//
// The id comes from Config.ID. What has none of its own is told apart by its position with
// Config.Positions, or cannot be processed; a partition whose first messages all lack an id stops
// the consumer, unless Config.AllowNoID is set. The key of a message is not an id ([KafkaKey]
// says when it is), and what is no key of a Deduper, [Hashed] makes one of.
//
// A key is scoped by the consumer group and the message's first topic, see [ScopeOf]: two topics
// with the same ids, and two groups, have an effect each. What comes through a retry topic, is
// replayed, or was mirrored keeps its record, with Config.RetryTopics and Config.TopicName.
//
// The adapter and its check of sarama's settings come before the consumer group:
//
//	cfg := kafkaadapter.SafeConfig(sarama.NewConfig())
//	client, err := sarama.NewClient(brokers, cfg) // for commits and for UUIDs of topics
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	a, err := kafkaadapter.New(kafkaadapter.Config{
//		Deduper: d, Group: "payments", CommitClient: client, Handler: handle,
//	})
//	if err != nil {
//		return err
//	}
//	if err := a.CheckConfig(cfg); err != nil {
//		return err
//	}
//	group, err := sarama.NewConsumerGroup(brokers, "payments", cfg)
//	if err != nil {
//		return err
//	}
//	defer group.Close()
//	return a.Run(ctx, group, []string{"charges"})
//
// # Owned partitions
//
// With Config.Own a member owns the partitions that it is assigned, and a key that is new needs no
// claim of its own. The Deduper's store must be one that knows the owners of partitions: it decides
// what an owner may begin. A partition is acquired before its first message is claimed and released
// after its last record and its last commit; after a crash nobody works on it before Own gives it
// to another member. The number of partitions is asked for at each assignment. Which records lie
// where their key says is up to Config.Partitioner.
//
// It is for topics whose messages have keys. In a topic of several partitions a message without
// a key may lie in any of them: each is misplaced, and every message of the topic is then looked
// for in all partitions and claimed, which is slower than not to own them. It is the same with a
// Partitioner that is not the producers', and for one window after partitions were added. A
// member of a cooperative group that keeps a partition when some are added goes on by the old
// number until the partition is assigned anew: what has moved there is misplaced until then.
//
// A partition that is lost (somebody else took it, or Redis was away for longer than the lease)
// is not given up: its handlers are cancelled at once, with dedup.ErrLeaseLost and the cause of the
// Ownership's context as the cause, nothing of it begins, and it is acquired again. The other
// partitions do not notice. When the group has given it away the group will say so; to leave the
// session would make the group rebalance for every short outage of Redis.
//
// The Deduper's Window must exceed the topic's retention (Kafka's default is 7 days);
// [CheckWindow] tells whether it does.
package kafkaadapter
