package kafkaadapter

import (
	"context"
	"fmt"

	"github.com/onceward/onceward/dedup"
)

// DownstreamHeader returns the header message-id, whose value is the DownstreamKey that the attempt
// under ctx has for the purpose. Add it to a message that a handler produces. When the handler runs
// again, because its process died, it produces the message with the same id again, and a consumer
// with [DefaultID] has its effect once. Give each message that one handler produces a purpose of
// its own, such as "invoice" and "mail", and the same one in every attempt: two messages with one
// purpose would be one message to the consumer. Do not add it to a message that has an id of its
// own.
//
// Outside of an attempt the error is an [*dedup.InputError]: without an id the message could have
// its effect twice.
func DownstreamHeader(ctx context.Context, purpose ...string) (Header, error) {
	attempt, ok := dedup.FromContext(ctx)
	if !ok {
		return Header{}, &dedup.InputError{Field: "kafkaadapter.DownstreamHeader",
			Reason: fmt.Sprintf("is asked for %q outside of an attempt: use the context of the"+
				" handler", purpose)}
	}
	return Header{Key: "message-id", Value: []byte(attempt.DownstreamKey(purpose...))}, nil
}
