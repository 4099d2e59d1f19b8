// Package pubsubqueue handles the messages of a Google Cloud Pub/Sub subscription, through package
// queue: the effect of every message happens once, and a message is acknowledged only after its
// effect and its record have landed.
//
//	err := pubsubqueue.Consume(ctx, client.Subscriber("billing"),
//		queue.Config{Deduper: d, Handler: bill}, pubsubqueue.Options{})
//
// # Acknowledgements
//
// Done and parked are an ack, which a subscription with exactly-once delivery confirms. Not done is
// a nack, when the time to wait has passed; the client extends the deadline until then, and while a
// handler works, for up to ReceiveSettings.MaxExtension. That must be longer than a handler takes.
// A message of a process that has died is redelivered when the deadline that its client has set is
// over.
//
// Messages that wait for a nack count for ReceiveSettings.MaxOutstandingMessages. A retry policy of
// the subscription adds its own time.
//
// # Ids
//
// The id is the attribute Options.IDAttribute, which tells copies that a publisher sent, also by
// publishing again. A message without it has the id that the service gave it, which tells
// redeliveries only. The scope is the name of the subscription.
//
// # Order
//
// In a subscription with message ordering the messages of one ordering key are handled in order.
// They are nacked at once, because the service holds back what follows.
package pubsubqueue
