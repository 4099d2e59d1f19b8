package franz

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter/internal/letter"
)

var (
	// ErrNoLetter: the message is no dead letter of [DeadLetters], or not all of one.
	ErrNoLetter = letter.ErrNoLetter
	// ErrSettled: the message of a dead letter has been processed since.
	ErrSettled = letter.ErrSettled
	// ErrNoRecord: the store knows nothing of the message of a dead letter.
	ErrNoRecord = letter.ErrNoRecord
)

// Replayed takes the id that a dead letter had from the header of a message that was sent
// back to the topic it came from: so it does not look new, whatever its id is found by. In
// another topic the header counts for nothing: there it is a leftover of somebody who
// copies headers to messages of his own.
//
// [DefaultID] begins with it. Put it in front of your own: FirstOf(Replayed(), yours).
func Replayed() IDFunc {
	return func(r *kgo.Record) (string, bool) { return letter.Replayed(headersOf(r), r.Topic) }
}

// ReplayOption changes what [Replay] does with one letter.
type ReplayOption func(*replaying)

type replaying struct{ unrecorded bool }

// Unrecorded has [Replay] take a letter although the store knows nothing of its message: when
// its record was given up after Deduper's Hold, or was freed by a run that died before it had
// sent the message. It is for whoever has made sure that the store and the namespace are the
// consumer's, and that the letter is younger than the window: otherwise the message may have
// succeeded, and its effect happens again.
func Unrecorded() ReplayOption { return func(r *replaying) { r.unrecorded = true } }

// Replay prepares a dead letter for another run. It makes the key claimable again, which is on
// record as failed, and returns the message to send back to its topic: with its key, its value, its
// headers, and its id. Send it with acks of all replicas, and commit the letter's offset after
// that. Letters that package kafkaadapter has sent are the same. d is the consumer's; the scope of
// the key is in the letter's HeaderScope, so whoever can write to the dead-letter topic can have a
// failed key of d's namespace tried again.
//
// Nothing is changed, and the error is [ErrSettled], when the message has succeeded since:
// letters that came twice, or are replayed again, do no harm. It is [ErrNoRecord] when the
// store knows nothing of the message, unless [Unrecorded] is given: then it may have succeeded
// and been forgotten, or d is not the consumer's. It is [ErrNoLetter] for what
// has no position or no value to send back, [dedup.ErrUncertain] when somebody has to find
// out first whether the effect has happened, and that of [dedup.Deduper.Forget], such as
// [dedup.ErrInFlight], when the key could not be freed. Only one may replay a topic at a
// time: a second one could free a key that has just succeeded.
//
// The message goes back to the topic in which it lay, so nothing has to be believed of its
// headers there but its id, see [Replayed]. Other groups that read the topic find it on
// their own records.
func Replay(ctx context.Context, d *dedup.Deduper, r *kgo.Record,
	opts ...ReplayOption) (*kgo.Record, error) {
	var how replaying
	for _, o := range opts {
		o(&how)
	}
	if r == nil {
		return nil, &dedup.InputError{Field: "Record", Reason: "is nil"}
	}
	topic, err := letter.Open(ctx, d, headersOf(r), how.unrecorded)
	if err != nil {
		return nil, err
	}
	return &kgo.Record{Topic: topic, Key: r.Key, Value: r.Value,
		Headers: append([]kgo.RecordHeader(nil), r.Headers...)}, nil
}
