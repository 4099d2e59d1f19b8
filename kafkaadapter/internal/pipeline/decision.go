package pipeline

import (
	"cmp"
	"errors"
	"time"
)

// ErrNoDecision stops [KeyQueues] whose process function returned the zero [Decision], or
// ended its goroutine instead of returning.
var ErrNoDecision = errors.New("pipeline: process returned no decision")

// Decision is what a process function says about its item. Make one with [Done],
// [RetryAfter] or [Stop]; the zero Decision is a mistake and stops the queues with
// [ErrNoDecision], since forgetting to answer must not look like success.
type Decision struct {
	kind  decisionKind
	after time.Duration
	err   error
}

type decisionKind uint8

const (
	decisionNone decisionKind = iota
	decisionDone
	decisionRetry
	decisionStop
)

// Done says that the queues are finished with the item: the next one of its key may
// run. It is about order only; a [Slot] is finished by its own Done.
func Done() Decision { return Decision{kind: decisionDone} }

// RetryAfter says that the item must run again after d and stays at the head of its key until then.
// Its worker is free at once. A zero or negative d puts the key behind those that are ready now:
// the caller must add jitter to keep it from spinning.
func RetryAfter(d time.Duration) Decision { return Decision{kind: decisionRetry, after: d} }

// Stop says that nothing may be started any more, because of err: this item can
// neither be finished nor skipped. It stays unfinished and comes back from
// [KeyQueues.Drain]. A nil err stands for [ErrStopped].
func Stop(err error) Decision {
	return Decision{kind: decisionStop, err: cmp.Or(err, ErrStopped)}
}
