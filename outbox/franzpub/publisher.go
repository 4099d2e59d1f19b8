// Package franzpub publishes the messages of an outbox to Kafka with franz-go.
//
//	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
//	...
//	publisher, err := franzpub.New(client)
//	...
//	relay, err := outbox.NewRelay(outbox.RelayConfig{Publisher: publisher, ...})
//
// kgo's defaults are right: an idempotent producer that waits for all in-sync replicas, and keys
// that stay in their partitions. The error of [New] says which other setting is wrong.
package franzpub

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/outbox/internal/batchsplit"
)

// Publisher sends messages to Kafka, those of one topic and key in their order. Make it with
// [New]. It is safe for concurrent use and has nothing to close.
type Publisher struct {
	client  *kgo.Client
	brokers []string // kgo.SeedBrokers, for errors
	limits  limits
}

var (
	_ outbox.Publisher = (*Publisher)(nil)
	_ outbox.Checker   = (*Publisher)(nil)
)

// New checks the client, which belongs to the caller. Close it when every relay that uses it has
// stopped. An [*outbox.InputError] names the first option under which a message would be lost, not
// sent, sent to another topic, sent twice without a crash, or sent out of order.
func New(client *kgo.Client) (*Publisher, error) {
	bad := func(option, reason string) error {
		return &outbox.InputError{Field: "kgo." + option, Reason: reason}
	}
	if client == nil {
		return nil, bad("Client", "is nil")
	}
	partitioner, _ := client.OptValue(kgo.RecordPartitioner).(kgo.Partitioner)
	switch {
	case client.OptValue(kgo.RequiredAcks) != kgo.AllISRAcks():
		return nil, bad("RequiredAcks",
			"is not AllISRAcks: a message could be deleted here and lost with the leader that has it alone")
	case client.OptValue(kgo.DisableIdempotentWrite) == true:
		return nil, bad("DisableIdempotentWrite",
			"is set: a repeated request would send messages twice, and out of order")
	case client.OptValue(kgo.AllowIdempotentProduceCancellation) == true:
		return nil, bad("AllowIdempotentProduceCancellation",
			"is set: records that are given up may still arrive, twice or out of order")
	case client.OptValue(kgo.TransactionalID) != "":
		return nil, bad("TransactionalID",
			"is set: records outside of a transaction would fail")
	case client.OptValue(kgo.DefaultProduceTopicAlways) == true:
		return nil, bad("DefaultProduceTopicAlways",
			"is set: every message would go to that topic instead of its own")
	case client.OptValue(kgo.ManualFlushing) == true:
		return nil, bad("ManualFlushing",
			"is set: nothing would be sent until somebody calls Flush")
	case partitioner == nil ||
		!partitioner.ForTopic("t").RequiresConsistency(&kgo.Record{Topic: "t", Key: []byte("k")}):
		return nil, bad("RecordPartitioner",
			"does not keep a key in one partition: its order would be lost")
	}
	brokers, _ := client.OptValue(kgo.SeedBrokers).([]string)
	return &Publisher{client, brokers, limitsOf(client)}, nil
}

// Publish sends the messages with one ProduceSync. When a message is too large for its topic the
// broker refuses its whole batch of records. Then Publish sends them again one by one, and rejects
// the one that is too large. When kgo gives up a message it also fails those after it, so no
// message overtakes.
//
// kgo tries a record, or waits for the leader of its partition, until ctx ends after the relay's
// PublishTimeout, or until the client's RecordDeliveryTimeout if it has one. All results of a call
// come together, so the relay deletes no published message earlier. Each call has messages of one
// topic.
//
// When ctx ends kgo gives up records that are not on their way yet. For the others it waits for the
// answer; the relay does not wait for that.
func (p *Publisher) Publish(ctx context.Context, messages []outbox.Message) []error {
	results := p.send(ctx, messages)
	batchsplit.Resend(ctx, messages, results, refused, func(i int) error {
		return p.send(ctx, messages[i:i+1])[0]
	})
	return results
}

func refused(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.InvalidRecord) ||
		errors.Is(err, kerr.InvalidTopicException)
}

// errNoResult is the result of a record for which kgo has returned none: it must not count as
// acknowledged.
var errNoResult = errors.New("franzpub: kgo returned no result")

// send returns a result for each message. ProduceSync returns them in the order in which they
// ended.
func (p *Publisher) send(ctx context.Context, messages []outbox.Message) []error {
	records := make([]*kgo.Record, len(messages))
	at := make(map[*kgo.Record]int, len(messages))
	for i := range messages {
		records[i] = record(&messages[i])
		at[records[i]] = i
	}
	results := make([]error, len(messages))
	for i := range results {
		results[i] = errNoResult
	}
	for _, r := range p.client.ProduceSync(ctx, records...) {
		results[at[r.Record]] = p.located(r.Record.Topic, r.Err)
	}
	return results
}

// located says of which topic and brokers an error is. kgo's own error for brokers that it cannot
// reach is only that the context has ended.
func (p *Publisher) located(topic string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("franzpub: topic %q, brokers %v: %w", topic, p.brokers, err)
}

func record(m *outbox.Message) *kgo.Record {
	r := &kgo.Record{Topic: m.Topic, Key: m.Key, Value: m.Payload,
		Headers: make([]kgo.RecordHeader, len(m.Headers))}
	for i, h := range m.Headers {
		r.Headers[i] = kgo.RecordHeader{Key: h.Key, Value: h.Value}
	}
	return r
}
