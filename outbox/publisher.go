package outbox

import "context"

// Publisher sends messages to a broker. There are publishers for Kafka ([saramapub] and
// [franzpub]), NATS JetStream ([natspub]), RabbitMQ ([rabbitpub]) and HTTP endpoints
// ([webhookpub]). For other brokers see [PublishEach].
//
// [saramapub]: https://pkg.go.dev/github.com/onceward/onceward/outbox/saramapub
// [franzpub]: https://pkg.go.dev/github.com/onceward/onceward/outbox/franzpub
// [natspub]: https://pkg.go.dev/github.com/onceward/onceward/outbox/natspub
// [rabbitpub]: https://pkg.go.dev/github.com/onceward/onceward/outbox/rabbitpub
// [webhookpub]: https://pkg.go.dev/github.com/onceward/onceward/outbox/webhookpub
type Publisher interface {
	// Publish sends the messages and returns a result for each, in their order. The result is nil
	// when all the replicas that the broker requires have acknowledged the message (Kafka:
	// acks=all), so that its row may be deleted. It is an error when they have not, or when that is
	// not known. A nil slice means that all messages are acknowledged. A slice of another length
	// than messages means that no message is known to be acknowledged.
	//
	// All messages of a call are of one topic, so that a topic that fails or is slow holds up no
	// other. Send messages of one key in their order, and after one of them has failed do not send
	// the later ones: see [ErrOvertaken]. [Reject] marks the error of a message that would always
	// fail. The last header carries the ID.
	//
	// When ctx ends Publish should return soon, with errors for what is not acknowledged. After
	// RelayConfig.PublishTimeout ctx ends, and the relay continues in any case and publishes the
	// messages again. For a call that takes long ctx also ends a second after Run was told to stop.
	// Several goroutines call Publish at once. It must neither change the messages nor keep them
	// after it returns.
	Publish(ctx context.Context, messages []Message) []error
}

// Checker is an optional interface of a [Publisher]. Before anything is sent, it refuses messages
// that the broker would refuse for what they are, such as one that is too large. So no later
// message of its key overtakes it. The relay parks a refused message at once, because it would be
// refused again each time.
type Checker interface {
	// Check returns why the message cannot be sent, or nil. Several goroutines call it at once.
	Check(message *Message) error
}
