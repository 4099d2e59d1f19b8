package kafkaadapter

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// AllOrNothing makes a [BatchHandler] of effects that happen together or not at all, as in one SQL
// transaction: the nil or the error that f returns counts for every message. After an error each
// message is handled alone, which finds the one that fails. So a permanent error counts as
// permanent only for a message that was alone, and not for its neighbors in a batch.
//
// f gets the messages with a valid id, in their order, and is not called when no message has one.
// Otherwise sqladapter's DoBatch, for example, which leaves out a bad key and returns nil, would
// make a message count as handled that never was. A message without a valid id fails for good, with
// [ErrNoID] or the fault of its id. [IDs] lists the ids.
//
// AllOrNothing(nil) is nil, which every driver refuses.
func AllOrNothing(f func(ctx context.Context, ms []*Message) error) BatchHandler {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, ms []*Message) []error {
		errs := make([]error, len(ms))
		usable := make([]*Message, 0, len(ms))
		for i, m := range ms {
			if errs[i] = idError(m.ID); errs[i] == nil {
				usable = append(usable, m)
			}
		}
		if len(usable) == 0 {
			return errs
		}
		batch := together(f(ctx, usable), len(usable))
		for i := range errs {
			if errs[i] == nil {
				errs[i] = batch[0]
			}
		}
		return errs
	}
}

// idError returns why an id is not valid, or nil. The error is permanent, because the id of a
// message does not change.
func idError(id string) error {
	if id == "" {
		return dedup.Permanent(ErrNoID)
	}
	_, err := driver.NewID("n", "", id)
	return dedup.Permanent(err)
}

// together returns the results of n messages whose effects happen together or not at all. A
// permanent error of several messages becomes an ordinary one: nobody knows which of them caused
// it.
func together(err error, n int) []error {
	if n > 1 && dedup.IsPermanent(err) {
		err = errors.New("kafkaadapter: one message of a batch fails for good: " + err.Error())
	}
	return slices.Repeat([]error{err}, n)
}

// Range is a stretch of a partition: all messages that were delivered from the offset From up to,
// but not including, To. Offsets that are missing in it will not come any more: retention or
// compaction has removed them, they are markers of transactions, or their messages were put aside.
type Range struct {
	// Topic of the messages.
	Topic string
	// TopicID is the topic's UUID, as Kafka's tools write it.
	TopicID string
	// Partition of the messages.
	Partition int32
	// From is the offset of the first message.
	From int64
	// To is one above the offset of the last message.
	To int64
	// Messages in the order of their offsets, at least one.
	Messages []*Message
}

// Since returns the messages whose offsets are not below offset: those that are still to be done
// when a fence says that it begins there.
func (r *Range) Since(offset int64) []*Message {
	i, _ := slices.BinarySearchFunc(r.Messages, offset, func(m *Message, offset int64) int {
		return cmp.Compare(m.Offset, offset)
	})
	return r.Messages[i:]
}

// RangeHandler performs the effects of a range, together or not at all, and moves a fence in the
// same transaction, as sqladapter's Fence does. The ranges of a partition come one after the other,
// and each begins where the one before it ended. A range that has failed is handled again before
// anything behind it: message by message, which finds the one that fails. So no message is
// overtaken, and whatever lies below a fence is done.
//
// nil: all effects are committed. An error is for the whole range, and means what it means in a
// [Handler]; a permanent one counts as permanent only for a message that was alone. That message is
// put aside before anything behind it is handled. The context is that of a [BatchHandler]. A
// RangeHandler that continues after its partition has been given up may still commit: the fence
// makes sure that nothing is done twice.
type RangeHandler func(ctx context.Context, r *Range) error

// Batch makes a [BatchHandler] of it, for messages that follow each other. Drivers use it.
func (f RangeHandler) Batch(ctx context.Context, ms []*Message) []error {
	first, last := ms[0], ms[len(ms)-1]
	err := f(ctx, &Range{Topic: first.Topic, TopicID: first.TopicID, Partition: first.Partition,
		From: first.Offset, To: last.Offset + 1, Messages: ms})
	return together(err, len(ms))
}
