package flow

import (
	"errors"
	"time"
)

// ErrNoVerdict stops [Lanes] whose process function returned the zero [Verdict], or
// ended its goroutine instead of returning.
var ErrNoVerdict = errors.New("flow: process returned no verdict")

// Verdict is what a process function says about its item. Make one with [Done],
// [RetryAfter] or [Stop]; the zero Verdict is a mistake and stops the lanes with
// [ErrNoVerdict], since forgetting to answer must not look like success.
type Verdict struct {
	kind  verdictKind
	after time.Duration
	err   error
}

type verdictKind uint8

const (
	verdictNone verdictKind = iota
	verdictDone
	verdictRetry
	verdictStop
)

// Done says that the lanes are finished with the item: the next one of its key may
// run. It is about order only; a [Slot] is finished by its own Done.
func Done() Verdict { return Verdict{kind: verdictDone} }

// RetryAfter says that the item must run again after d and stays at the head of its
// key until then. The worker is given back at once. A zero or negative d puts the key
// behind those that are ready now: the caller's jitter, not this, keeps it from
// spinning.
func RetryAfter(d time.Duration) Verdict { return Verdict{kind: verdictRetry, after: d} }

// Stop says that nothing may be started any more, because of err: this item can
// neither be finished nor skipped. It stays unfinished and comes back from
// [Lanes.Drain]. A nil err stands for [ErrStopped].
func Stop(err error) Verdict {
	if err == nil {
		err = ErrStopped
	}
	return Verdict{kind: verdictStop, err: err}
}
