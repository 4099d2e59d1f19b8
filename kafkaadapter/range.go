package kafkaadapter

import (
	"cmp"
	"context"
	"slices"
)

// Range is a stretch of a partition: all messages that were delivered of it from From up to, but
// without, To. Offsets that are missing in it will not come any more: retention, compaction or
// a transaction's end has them, or their message was put aside.
type Range struct {
	// Topic of the messages.
	Topic string
	// TopicID is the topic's UUID, as Kafka's tools write it.
	TopicID string
	// Partition of the messages.
	Partition int32
	// From is the offset of the first message.
	From int64
	// To is the offset behind the last message.
	To int64
	// Messages in the order of their offsets, at least one.
	Messages []*Message
}

// Since returns the messages whose offsets are not below offset: what is still to be done when a
// fence says that it begins there.
func (r *Range) Since(offset int64) []*Message {
	i, _ := slices.BinarySearchFunc(r.Messages, offset, func(m *Message, offset int64) int {
		return cmp.Compare(m.Offset, offset)
	})
	return r.Messages[i:]
}

// RangeHandler has the effects of a range, together or not at all, and moves a fence in the same
// transaction, as sqladapter's Fence does. Ranges of a partition come one after the other, each
// from where the one before it was done, and a range that has failed is handled again before
// anything behind it: message by message, which finds the one that fails. So nothing is overtaken,
// and whatever lies below a fence is done.
//
// nil: all effects are committed. An error is for the whole range, and means what it means in a
// [Handler]; a permanent one counts as permanent only for a message that was alone. It is put
// aside before anything behind it is handled. The context is that of a [BatchHandler]. One that
// continues when its partition has been given up may still commit: the fence sees to it that
// nothing is done twice.
type RangeHandler func(ctx context.Context, r *Range) error

// Batch makes a [BatchHandler] of it, for messages that follow each other. Drivers use it.
func (f RangeHandler) Batch(ctx context.Context, ms []*Message) []error {
	first, last := ms[0], ms[len(ms)-1]
	err := f(ctx, &Range{Topic: first.Topic, TopicID: first.TopicID, Partition: first.Partition,
		From: first.Offset, To: last.Offset + 1, Messages: ms})
	return together(err, len(ms))
}
