package kafkaadapter

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter/internal/deadletter"
)

// The headers that a dead letter has in addition to those of its message.
const (
	// HeaderID has the id of the message, under which it was claimed. It is missing if the message
	// has no id, or an id that a Deduper refuses.
	HeaderID = deadletter.ID
	// HeaderScope has the scope under which the message was claimed.
	HeaderScope = deadletter.Scope
	// HeaderFirstTopic is Message.FirstTopic.
	HeaderFirstTopic = deadletter.FirstTopic
	// HeaderTopic, HeaderPartition and HeaderOffset are the position of the message.
	HeaderTopic     = deadletter.Topic
	HeaderPartition = deadletter.Partition
	HeaderOffset    = deadletter.Offset
	// HeaderTimestamp is the timestamp of the message, in RFC 3339 with milliseconds, UTC.
	HeaderTimestamp = deadletter.Timestamp
	// HeaderAttempts counts the claims of the message.
	HeaderAttempts = deadletter.Attempts
	// HeaderError says why the message could not be processed, in at most 1 KiB.
	HeaderError = deadletter.Error
	// HeaderTooLarge has the size of the value of a message that was too large for the dead-letter
	// topic. The value of the letter is then empty.
	HeaderTooLarge = deadletter.TooLarge
)

var (
	// ErrNoDeadLetter: the message is not a dead letter of [DeadLetters], or is incomplete.
	ErrNoDeadLetter = deadletter.ErrNoDeadLetter
	// ErrSettled: the message of a dead letter has been processed since.
	ErrSettled = deadletter.ErrSettled
	// ErrNoRecord: the store has no record of the message of a dead letter.
	ErrNoRecord = deadletter.ErrNoRecord
)

// Producer sends messages. Every driver makes one from its client's producer.
type Producer interface {
	// Send sends Topic, Key, Value and the headers of m, and returns nil when every in-sync replica
	// has them. A nil Value stays a tombstone. Send returns at the latest when ctx ends. Its error
	// wraps [ErrTooLarge] when the message is too large for the topic.
	Send(ctx context.Context, m *Message) error
}

// DeadLetterConfig configures [DeadLetters].
type DeadLetterConfig struct {
	// Producer sends the letters, and belongs to the caller. Required.
	Producer Producer
	// Topic returns the dead-letter topic of a message, which the consumer must not read. It is
	// called concurrently. When it returns an empty name, or panics, the message stays where it is.
	// Required.
	Topic func(m *Message) string
}

// DeadLetters returns a function for Config.Park that sends what cannot be processed to a
// dead-letter topic. Key, value and headers stay as they are; further headers have the id and its
// scope, the position, the attempts and the reason. The function returns nil after the brokers have
// acknowledged the letter. Until then the offset is not committed; while the topic is down,
// messages of the same key wait, and nothing is lost.
//
// A crash, or the end of ctx, between the letter and its acknowledgement sends it twice, with the
// same HeaderTopic, HeaderPartition and HeaderOffset. A letter that is too large for the topic goes
// without its value. If it is still too large, it also goes without key and headers. The whole
// message can be read at its position for as long as its topic keeps it.
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
	err := c.send(ctx, DeadLetter(topic, m, reason))
	if !errors.Is(err, ErrTooLarge) {
		return err
	}
	small := DeadLetter(topic, m, reason)
	small.Value = []byte{}
	small.headers = append(small.headers,
		Header{HeaderTooLarge, []byte(strconv.Itoa(len(m.Value)))})
	if err := c.send(ctx, small); !errors.Is(err, ErrTooLarge) {
		return err
	}
	// The letter is too large even without its value. A message whose key or header has a megabyte
	// must not hold up its key forever.
	small.Key = nil
	small.headers = slices.DeleteFunc(small.headers, func(h Header) bool {
		return !deadletter.IsOwn(h.Key)
	})
	return c.send(ctx, small)
}

func (c *DeadLetterConfig) send(ctx context.Context, m *Message) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return c.Producer.Send(ctx, m)
}

// DeadLetter makes the letter that is sent to topic for a message, with the headers above. If the
// message was a letter before, our headers in it are replaced, unless its value was left out: then
// they say where the value is. It is for drivers.
func DeadLetter(topic string, m *Message, reason error) *Message {
	out := &Message{Topic: topic, Key: m.Key, Value: m.Value}
	short := errors.Is(reason, ErrNoDeadLetter)
	for _, h := range m.Headers() {
		if short || !deadletter.IsOwn(h.Key) {
			out.headers = append(out.headers, h)
		}
	}
	if short {
		return out
	}
	about := deadletter.Record{
		ID: m.ID, Scoped: deadletter.Scoped{Scope: m.Scope, First: cmp.Or(m.FirstTopic, m.Topic)},
		Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, Timestamp: m.Timestamp,
		Attempts: m.Attempt, Reason: reason,
	}
	for _, h := range about.Headers() {
		out.headers = append(out.headers, Header{h.Key, []byte(h.Value)})
	}
	return out
}

// ReplayOption changes what [Replay] does with one letter.
type ReplayOption func(*replaying)

type replaying struct{ unrecorded bool }

// Unrecorded has [Replay] accept a letter although the store has no record of its message. The
// record is missing when the store dropped it after the Deduper's Hold, or when a replay freed the
// key and died before it had sent the message. Use it only after making sure that the store and the
// namespace are the consumer's, and that the letter is younger than the window: otherwise the
// message may have succeeded, and its effect happens again.
func Unrecorded() ReplayOption { return func(r *replaying) { r.unrecorded = true } }

// Replay prepares a dead letter for another run. Its key is on record as failed: Replay makes it
// claimable again. It returns the message to send back to its topic, with its key, value, headers
// and id. Send it with acks of all replicas, and commit the letter's offset after that. d is the
// consumer's Deduper. The scope of the key is in the letter's HeaderScope, so whoever can write to
// the dead-letter topic can have a failed key of d's namespace tried again.
//
// After an error nothing is changed, except that the key may be free already if
// [dedup.OutcomeUnknown] is true of it: the next Replay then needs [Unrecorded]. The error is
// [ErrSettled] when the message has succeeded since: letters that came twice, or are replayed
// again, do no harm. It is [ErrNoRecord] when the store has no record of the message, unless
// [Unrecorded] is given: the message may have succeeded and been forgotten, or d is not the
// consumer's. It is [ErrNoDeadLetter] for a letter without a position or without a value to send
// back. It is [dedup.ErrUncertain] where it must first be found out whether the effect has
// happened. When the key could not be freed it is the error of
// [dedup.Deduper.Forget], such as [dedup.ErrInFlight]. Only one process may replay a topic at a
// time: a second one could free a key that has just succeeded.
//
// The message goes back to the topic in which it lay. Only there is its id believed, see
// [Replayed]. Other groups that read the topic handle or skip it by their own records.
func Replay(ctx context.Context, d *dedup.Deduper, m *Message, opts ...ReplayOption) (*Message,
	error) {
	var how replaying
	for _, o := range opts {
		o(&how)
	}
	if m == nil {
		return nil, &dedup.InputError{Field: "Message", Reason: "is nil"}
	}
	topic, err := deadletter.Open(ctx, d, m, how.unrecorded)
	if err != nil {
		return nil, err
	}
	return &Message{Topic: topic, Key: m.Key, Value: m.Value, headers: slices.Clone(m.Headers())},
		nil
}
