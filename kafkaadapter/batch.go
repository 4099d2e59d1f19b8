package kafkaadapter

import (
	"context"
	"errors"

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
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}
