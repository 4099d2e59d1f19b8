package kafkadriver

import (
	"context"
	"time"

	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/kafkaadapter/internal/msgid"
	"github.com/onceward/onceward/kafkaadapter/internal/pipeline"
)

// CommitterConfig says how a [Committer] commits: see its fields.
type CommitterConfig = pipeline.CommitterConfig

// NewCommitter returns a committer of a session's partitions, with the intervals of the
// configuration. It calls mark with each watermark that has moved, and commit for one attempt to
// commit all marked offsets. confirmed returns the offset that the coordinator is known to have:
// the committer repeats attempts until the coordinator has every marked offset.
func (e *Engine) NewCommitter(mark func(topic string, partition int32, next int64), commit func(),
	confirmed func(topic string, partition int32) (next int64, ok bool)) (*Committer, error) {
	return pipeline.NewCommitter(CommitterConfig{Interval: e.Tuning.CommitEvery,
		Count: e.Tuning.CommitCount, Repeat: time.Minute, Mark: mark, Commit: commit,
		Confirmed: confirmed})
}

// Gather collects items of many goroutines into batches, of which a few are under way at once.
type Gather[T any] = pipeline.Gather[T]

// NewGather returns a Gather that calls process with at most limit items at a time, from at most
// senders goroutines.
func NewGather[T any](limit, senders int, process func([]T)) *Gather[T] {
	return pipeline.NewGather(limit, senders, process)
}

var (
	// ErrDrained is the cause with which the contexts of handlers end when the drain budget is used
	// up.
	ErrDrained = pipeline.ErrDrained
	// ErrGoexit: a handler ended its goroutine.
	ErrGoexit = pipeline.ErrNoDecision
)

// Stamp is the metadata of a commit to the topic with this UUID: below version 10 of OffsetCommit
// (KIP-848) a commit identifies its topic by name alone. From the stamp a later reader learns that
// the offset belongs to a topic of that name that has been deleted since. It is empty for an empty
// UUID.
func Stamp(uuid string) string { return msgid.Stamp(uuid) }

// Stamped is the UUID in the metadata of a commit. It is empty for a commit of another program.
func Stamped(metadata string) string { return msgid.Stamped(metadata) }

// TopicID writes a topic's UUID as Kafka's tools do. It is empty for a zero UUID, which stands for
// a topic without a UUID.
func TopicID(uuid [16]byte) string { return msgid.TopicID(uuid) }

// Sleep waits for d. It returns an error when ctx ends earlier.
func Sleep(ctx context.Context, d time.Duration) error { return backoff.Sleep(ctx, d) }

// Pause is how long to wait after this many failures in a row, at most limit.
func (e *Engine) Pause(failures int, limit time.Duration) time.Duration {
	return backoff.Policy{Base: min(e.retry.Base, limit),
		Cap: min(e.retry.Cap, limit)}.Delay(failures, 0, nil)
}
