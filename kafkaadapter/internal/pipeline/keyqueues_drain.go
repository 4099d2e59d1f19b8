package pipeline

import (
	"context"
	"errors"
	"fmt"
)

// ErrDrained is the cause with which a process function's context ends: the time to finish is over,
// because the partition is being given up.
var ErrDrained = errors.New("pipeline: not finished when the drain ended")

// Drained has the items that [KeyQueues.Halt] and [KeyQueues.Drain] leave to their caller. Both
// slices keep the order of SubmitAll within a key.
type Drained[T any] struct {
	// Pending items do not run and never will: they were never started, wait between two attempts,
	// or ended without being finished. They belong to the caller now, each exactly once.
	Pending []T
	// Running items are not settled: they are inside the process function, or with somebody to whom
	// it has handed them. Each may still end in any way, so its claim must not be given away.
	Running []T
}

// Halt stops starting items and hands back at once those that do not run, so that others need not
// wait for them until the running ones have ended. The running ones go on undisturbed. It returns
// what [KeyQueues.Drain] returns, which must still be called for the running items.
func (k *KeyQueues[T]) Halt() Drained[T] {
	k.quiesce()
	return k.collect()
}

// Drain stops starting items and waits for the running ones until ctx ends; then it
// cancels their context, with a cause that wraps [ErrDrained] and the cause of ctx,
// and returns without waiting for them to notice. Unfinished items come back.
//
// Every submitted item is finished (decision Done), or pending in exactly one of the results, or
// running in the last result. Another call of Halt or Drain asks again for those that were
// running: each is then finished (and in neither slice), pending or still running. So "drain, then
// a short grace for handlers that listen to their context" is two calls.
//
// With a ctx that never ends, Drain waits as long as the handler runs.
func (k *KeyQueues[T]) Drain(ctx context.Context) Drained[T] {
	select {
	case <-k.quiesce():
		k.cancel(ErrDrained) // nothing runs: this only frees the context
	case <-ctx.Done():
		k.cancel(fmt.Errorf("%w: %w", ErrDrained, context.Cause(ctx)))
	}
	return k.collect()
}

// quiesce stops starting items and returns a channel that is closed when no worker is left and
// everything is settled.
func (k *KeyQueues[T]) quiesce() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.draining = true
	if k.active == 0 && k.open == 0 {
		none := make(chan struct{})
		close(none)
		return none
	}
	if k.idle == nil {
		k.idle = make(chan struct{})
	}
	return k.idle
}

// collect removes from the queues every item that does not run.
func (k *KeyQueues[T]) collect() Drained[T] {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out Drained[T]
	for q := k.all.first; q != nil; {
		next := q.next // dropQueue unlinks the queue
		k.collectRun(q, &out)
		for q.items.len() > 0 {
			out.Pending = append(out.Pending, q.items.pop())
			k.items--
		}
		if q.state == queueParked {
			q.timer.Stop()
			k.parked--
		}
		if q.state != queueRunning {
			k.dropQueue(q)
		}
		q = next
	}
	return out
}

// collectRun leaves to a running queue only the items that are not settled. Other queues have none.
func (k *KeyQueues[T]) collectRun(q *keyQueue[T], out *Drained[T]) {
	for i := range q.run {
		switch r := &q.run[i]; {
		case !r.settled:
			out.Running = append(out.Running, r.item)
		case r.decision.kind != decisionDone:
			out.Pending = append(out.Pending, r.item)
			r.decision = Done() // it is the caller's now
		}
	}
}
