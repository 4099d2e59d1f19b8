package kafkaadapter

import (
	"context"
	"log/slog"
	"time"

	"github.com/onceward/onceward/dedup"
)

// Config configures a consumer of any driver. Deduper or Unclaimed, and one handler, are
// required.
type Config struct {
	// Deduper claims and records the messages: level Claimed.
	Deduper *dedup.Deduper
	// Unclaimed runs every delivery. The handler records the message itself, in the transaction
	// of its effect, with sqladapter's Do or DoBatch: level Atomic. Deduper must be nil then.
	Unclaimed bool

	// Handler performs the effect of one message.
	Handler Handler
	// BatchHandler performs the effects of many messages. Set it instead of Handler.
	BatchHandler BatchHandler
	// RangeHandler performs the effects of a range of offsets and moves a fence. Set it instead of
	// Handler. It needs Unclaimed, the Order ByPartition, and brokers that report the UUIDs of
	// topics.
	RangeHandler RangeHandler

	// ID finds the id of a message. Default: DefaultID.
	ID IDFunc
	// Positions makes an id of the position of each message in which ID finds no id: the topic's
	// UUID, partition, offset and timestamp. A redelivered message keeps this id. A copy that a
	// producer, a retry topic or a mirror has sent gets another id, and runs again. To use
	// positions alone, set ID to FirstOf(). Brokers must be at least 2.8, with franz-go 3.1.
	// Default false: a message without an id goes to Park with ErrNoID.
	Positions bool
	// Scope is the scope of all keys. With it, messages of two topics or two groups that have the
	// same id are one message, and the effect of the second is skipped. Default: [ScopeOf] the
	// group and the message's first topic.
	Scope string
	// TopicName returns the name under which a topic's keys are scoped, for a topic that is a
	// mirror or was renamed: "orders" for "eu.orders". It must always return the same name for a
	// topic; an empty one stands for the topic's own name. Not with Own. Default nil.
	TopicName func(topic string) string
	// RetryTopics are those of this consumer's topics that hold letters to be tried again. Only in
	// these topics is [HeaderFirstTopic] believed: a letter keeps the scope that its message had in
	// the first topic, and the id in its header if ID finds none. Only consumers' [DeadLetters] may
	// write to these topics. A letter that failed for good is on record as failed, and skipped. The
	// count of attempts continues, so this consumer needs a higher Attempts.Max than the one that
	// sent the letters. A letter without its value goes to Park. Not with Own. Default: none.
	RetryTopics []string
	// Fingerprint binds an id to its payload: the same id with another value is a mismatch, which
	// goes to Park. A tombstone differs from an empty value. Not with Own. Default false.
	Fingerprint bool
	// Label returns a text about a message, which its claim stores in clear if the Deduper's
	// Config.Labels is set. A text that is not printable UTF-8 of at most 64 bytes is left out.
	// Label is called once for a message, when it is first claimed, and must return quickly. Never
	// put personal data in it. Default nil.
	Label func(m *Message) string

	// Park keeps the messages that cannot be processed, with the reason. After it has returned nil
	// their offsets may be committed; see [DeadLetters]. It is called concurrently, at most 16
	// times at once for a topic, not on Tuning.Workers. While it fails or panics, it is called for
	// one message of the topic at a time, at most a second apart. The topic's other unprocessable
	// messages wait, and their offsets with them; healthy messages continue up to Tuning.HighWater.
	// After a crash it may see a message again. Default nil: the consumer stops with an
	// *UnprocessableError.
	Park func(ctx context.Context, m *Message, reason error) error
	// Attempts bounds the attempts at one message.
	Attempts Attempts
	// Order of handling. Default ByKey.
	Order Order
	// Own makes this member the owner of the partitions that it is assigned: new keys then need no
	// claim of their own. Default nil: partitions are not owned.
	Own *Owning
	// Allow permits what is refused by default.
	Allow Allow
	// Tuning has sizes and times. The defaults suit most consumers.
	Tuning Tuning
	// Observer has hooks for what happens. Default: no hooks.
	Observer Observer
	// Logger gets warnings: messages that were put aside, outages, a message without an id.
	// Default: slog.Default().
	Logger *slog.Logger
}

