package outbox

import "context"

// Publisher sends messages to a broker. Those of outbox/saramapub and outbox/franzpub send them to
// Kafka, of outbox/natspub to NATS JetStream, of outbox/rabbitpub to RabbitMQ, and of
// outbox/webhookpub to HTTP endpoints. For others see [PublishEach].
type Publisher interface {
	// Publish sends the messages and returns a result for each, in their order. It is nil for one
	// that is acknowledged by all the replicas the broker asks for (Kafka: acks=all), so that its
	// row may be deleted. It is an error for one that is not, or of which that is not known. Nil
	// for the whole means that all are acknowledged; any other length than that of messages that
	// none is known to be.
	//
	// All messages of a call are of one topic, so that a topic that fails or is slow holds up no
	// other. Messages of one key are to be sent in their order, and after one of them has
	// failed the later ones should not be sent: see [ErrOvertaken]. [Reject] marks the error of
	// a message that would always fail. The last header carries the ID.
	//
	// When ctx ends Publish should return soon, with errors for what is not acknowledged. A relay
	// continues after RelayConfig.PublishTimeout in any case, and has the messages published again.
	// ctx ends then, and for a call that takes long a second after Run was told to stop. Several
	// goroutines call Publish at once. The messages must not be changed, nor kept when it returns.
	Publish(ctx context.Context, messages []Message) []error
}

// Checker is what a [Publisher] may have as well: it refuses, before anything is sent, what the
// broker would refuse for what it is, such as a message that is too large. So the later messages of
// its key are not sent before it. A message that is refused is parked at once, because it would be
// refused again each time.
type Checker interface {
	// Check returns why the message cannot be sent, or nil. Several goroutines call it at once.
	Check(message *Message) error
}
