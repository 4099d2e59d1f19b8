package flow

import (
	"context"
	"errors"
	"fmt"
)

// Causes with which a process function's context ends.
var (
	// ErrDrained says that the time to finish was over: the partition is going away.
	ErrDrained = errors.New("flow: not finished when the drain ended")
	// ErrClosed says that the lanes were closed without waiting for what ran.
	ErrClosed = errors.New("flow: lanes were closed")
)

// Drained is what [Lanes.Drain] and [Lanes.Close] leave to their caller. Both slices
// keep the order of Submit within a key.
type Drained[T any] struct {
	// Pending items are not running and never will: never started, or between two
	// attempts, or ended without being finished. They are the caller's now, each
	// exactly once.
	Pending []T
	// Running items were not settled: inside the process function, or in the hands of
	// whoever it has handed them to. Each may still end in any way: its claim must not be
	// given away.
	Running []T
}

// Halt stops starting items and hands back at once those that do not run, so that
// others need not wait for them as long as for the running ones, which go on
// undisturbed. Its answer is that of [Lanes.Drain], which is still to be called for them.
func (l *Lanes[T]) Halt() Drained[T] {
	l.quiesce()
	return l.collect()
}

// Drain stops starting items and waits for the running ones until ctx ends; then it
// cancels their context, with a cause that wraps [ErrDrained] and the cause of ctx,
// and returns without waiting for them to notice. What is not finished comes back.
//
// Every submitted item is finished (verdict Done), or pending in exactly one answer,
// or running in the last one. Calling Halt, Drain or Close again asks again for those that
// were running: each is then finished (and in neither slice), pending or still
// running. So "drain, then a short grace for handlers that listen to their context"
// is two calls.
//
// A ctx that never ends waits for ever for a handler that never ends.
func (l *Lanes[T]) Drain(ctx context.Context) Drained[T] {
	return l.drain(ctx, ErrDrained)
}

// Close cancels running items at once, with the cause [ErrClosed], and waits for them
// until ctx ends. Its answer is that of [Lanes.Drain]. Goroutines are left behind only
// if there are items in Running.
func (l *Lanes[T]) Close(ctx context.Context) Drained[T] {
	l.cancel(ErrClosed)
	return l.drain(ctx, ErrClosed)
}

func (l *Lanes[T]) drain(ctx context.Context, why error) Drained[T] {
	select {
	case <-l.quiesce():
		l.cancel(why) // nothing runs: this only frees the context
	case <-ctx.Done():
		l.cancel(fmt.Errorf("%w: %w", why, context.Cause(ctx)))
	}
	return l.collect()
}

// quiesce stops starting items and returns a channel that is closed when no worker is
// left, and nothing to settle.
func (l *Lanes[T]) quiesce() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.draining = true
	if l.active == 0 && l.open == 0 {
		none := make(chan struct{})
		close(none)
		return none
	}
	if l.idle == nil {
		l.idle = make(chan struct{})
	}
	return l.idle
}

// collect takes every item out of the lanes but those that run.
func (l *Lanes[T]) collect() Drained[T] {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out Drained[T]
	for lane := l.all.first; lane != nil; {
		next := lane.next // collectLane unlinks the lane
		if lane.state == laneRunning {
			l.collectBehind(lane, &out)
		} else {
			l.collectLane(lane, &out)
		}
		lane = next
	}
	return out
}

// collectLane empties a lane that does not run.
func (l *Lanes[T]) collectLane(lane *lane[T], out *Drained[T]) {
	if lane.state == laneParked {
		lane.timer.Stop()
		l.parked--
	}
	for lane.items.len() > 0 {
		out.Pending = append(out.Pending, lane.items.pop())
		l.items--
	}
	l.dropLane(lane)
}

// collectBehind leaves a running lane only what is not settled.
func (l *Lanes[T]) collectBehind(lane *lane[T], out *Drained[T]) {
	for i := range lane.run {
		switch r := &lane.run[i]; {
		case !r.settled:
			out.Running = append(out.Running, r.item)
		case r.verdict.kind != verdictDone:
			out.Pending = append(out.Pending, r.item)
			r.verdict = Done() // it is the caller's now
		}
	}
	for lane.items.len() > 0 {
		out.Pending = append(out.Pending, lane.items.pop())
		l.items--
	}
}
