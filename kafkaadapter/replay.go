package kafkaadapter

import (
	"context"
	"errors"
	"fmt"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/dedup"
)

var (
	// ErrNoLetter: the message is no dead letter of [DeadLetters], or not all of one.
	ErrNoLetter = errors.New("kafkaadapter: message is no dead letter")
	// ErrSettled: the message of a dead letter has been processed since.
	ErrSettled = errors.New("kafkaadapter: the message of the dead letter has been processed since")
)

// Replayed takes the id that a dead letter had from the header of a message that was sent
// back to the topic it came from: so it does not look new, whatever its id is found by. In
// another topic the header counts for nothing: there it is a leftover of somebody who
// copies headers to messages of his own.
//
// [DefaultID] begins with it. Put it in front of your own: FirstOf(Replayed(), yours).
func Replayed() IDFunc {
	return func(m *sarama.ConsumerMessage) (string, bool) {
		id := lastHeader(m, HeaderID)
		return id, id != "" && lastHeader(m, HeaderTopic) == m.Topic
	}
}

// Replay prepares a dead letter for another run. It makes the key claimable again, which
// is on record as failed, and returns the message to send back to its topic: with its key,
// its value, its headers, and its id. Send it with a producer that [CheckProducer]
// accepts, and commit the letter's offset after that. d and scope are those of the
// consumer.
//
// Nothing is changed, and the error is [ErrSettled], when the message has succeeded since:
// letters that came twice, or are replayed again, do no harm. It is [ErrNoLetter] for what
// has no position or no value to send back, [dedup.ErrUncertain] when somebody has to find
// out first whether the effect has happened, and that of [dedup.Deduper.Forget], such as
// [dedup.ErrInFlight], when the key could not be freed. Only one may replay a topic at a
// time: a second one could free a key that has just succeeded.
func Replay(ctx context.Context, d *dedup.Deduper, scope string, m *sarama.ConsumerMessage) (*sarama.ProducerMessage, error) {
	switch {
	case m == nil:
		return nil, &dedup.InputError{Field: "Message", Reason: "is nil"}
	case lastHeader(m, HeaderTopic) == "":
		return nil, fmt.Errorf("%w: it has no header %q", ErrNoLetter, HeaderTopic)
	case lastHeader(m, HeaderTooLarge) != "":
		return nil, fmt.Errorf("%w: it was too large, with a value of %s bytes, and lies at %s/%s@%s", ErrNoLetter,
			lastHeader(m, HeaderTooLarge), lastHeader(m, HeaderTopic), lastHeader(m, HeaderPartition), lastHeader(m, HeaderOffset))
	}
	if id := lastHeader(m, HeaderID); id != "" {
		if err := free(ctx, d, scope, id); err != nil {
			return nil, err
		}
	}
	out := &sarama.ProducerMessage{Topic: lastHeader(m, HeaderTopic), Key: encoder(m.Key), Value: encoder(m.Value)}
	for _, h := range m.Headers {
		if h != nil {
			out.Headers = append(out.Headers, *h)
		}
	}
	return out, nil
}

// free forgets a key that has not succeeded.
func free(ctx context.Context, d *dedup.Deduper, scope, id string) error {
	rec, err := d.Lookup(ctx, id, dedup.WithScope(scope))
	switch {
	case err != nil:
		return err
	case rec.State == dedup.StateSucceeded:
		return ErrSettled
	case rec.State == dedup.StateAbsent:
		return nil
	case rec.State == dedup.StateUncertain:
		return dedup.ErrUncertain // to forget it would run the effect without asking
	}
	return d.Forget(ctx, id, dedup.WithScope(scope))
}
