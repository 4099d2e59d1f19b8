// Package partition takes one partition of a topic through its life in a consumer group,
// from its assignment to its revocation: claim, run, record, and only then let the offset
// be committed. It knows no client: an adapter hands in what it has received, and lends
// what the group can do. What needs neither client nor store is package flow.
package partition

import (
	"context"
	"log/slog"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/kafkaadapter/internal/flow"
)

// Message is a delivered message.
type Message struct {
	// Native is the message in the adapter's own form.
	Native any
	// Offset in the partition.
	Offset int64
	// Key orders messages: those of one key are handled in order. Nil and empty: no order.
	Key []byte
	// Value is what a fingerprint is made of.
	Value []byte
	// ID of the message, and Scope of its key.
	ID, Scope string
	// Elsewhere: its first topic is not the one that it lies in, so its record may be from there.
	Elsewhere bool
	// Bad is why the message must not run at all.
	Bad error
	// Attempt counts the claims of the ID, or the runs in this process where nothing is
	// claimed. It is set before Native is given to anybody.
	Attempt int
	// Label that Config.Label gave the message, and Found, the one that the record of its ID
	// had when it was met. They are set before Native is given to anybody, too.
	Label, Found string

	labelled bool
}

// Config is what the partitions of one adapter share. The adapter has checked it, and has
// put every default in; the doc comments of its own Config say what the settings mean.
type Config struct {
	Deduper     *dedup.Deduper // nil in the Unclaimed composition
	Fingerprint bool
	Workers     int
	Order       flow.Order
	BatchMax    int
	ClaimAhead  int
	HighWater   int
	LowWater    int
	Drain       time.Duration
	Timeout     time.Duration
	Retry       backoff.Policy
	MaxAttempts int
	BusyTimeout time.Duration
	TakeOver    bool
	Logger      *slog.Logger

	// Label is what a claim keeps in clear; it is asked once for a message. Nil: nothing.
	Label func(*Message) string
	// Handle has the effect of a message.
	Handle func(context.Context, *Message) error
	// HandleBatch, if set, is used in its place. It returns an error per message, or nil.
	HandleBatch func(context.Context, []*Message) []error
	// Park puts a message aside for good. Nil: Unprocessable stops the consumer.
	Park func(ctx context.Context, m *Message, reason error) error
	// AllowNoID lets messages without an id go to Park although none with one has come.
	AllowNoID bool
	// Own acquires a partition before its first message is claimed, and again when it was lost.
	// Nil: partitions are not owned.
	Own func(context.Context, Assigned) (Ownership, error)
	// Partitioner is where a key belongs among so many partitions. Required with Own.
	Partitioner func(key []byte, count int32) int32
	// Unprocessable makes the error that stops the consumer.
	Unprocessable func(topic string, partition int32, m *Message, reason error) error

	Hooks Hooks

	abandoned abandoned
	suspects  suspects
	others    Others

	identified Identified
	parkedLog  parkedLog
	parkings   parkings
}

// unclaimed: the handler records the message itself.
func (c *Config) unclaimed() bool { return c.Deduper == nil }

// Handover is how long a partition may take to be given up, beyond Drain.
func (c *Config) Handover() time.Duration {
	if c.Own != nil {
		return Handover + ownTimeout
	}
	return Handover
}

// Hooks are told what happens. Every one may be nil, and is called concurrently.
type Hooks struct {
	Skipped func(m *Message, c *dedup.Claim)
	Handled func(m *Message, took time.Duration, err error)
	Waiting func(m *Message)
	Parked  func(m *Message, reason error)
	// Recorded: an effect is on record, took after its handler had returned.
	Recorded func(m *Message, took time.Duration)
	// Unrecorded: an effect has happened, and is not known to be on record.
	Unrecorded func(m *Message, err error)
	Revoked    func(topic string, partition int32, returned, abandoned int)
}

// Assignment is one partition in the hands of this member.
type Assignment struct {
	Group      string // empty when not known
	Topic      string
	Partition  int32
	Generation int32
	// Context ends when the partition has to be given up. What runs then may go on, and
	// sees its values.
	Context context.Context
	// Fenced ends when the group has given the partition away, with a cause that wraps
	// ErrFenced: handlers are cancelled at once then. Nil: that is never learnt.
	Fenced context.Context
	// Counts of the topics' partitions. Required with Config.Own.
	Counts *Counts
	// Committer commits the partition's watermark.
	Committer *flow.Committer
	// Pause pauses or resumes fetching. It must not wait.
	Pause func(on bool)
	// Halt stops the whole consumer: this partition cannot go on.
	Halt func()
}
