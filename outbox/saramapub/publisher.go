// Package saramapub publishes the messages of an outbox to Kafka with sarama.
//
//	client, err := sarama.NewClient(brokers, saramapub.SafeConfig(sarama.NewConfig()))
//	...
//	publisher, err := saramapub.New(client)
//	...
//	relay, err := outbox.NewRelay(outbox.RelayConfig{Publisher: publisher, ...})
//
// The producer must be idempotent and wait for all in-sync replicas; [CheckConfig] says which
// setting is wrong.
package saramapub

import (
	"context"
	"errors"
	"sync"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/outbox/internal/batchsplit"
)

// Publisher sends messages to Kafka, those of one topic and key in their order. Make it with
// [New]. It is safe for concurrent use.
type Publisher struct {
	client sarama.Client
	limit  int

	mu        sync.Mutex
	closed    bool
	producers map[string]*producer // of each topic
}

// producer is made by the first call that needs it. Only calls of the same topic wait for that.
type producer struct {
	make func() (sarama.SyncProducer, error)
}

var (
	_ outbox.Publisher = (*Publisher)(nil)
	_ outbox.Checker   = (*Publisher)(nil)
)

// New checks the configuration of the client, which must pass [CheckConfig]. The client belongs to
// the caller, who closes it after the Publisher.
//
// Each topic has its own producer on that client: one goroutine of a producer dispatches the
// messages of all its topics, and it blocks while sarama looks for a missing topic.
//
// Producer.MaxMessageBytes should not exceed max.message.bytes of the topics. When a topic refuses
// a message the whole batch fails, and sarama may still send the next batch of the partition. Then
// the messages of the second batch have overtaken those of the first: see [outbox.ErrOvertaken].
// With a low enough limit sarama makes no batch that is refused.
//
// The same happens when a batch has used up its Producer.Retry, three times 100 ms by default,
// while the next one waits. Set it to retry for longer than a partition may be without a leader, or
// without enough replicas.
func New(client sarama.Client) (*Publisher, error) {
	if client == nil {
		return nil, &outbox.InputError{Field: "sarama.Client", Reason: "is nil"}
	}
	cfg := client.Config()
	if err := CheckConfig(cfg); err != nil {
		return nil, err
	}
	return &Publisher{client: client, limit: cfg.Producer.MaxMessageBytes,
		producers: map[string]*producer{}}, nil
}

var errClosed = errors.New("saramapub: the publisher is closed")

// Close ends the producers. Call it when every relay that uses the Publisher has stopped. Later
// calls of Publish fail. Close waits for calls that still run: while the cluster is down, as long
// as the configured timeouts and retries take.
func (p *Publisher) Close() error {
	p.mu.Lock()
	p.closed = true
	all := p.producers
	p.producers = nil
	p.mu.Unlock()
	var errs []error
	for _, one := range all {
		if made, err := one.make(); err == nil {
			errs = append(errs, made.Close())
		}
	}
	return errors.Join(errs...)
}

// of returns the producer of a topic. If there is none yet it makes one, and asks the cluster for a
// producer id.
func (p *Publisher) of(topic string) (sarama.SyncProducer, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, errClosed
	}
	one := p.producers[topic]
	if one == nil {
		one = &producer{sync.OnceValues(func() (sarama.SyncProducer, error) {
			return sarama.NewSyncProducerFromClient(p.client)
		})}
		p.producers[topic] = one
	}
	p.mu.Unlock()
	made, err := one.make()
	if err != nil { // the next call tries again
		p.mu.Lock()
		if p.producers[topic] == one {
			delete(p.producers, topic)
		}
		p.mu.Unlock()
	}
	return made, err
}

// recordVersion is the version of record batches that have headers.
const recordVersion = 2

// Check refuses a message that sarama would refuse: one that is larger than
// Producer.MaxMessageBytes.
func (p *Publisher) Check(m *outbox.Message) error {
	if message(m).ByteSize(recordVersion) > p.limit {
		return sarama.ErrMessageSizeTooLarge
	}
	return nil
}

// Publish sends the messages with one SendMessages for each topic. When a message is too large for
// its topic, though not for Producer.MaxMessageBytes, the broker refuses everything that sarama has
// put into one request with it. Then Publish sends these messages again one by one, and rejects the
// one that is too large.
//
// SendMessages takes no context. Publish sends nothing when ctx has ended. But while the cluster is
// down a call takes as long as the configured timeouts and retries; the relay does not wait for it.
func (p *Publisher) Publish(ctx context.Context, messages []outbox.Message) []error {
	if err := context.Cause(ctx); err != nil {
		results := make([]error, len(messages))
		for i := range results {
			results[i] = err
		}
		return results
	}
	results := p.send(messages)
	batchsplit.Resend(ctx, messages, results, tooLarge, func(i int) error {
		return p.send(messages[i : i+1])[0]
	})
	return results
}

func tooLarge(err error) bool {
	return errors.Is(err, sarama.ErrMessageSizeTooLarge) ||
		errors.Is(err, sarama.ErrInvalidRecord) ||
		errors.Is(err, sarama.ErrInvalidTopic)
}

// send returns a result for each message.
func (p *Publisher) send(messages []outbox.Message) []error {
	results := make([]error, len(messages))
	of := map[string][]int{}
	var topics []string
	for i := range messages {
		topic := messages[i].Topic
		if len(of[topic]) == 0 {
			topics = append(topics, topic)
		}
		of[topic] = append(of[topic], i)
	}
	for _, topic := range topics {
		p.sendTo(topic, messages, of[topic], results)
	}
	return results
}

// sendTo sends the messages of one topic.
func (p *Publisher) sendTo(topic string, messages []outbox.Message, which []int, results []error) {
	out := make([]*sarama.ProducerMessage, len(which))
	at := make(map[*sarama.ProducerMessage]int, len(which))
	for n, i := range which {
		out[n] = message(&messages[i])
		at[out[n]] = i
	}
	producer, err := p.of(topic)
	if err == nil {
		err = producer.SendMessages(out)
	}
	var some sarama.ProducerErrors
	switch {
	case err == nil:
	case errors.As(err, &some):
		for _, one := range some {
			results[at[one.Msg]] = one.Err
		}
	default:
		for _, i := range which {
			results[i] = err
		}
	}
}

func message(m *outbox.Message) *sarama.ProducerMessage {
	out := &sarama.ProducerMessage{Topic: m.Topic,
		Headers: make([]sarama.RecordHeader, len(m.Headers))}
	// A nil encoder is a nil key, which has no fixed partition, or a nil value, which is a
	// tombstone.
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
