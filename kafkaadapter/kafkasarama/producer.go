package kafkasarama

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
)

// Producer makes a [kafkaadapter.Producer] of a producer of sarama, for [kafkaadapter.DeadLetters]
// and for messages of [kafkaadapter.Replay]. The producer belongs to the caller. Make it with a
// configuration that [CheckProducer] accepts. The error is an [*dedup.InputError] for a nil
// producer.
func Producer(p sarama.SyncProducer) (kafkaadapter.Producer, error) {
	if p == nil {
		return nil, &dedup.InputError{Field: "Producer", Reason: "is nil"}
	}
	return producer{p}, nil
}

type producer struct{ sarama.SyncProducer }

// Send implements [kafkaadapter.Producer]. It needs a goroutine because sarama's producer knows no
// context.
func (p producer) Send(ctx context.Context, m *kafkaadapter.Message) error {
	out := &sarama.ProducerMessage{Topic: m.Topic, Key: encoder(m.Key), Value: encoder(m.Value)}
	for _, h := range m.Headers() {
		out.Headers = append(out.Headers, sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
	}
	sent := make(chan error, 1)
	go func() {
		_, _, err := p.SendMessage(out)
		sent <- err
	}()
	select {
	case err := <-sent:
		if isTooLarge(err) {
			err = fmt.Errorf("%w: %w", kafkaadapter.ErrTooLarge, err)
		}
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// isTooLarge recognizes the refusal of the broker, and that of sarama, which has no error type of
// its own for it.
func isTooLarge(err error) bool {
	var configured sarama.ConfigurationError
	return errors.Is(err, sarama.ErrMessageSizeTooLarge) ||
		errors.As(err, &configured) && strings.Contains(string(configured), "MaxMessageBytes")
}

// encoder keeps nil and empty apart, so that a tombstone stays a tombstone.
func encoder(b []byte) sarama.Encoder {
	if b == nil {
		return nil
	}
	return sarama.ByteEncoder(b)
}
