package franz

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter/internal/letter"
)

// The headers that a dead letter has beside those of its message. They are those of package
// kafkaadapter.
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
	// Client sends the letters, and belongs to the caller: the consumer's own is closed
	// before the last letter. It must produce with acks of all in-sync replicas, kgo's
	// default, and not in transactions, and have a kgo.RecordDeliveryTimeout of at most a
	// minute: a letter that no topic takes is given up after it, and tried again. Required.
	Client *kgo.Client

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
// An [*dedup.InputError] names a field that is missing, or the setting of the client under
// which a letter could be lost.
func DeadLetters(cfg DeadLetterConfig) (park func(context.Context, *Message, error) error,
	err error) {
	bad := func(field, reason string) error {
		return &dedup.InputError{Field: "franz.DeadLetterConfig." + field, Reason: reason}
	}
	const longest = time.Minute
	switch {
	case cfg.Client == nil:
		return nil, bad("Client", "is nil")
	case cfg.Topic == nil:
		return nil, bad("Topic", "is nil")
	case cfg.Client.OptValue(kgo.RequiredAcks) != kgo.AllISRAcks():
		return nil, bad("Client",
			"has RequiredAcks other than AllISRAcks: a letter could be lost with the leader that has it alone")
	case cfg.Client.OptValue(kgo.TransactionalID) != "":
		return nil, bad("Client",
			"has a TransactionalID: a letter of an aborted transaction is none")
	}
	if limit, _ := cfg.Client.OptValue(kgo.RecordDeliveryTimeout).(time.Duration); limit <= 0 ||
		limit > longest {
		return nil, bad("Client",
			"has no RecordDeliveryTimeout of at most a minute: while the topic is down a letter would never be given up")
	}
	return cfg.park, nil
}

func (c *DeadLetterConfig) park(ctx context.Context, m *Message, reason error) error {
	topic := c.Topic(m)
	if topic == "" {
		return errors.New("franz: DeadLetterConfig.Topic names no topic")
	}
	err := c.send(ctx, whole(topic, m, reason))
	if !errors.Is(err, kerr.MessageTooLarge) {
		return err
	}
	if err := c.send(ctx, short(topic, m, reason)); !errors.Is(err, kerr.MessageTooLarge) {
		return err
	}
	// It is not the value: a header or a key of a megabyte must not hold up its lane for ever.
	bare := short(topic, m, reason)
	bare.Key = nil
	bare.Headers = slices.DeleteFunc(bare.Headers, func(h kgo.RecordHeader) bool {
		return !letter.IsOwn(h.Key)
	})
	return c.send(ctx, bare)
}

// send returns at the latest when ctx ends: a record that is under way kgo does not give up.
func (c *DeadLetterConfig) send(ctx context.Context, r *kgo.Record) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	sent := make(chan error, 1)
	c.Client.TryProduce(ctx, r, func(_ *kgo.Record, err error) { sent <- err })
	select {
	case err := <-sent:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// whole makes the dead letter of a message. Headers of ours that the message has, because
// it was a letter once, are replaced. Key and value are not copied: a nil one stays nil.
func whole(topic string, m *Message, reason error) *kgo.Record {
	out := &kgo.Record{Topic: topic, Key: m.Key, Value: m.Value}
	for _, h := range m.Headers {
		if m.short || !letter.IsOwn(h.Key) {
			out.Headers = append(out.Headers, h)
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

// short is a letter without its value.
func short(topic string, m *Message, reason error) *kgo.Record {
	out := whole(topic, m, reason)
	out.Value = []byte{}
	out.Headers = append(out.Headers, header(HeaderTooLarge, strconv.Itoa(len(m.Value))))
	return out
}

func header(key, value string) kgo.RecordHeader {
	return kgo.RecordHeader{Key: key, Value: []byte(value)}
}
