package franz

import (
	"context"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter/internal/setting"
)

// Message is a Kafka message with what the consumer knows of it.
type Message struct {
	*kgo.Record
	// ID of the message, as Config.ID found it; empty in the Unclaimed composition
	// when it has none.
	ID string
	// Attempt counts the claims of this id, from 1. In the Unclaimed composition it
	// counts the runs in this process since the partition was assigned.
	Attempt int
	// Scope of the message's key in the Deduper: Config.Scope, or that of the group and the
	// message's first topic, see [ScopeOf]. In the Unclaimed composition the handler should
	// give it to what records the message (dedup.WithScope), or two topics with the same ids
	// look like one.
	Scope string
	// Label that Config.Label gave the message, and Found, the one that the record of its ID
	// had when it was met: as a duplicate, in flight elsewhere, uncertain, or after another's
	// attempt. Empty where there is none.
	Label, Found string

	topicID string // only for a RangeHandler
	first   string // topic; empty in a Message that the consumer has not made
	short   bool   // a letter whose value was left out
}

// Handler has the effect of one message. It runs under a context that ends with
// Config.Timeout, with the loss of the claim (cause dedup.ErrLeaseLost), and when the
// drain budget of a revoked partition is used up; dedup.FromContext gives its attempt.
//
// nil: the effect has happened, the message is recorded and its offset may be committed;
// so return the context's error, not nil, when the context ended before the effect. An
// error for which dedup.IsPermanent is true, unless the context was cancelled meanwhile:
// the message goes to Config.Park or stops the consumer. Any other error, and a panic:
// the claim is released and the message is handled again after a backoff, or after the
// time that RetryAfter asks for, while messages of other keys move on, until
// Config.MaxAttempts; then it goes the way of a permanent failure. A handler that does not
// return holds one of Config.Workers.
type Handler func(ctx context.Context, m *Message) error

// BatchHandler has the effects of messages that may be handled now, at most
// Config.BatchMax; those of one key are in their order. It returns an error per message,
// each meaning what it means in a [Handler], or nil for all of them; a slice of another
// length, and a panic, fail all. It is what an effect in SQL wants: one transaction, and one
// commit, for a batch.
//
// A message whose batch has failed is handled in a batch of its own the next time, so that
// one which always fails does not keep its neighbours from their effect; the attempt that
// it shared does not count.
//
// ctx ends with Config.Timeout, when one of the claims is lost, and when the drain budget of
// a revoked partition is used up. dedup.FromContext knows nothing of a batch.
type BatchHandler func(ctx context.Context, ms []*Message) []error

// Order says which messages wait for each other.
type Order uint8

const (
	// ByKey handles messages of one Kafka key in order. Messages without a key, or with
	// an empty one, wait for none. It is the default.
	ByKey Order = iota
	// ByPartition handles the messages of a partition one by one.
	ByPartition
	// Unordered lets every message run as soon as there is room.
	Unordered
)

