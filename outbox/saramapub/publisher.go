// Package saramapub publishes the messages of an outbox to Kafka with sarama.
//
//	client, err := sarama.NewClient(brokers, saramapub.SafeConfig(sarama.NewConfig()))
//	...
//	publisher, err := saramapub.New(client)
//	...
//	relay, err := outbox.NewRelay(outbox.RelayConfig{Publisher: publisher, ...})
//
// The producer must be idempotent and wait for all in-sync replicas; [CheckConfig] says what
// is wrong with one that does not.
package saramapub

import (
	"context"
	"errors"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/outbox/internal/alone"
)

// Publisher sends messages to Kafka, those of one topic and key in their order. Make it with
// [New]. It is safe for concurrent use.
type Publisher struct {
	producer sarama.SyncProducer
	limit    int
}

var (
	_ outbox.Publisher = (*Publisher)(nil)
	_ outbox.Checker   = (*Publisher)(nil)
)

// New makes a producer on the client, whose configuration must pass [CheckConfig]. The client
// belongs to the caller, who closes it after the Publisher.
//
// Producer.MaxMessageBytes should not exceed max.message.bytes of the topics: what a topic refuses
// takes its whole batch down, and sarama may send the next batch of the partition all the same.
// Then the messages of that one have overtaken those of the first: see [outbox.ErrOvertaken]. With
// a limit that is low enough sarama makes no batch that is refused.
//
// The same comes of a batch whose Producer.Retry is used up while the next one waits: three times
// 100 ms by default. Have it go on for longer than a partition is without a leader, or without
// enough replicas.
func New(client sarama.Client) (*Publisher, error) {
	if client == nil {
		return nil, &outbox.InputError{Field: "sarama.Client", Reason: "is nil"}
	}
	cfg := client.Config()
	if err := CheckConfig(cfg); err != nil {
		return nil, err
	}
	producer, err := sarama.NewSyncProducerFromClient(client)
	if err != nil {
		return nil, err
	}
	return &Publisher{producer: producer, limit: cfg.Producer.MaxMessageBytes}, nil
}

// Close ends the producer. Call it when every relay that uses it has stopped, and once: a message
// that is sent after it is a panic of sarama.
func (p *Publisher) Close() error { return p.producer.Close() }

// recordVersion is that of a record batch, with headers.
const recordVersion = 2

// Check refuses a message that sarama would: larger than Producer.MaxMessageBytes.
func (p *Publisher) Check(m *outbox.Message) error {
	if message(m).ByteSize(recordVersion) > p.limit {
		return sarama.ErrMessageSizeTooLarge
	}
	return nil
}

// Publish sends the messages with one SendMessages. A message that is too large for its topic,
// though not for Producer.MaxMessageBytes, makes the broker refuse all that sarama has put
// into one request with it; then they are sent again one by one, and that one is rejected.
//
// SendMessages knows no context: nothing is sent when ctx has ended, but while the cluster is down it takes as
// long as the timeouts and repetitions of the configuration make it; the relay does not wait for it.
func (p *Publisher) Publish(ctx context.Context, messages []outbox.Message) []error {
	if err := context.Cause(ctx); err != nil {
		results := make([]error, len(messages))
		for i := range results {
			results[i] = err
		}
		return results
	}
	results := p.send(messages)
	alone.Resend(ctx, messages, results, tooLarge, func(i int) error { return p.send(messages[i : i+1])[0] })
	return results
}

func tooLarge(err error) bool {
	return errors.Is(err, sarama.ErrMessageSizeTooLarge) || errors.Is(err, sarama.ErrInvalidRecord) ||
		errors.Is(err, sarama.ErrInvalidTopic)
}

// send returns a result for each.
func (p *Publisher) send(messages []outbox.Message) []error {
	out := make([]*sarama.ProducerMessage, len(messages))
	at := make(map[*sarama.ProducerMessage]int, len(messages))
	for i := range messages {
		out[i] = message(&messages[i])
		at[out[i]] = i
	}
	results := make([]error, len(messages))
	err := p.producer.SendMessages(out)
	var some sarama.ProducerErrors
	switch {
	case err == nil:
	case errors.As(err, &some):
		for _, one := range some {
			results[at[one.Msg]] = one.Err
		}
	default:
		for i := range results {
			results[i] = err
		}
	}
	return results
}

func message(m *outbox.Message) *sarama.ProducerMessage {
	out := &sarama.ProducerMessage{Topic: m.Topic, Headers: make([]sarama.RecordHeader, len(m.Headers))}
	// A nil encoder is a nil key or value: no partition of its own, and a tombstone.
	if m.Key != nil {
		out.Key = sarama.ByteEncoder(m.Key)
	}
	if m.Payload != nil {
		out.Value = sarama.ByteEncoder(m.Payload)
	}
	for i, h := range m.Headers {
		out.Headers[i] = sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value}
	}
	return out
}
