// Package deadletter has what the dead letters of all clients have in common: a letter that one
// client has sent can be replayed by another client.
package deadletter

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter/internal/msgid"
)

// The headers of a letter. Package kafkaadapter documents them.
const (
	ID         = own + "id"
	Scope      = own + "scope"
	FirstTopic = own + "first-topic"
	Topic      = own + "topic"
	Partition  = own + "partition"
	Offset     = own + "offset"
	Timestamp  = own + "timestamp"
	Attempts   = own + "attempts"
	Error      = own + "error"
	TooLarge   = own + "value-too-large"

	own      = "onceward-"
	maxError = 1 << 10
)

var (
	// ErrNoDeadLetter: the message is not a dead letter, or an incomplete one.
	ErrNoDeadLetter = errors.New("kafkaadapter: message is not a dead letter")
	// ErrSettled: the message of a dead letter has been processed since.
	ErrSettled = errors.New("kafkaadapter: the message of the dead letter has been processed since")
	// ErrNoRecord: the store has no record of the message of a dead letter.
	ErrNoRecord = errors.New(
		"kafkaadapter: the store has no record of the message of the dead letter")
)

// Header of a letter.
type Header struct{ Key, Value string }

// Record is what the headers say about a message.
type Record struct {
	ID        string
	Scoped    Scoped
	Topic     string
	Partition int32
	Offset    int64
	Timestamp time.Time
	Attempts  int
	Reason    error
}

// Headers returns the headers that a letter has in addition to those of its message.
func (r Record) Headers() []Header {
	headers := make([]Header, 0, 10)
	if msgid.IsKey(r.ID) { // another one may have any size, and was not claimed
		headers = append(headers, Header{ID, r.ID})
	}
	if r.Scoped.Scope != "" {
		headers = append(headers, Header{Scope, r.Scoped.Scope})
	}
	if r.Scoped.First != "" {
		headers = append(headers, Header{FirstTopic, r.Scoped.First})
	}
	return append(headers,
		Header{Topic, r.Topic},
		Header{Partition, strconv.Itoa(int(r.Partition))},
		Header{Offset, strconv.FormatInt(r.Offset, 10)},
		Header{Timestamp, r.Timestamp.UTC().Format("2006-01-02T15:04:05.000Z")},
		Header{Attempts, strconv.Itoa(r.Attempts)},
		Header{Error, cut(fmt.Sprint(r.Reason), maxError)})
}

// IsOwn reports whether a header is one of a letter. Where a message was a letter before, these
// headers are replaced.
func IsOwn[T ~string | ~[]byte](key T) bool {
	return len(key) >= len(own) && strings.EqualFold(string(key[:len(own)]), own)
}

// cut shortens a text between two characters.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// Replayed returns the id of a letter that was sent back to the topic it came from.
func Replayed(h msgid.Headers, topic string) (string, bool) {
	id := h.Header(ID)
	return id, id != "" && h.Header(Topic) == topic
}

// Open makes the key of a letter claimable again, and returns the topic it goes back to. A header
// of the letter has the scope of the key. If unrecorded is true, Open accepts a letter although the
// store has no record of its message.
func Open(ctx context.Context, d *dedup.Deduper, h msgid.Headers, unrecorded bool) (topic string,
	err error) {
	topic = h.Header(Topic)
	switch {
	case topic == "":
		return "", fmt.Errorf("%w: it has no header %q", ErrNoDeadLetter, Topic)
	case h.Header(TooLarge) != "":
		return "", tooLarge(h)
	}
	if id := h.Header(ID); id != "" {
		attempts, _ := strconv.Atoi(h.Header(Attempts)) // 0 where it is none
		if err := free(ctx, d, h.Header(Scope), id, attempts, unrecorded); err != nil {
			return "", err
		}
	}
	return topic, nil
}

func tooLarge(h msgid.Headers) error {
	return fmt.Errorf("%w: it was too large, with a value of %s bytes, and lies at %s/%s@%s",
		ErrNoDeadLetter, h.Header(TooLarge), h.Header(Topic), h.Header(Partition), h.Header(Offset))
}

// free forgets a key that has not succeeded and was given up after this many attempts. A released
// key with fewer attempts was replayed before and is on its way again. It is claimable already, and
// Forget could delete the success that it has in the meantime.
func free(ctx context.Context, d *dedup.Deduper, scope, id string, attempts int,
	unrecorded bool) error {
	rec, err := d.Lookup(ctx, id, dedup.WithScope(scope))
	switch {
	case err != nil:
		return err
	case rec.State == driver.StateSucceeded:
		return ErrSettled
	case rec.State == driver.StateAbsent && !unrecorded:
		// It may have succeeded and been forgotten, or this is not the consumer's store or
		// namespace: nobody can tell whether its effect would happen again.
		return fmt.Errorf("%w: id %q, scope %q", ErrNoRecord, id, scope)
	case rec.State == driver.StateAbsent, rec.State == driver.StateReleased &&
		rec.Attempt < attempts:
		return nil
	case rec.State == driver.StateUncertain:
		return dedup.ErrUncertain // to forget it would run the effect without asking
	}
	return d.Forget(ctx, id, dedup.WithScope(scope))
}
