package kafkafranz

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkadriver"
)

// Message makes a message of a record that kgo has delivered, for [kafkaadapter.Replay] and for
// tests of a handler. ID, Scope and Attempt, which a consumer sets, are empty.
func Message(r *kgo.Record) *kafkaadapter.Message {
	if r == nil {
		return nil
	}
	out := messageOf(r)
	return &out
}

func messageOf(r *kgo.Record) kafkaadapter.Message {
	m := kafkaadapter.Message{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key,
		Value: r.Value, Timestamp: r.Timestamp, Raw: r}
	m.ReadHeaders(headers)
	return m
}

// headers reads the headers of a message when somebody asks for them.
var headers = kafkadriver.HeadersOf[kgo.RecordHeader](func(raw any) []kgo.RecordHeader {
	return raw.(*kgo.Record).Headers //nolint:errcheck,forcetypeassert // of messageOf
})

// Producer makes a [kafkaadapter.Producer] of a client, for [kafkaadapter.DeadLetters] and for
// messages of [kafkaadapter.Replay]. The client belongs to the caller. Do not use a consumer's
// client: it is closed before its last letters may be sent. A letter counts as sent once every
// in-sync replica has it.
//
// An [*dedup.InputError] names an option with which a letter could be lost, or would never be given
// up: kgo.RequiredAcks must be AllISRAcks, kgo.TransactionalID must not be set, and
// kgo.RecordDeliveryTimeout must be at most a minute.
func Producer(client *kgo.Client) (kafkaadapter.Producer, error) {
	bad := func(field, reason string) error {
		return &dedup.InputError{Field: field, Reason: reason}
	}
	if client == nil {
		return nil, bad("client", "is nil")
	}
	limit, _ := client.OptValue(kgo.RecordDeliveryTimeout).(time.Duration)
	switch {
	case client.OptValue(kgo.RequiredAcks) != kgo.AllISRAcks():
		return nil, bad("kgo.RequiredAcks",
			"is not AllISRAcks: a letter could be lost with the leader that has it alone")
	case client.OptValue(kgo.TransactionalID) != "":
		return nil, bad("kgo.TransactionalID",
			"is set: a letter of an aborted transaction is none")
	case limit <= 0, limit > time.Minute:
		return nil, bad("kgo.RecordDeliveryTimeout",
			"must be at most a minute: while the topic is down a letter would never be given up")
	}
	return producer{client}, nil
}

type producer struct{ client *kgo.Client }

// Send implements [kafkaadapter.Producer]. kgo does not give up a record that is under way. Key and
// value are not copied: a nil one stays nil.
func (p producer) Send(ctx context.Context, m *kafkaadapter.Message) error {
	r := &kgo.Record{Topic: m.Topic, Key: m.Key, Value: m.Value}
	for _, h := range m.Headers() {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	sent := make(chan error, 1)
	p.client.TryProduce(ctx, r, func(_ *kgo.Record, err error) { sent <- err })
	select {
	case err := <-sent:
		if errors.Is(err, kerr.MessageTooLarge) {
			err = fmt.Errorf("%w: %w", kafkaadapter.ErrTooLarge, err)
		}
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
