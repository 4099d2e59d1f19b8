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
// The id comes from Config.ID. What has none of its own is told apart by its position with
// Config.Positions, or cannot be processed. The key of a message is not an id ([KafkaKey]
// says when it is), and what is no key of a Deduper, [Hashed] makes one of.
//
// The adapter and its check of sarama's settings come before the consumer group:
//
//	a, err := kafkaadapter.New(kafkaadapter.Config{Deduper: d, Handler: handle})
//	if err != nil {
//		return err
//	}
//	cfg := kafkaadapter.SafeConfig(sarama.NewConfig())
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
// The Deduper's Window must exceed the topic's retention (Kafka's default is 7 days);
// [CheckWindow] tells whether it does.
package kafkaadapter
