package kafkasegmentio

import (
	"context"
	"errors"
	"fmt"

	"github.com/segmentio/kafka-go"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// Message makes a message of one that kafka-go has delivered, for [kafkaadapter.Replay] and for
// tests of a handler. ID, Scope and Attempt, which a consumer sets, are empty.
func Message(m kafka.Message) *kafkaadapter.Message {
	out := messageOf(m)
	return &out
}

func messageOf(m kafka.Message) kafkaadapter.Message {
	out := kafkaadapter.Message{Topic: m.Topic, Partition: int32(m.Partition), Offset: m.Offset,
		Key: m.Key, Value: m.Value, Timestamp: m.Time, Raw: m}
	out.ReadHeaders(headers)
	return out
}

// headers reads the headers of a message when somebody asks for them.
var headers = kafkadriver.HeadersOf[kafka.Header](func(raw any) []kafka.Header {
	return raw.(kafka.Message).Headers //nolint:errcheck,forcetypeassert // of messageOf
})

// Producer makes a [kafkaadapter.Producer] of a writer, for [kafkaadapter.DeadLetters] and for
// messages of [kafkaadapter.Replay]. The writer belongs to the caller. A letter counts as sent once
// every in-sync replica has it. Before it is sent, it waits for up to the writer's BatchTimeout, by
// default a second.
//
// An [*dedup.InputError] names a setting with which a letter could be lost, or could not be sent.
// RequiredAcks must be kafka.RequireAll, Async must not be set, and Addr must be set. Topic must be
// empty, because a letter has its own. The settings must not be changed later.
func Producer(w *kafka.Writer) (kafkaadapter.Producer, error) {
	bad := func(field, reason string) error {
		return &dedup.InputError{Field: field, Reason: reason}
	}
	switch {
	case w == nil:
		return nil, bad("writer", "is nil")
	case w.RequiredAcks != kafka.RequireAll:
		return nil, bad("kafka.Writer.RequiredAcks",
			"is not RequireAll: a letter could be lost with the leader that has it alone")
	case w.Async:
		return nil, bad("kafka.Writer.Async", "is set: nobody would hear of a letter that is lost")
	case w.Addr == nil:
		return nil, bad("kafka.Writer.Addr", "is nil")
	case w.Topic != "":
		return nil, bad("kafka.Writer.Topic", "is set: a letter has its own topic")
	}
	return producer{w}, nil
}

type producer struct{ writer *kafka.Writer }

// Send implements [kafkaadapter.Producer]. Key and value are not copied: a nil one stays nil.
func (p producer) Send(ctx context.Context, m *kafkaadapter.Message) error {
	out := kafka.Message{Topic: m.Topic, Key: m.Key, Value: m.Value}
	for _, h := range m.Headers() {
		out.Headers = append(out.Headers, kafka.Header{Key: h.Key, Value: h.Value})
	}
	err := p.writer.WriteMessages(ctx, out)
	if all := (kafka.WriteErrors)(nil); errors.As(err, &all) && len(all) == 1 {
		err = all[0]
	}
	if errors.Is(err, kafka.MessageSizeTooLarge) {
		return fmt.Errorf("%w: %w", kafkaadapter.ErrTooLarge, err)
	}
	return err
}