// Config configures a [Consumer].
type Config struct {
	// Deduper claims and records the messages. Required unless Unclaimed is set.
	Deduper *dedup.Deduper

	// Unclaimed runs every delivery through Handler, which must record the message
	// itself, in the transaction of its effect. Deduper must be nil then.
	Unclaimed bool

	// Handler has the effect of one message, BatchHandler of many. One of them, or
	// RangeHandler, is required.
	Handler Handler
	// BatchHandler is used in place of Handler.
	BatchHandler BatchHandler
	// RangeHandler is used in place of both, for who keeps a fence of offsets in place of, or
	// beside, a record for each message. It needs Unclaimed, and Order must be ByPartition. The
	// brokers must be 3.1 at least, which tell a topic's UUID with every fetch.
	RangeHandler RangeHandler

	// ID finds the id of a message. Default: DefaultID.
	ID IDFunc

	// Positions gives an id to the messages in which ID finds none: the topic's UUID,
	// partition, offset and timestamp, as kafkaadapter.Positions does. It needs brokers of
	// 3.1, which tell the UUID with every fetch. It tells redeliveries, and nothing else:
	// what a producer sent twice, what came through a retry topic, and what a mirror copied
	// lie at other positions, and run again. To tell messages by nothing else let ID be
	// FirstOf(). Default false: such a message cannot be processed (ErrNoID) and goes to
	// Park.
	Positions bool

	// Scope is the scope of all keys, as it is. With it, messages of two topics or two groups
	// that have the same id are the same message: the effect of the second one is skipped.
	// Default: the group and the message's first topic, see [ScopeOf].
	Scope string

	// TopicName gives the name under which a topic's keys are scoped, for a topic that is a
	// mirror or has been renamed: it returns "orders" for "eu.orders", so that a message keeps
	// its record in both. It must always return the same for a topic; an empty name stands for
	// the topic's own. With Scope it matters to HeaderFirstTopic alone. It cannot be used with
	// Own. Default nil: each topic has its own name.
	TopicName func(topic string) string

	// RetryTopics are topics that get letters of [DeadLetters] to be tried again, as far as this
	// consumer reads them. In them, and nowhere else, [HeaderFirstTopic] is believed: a letter has
	// the scope that its message had in the first topic, and the id, where it has no other. So
	// nobody but consumers' DeadLetters may write to them.
	//
	// A letter that failed for good is on record as that, and skipped; what has used up
	// MaxAttempts goes on counting, so whoever reads the retry topic needs a higher one. One
	// that has lost its value, because it was too large, goes to Park. Cannot be used with Own.
	// Default: none.
	RetryTopics []string

	// Fingerprint binds an id to its payload: the same id with another value is then a
	// mismatch, which goes to Park. A tombstone differs from an empty value. Default false.
	Fingerprint bool

	// Label is what claims keep of a message in clear, with the Deduper's Config.Labels: at
	// most 64 bytes of printable UTF-8, or it is left out. It is asked once for a message, when
	// it is claimed first; a later claim of the id keeps the label of the first, where that is
	// found. Package telemetry keeps the context of a trace in it. Never put personal data in
	// it. It must return quickly. Default nil: none.
	Label func(m *Message) string

	// Park is given the messages that cannot be processed, with the reason, and must
	// keep them durably before it returns nil; then their offset may be committed. See
	// DeadLetters. It is called concurrently, not on Workers, at most 16 times at once for
	// each topic that is read. When it fails or panics, one message of the topic at a time is
	// tried, at most a second apart, and the others wait with their offsets: healthy messages
	// go on until HighWater. After a crash it may be given a message again. Default nil: the
	// consumer stops with an *UnprocessableError.
	Park func(ctx context.Context, m *Message, reason error) error

	// AllowNoID lets messages without an id go to Park although no message of their partition
	// has had one so far. Without it the first messages of a partition stop the consumer when
	// all of them, three at least, lack an id: then Config.ID looks in the wrong place, and the
	// whole topic would be put aside. Fewer than three wait for another message. One without
	// an id among others is put aside in any case. Default false.
	AllowNoID bool

	// MaxAttempts is how often a message is tried before it goes to Park, or stops the
	// consumer, with an error that wraps ErrAttempts. The store counts attempts when they
	// are claimed, so one that killed its process has counted; it remembers the count for
	// the Deduper's Hold after the last one. Not counted are attempts that a rebalance cut
	// short, and those that a batch shared. In the Unclaimed composition only this
	// process's runs since the assignment count. A downstream that is down uses attempts up
	// too: bound the backoff and this so that together they outlast it.
	//
	// What kills its process takes along what runs beside it, twice at most: messages with
	// two attempts elsewhere, and none here, run one at a time in all partitions of a
	// consumer. So let this be 3 at least; and give handlers a Timeout, for one that does not
	// return holds up the others of this kind. Default 0: no limit.
	MaxAttempts int

	// BusyTimeout is how long a message may be in flight elsewhere before it goes to Park,
	// with ErrBusy; without Park it waits on. Default 15 min.
	BusyTimeout time.Duration

	// TakeOverOlderGeneration takes over at once what an older generation of this group
	// holds of the same partition, in place of waiting for its lease: the member that holds
	// it has lost the partition. It may run on all the same, so this adds "a rebalance while
	// a handler still runs" to what makes an effect happen twice, unless effect and record
	// are one transaction. It never passes dedup.MarkIrreversible. After a clean leave nothing is
	// held, and it changes nothing. Default false.
	TakeOverOlderGeneration bool

	// Own, if set, makes this member the owner of each partition that it is assigned, before
	// the first of its messages is claimed, so that new keys need no claim of their own: see
	// the package documentation. The Deduper's store must be one that knows these owners. Own
	// is called again, with a backoff of at most a second, while it returns an error; the
	// partition is paused meanwhile ([Progress].NotOwned). An [*dedup.InputError] stops the
	// consumer. It must return soon when its context ends, and may be called for several
	// partitions at once. Default nil: partitions are not owned.
	Own func(ctx context.Context, at Assigned) (Ownership, error)

	// Partitioner is where the producers of the topics put a key when there are so many
	// partitions: Murmur2 or FNV1a, unless they have one of their own. Messages that lie
	// elsewhere, and all those without a key where there is more than one partition, are
	// misplaced: they, and for a while all others of the topic, are claimed one by one.
	// A partitioner that is not the producers' makes all of them misplaced: slow, and not
	// wrong. Required with Own.
	Partitioner func(key []byte, count int32) int32

	// Workers bounds the handlers that run at once per partition. Default 32.
	Workers int

	// Order of handling. Default ByKey.
	Order Order

	// BatchMax is the most messages claimed in one round trip. Default 256.
	BatchMax int

	// ClaimAhead is how many messages of a partition may hold a claim before their turn,
	// give or take a batch. Each is renewed while it waits, so a large backlog of claims
	// costs the store more than the work itself. Default 512.
	ClaimAhead int

	// HighWater pauses a partition when so many of its messages are in flight, and are still 20 ms
	// later; LowWater resumes it. What has been fetched already still comes in. Default 4096 and
	// half of HighWater.
	HighWater, LowWater int

	// CommitEvery is the time between commits. Default 250 ms.
	CommitEvery time.Duration

	// CommitCount commits earlier when so many messages are finished. Default 1000.
	CommitCount int

	// Drain is how long the running handlers of a revoked partition may go on before
	// they are cancelled. It must be shorter than the group's rebalance timeout, by 3 s at
	// least, and by 4 s with Own: those that listen come back after that, the last commit is
	// made, and what was owned is released.
	// Default 10 s.
	Drain time.Duration

	// Timeout bounds one run of Handler; kgo has no limit of its own. Default 0:
	// none.
	Timeout time.Duration

	// RetryBase and RetryMax bound the backoff after an error, with full jitter.
	// Default 100 ms and 30 s, or the other one where that is beyond it.
	RetryBase, RetryMax time.Duration

	// AllowSkip lets Run accept options that skip messages without a word.
	// Default false.
	AllowSkip bool

	// Observer is told what happens. Default: nobody.
	Observer Observer

	// Logger gets warnings: what was put aside, outages, a message without an id. Default:
	// slog.Default().
	Logger *slog.Logger
}

