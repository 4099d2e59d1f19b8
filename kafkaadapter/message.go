package kafkaadapter

import (
	"context"
	"strings"
	"time"
)

// Message is a Kafka message of any client. Do not change Key, Value or headers. It stays valid
// after its handler has returned.
type Message struct {
	// ID is the id that Config.ID found, that a letter in a retry topic carries, or that
	// Config.Positions makes. It is empty in a message without an id. Only Config.Park and
	// Config.Unclaimed get such messages.
	ID string
	// Topic, Partition and Offset are the position of the message.
	Topic     string
	Partition int32
	Offset    int64
	// Key and Value are nil where the message has none.
	Key, Value []byte
	// Timestamp is of the producer's clock or of the broker's, as the topic's
	// message.timestamp.type says.
	Timestamp time.Time
	// Attempt counts the claims of the ID, from 1. With Config.Unclaimed it counts the runs in
	// this process since the partition was assigned.
	Attempt int
	// Scope is the scope of the message's key in the Deduper: Config.Scope, or [ScopeOf] the group
	// and FirstTopic. A Config.Unclaimed passes it to the code that records the message
	// ([dedup.WithScope]), because two topics may use the same ids.
	Scope string
	// FirstTopic is the topic that the message was first sent to, as Config.TopicName calls it.
	// It differs from Topic in a retry topic and in a mirrored one.
	FirstTopic string
	// TopicID is the UUID of Topic, as Kafka's tools write it; empty where the client or the
	// brokers do not report it.
	TopicID string
	// Label is the label that Config.Label returned. Found is the label of the record that the
	// claim found: that of a duplicate, of a claim in flight elsewhere, or of an earlier attempt.
	// Empty where there is none.
	Label, Found string
	// Raw is the client's own message: a *sarama.ConsumerMessage, *kgo.Record, *kafka.Message
	// (confluent) or kafka.Message (segmentio). Nil in a message that no client delivered.
	Raw any

	headers Headers
	read    HeaderReader // of Raw, until headers are asked for
}

// Header is one header of a message. Kafka allows several with the same key.
type Header struct {
	Key   string
	Value []byte
}

// Headers are the headers of a message, in their order.
type Headers []Header

// HeaderReader reads the headers of Message.Raw. Every driver has one; it is stateless, and safe
// for concurrent use.
type HeaderReader interface {
	// Last returns the value of the last header whose key equals name without regard to case.
	Last(raw any, name string) (value []byte, ok bool)
	// All returns all headers, in their order.
	All(raw any) Headers
}

// SetHeaders gives a message these headers instead of those that it had.
func (m *Message) SetHeaders(h Headers) { m.headers, m.read = h, nil }

// ReadHeaders makes m read its headers from Raw when they are first asked for. It is for drivers.
func (m *Message) ReadHeaders(r HeaderReader) { m.headers, m.read = nil, r }

// Headers returns the headers, in their order. The first call converts them, so it is not safe
// for concurrent use with itself.
func (m *Message) Headers() Headers {
	if m.read != nil {
		m.headers, m.read = m.read.All(m.Raw), nil
	}
	return m.headers
}

// Header returns the value of the last header whose key equals name without regard to case, as
// lastHeader of the Java client does. It is empty where there is none.
func (m *Message) Header(name string) string {
	if m.read != nil {
		value, _ := m.read.Last(m.Raw, name)
		return string(value)
	}
	for i := len(m.headers) - 1; i >= 0; i-- {
		if strings.EqualFold(m.headers[i].Key, name) {
			return string(m.headers[i].Value)
		}
	}
	return ""
}

// Handler performs the effect of one message. Its context ends after Attempts.Timeout, when the
// claim is lost (cause [dedup.ErrLeaseLost]), and when Tuning.Drain of a revoked partition is used
// up; [dedup.FromContext] returns its attempt.
//
// A nil error says that the effect has happened, and the message is recorded before its offset may
// be committed. Return the context's error where the context ended before the effect. After an
// error for which [dedup.IsPermanent] is true, the message goes to Config.Park, or stops the
// consumer. An error returned after the context has ended is never permanent. After any other
// error, and after a panic, the claim is released and the message is handled again after a backoff,
// or after the time of [RetryAfter], up to Attempts.Max times; messages of other keys move on. A
// handler that does not return holds one of Tuning.Workers.
type Handler func(ctx context.Context, m *Message) error

// BatchHandler performs the effects of the messages that may be handled now, at most
// Tuning.BatchMax; those of one key are in their order. It returns an error for each message, with
// the meaning that it has for a [Handler], or nil for all. A slice of another length, or a panic,
// fails all. It suits effects in SQL, with one transaction for a batch; [AllOrNothing] makes such a
// handler.
//
// A message whose batch failed is next handled alone, so that one poison message does not keep its
// neighbors from their effects; the shared attempt does not count.
//
// ctx ends with Attempts.Timeout, when one of the claims is lost, and when the drain budget of a
// revoked partition is used up. [dedup.FromContext] finds no attempt in it.
type BatchHandler func(ctx context.Context, ms []*Message) []error

// Order says which messages wait for each other.
type Order uint8

const (
	// ByKey handles messages of one Kafka key in order. Messages without a key, or with an empty
	// one, wait for no other. It is the default.
	ByKey Order = iota
	// ByPartition handles the messages of a partition one by one.
	ByPartition
	// Unordered handles every message as soon as there is room.
	Unordered
)
