// Package txn reads from Kafka and writes to Kafka so that every message is processed once (level
// Streamed). One Kafka transaction commits the messages that a handler returns and the offsets of
// the messages that the handler was given.
//
// A [Handler] gets a batch of messages of one partition and returns the messages to produce. The
// outputs and the offsets are committed together or not at all, through crashes, rebalances and
// lost replies. A handler may run many times for one message, but a reader with isolation level
// read_committed sees the output of one run.
//
//	p, err := txn.New(txn.Config{Brokers: brokers, Client: cfg, Group: "totals", Handler: handle})
//	if err != nil {
//		return err
//	}
//	if err := p.CheckConfig(cfg); err != nil {
//		return err
//	}
//	group, err := sarama.NewConsumerGroup(brokers, "totals", cfg)
//	if err != nil {
//		return err
//	}
//	defer group.Close()
//	return p.Run(ctx, group, []string{"orders"})
//
// kafkaadapter.SafeConfig makes a cfg that CheckConfig accepts.
//
// # Limits
//
// Effects outside of Kafka: a handler must have none, because it runs again after every abort. Use
// kafkaadapter for those.
//
// Duplicates that have offsets of their own in the input, because the producer upstream sent twice
// or a letter was replayed: each offset is processed once, so a duplicate is processed, too. Such
// messages need an id, and readers of the output, or a kafkaadapter behind it, that check the id:
// let the handler pass the id on in a header. A dedup record made after the commit would catch most
// such duplicates, but not those that come while a process has crashed between the commit and the
// record. To ask for the record first costs a round trip to the store. The offset needs no record:
// it is committed with the output.
//
// Readers with isolation level read_uncommitted: they see the output of aborted runs, too.
//
// Another cluster: Kafka's transactions end at the cluster that holds the offsets.
//
// Topics that are deleted and created again, on brokers before 2.8, which have no UUIDs: stop the
// group first, or the first messages of the new topic may be skipped. With UUIDs the claim ends
// with [ErrTopicRecreated], and the new topic is read from its start.
//
// # How it stays true
//
// Every claim of a partition has one transactional producer, whose transactional id is made of
// group, topic and partition. So the next owner's producer aborts what a crashed owner left open,
// and fences an owner that is still alive. Offsets are sent with member and generation (KIP-447),
// so that a former owner cannot commit either. Whenever the outcome of a commit is not certain, and
// whenever a producer is new, the broker is asked. After InitProducerId every older transaction of
// the id is decided, and the group's committed offset, read with require-stable, says how far the
// partition is processed. The handler runs before its transaction is opened, so a slow one holds up
// no reader.
//
// An offset is committed under the name of its topic, and a transaction does not change that. If
// the topic was deleted and created again, the new topic would get the offset, and its first
// messages would be skipped. So the topic's UUID is asked for before each commit, and is written
// into the commit's metadata. If a topic is replaced between the two, the next claim notices it by
// that UUID.
//
// One claim costs one client with its connections. A transaction costs six round trips to brokers:
// BatchMax and BatchWait choose how many messages share them.
package txn
