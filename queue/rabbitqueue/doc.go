// Package rabbitqueue handles the messages of a RabbitMQ queue, through package queue. The effect
// of every message happens once, and a message is acknowledged only after its effect has happened
// and its record is stored.
//
//	err := rabbitqueue.Consume(ctx, queue.Config{Deduper: d, Handler: bill}, rabbitqueue.Options{
//		Queue: "orders",
//		Dial:  func() (*amqp.Connection, error) { return amqp.Dial(url) },
//	})
//
// # Acknowledgements
//
// A message that is done or parked gets a basic.ack, which RabbitMQ does not confirm. A message
// that is not done gets a basic.nack that requeues it, when its time to wait has passed: RabbitMQ
// has no delay of its own. Until then the message counts toward Options.Prefetch. A message of a
// process that has died is redelivered when RabbitMQ notices that its connection is gone.
//
// RabbitMQ closes the channel of a message that is not acknowledged within its consumer_timeout, 30
// minutes by default (rabbitmq.com/docs/consumers#acknowledgement-timeout). The channel's other
// messages are redelivered, too, and found in flight or done. Raise the timeout above the time of
// the longest handler.
//
// # Limits of deliveries
//
// RabbitMQ 4 dead-letters or drops a message of a quorum queue that was redelivered 20 times, even
// if it only waited (rabbitmq.com/docs/quorum-queues#poison-message-handling). Set the queue's
// delivery-limit to -1, and bound the attempts by [queue.Attempts].Max.
//
// # Ids
//
// The id is the property message-id, as package outbox/rabbitpub sets it. A message without it has
// no id, and is parked: RabbitMQ has nothing else that identifies a message.
package rabbitqueue
