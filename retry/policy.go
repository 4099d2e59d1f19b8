package retry

import (
	"fmt"
	"net/http"
	"time"

	"github.com/onceward/onceward/internal/backoff"
)

// Defaults of the zero [Policy] and the zero [Backoff].
const (
	DefaultAttempts = 3
	DefaultBase     = backoff.DefaultBase
	DefaultCap      = backoff.DefaultCap
	DefaultElapsed  = 5 * time.Minute
)

// Policy says how often, when and for how long a call is tried again. The zero value is three
// attempts within five minutes, with full jitter from 100 ms up to 30 s. A Policy is a plain
// value; goroutines may share it, and then share its Budget.
type Policy struct {
	// Attempts is the number of all attempts, the first included. 1 never retries. Default:
	// [DefaultAttempts].
	Attempts int
	// Backoff is the wait between two attempts.
	Backoff Backoff
	// Elapsed is the time from the call on after which no attempt begins. A wait that would end
	// later is not begun, so Elapsed also bounds Retry-After. It does not cut an attempt short.
	// Default: [DefaultElapsed].
	Elapsed time.Duration
	// AttemptTimeout bounds one attempt. If the context has a deadline, an attempt gets no more
	// than the time that is left, divided by the attempts that are left. So a later attempt has
	// time, and every layer below has less time than the one above. Default: that share alone.
	AttemptTimeout time.Duration
	// Budget pays for retries; an empty Budget ends them. Give one Budget to all callers of the
	// same service. Default: [NewTransport] makes a Budget of its own with the defaults of
	// [BudgetConfig]. [Do] has no Budget by default, because its calls share nothing: in an outage
	// each call makes all of its Attempts.
	Budget *Budget
	// Retryable reports whether an error is worth another attempt. [Permanent] and [After] overrule
	// it, and so does the end of the caller's context. It may be called concurrently. Default:
	// [Retryable].
	Retryable func(error) bool
	// OnRetry is called with every failure that was worth another attempt, either before the wait,
	// or with the reason for giving up. It is called on the caller's goroutine and may be called
	// concurrently by several of them; the call waits for it. Default: none.
	OnRetry func(Event)
}

// Event is the argument of [Policy].OnRetry.
type Event struct {
	// Request is the caller's request, which must not be changed; nil in [Do].
	Request *http.Request
	// Attempt counts sends from 1, including waits for another's answer, without hedges.
	Attempt int
	// Err is the failure. For a response it names the status. For a hedge it is nil.
	Err error
	// Status is the status of the response, or 0 if there is none.
	Status int
	// Delay is the wait before the next attempt; 0 when giving up and for a hedge.
	Delay time.Duration
	// Wait reports that another request with the key is in flight, and that the call waits for its
	// answer.
	Wait bool
	// Hedge reports that nothing has failed: the attempt is slow, and a second copy is sent.
	Hedge bool
	// GaveUp is why there is no next attempt; 0 if there is one.
	GaveUp Reason
}

// complete checks p and fills in defaults.
func (p Policy) complete() (Policy, error) {
	switch {
	case p.Attempts < 0:
		return p, fmt.Errorf("retry: Attempts is negative: %d", p.Attempts)
	case p.Elapsed < 0:
		return p, fmt.Errorf("retry: Elapsed is negative: %v", p.Elapsed)
	case p.AttemptTimeout < 0:
		return p, fmt.Errorf("retry: AttemptTimeout is negative: %v", p.AttemptTimeout)
	}
	if err := p.Backoff.Validate(); err != nil {
		return p, err
	}
	if p.Attempts == 0 {
		p.Attempts = DefaultAttempts
	}
	if p.Elapsed == 0 {
		p.Elapsed = DefaultElapsed
	}
	if p.Retryable == nil {
		p.Retryable = Retryable
	}
	return p, nil
}
