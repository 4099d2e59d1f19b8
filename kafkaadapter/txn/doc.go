// Package txn reads from Kafka and writes to Kafka so that every message is processed
// once: the messages that a handler returns and the offsets of those it was given are
// committed in one Kafka transaction (level Streamed).
//
// A [Handler] is given a batch of messages of one partition and returns the messages to
// produce. Both happen or neither does, through crashes, rebalances and lost replies; a
// handler may run many times for one message, but a reader with isolation level
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
// Effects outside of Kafka: a handler must have none, since it runs again after every
// abort. Use kafkaadapter for those.
//
// Duplicates that lie in the input under offsets of their own, because the producer
// upstream sent twice or a letter was replayed: each offset is processed once, and these
// are two. They need a message id, and readers of the output, or a kafkaadapter behind it,
// that look at it: let the handler pass the id on in a header. A dedup record made after the
// commit would catch most such duplicates, but not those that come while a process has
// crashed between the commit and the record; and asking for it first costs a round trip to
// the store. The offset needs no record: it is committed with the output.
//
// Readers of the output that read uncommitted: they see the output of aborted runs, too.
//
// Another cluster: Kafka's transactions end at the cluster that holds the offsets.
//
// Topics that are deleted and created again, on brokers before 2.8, which have no UUIDs: stop the
// group first, or the first messages of the new topic may be skipped. With UUIDs the claim ends
// with [ErrTopicRecreated], and the new topic is read from its start.
//
// # How it stays true
//
// Every claim of a partition has one transactional producer, whose transactional id is made
// of group, topic and partition: the next owner's producer aborts what a crashed owner left
// open, and fences one that is still alive. Offsets are sent with member and generation
// (KIP-447), so that an owner of the past cannot commit either. Whenever the outcome of a
// commit is not certain, and whenever a producer is new, the truth comes from the broker.
// After InitProducerId every older transaction of the id is decided, and the group's
// committed offset, read with require-stable, says how far the partition is processed.
// The handler runs before its transaction is opened, so a slow one holds up no reader.
//
// An offset is committed under the name of its topic, and a transaction does not change that: of a
// topic that was deleted it would be the successor's, whose first messages would be skipped. So the
// topic's UUID is asked for before each commit, and is in the commit's metadata, by which the next
// claim finds a topic that was replaced between the two.
//
// One claim costs one client with its connections, and a transaction six round trips to
// brokers: BatchMax and BatchWait choose how many messages share them.
package txn
