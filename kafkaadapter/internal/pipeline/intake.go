package pipeline

import (
	"context"
	"errors"
	"time"
)

// ErrSourceClosed is returned by an [Intake] whose channel was closed.
var ErrSourceClosed = errors.New("pipeline: the source is closed")

// Intake gathers what a channel already holds into batches.
//
// A store answers 256 claims in about the time of one, so the size of the batches decides the
// throughput of a partition. But a message must not wait for others that do not come. So Next takes
// three steps:
//
//  1. It waits for the first item, without a limit.
//  2. It takes the items that are there already, without waiting.
//  3. If the last batch had more than one item, it waits for more, at most batchWait.
//
// At a high rate the batch is full before step 3, or fills in a fraction of it: the wait costs
// nothing and batches are large. At a low rate items come alone and wait for nothing. Without step
// 3 a reader that is faster than the client's feeding goroutine would see batches of one or two
// exactly when the partition is busy.
//
// An Intake has one reader: Next is not safe for concurrent use. It starts no
// goroutine and needs no closing.
type Intake[T any] struct {
	source <-chan T
	max    int
	wait   time.Duration
	timer  *time.Timer
	busy   bool // the last batch had more than one item
}

// NewIntake returns an Intake that reads source, in batches of up to batchMax items. A batch that
// is not full waits up to batchWait for more, counted from when the source first ran empty. A
// nanosecond is as good as not waiting. Both must be positive.
func NewIntake[T any](source <-chan T, batchMax int, batchWait time.Duration) *Intake[T] {
	return &Intake[T]{source: source, max: batchMax, wait: batchWait}
}

// Next appends the next batch to batch, which is usually the last one cut to length
// zero, and returns it with at least one and at most batchMax items more.
//
// When ctx ends, or the source is closed, it returns what it has already taken with a
// nil error: nothing that was received is ever dropped. With nothing taken it returns batch
// unchanged and [context.Cause] of ctx, or [ErrSourceClosed]. If ctx has already ended, Next takes
// nothing.
func (in *Intake[T]) Next(ctx context.Context, batch []T) ([]T, error) {
	if ctx.Err() != nil {
		return batch, context.Cause(ctx)
	}
	select {
	case item, open := <-in.source:
		if !open {
			return batch, ErrSourceClosed
		}
		batch = append(batch, item)
	case <-ctx.Done():
		return batch, context.Cause(ctx)
	}
	before := len(batch)
	batch, room, open := in.takeReady(batch, in.max-1)
	if room > 0 && open && (in.busy || len(batch) > before) {
		batch = in.takeWaiting(ctx, batch, room)
	}
	in.busy = len(batch) > before
	return batch, nil
}

// takeReady appends up to room items without waiting. It returns the room that is
// left, and open == false when the source is closed.
func (in *Intake[T]) takeReady(batch []T, room int) (_ []T, left int, open bool) {
	for ; room > 0; room-- {
		select {
		case item, open := <-in.source:
			if !open {
				return batch, room, false
			}
			batch = append(batch, item)
		default:
			return batch, room, true
		}
	}
	return batch, 0, true
}

// takeWaiting appends up to room items until BatchWait is over, ctx ends or the
// source is closed.
func (in *Intake[T]) takeWaiting(ctx context.Context, batch []T, room int) []T {
	if in.timer == nil {
		in.timer = time.NewTimer(in.wait)
	} else {
		in.timer.Reset(in.wait)
	}
	defer in.timer.Stop()
	for ; room > 0; room-- {
		select {
		case item, open := <-in.source:
			if !open {
				return batch
			}
			batch = append(batch, item)
		case <-in.timer.C:
			return batch
		case <-ctx.Done():
			return batch
		}
	}
	return batch
}
