// Package rabbitqueue handles the messages of a RabbitMQ queue, through package queue: the effect
// of every message happens once, and a message is acknowledged only after its effect and its record
// have landed.
//
//	err := rabbitqueue.Consume(ctx, queue.Config{Deduper: d, Handler: bill}, rabbitqueue.Options{
//		Queue: "orders",
//		Dial:  func() (*amqp.Connection, error) { return amqp.Dial(url) },
//	})
//
// # Acknowledgements
//
// Done and parked are a basic.ack, which RabbitMQ does not confirm. Not done is a basic.nack that
// requeues, when the time to wait has passed: RabbitMQ has no delay of its own. Until then the
// message counts for Options.Prefetch. A message of a process that has died is redelivered when
// RabbitMQ notices that its connection is gone.
//
// RabbitMQ closes the channel of a message that is not acknowledged within its consumer_timeout, 30
// minutes by default (rabbitmq.com/docs/consumers#acknowledgement-timeout). Its queue's other
// messages are redelivered too, and found in flight or done. Raise it above the longest handler.
//
// # Limits of deliveries
//
// RabbitMQ 4 dead-letters or drops a message of a quorum queue that was redelivered 20 times, also
// one that has merely waited (rabbitmq.com/docs/quorum-queues#poison-message-handling). Set the
// queue's delivery-limit to -1, and bound the attempts by queue.Attempts.Max.
//
// # Ids
//
// The id is the property message-id, as package outbox/rabbitpub sets it. A message without it has
// none, and is parked: a queue has nothing else that tells one message from another.
package rabbitqueue
