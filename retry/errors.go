package retry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// ErrOpen is the error of a request that was not sent because its [Breaker] gave no permit.
var ErrOpen = errors.New("retry: circuit breaker is open")

// Reason is why a failure that was worth another attempt got none.
type Reason uint8

const (
	// AttemptsUsed: the last of [Policy].Attempts has failed.
	AttemptsUsed Reason = iota + 1
	// BudgetEmpty: the [Budget] has no token.
	BudgetEmpty
	// DeadlineNear: the context's deadline comes before the end of the wait.
	DeadlineNear
	// ElapsedNear: [Policy].Elapsed ends before the wait does.
	ElapsedNear
	// WaitedTooLong: another request with the key was in flight, or uncertain, for longer than
	// [TransportConfig].MaxWait.
	WaitedTooLong
	// NotAllowed: a layer above retries: the context has [NoRetry], or the request says
	// Do-Not-Retry. Answers in flight are still waited for.
	NotAllowed
	// NotRepeatable: the method is not idempotent and there is no key, or the body can be read once
	// only.
	NotRepeatable
	// BreakerOpen: the [Breaker] gave no permit.
	BreakerOpen
	// ContextEnded: the caller's context ended during the wait.
	ContextEnded
)

var reasons = [...]string{
	0:             "not at all",
	AttemptsUsed:  "attempts used up",
	BudgetEmpty:   "retry budget empty",
	DeadlineNear:  "deadline before the next attempt",
	ElapsedNear:   "time used up before the next attempt",
	WaitedTooLong: "in flight elsewhere for too long",
	NotAllowed:    "a layer above retries",
	NotRepeatable: "not repeatable",
	BreakerOpen:   "circuit breaker open",
	ContextEnded:  "context ended",
}

// String returns the reason in words.
func (r Reason) String() string {
	if int(r) < len(reasons) {
		return reasons[r]
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

// GaveUpError is returned for a failure that was worth another attempt and got none. It wraps the
// last failure; after [ContextEnded] the context's error, its cause and the last failure.
type GaveUpError struct {
	Attempts int // number of sends; 0: nothing was sent
	Reason   Reason
	Err      error
}

// Error implements error.
func (e *GaveUpError) Error() string {
	if e.Attempts == 0 {
		return fmt.Sprintf("retry: not sent, %v: %v", e.Reason, e.Err)
	}
	return fmt.Sprintf("retry: gave up after attempt %d, %v: %v", e.Attempts, e.Reason, e.Err)
}

// Unwrap returns Err.
func (e *GaveUpError) Unwrap() error { return e.Err }

// Timeout reports whether the last failure was a timeout. It is needed because [net/url.Error] asks
// only the error that it holds, and does not unwrap that error.
func (e *GaveUpError) Timeout() bool {
	var t interface{ Timeout() bool }
	return errors.As(e.Err, &t) && t.Timeout()
}

// timeoutError reports the timeout of one attempt, not the end of the caller's context.
type timeoutError struct {
	after time.Duration
}

func (e *timeoutError) Error() string {
	return fmt.Sprintf("retry: attempt timed out after %v", e.after)
}

func (*timeoutError) Timeout() bool { return true }

func (*timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// Permanent marks err as not worth another attempt: [Do] returns it at once, mark included;
// [errors.Is] and [errors.As] see through it. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type afterError struct {
	err  error
	wait time.Duration
}

func (e *afterError) Error() string { return e.err.Error() }
func (e *afterError) Unwrap() error { return e.err }

// After marks err as worth another attempt, d from now at the earliest, as Retry-After does for a
// response. The backoff is added to d, so that callers with the same d do not retry at the same
// time. A negative d is 0; one that ends after the deadline or [Policy].Elapsed ends the attempts.
// [Permanent] around it or in it is the stronger mark. After(nil, d) is nil.
func After(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &afterError{err, max(0, d)}
}

// Retryable is the default of [Policy].Retryable. An error is worth another attempt unless it is
// nil, [Permanent], [context.Canceled], [ErrOpen], or says that a certificate is not valid or the
// other side does not speak TLS. [context.DeadlineExceeded] is worth one, because an attempt has
// timed out; once the caller's own deadline has passed nothing is tried again, whatever the error.
func Retryable(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, ErrOpen) {
		return false
	}
	var permanent *permanentError
	return !errors.As(err, &permanent) && !certificate(err)
}

// certificate reports whether err is an error that the next handshake would have again.
func certificate(err error) bool {
	var (
		verification *tls.CertificateVerificationError
		record       tls.RecordHeaderError
		authority    x509.UnknownAuthorityError
		hostname     x509.HostnameError
		invalid      x509.CertificateInvalidError
		roots        x509.SystemRootsError
	)
	return errors.As(err, &verification) || errors.As(err, &record) || errors.As(err, &authority) ||
		errors.As(err, &hostname) || errors.As(err, &invalid) || errors.As(err, &roots)
}

// worth reports whether err is worth another attempt under p, and the wait it asks for.
func (p Policy) worth(err error) (bool, time.Duration) {
	var permanent *permanentError
	if errors.As(err, &permanent) {
		return false, 0
	}
	var after *afterError
	if errors.As(err, &after) {
		return true, after.wait
	}
	return p.Retryable(err), 0
}

// ended returns the error of a context that has ended, with its cause.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
