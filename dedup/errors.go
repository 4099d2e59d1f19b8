package dedup

import (
	"context"
	"errors"
	"fmt"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/internal/coalesce"
)

// Errors to test for with errors.Is; see also [driver.ErrUnreadable].
var (
	// ErrInFlight: another owner holds the claim. Not done: never acknowledge on it.
	ErrInFlight = driver.ErrInFlight
	// ErrMismatch: the key is bound to another payload fingerprint.
	ErrMismatch = errors.New("dedup: key reused with another payload")
	// ErrUncertain: an earlier attempt may or may not have had its effect. [CanRetry] reports
	// whether the next call asks Config.Resolve again.
	ErrUncertain = errors.New("dedup: effect of an earlier attempt is uncertain")
	// ErrUnknown: the state of the key, or of the write, could not be found out.
	ErrUnknown = errors.New("dedup: outcome unknown")
	// ErrLeaseLost: the claim is no longer this owner's. It is the cancellation cause of a
	// handler's context, and the answer to a late Complete, Fail or Release.
	ErrLeaseLost = errors.New("dedup: lease lost")
	// ErrClosed: the Deduper has been closed.
	ErrClosed = errors.New("dedup: closed")
	// ErrNoResult: the key is done, but its result was not kept.
	ErrNoResult = errors.New("dedup: result was not kept")
)

// FailedError replays a failure that was recorded for good: see [Permanent].
type FailedError struct {
	Message string // Message is the text of the stored error, cut at 1 KiB.
	Attempt int    // Attempt that failed, from 1.
}

// Error implements error.
func (e *FailedError) Error() string { return "dedup: failed for good earlier: " + e.Message }

// permanentError marks an error as terminal.
type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// Permanent marks err as a failure that no retry can fix: it is recorded and replayed. Any other
// error releases the claim, and so does one that a function of [Do] returns after its context has
// ended. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

// IsPermanent reports whether err is or wraps a failure that no retry can fix: one made by
// [Permanent], or a [*FailedError] of any key.
func IsPermanent(err error) bool {
	var made *permanentError
	var replayed *FailedError
	return errors.As(err, &made) || errors.As(err, &replayed)
}

// CanAck reports whether the message is done and may be acknowledged. It is true for nil, for
// [ErrNoResult], and for a failure for good ([IsPermanent]) unless its record was refused, lost
// with the lease, or not confirmed. It does not promise a value: read the value when err is nil,
// and where [Do] says so.
//
// At most one of CanAck, [CanRetry] and [OutcomeUnknown] is true of an error that is not nil.
// Where none of them is true, park the message or stop. That is so for bad input, a mismatch, an
// uncertain effect that nobody asks about, an unreadable record, a closed Deduper, and the error of
// a canceled handler.
func CanAck(err error) bool {
	var input *InputError
	switch {
	case err == nil:
		return true
	case errors.Is(err, ErrLeaseLost), errors.Is(err, ErrUnknown), errors.Is(err, ErrMismatch),
		errors.As(err, &input), isRefused(err):
		return false
	case IsPermanent(err):
		return true
	}
	return errors.Is(err, ErrNoResult) && !isForeign(err)
}

// OutcomeUnknown reports whether err is or wraps [ErrUnknown]: it is open whether the store
// executed the call, or whether the effect is on record. Never acknowledge on it; asking again
// is safe.
func OutcomeUnknown(err error) bool { return errors.Is(err, ErrUnknown) }

// CanRetry reports whether the same call may succeed later without anybody's help, and its outcome
// is not unknown. It is false for nil.
func CanRetry(err error) bool {
	switch {
	case CanAck(err), OutcomeUnknown(err):
		return false
	case errors.Is(err, ErrLeaseLost):
		return true // the claim is somebody else's, whatever the handler has answered
	}
	return passes(err)
}

// passes reports whether the cause of err may pass by itself, so that a loop may send again. It
// is true for a call whose outcome is unknown too, unless its caller has left.
func passes(err error) bool {
	var input *InputError
	var unresolved *unresolvedError
	switch {
	case err == nil, IsPermanent(err), errors.As(err, &input), isRefused(err):
		return false
	case errors.As(err, &unresolved):
		return !IsPermanent(unresolved.cause) // the next call asks again, unless it failed for good
	case errors.Is(err, ErrMismatch), errors.Is(err, ErrUncertain),
		errors.Is(err, driver.ErrUnreadable), errors.Is(err, ErrNoResult),
		errors.Is(err, ErrClosed), errors.Is(err, context.Canceled):
		return false
	}
	return true
}

