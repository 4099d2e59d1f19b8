package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

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
	id     string
	scope  string // of its key
	record string // state of its key
}

func newDeadLetter(m *kafkaadapter.Message) *deadLetter {
	return &deadLetter{Message: m, record: "none", id: m.Header(kafkaadapter.HeaderID),
		scope: m.Header(kafkaadapter.HeaderScope)}
}

// View is what --json writes of a dead letter.
type View struct {
	Fate     string `json:"fate"` // sent, would (in a dry run), settled, left or failed
	ID       string `json:"id"`
	From     string `json:"from"` // topic/partition@offset of the message
	At       string `json:"at"`   // topic/partition@offset of the dead letter
	Scope    string `json:"scope"`
	Attempts string `json:"attempts"`
	Record   string `json:"record"` // the state of the key
	Error    string `json:"error"`  // the error that it was parked for
	Reason   string `json:"reason,omitempty"`
}

// view is the dead letter with its fate.
func (l *deadLetter) view(f fate, reason error) *View {
	v := &View{Fate: string(f), ID: l.id, Scope: l.scope, Record: l.record,
		From: l.Header(kafkaadapter.HeaderTopic) + "/" + l.Header(kafkaadapter.HeaderPartition) +
			"@" + l.Header(kafkaadapter.HeaderOffset),
		At: l.at(), Attempts: l.Header(kafkaadapter.HeaderAttempts),
		Error: l.Header(kafkaadapter.HeaderError)}
	if reason != nil {
		v.Reason = reason.Error()
	}
	return v
}

func (l *deadLetter) at() string {
	return fmt.Sprintf("%s/%d@%d", l.Topic, l.Partition, l.Offset)
}

// line returns the printed line, in which all foreign text is quoted.
func (v *View) line() string {
	s := fmt.Sprintf("%-8s id=%q from=%q at=%s scope=%q attempts=%q record=%s error=%q",
		v.Fate, v.ID, v.From, v.At, v.Scope, v.Attempts, v.Record, v.Error)
	if v.Reason != "" {
		s += fmt.Sprintf(" reason=%q", v.Reason)
	}
	return s
}

// report prints the fate of a dead letter, and logs who has sent it again.
func (r *run) report(l *deadLetter, f fate, reason error) {
	v := l.view(f, reason)
	if r.options.JSON {
		_ = json.NewEncoder(r.out).Encode(v) // to the same output as Fprintln
	} else {
		fmt.Fprintln(r.out, v.line())
	}
	if f == fateSent && !r.seen {
		cli.Audit(r.errOut, "replay", "id", v.ID, "at", v.At, "to",
			l.Header(kafkaadapter.HeaderTopic), "was", v.Record, "is", "sent")
	}
}

// wanted applies the filters.
func (o *Options) wanted(l *deadLetter) bool {
	return (o.IDs == nil || slices.Contains(o.IDs, l.id)) &&
		(o.Error == "" || strings.Contains(l.Header(kafkaadapter.HeaderError), o.Error))
}

// leave is an error with the reason why a dead letter stays where it is.
type leave struct{ error }

func (l leave) Unwrap() error { return l.error }

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
		return nil, leave{errors.New(
			"--topic is not a dead-letter topic: the message came from it")}
	}
	if topic != "" {
		if ok, err := r.kafka.hasTopic(ctx, topic); err != nil {
			return nil, err
		} else if !ok {
			return nil, leave{fmt.Errorf("the broker has no topic %q", topic)}
		}
	}
	if strings.Contains(l.Header(kafkaadapter.HeaderError), dedup.ErrMismatch.Error()) {
		return nil, leave{errors.New(
			"its id belongs to a message with another payload, whose record must not be freed for it")}
	}
	if err := r.lookUp(ctx, l); err != nil {
		return nil, err
	}
	// The option Unrecorded is safe here because lookUp has already left the messages whose missing
	// record is a risk.
	return kafkaadapter.Replay(ctx, r.store.dedup, l.Message,
		kafkaadapter.Unrecorded())
}

// lookUp leaves a message where it is if it may have been processed since it was parked, because a
// success is on record only for the window. A message without a record may also mean that the store
// or the namespace is not the consumer's: then no message has a record.
func (r *run) lookUp(ctx context.Context, l *deadLetter) error {
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
			"no record was found under its id and scope %q. Its attempts were given up longer than the consumer's Hold ago, "+
				"an earlier run ended before it was sent, or --redis, --prefix and --namespace are not the consumer's. If they are, --unrecorded sends it", l.scope)}
	}
	return nil
}
