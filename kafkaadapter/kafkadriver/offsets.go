package kafkadriver

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync"
)

// Offsets has the offsets that a member is to commit, and those that the group's coordinator is
// known to have. It is safe for concurrent use.
type Offsets struct {
	e      *Engine
	topics *SessionTopics // or nil

	mu     sync.Mutex
	at     map[TopicPartition]*offset
	failed bool // the last attempt
}

// offset has the next offset of a partition that is to be committed, and the one that the
// coordinator is known to have.
type offset struct{ marked, confirmed int64 }

// Due is an offset to commit.
type Due struct {
	Topic     string
	Partition int32
	// Next is the offset of the next message to read.
	Next int64
	// Metadata says which topic the commit is for: see [Stamp]. Without SessionTopics it is empty.
	Metadata string

	of *offset // kept when the partition was given up, and assigned again, meanwhile
}

// NewOffsets returns the offsets of one session. With its topics, nothing is due for a name that
// stands for another topic by now; without them (nil) the driver must check that itself.
func (e *Engine) NewOffsets(topics *SessionTopics) *Offsets {
	return &Offsets{e: e, topics: topics, at: make(map[TopicPartition]*offset)}
}

// Add adds a partition that was assigned.
func (o *Offsets) Add(topic string, partition int32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.at[TopicPartition{topic, partition}] = &offset{marked: -1, confirmed: -1}
}

// Forget drops a partition that was given up. Otherwise the coordinator would take a commit that is
// still due under a later generation of the group, in which the partition belongs to another
// member.
func (o *Offsets) Forget(topic string, partition int32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.at, TopicPartition{topic, partition})
}

// ForgetTopic drops the partitions of a topic that was deleted, and of all topics for an empty
// name.
func (o *Offsets) ForgetTopic(topic string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for at := range o.at {
		if topic == "" || at.Topic == topic {
			delete(o.at, at)
		}
	}
}

// Mark notes the next offset to commit, and calls Observer.Committing. It is for
// [Engine.NewCommitter].
func (o *Offsets) Mark(topic string, partition int32, next int64) {
	if o.topics != nil && o.topics.stale.has(topic) {
		return
	}
	o.mu.Lock()
	of := o.at[TopicPartition{topic, partition}]
	if of != nil {
		of.marked = next
	}
	o.mu.Unlock()
	if hook := o.e.Observer.Committing; hook != nil && of != nil {
		hook(topic, partition, next)
	}
}

// Confirmed is the offset that the coordinator is known to have. For a partition that was given up
// nothing is due. It is for [Engine.NewCommitter].
func (o *Offsets) Confirmed(topic string, partition int32) (next int64, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	of := o.at[TopicPartition{topic, partition}]
	if of == nil {
		return math.MaxInt64, true
	}
	return of.confirmed, of.confirmed >= 0
}

// Due returns the offsets to commit now: those that are not confirmed. With SessionTopics it first
// checks whether their topics are still those that were assigned. While that is not known, nothing
// is due.
func (o *Offsets) Due(ctx context.Context) []Due {
	all := o.unconfirmed()
	if o.topics == nil || len(all) == 0 {
		return all
	}
	names := make(map[string]bool)
	for _, d := range all {
		names[d.Topic] = true
	}
	may, err := o.topics.mayCommit(ctx, slices.Collect(maps.Keys(names)))
	if err != nil {
		for _, d := range all {
			o.Ended(d, err)
		}
		return nil
	}
	kept := all[:0]
	for _, d := range all {
		if may[d.Topic] && o.Holds(d) { // the look takes its time
			d.Metadata = Stamp(o.topics.UUID(d.Topic))
			kept = append(kept, d)
		}
	}
	return kept
}

func (o *Offsets) unconfirmed() []Due {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []Due
	for at, of := range o.at {
		if of.marked > of.confirmed {
			all = append(all, Due{Topic: at.Topic, Partition: at.Partition, Next: of.marked,
				of: of})
		}
	}
	return all
}

// Holds reports whether the partition is still in the assignment in which the offset became due.
func (o *Offsets) Holds(d Due) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.at[TopicPartition{d.Topic, d.Partition}] == d.of
}

// Ended notes the end of one attempt: err is nil when the coordinator has the offset. Hooks get
// each end; only the first failure of a series is logged, because there is one attempt per
// interval.
func (o *Offsets) Ended(d Due, err error) {
	o.mu.Lock()
	first, again := err != nil && !o.failed, err == nil && o.failed
	o.failed = err != nil
	if err == nil {
		d.of.confirmed = d.Next
	}
	o.mu.Unlock()
	switch {
	case first:
		o.e.Logger.Warn(o.e.name+": offset is not committed", "topic", d.Topic, "partition",
			d.Partition, "offset", d.Next, "error", err)
	case again:
		o.e.Logger.Info(o.e.name+": offsets are committed again", "topic", d.Topic, "partition",
			d.Partition)
	}
	if hook := o.e.Observer.Committed; hook != nil && err == nil {
		hook(d.Topic, d.Partition, d.Next)
	}
	if hook := o.e.Observer.CommitFailed; hook != nil && err != nil {
		hook(d.Topic, d.Partition, err)
	}
}
