package kafkaconfluent

import (
	"context"
	"fmt"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// Message makes a message of one that the client has delivered, for [kafkaadapter.Replay] and for
// tests of a handler. ID, Scope and Attempt, which a consumer sets, are empty.
func Message(m *kafka.Message) *kafkaadapter.Message {
	if m == nil {
		return nil
	}
	out := messageOf(m)
	return &out
}

func messageOf(m *kafka.Message) kafkaadapter.Message {
	out := kafkaadapter.Message{Partition: m.TopicPartition.Partition,
		Offset: int64(m.TopicPartition.Offset), Key: m.Key, Value: m.Value,
		Timestamp: m.Timestamp, Raw: m}
	if m.TopicPartition.Topic != nil {
		out.Topic = *m.TopicPartition.Topic
	}
	out.ReadHeaders(headers)
	return out
}

// headers reads the headers of a message when somebody asks for them.
var headers = kafkadriver.HeadersOf[kafka.Header](func(raw any) []kafka.Header {
	return raw.(*kafka.Message).Headers //nolint:errcheck,forcetypeassert // of messageOf
})

// deliveryLimit is librdkafka's default of message.timeout.ms.
const deliveryLimit = 300000

// CheckProducer returns an [*dedup.InputError] that names the first property of a producer's
// configuration with which a letter could be lost, or would never be given up. acks must be all, as
// it is by default. transactional.id must not be set. message.timeout.ms must be at most a minute.
// A *kafka.Producer does not report its configuration, so call CheckProducer before the producer is
// made.
func CheckProducer(config kafka.ConfigMap) error {
	p := properties(config)
	limit, isNumber := p.millis("message.timeout.ms", deliveryLimit)
	if _, ok := config["message.timeout.ms"]; !ok {
		limit, isNumber = p.millis("delivery.timeout.ms", deliveryLimit) // its other name
	}
	for _, name := range []string{"acks", "request.required.acks"} {
		if acks := p.text(name); acks != "" && acks != "all" && acks != "-1" {
			return bad(name,
				"is %s, not all: a letter could be lost with the leader that has it alone", acks)
		}
	}
	switch {
	case config["default.topic.config"] != nil:
		return bad("default.topic.config",
			"is set: it is deprecated, and would win over what is checked here")
	case p.text("transactional.id") != "":
		return bad("transactional.id", "is set: a letter of an aborted transaction is none")
	case !isNumber, limit <= 0, limit > time.Minute:
		return bad("message.timeout.ms",
			"must be at most a minute: while the topic is down a letter would not be given up")
	}
	return nil
}

// Producer makes a [kafkaadapter.Producer] of a client, for [kafkaadapter.DeadLetters] and for
// messages of [kafkaadapter.Replay]. The client belongs to the caller, who must read its Events
// channel. Make it with a configuration that [CheckProducer] accepts. A letter counts as sent once
// its delivery has been reported. The error is an [*dedup.InputError] for a client that is nil or
// closed.
func Producer(client *kafka.Producer) (kafkaadapter.Producer, error) {
	switch {
	case client == nil:
		return nil, &dedup.InputError{Field: "Producer", Reason: "is nil"}
	case client.IsClosed():
		return nil, &dedup.InputError{Field: "Producer", Reason: "is closed"}
	}
	return producer{client}, nil
}

type producer struct{ client *kafka.Producer }

// Send implements [kafkaadapter.Producer]. librdkafka does not give up a message that is under way.
// It copies key and value; a nil one stays nil.
func (p producer) Send(ctx context.Context, m *kafkaadapter.Message) error {
	topic := m.Topic
	out := &kafka.Message{Key: m.Key, Value: m.Value,
		TopicPartition: kafka.TopicPartition{Topic: &topic, Partition: kafka.PartitionAny}}
	for _, h := range m.Headers() {
		out.Headers = append(out.Headers, kafka.Header{Key: h.Key, Value: h.Value})
	}
	reports := make(chan kafka.Event, 1)
	if err := p.client.Produce(out, reports); err != nil {
		return sizeable(err)
	}
	select {
	case event := <-reports:
		report, ok := event.(*kafka.Message)
		if !ok {
			return fmt.Errorf("kafkaconfluent: the delivery was answered with %v", event)
		}
		return sizeable(report.TopicPartition.Error)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// sizeable wraps ErrTooLarge around an error of librdkafka, or of a broker, for a message that is
// too large.
func sizeable(err error) error {
	switch codeOf(err) {
	case kafka.ErrMsgSizeTooLarge, kafka.ErrRecordListTooLarge, kafka.ErrInvalidMsgSize:
		return fmt.Errorf("%w: %w", kafkaadapter.ErrTooLarge, err)
	}
	return err
}
