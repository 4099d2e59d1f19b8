// Package natsqueue handles the messages of a NATS JetStream pull consumer, through package queue.
// The effect of every message happens once, and a message is acknowledged only after its effect has
// happened and its record is stored.
//
//	consumer, err := js.Consumer(ctx, "ORDERS", "billing") // durable, AckExplicit
//	if err != nil {
//		return err
//	}
//	err = natsqueue.Consume(ctx, consumer, queue.Config{Deduper: d, Handler: bill}, natsqueue.Options{})
//
// # Acknowledgements
//
// A message that is done or parked gets a double ack, which the server confirms. A message that is
// not done gets a nak with a delay. While a handler works, the server is told so in each quarter of
// the consumer's AckWait. A message that is not acknowledged in time, because its process is dead,
// is redelivered after AckWait. A late acknowledgement of an earlier delivery counts.
//
// # Ids
//
// The id is the header Nats-Msg-Id. With it, copies that a producer sent are recognized, also after
// the stream's own window of duplicates. Without it the id is the stream and the sequence, with
// which only redeliveries are recognized. The scope is "consumer/stream".
//
// # Order
//
// JetStream keeps no order through a redelivery. With a MaxAckPending of 1, a consumer has one
// message at work at a time and keeps the order.
package natsqueue
