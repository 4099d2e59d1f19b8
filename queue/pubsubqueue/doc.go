// Package pubsubqueue handles the messages of a Google Cloud Pub/Sub subscription, through package
// queue. The effect of every message happens once, and a message is acknowledged only after its
// effect has happened and its record is stored.
//
//	err := pubsubqueue.Consume(ctx, client.Subscriber("billing"),
//		queue.Config{Deduper: d, Handler: bill}, pubsubqueue.Options{})
//
// # Acknowledgements
//
// A message that is done or parked gets an ack, which a subscription with exactly-once delivery
// confirms. A message that is not done gets a nack when its time to wait has passed. Until then,
// and while a handler works, the client extends the deadline, for up to
// ReceiveSettings.MaxExtension: that must be longer than a handler takes. A message of a process
// that has died is redelivered when the deadline that its client has set is over.
//
// Messages that wait for a nack count toward ReceiveSettings.MaxOutstandingMessages. A retry policy
// of the subscription adds its own time.
//
// # Ids
//
// The id is the attribute Options.IDAttribute. With it, copies are recognized, also when the
// publisher published the message again. Without it the id is the one that the service gave the
// message, with which only redeliveries are recognized. The scope is the name of the subscription.
//
// # Order
//
// In a subscription with message ordering the messages of one ordering key are handled in order. A
// message of a key that is not done gets its nack at once, because the service holds back those
// that follow.
package pubsubqueue