// Attempts bounds the attempts at one message.
type Attempts struct {
	// Max is how often a message is tried. After that it goes to Park, or stops the consumer, with
	// an error that wraps ErrAttempts. The store counts an attempt when the message is claimed, so
	// an attempt that killed its process counts, too. The store keeps the count for the Deduper's
	// Hold. Attempts that a rebalance cut short, or that a batch shared, do not count. With
	// Config.Unclaimed only runs of this process since the assignment count. While a downstream is
	// down, attempts are used up, too: choose Max and the backoff so that together they outlast it.
	//
	// A message that kills its process also kills the messages that run next to it, but at most
	// twice: a message with two attempts elsewhere, and none here, runs alone in all partitions of
	// the consumer. So let Max be at least 3, and set Timeout. Default 0: no limit. 1 is refused.
	Max int
	// Timeout bounds one run of the handler. Default 0: no limit.
	Timeout time.Duration
	// RetryBase and RetryMax bound the backoff after an error, with full jitter. Defaults: 100 ms
	// and 30 s; if one is set beyond the default of the other, the other gets the same value.
	RetryBase, RetryMax time.Duration
	// BusyTimeout is how long a message may be in flight elsewhere before it goes to Park, with
	// ErrBusy. Without Park it continues to wait. Default 15 min.
	BusyTimeout time.Duration
	// Delayed are topics in which failed messages are tried again without holding up others: see
	// "Retry topics" in the package documentation. Not with Own or RangeHandler. Default none: a
	// message is retried in its place, and messages of its key wait for it.
	Delayed []DelayedTopic
	// Producer sends to the topics of Delayed, and belongs to the caller. Required with Delayed.
	Producer Producer
}

// DelayedTopic is a topic whose messages wait before they are handled.
type DelayedTopic struct {
	// Topic is its name. The topic must exist. Required.
	Topic string
	// Delay is the time that a message waits there, from its timestamp on. Positive, and shorter
	// than the Deduper's Hold.
	Delay time.Duration
}

// Allow permits what is refused by default, because it can lose or repeat effects.
type Allow struct {
	// NoID lets messages without an id go to Park although no message of their partition has had
	// one so far. Without it the first messages of a partition stop the consumer when all of them,
	// at least three, have no id: Config.ID then looks in the wrong place, and Park would empty the
	// topic. While there are fewer than three, they wait for the next message.
	NoID bool
	// Skip accepts client settings that skip messages: a group that begins at the end of a log, or
	// a reset to the end after an invalid offset.
	Skip bool
	// TakeOver takes over at once the claims that an older generation of this group holds of the
	// same partition, instead of waiting for their leases. Their member has lost the partition, but
	// its handler may still run. So "a rebalance while a handler runs" becomes one more case in
	// which an effect happens twice. TakeOver never passes [dedup.MarkIrreversible].
	TakeOver bool
}

// Owning acquires the partitions of a member before the first of their messages is claimed. See
// "Owned partitions" in the package documentation.
type Owning struct {
	// Acquire returns the ownership of a partition. The Deduper's store must be one that knows the
	// owners of partitions. After an error it is called again, with a backoff of at most a second,
	// and the partition is paused until then ([Progress].NotOwned); an [*dedup.InputError] stops
	// the consumer. It is called for several partitions at once, and must return soon after its
	// context has ended. Required.
	Acquire func(ctx context.Context, at Assigned) (Ownership, error)
	// Partitioner returns in which of count partitions the producers of the topics put a key:
	// Murmur2, FNV1a, or their own. A message that lies elsewhere is misplaced, and so is one
	// without a key in a topic of several partitions. Misplaced messages, and for a while all
	// others of the topic, are claimed one by one. With a wrong Partitioner all are misplaced,
	// which is slow but not wrong. Required.
	Partitioner func(key []byte, count int32) int32
}

// Tuning has sizes and times. Zero values are defaults.
type Tuning struct {
	// Workers bounds the handlers that run at once for a partition. Default 32.
	Workers int
	// BatchMax bounds the messages claimed in one round trip. Default 256.
	BatchMax int
	// BatchWait is how long an incomplete batch waits for more, when the batch before it had
	// more than one message. Default 2 ms. Drivers whose client delivers batches do not use it.
	BatchWait time.Duration
	// ClaimAhead is about how many messages of a partition may hold a claim before their turn. Each
	// claim is renewed while its message waits, so a large backlog of claims costs the store more
	// than the work. Default 512.
	ClaimAhead int
	// HighWater pauses a partition when that many of its messages are in flight, and still are
	// 20 ms later; LowWater resumes it. Messages that the client has already fetched still come in.
	// Defaults: 4096, and half of HighWater.
	HighWater, LowWater int
	// CommitEvery is the time between commits; CommitCount finished messages cause a commit
	// earlier. Defaults: 250 ms and 1000.
	CommitEvery time.Duration
	CommitCount int
	// Drain is how long the running handlers of a revoked partition may go on before they are
	// canceled. It must be at least 3 s shorter than the group's rebalance timeout, with Own 4 s.
	// In that time handlers that listen to their context return, the last commit is made, and owned
	// partitions are released. Default 10 s.
	Drain time.Duration
}
