package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
	"github.com/onceward/onceward/kafkaadapter/kafkasarama"
)

// fate is what became of a letter.
type fate string

const (
	sent     fate = "sent"
	wouldGo  fate = "would"   // in a dry run
	settled  fate = "settled" // its message has been processed since
	left     fate = "left"
	unwanted fate = "unwanted" // a filter leaves it out
	failed   fate = "failed"   // it ends the run
)

// letter is a message of the dead-letter topic.
type letter struct {
	*sarama.ConsumerMessage
	id     string
	scope  string // of its key
	record string // state of its key
}

func newLetter(m *sarama.ConsumerMessage) *letter {
	l := &letter{ConsumerMessage: m, record: "none"}
	l.id, l.scope = l.header(kafkaadapter.HeaderID), l.header(kafkaadapter.HeaderScope)
	return l
}

func (l *letter) header(name string) string {
	return kafkasarama.Message(l.ConsumerMessage).Header(name)
}

// deadLetter is what --json writes of one.
type deadLetter struct {
	Fate     string `json:"fate"` // sent, would (in a dry run), settled, left or failed
	ID       string `json:"id"`
	From     string `json:"from"`   // topic/partition@offset of the message
	At       string `json:"letter"` // topic/partition@offset
	Scope    string `json:"scope"`
	Attempts string `json:"attempts"`
	Record   string `json:"record"` // the state of the key
	Error    string `json:"error"`  // for which it was parked
	Reason   string `json:"reason,omitempty"`
}

// view is the letter with what became of it.
func (l *letter) view(f fate, reason error) *deadLetter {
	v := &deadLetter{Fate: string(f), ID: l.id, Scope: l.scope, Record: l.record,
		From: l.header(kafkaadapter.HeaderTopic) + "/" + l.header(kafkaadapter.HeaderPartition) +
			"@" + l.header(kafkaadapter.HeaderOffset),
		At:       fmt.Sprintf("%s/%d@%d", l.Topic, l.Partition, l.Offset),
		Attempts: l.header(kafkaadapter.HeaderAttempts), Error: l.header(kafkaadapter.HeaderError)}
	if reason != nil {
		v.Reason = reason.Error()
	}
	return v
}

// line is what is printed: everything foreign is quoted.
func (v *deadLetter) line() string {
	s := fmt.Sprintf("%-8s id=%q from=%q letter=%s scope=%q attempts=%q record=%s error=%q",
		v.Fate, v.ID, v.From, v.At, v.Scope, v.Attempts, v.Record, v.Error)
	if v.Reason != "" {
		s += fmt.Sprintf(" reason=%q", v.Reason)
	}
	return s
}

// report prints what became of a letter, and writes down who has sent it.
func (r *run) report(l *letter, f fate, reason error) {
	v := l.view(f, reason)
	if r.options.JSON {
		_ = json.NewEncoder(r.out).Encode(v) // as Fprintln, which the rest is printed with
	} else {
		fmt.Fprintln(r.out, v.line())
	}
	if f == sent && !r.seen {
		cli.Audit(r.errOut, "replay", "id", v.ID, "letter", v.At, "to",
			l.header(kafkaadapter.HeaderTopic), "was", v.Record, "is", "sent")
	}
}

// wanted applies the filters.
func (o *Options) wanted(l *letter) bool {
	return (o.IDs == nil || slices.Contains(o.IDs, l.id)) &&
		(o.Error == "" || strings.Contains(l.header(kafkaadapter.HeaderError), o.Error))
}

// leave is why a letter stays where it is.
type leave struct{ error }

func (l leave) Unwrap() error { return l.error }

// stays tells reasons that concern one letter alone from those that end the run.
func stays(err error) bool {
	return errors.As(err, new(leave)) || errors.Is(err, kafkaadapter.ErrNoDeadLetter) ||
		errors.Is(err, dedup.ErrUncertain) ||
		errors.Is(err, dedup.ErrInFlight) || errors.As(err, new(*dedup.InputError)) ||
		errors.Is(err, kafkaadapter.ErrTooLarge)
}

// prepare frees the letter's key and returns the message to send.
func (r *run) prepare(ctx context.Context, l *letter) (*kafkaadapter.Message, error) {
	topic := l.header(kafkaadapter.HeaderTopic)
	if topic == l.Topic {
		return nil, leave{errors.New(
			"it lies in the topic that it came from: --topic is not of dead letters")}
	}
	if topic != "" {
		if ok, err := r.kafka.hasTopic(topic); err != nil {
			return nil, err
		} else if !ok {
			return nil, leave{fmt.Errorf("the broker has no topic %q", topic)}
		}
	}
	if strings.Contains(l.header(kafkaadapter.HeaderError), dedup.ErrMismatch.Error()) {
		return nil, leave{errors.New(
			"its id belongs to a message with another payload, whose record must not be freed for it")}
	}
	if err := r.lookUp(ctx, l); err != nil {
		return nil, err
	}
	// lookUp has been asked
	return kafkaadapter.Replay(ctx, r.store.dedup, kafkasarama.Message(l.ConsumerMessage),
		kafkaadapter.Unrecorded())
}

// lookUp leaves a letter of which nobody can say whether its message has been processed
// since. A success comes after the letter, and is on record for the window. Without a record
// this may also be another store or namespace than the consumer's, where all letters look so.
func (r *run) lookUp(ctx context.Context, l *letter) error {
	if l.id == "" {
		return nil
	}
	rec, err := r.store.dedup.Lookup(ctx, l.id, dedup.WithScope(l.scope))
	if err != nil {
		return err
	}
	l.record = rec.State.String()
	if rec.State != driver.StateAbsent {
		return nil
	}
	l.record = "none"
	age := time.Since(l.Timestamp)
	switch old := age >= r.options.Window; {
	case old && !r.options.Expired:
		return leave{fmt.Errorf(
			"it is %v old, more than the window, and has no record: it may have been replayed before, "+
				"and have succeeded; --expired sends it", age.Round(time.Second))}
	case !old && !r.options.Unrecorded:
		return leave{fmt.Errorf(
			"no record was found under its id and scope %q: its attempts were given up longer than the consumer's Hold ago, "+
				"an earlier run ended before it was sent, or --redis, --prefix and --namespace are not the consumer's; if they are, --unrecorded sends it", l.scope)}
	}
	return nil
}
