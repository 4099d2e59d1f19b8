// Package natsqueue handles the messages of a NATS JetStream pull consumer, through package queue:
// the effect of every message happens once, and a message is acknowledged only after its effect and
// its record have landed.
//
//	consumer, err := js.Consumer(ctx, "ORDERS", "billing") // durable, AckExplicit
//	if err != nil {
//		return err
//	}
//	err = natsqueue.Consume(ctx, consumer, queue.Config{Deduper: d, Handler: bill}, natsqueue.Options{})
//
// # Acknowledgements
//
// Done and parked are a double ack, which the server confirms. Not done is a nak with a delay.
// While a handler works the server is told so each quarter of the consumer's AckWait. A message
// that is not acknowledged in time, because its process is dead, is redelivered after AckWait. A
// late acknowledgement of an earlier delivery counts.
//
// # Ids
//
// The id is the header Nats-Msg-Id, which tells copies that a producer sent, also after the
// stream's own window of duplicates. A message without it has its stream and sequence for an id,
// which tells redeliveries only. The scope is "consumer/stream".
//
// # Order
//
// JetStream keeps no order through a redelivery. A consumer with a MaxAckPending of 1 has one
// message at work at a time, and is in order.
package natsqueue
