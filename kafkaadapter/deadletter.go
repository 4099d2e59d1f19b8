package kafkaadapter

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter/internal/letter"
)

// The headers that a dead letter has beside those of its message.
const (
	// HeaderID has the id of the message, under which it was claimed. It is missing where
	// there is none, or none that a Deduper takes.
	HeaderID = letter.ID
	// HeaderScope has the scope under which it was claimed: its key's in the Deduper.
	HeaderScope = letter.Scope
	// HeaderFirstTopic is the topic that the message came from first, as Config.TopicName calls
	// it. It differs from HeaderTopic for what came through one of Config.RetryTopics.
	HeaderFirstTopic = letter.FirstTopic
	// HeaderTopic, HeaderPartition and HeaderOffset say where the message lay.
	HeaderTopic     = letter.Topic
	HeaderPartition = letter.Partition
	HeaderOffset    = letter.Offset
	// HeaderTimestamp is the message's own, in RFC 3339 with milliseconds, UTC.
	HeaderTimestamp = letter.Timestamp
	// HeaderAttempts counts the claims of the message.
	HeaderAttempts = letter.Attempts
	// HeaderError says why it could not be processed, in at most 1 KiB.
	HeaderError = letter.Error
	// HeaderTooLarge has the size of the value of a message that the dead-letter topic did
	// not take; the letter is empty then.
	HeaderTooLarge = letter.TooLarge
)

// DeadLetterConfig configures [DeadLetters].
type DeadLetterConfig struct {
	// Producer sends the letters, and belongs to the caller. Make it of a configuration
	// that [CheckProducer] accepts: a letter counts when every in-sync replica has it.
	// Required.
	Producer sarama.SyncProducer

	// Topic names the dead-letter topic of a message. It must not be one that the consumer
	// reads. It is called concurrently; when it returns nothing, or panics, the message
	// stays where it is. Required.
	Topic func(m *Message) string
}

// DeadLetters returns a function for [Config.Park] that sends what cannot be processed to
// a dead-letter topic: key, value and headers as they are, and in further headers the id and
// its scope, the position, the attempts and the reason. It returns nil when the broker has
// acknowledged the letter; until then the offset is not committed, and while the topic is
// down the message's lane waits and nothing is lost.
//
// A crash, or the end of ctx, between the letter and its acknowledgement sends it twice:
// HeaderTopic, HeaderPartition and HeaderOffset are the same in both. A letter that is too
// large for the topic goes without its value, and if that is not enough without key and
// headers, and says so; they stay where the position says, for as long as its topic keeps
// them.
//
// An [*dedup.InputError] names a field that is missing.
func DeadLetters(cfg DeadLetterConfig) (park func(context.Context, *Message, error) error,
	err error) {
	bad := func(field string) error {
		return &dedup.InputError{Field: "kafkaadapter.DeadLetterConfig." + field, Reason: "is nil"}
	}
	switch {
	case cfg.Producer == nil:
		return nil, bad("Producer")
	case cfg.Topic == nil:
		return nil, bad("Topic")
	}
	return cfg.park, nil
}

func (c *DeadLetterConfig) park(ctx context.Context, m *Message, reason error) error {
	topic := c.Topic(m)
	if topic == "" {
		return errors.New("kafkaadapter: DeadLetterConfig.Topic names no topic")
	}
	err := c.send(ctx, whole(topic, m, reason))
	if !tooLarge(err) {
		return err
	}
	if err := c.send(ctx, short(topic, m, reason)); !tooLarge(err) {
		return err
	}
	// It is not the value: a header or a key of a megabyte must not hold up its lane for ever.
	bare := short(topic, m, reason)
	bare.Key = nil
	bare.Headers = slices.DeleteFunc(bare.Headers, func(h sarama.RecordHeader) bool {
		return !letter.IsOwn(h.Key)
	})
	return c.send(ctx, bare)
}

// short is a letter without its value.
func short(topic string, m *Message, reason error) *sarama.ProducerMessage {
	out := whole(topic, m, reason)
	out.Value = sarama.ByteEncoder{}
	out.Headers = append(out.Headers, header(HeaderTooLarge, strconv.Itoa(len(m.Value))))
	return out
}

// send returns at the latest when ctx ends: sarama's producer knows no context.
func (c *DeadLetterConfig) send(ctx context.Context, msg *sarama.ProducerMessage) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	sent := make(chan error, 1)
	go func() {
		_, _, err := c.Producer.SendMessage(msg)
		sent <- err
	}()
	select {
	case err := <-sent:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// tooLarge recognises the broker's refusal, and that of sarama, which has no type of its
// own for it.
func tooLarge(err error) bool {
	var configured sarama.ConfigurationError
	return errors.Is(err, sarama.ErrMessageSizeTooLarge) ||
		errors.As(err, &configured) && strings.Contains(string(configured), "MaxMessageBytes")
}

// whole makes the dead letter of a message. Headers of ours that the message has, because
// it was a letter once, are replaced.
func whole(topic string, m *Message, reason error) *sarama.ProducerMessage {
	out := &sarama.ProducerMessage{Topic: topic, Key: encoder(m.Key), Value: encoder(m.Value)}
	for _, h := range m.Headers {
		if h != nil && (m.short || !letter.IsOwn(h.Key)) {
			out.Headers = append(out.Headers, *h)
		}
	}
	if m.short {
		return out // its headers go on saying where the value is
	}
	about := letter.Letter{
		ID: m.ID, Scoped: letter.Scoped{Scope: m.Scope, First: cmp.Or(m.first, m.Topic)},
		Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, Timestamp: m.Timestamp,
		Attempts: m.Attempt, Reason: reason,
	}
	for _, h := range about.Headers() {
		out.Headers = append(out.Headers, header(h.Key, h.Value))
	}
	return out
}

func header(key, value string) sarama.RecordHeader {
	return sarama.RecordHeader{Key: []byte(key), Value: []byte(value)}
}

// encoder keeps nil apart from empty: a tombstone stays one.
func encoder(b []byte) sarama.Encoder {
	if b == nil {
		return nil
	}
	return sarama.ByteEncoder(b)
}

// CheckProducer returns an [*dedup.InputError] that names the first setting of c under
// which a dead letter would be lost, or not be known to be there.
func CheckProducer(c *sarama.Config) error {
	bad := func(field, reason string) error {
		return &dedup.InputError{Field: "sarama.Config." + field, Reason: reason}
	}
	switch {
	case c == nil:
		return &dedup.InputError{Field: "sarama.Config", Reason: "is nil"}
	case c.Producer.RequiredAcks != sarama.WaitForAll:
		return bad("Producer.RequiredAcks",
			"is not WaitForAll: a letter could be lost with the leader that has it alone")
	case !c.Producer.Return.Successes, !c.Producer.Return.Errors:
		return bad("Producer.Return",
			"must have Successes and Errors on, for a producer that waits")
	case c.Producer.Retry.Max < 1:
		return bad("Producer.Retry.Max", "is below 1: a change of leaders would fail every letter")
	case !c.Version.IsAtLeast(sarama.V0_11_0_0):
		return bad("Version", "is below 0.11: letters need headers")
	case c.Producer.Timeout <= 0 || c.Producer.Timeout > time.Minute:
		return bad("Producer.Timeout",
			"must be positive and at most a minute: a partition that is given up waits for it")
	}
	return nil
}
