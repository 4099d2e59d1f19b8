package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
)

// fate is what happened to a dead letter.
type fate string

const (
	fateSent     fate = "sent"
	fateWould    fate = "would"   // in a dry run
	fateSettled  fate = "settled" // its message has been processed since it was parked
	fateLeft     fate = "left"
	fateUnwanted fate = "unwanted" // a filter leaves it out
	fateFailed   fate = "failed"   // it ends the run
)

// deadLetter is a message of the dead-letter topic.
type deadLetter struct {
	*kafkaadapter.Message
	view View
}

// View is what --json writes of a dead letter.
type View struct {
	Fate     fate   `json:"fate"` // sent, would (in a dry run), settled, left or failed
	ID       string `json:"id"`
	From     string `json:"from"` // topic/partition@offset of the message
	At       string `json:"at"`   // topic/partition@offset of the dead letter
	Scope    string `json:"scope"`
	Attempts string `json:"attempts"`
	Record   string `json:"record"` // the state of the key
	Error    string `json:"error"`  // the error that it was parked for
	Reason   string `json:"reason,omitempty"`
}

func newDeadLetter(m *kafkaadapter.Message) *deadLetter {
	return &deadLetter{m, View{
		ID: m.Header(kafkaadapter.HeaderID),
		From: m.Header(kafkaadapter.HeaderTopic) + "/" + m.Header(kafkaadapter.HeaderPartition) +
			"@" + m.Header(kafkaadapter.HeaderOffset),
		At:       fmt.Sprintf("%s/%d@%d", m.Topic, m.Partition, m.Offset),
		Scope:    m.Header(kafkaadapter.HeaderScope),
		Attempts: m.Header(kafkaadapter.HeaderAttempts),
		Record:   "none",
		Error:    m.Header(kafkaadapter.HeaderError),
	}}
}

// report prints the fate of a dead letter, with all foreign text quoted, and logs who has sent it
// again.
func (r *run) report(l *deadLetter, f fate, reason error) {
	v := &l.view
	v.Fate = f
	if reason != nil {
		v.Reason = reason.Error()
	}
	if r.JSON {
		_ = json.NewEncoder(r.out).Encode(v) // to the same output as Fprintln
	} else {
		line := fmt.Sprintf("%-8s id=%q from=%q at=%s scope=%q attempts=%q record=%s error=%q",
			v.Fate, v.ID, v.From, v.At, v.Scope, v.Attempts, v.Record, v.Error)
		if v.Reason != "" {
			line += fmt.Sprintf(" reason=%q", v.Reason)
		}
		fmt.Fprintln(r.out, line)
	}
	if f == fateSent && !r.seen {
		cli.Audit(r.errOut, "replay", "id", v.ID, "at", v.At, "to",
			l.Header(kafkaadapter.HeaderTopic), "was", v.Record, "is", "sent")
	}
}

// wanted applies the filters.
func (o *Options) wanted(v View) bool {
	return (o.IDs == nil || slices.Contains(o.IDs, v.ID)) && strings.Contains(v.Error, o.Error)
}

// leave is an error with the reason why a dead letter stays where it is.
type leave struct{ error }

func leavef(format string, args ...any) error { return leave{fmt.Errorf(format, args...)} }

// stays reports whether an error concerns only this message. Any other error ends the run.
func stays(err error) bool {
	return errors.As(err, new(leave)) || errors.Is(err, kafkaadapter.ErrNoDeadLetter) ||
		errors.Is(err, dedup.ErrUncertain) ||
		errors.Is(err, dedup.ErrInFlight) || errors.As(err, new(*dedup.InputError)) ||
		errors.Is(err, kafkaadapter.ErrTooLarge)
}

// prepare frees the message's key and returns the message to send.
func (r *run) prepare(ctx context.Context, l *deadLetter) (*kafkaadapter.Message, error) {
	topic := l.Header(kafkaadapter.HeaderTopic)
	if topic == l.Topic {
		return nil, leavef("--topic is not a dead-letter topic: the message came from it")
	}
	if topic != "" {
		topics, err := r.admin.ListTopics(ctx, topic)
		if err == nil {
			err = topics[topic].Err
		}
		switch {
		case errors.Is(err, kerr.UnknownTopicOrPartition),
			errors.Is(err, kerr.InvalidTopicException):
			return nil, leavef("the broker has no topic %q", topic)
		case err != nil:
			return nil, err
		}
	}
	if strings.Contains(l.view.Error, dedup.ErrMismatch.Error()) {
		return nil, leavef(
			"its id belongs to a message with another payload, whose record must not be freed for it")
	}
	if err := r.lookUp(ctx, l); err != nil {
		return nil, err
	}
	// The option Unrecorded is safe here because lookUp has already left the messages whose missing
	// record is a risk.
	return kafkaadapter.Replay(ctx, r.dedup, l.Message, kafkaadapter.Unrecorded())
}

// lookUp leaves a message where it is if it may have been processed since it was parked, because a
// success is on record only for the window. A message without a record may also mean that the store
// or the namespace is not the consumer's: then no message has a record.
func (r *run) lookUp(ctx context.Context, l *deadLetter) error {
	if l.view.ID == "" {
		return nil
	}
	rec, err := r.dedup.Lookup(ctx, l.view.ID, dedup.WithScope(l.view.Scope))
	if err != nil {
		return err
	}
	if rec.State != driver.StateAbsent {
		l.view.Record = rec.State.String()
		return nil
	}
	age := time.Since(l.Timestamp)
	switch old := age >= r.Window; {
	case old && !r.Expired:
		return leavef(
			"it is %v old, more than the window, and has no record: it may have been replayed before, "+
				"and have succeeded; --expired sends it", age.Round(time.Second))
	case !old && !r.Unrecorded:
		return leavef(
			"no record was found under its id and scope %q. Its attempts were given up longer than the consumer's Hold ago, "+
				"an earlier run ended before it was sent, or --redis, --prefix and --namespace are not the consumer's. If they are, --unrecorded sends it", l.view.Scope)
	}
	return nil
}