// passesSoon is like passes, for the end of a claim, which is sent again until its lease is over.
// It is false for a missing permission, which would block the caller for all that time.
func passesSoon(err error) bool {
	var denied interface{ Denied() bool }
	return passes(err) && (!errors.As(err, &denied) || !denied.Denied())
}

// refusedError is the certain answer of a store that wrote nothing and will not: the request
// is wrong, or the store cannot read what is there. It is never an unknown outcome.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

func isRefused(err error) bool {
	var refused *refusedError
	return errors.As(err, &refused)
}

// isRefusal reports whether err, of a store, says for certain that nothing was written.
func isRefusal(err error) bool {
	var input *InputError
	return errors.As(err, &input) || errors.Is(err, driver.ErrUnreadable)
}

// foreignError is a handler's error that wraps the ErrNoResult of another key: the handler's own
// key is not done.
type foreignError struct{ err error }

func (e *foreignError) Error() string { return e.err.Error() }
func (e *foreignError) Unwrap() error { return e.err }

func isForeign(err error) bool {
	var foreign *foreignError
	return errors.As(err, &foreign)
}

// lateError is the failure for good of a handler whose context had ended. It may only mean that, so
// it is not believed: [IsPermanent] is false of it.
type lateError struct{ err error }

func (e *lateError) Error() string { return "dedup: handler was canceled: " + e.err.Error() }

// Is implements the interface of errors.Is.
func (e *lateError) Is(target error) bool { return errors.Is(e.err, target) }

// As implements the interface of errors.As.
func (e *lateError) As(target any) bool {
	switch target.(type) {
	case **permanentError, **FailedError:
		return false
	}
	return errors.As(e.err, target)
}

// NotStarted marks a handler's error: the irreversible part has not begun after all, because the
// request was never sent, or was refused as a whole. The claim is released and its
// [MarkIrreversible] withdrawn. Only an attempt that knows this may say so; after a Resolve that
// answered [DidNotHappen] it also speaks for the attempts before. NotStarted(nil) is nil. It
// changes nothing without MarkIrreversible, or for a failure for good ([IsPermanent]).
func NotStarted(err error) error {
	if err == nil {
		return nil
	}
	return &notStartedError{err}
}

type notStartedError struct{ err error }

func (e *notStartedError) Error() string { return e.err.Error() }

func (e *notStartedError) Unwrap() error { return e.err }

func isNotStarted(err error) bool {
	var e *notStartedError
	return errors.As(err, &e)
}

// unresolvedError is an ErrUncertain for a key about which Resolve could not find anything out.
// Asking again may help, unlike for a key that nobody asks about. The cause is the error of
// Resolve, not of the key: that Resolve failed for good, or had an unknown outcome, does not mean
// the same of the key.
type unresolvedError struct{ cause error }

var errStillUnknown = errors.New("still unknown")

func (e *unresolvedError) Error() string { return ErrUncertain.Error() + ": " + e.cause.Error() }

// Is implements the interface of errors.Is.
func (e *unresolvedError) Is(target error) bool {
	switch target {
	case ErrUncertain:
		return true
	case ErrInFlight, ErrMismatch, ErrUnknown, ErrLeaseLost, ErrClosed, ErrNoResult,
		driver.ErrUnreadable:
		return false
	}
	return errors.Is(e.cause, target)
}

// As implements the interface of errors.As.
func (e *unresolvedError) As(target any) bool {
	switch target.(type) {
	case **permanentError, **FailedError, **InputError, **refusedError, **foreignError,
		**unresolvedError:
		return false
	}
	return errors.As(e.cause, target)
}

// unknown wraps the reason why a store could not answer, so that callers can test for both. A
// certain refusal leaves nothing open, and keeps its error.
func unknown(err error) error {
	switch {
	case errors.Is(err, ErrUnknown):
		return err
	case isRefusal(err):
		return &refusedError{err}
	}
	return fmt.Errorf("%w: %w", ErrUnknown, err)
}

// forgiven keeps an InputError, the caller's own mistake, and drops every other error, because
// Observe mode fails no caller.
func forgiven(err error) error {
	var input *InputError
	if errors.As(err, &input) {
		return err
	}
	return nil
}

// notSent reports whether err says that the store was not asked: see Answer.Err.
func notSent(err error) bool {
	var told interface{ NotSent() bool }
	return errors.Is(err, coalesce.ErrFull) || errors.As(err, &told) && told.NotSent()
}

// mayHaveExecuted reports whether the store may hold a claim although it answered with err.
// It reports false when the store looked and refused, or was not asked.
func mayHaveExecuted(err error) bool {
	if err == nil || notSent(err) {
		return false
	}
	var input *InputError
	return !errors.As(err, &input) && !errors.Is(err, driver.ErrStoreFull) &&
		!errors.Is(err, driver.ErrUnreadable)
}