func (c Config) complete() (Config, error) {
	if c.ID == nil {
		c.ID = DefaultID()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	s := setting.Settings{
		Package: "franz",
		Deduper: c.Deduper, Unclaimed: c.Unclaimed, TakeOver: c.TakeOverOlderGeneration,
		Handler: c.Handler != nil, BatchHandler: c.BatchHandler != nil,
		RangeHandler: c.RangeHandler != nil,
		Own:          c.Own != nil, Partitioner: c.Partitioner != nil, Fingerprint: c.Fingerprint,
		Scope: c.Scope, GroupKnown: true, TopicName: c.TopicName != nil, RetryTopics: c.RetryTopics,
		Order: uint8(c.Order), Orders: uint8(Unordered) + 1,
		Workers: &c.Workers, BatchMax: &c.BatchMax, ClaimAhead: &c.ClaimAhead,
		HighWater: &c.HighWater, LowWater: &c.LowWater,
		CommitCount: &c.CommitCount, MaxAttempts: &c.MaxAttempts, CommitEvery: &c.CommitEvery,
		Drain:   &c.Drain,
		Timeout: &c.Timeout, BusyTimeout: &c.BusyTimeout, RetryBase: &c.RetryBase,
		RetryMax: &c.RetryMax,
	}
	return c, s.Complete()
}
