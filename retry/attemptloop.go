package retry

import (
	"context"
	"math"
	"time"
)

// failure is the retryable end of an attempt.
type failure struct {
	err    error         // never nil
	status int           // of a response; 0 without
	after  time.Duration // not before
	wait   bool          // in flight elsewhere
}

// attemptLoop is the state of one call: its attempts, its waits and what bounds them. It belongs to
// one goroutine.
type attemptLoop struct {
	Policy               // complete
	limit      Reason    // why there is one send only; 0 if there may be more
	repeatable bool      // what is sent can be sent again, also where limit forbids attempts
	deadline   time.Time // of the context; zero: none
	latest     time.Time // the last moment at which an attempt may begin
	sends      int       // attempts and repeats of a wait
	waits      int       // sends that repeat a wait and do not count as attempts
	prev       time.Duration
	began      time.Time     // of the last send
	paid       bool          // a token has been taken for a send that is to come
	waitUntil  time.Time     // zero: has not waited
	longest    time.Duration // of all waits for an answer in flight elsewhere
}

// newAttemptLoop begins a call under a complete policy.
func newAttemptLoop(ctx context.Context, p Policy) *attemptLoop {
	c := &attemptLoop{Policy: p}
	c.deadline, _ = ctx.Deadline()
	c.latest = time.Now().Add(p.Elapsed)
	if !Allowed(ctx) {
		c.once(NotAllowed)
	}
	return c
}

// once limits the call to one attempt, whatever its answer. The first reason stays.
func (c *attemptLoop) once(why Reason) {
	if c.limit == 0 {
		c.Attempts, c.limit = 1, why
	}
}

// retries reports whether this call may send again by itself.
func (c *attemptLoop) retries() bool { return c.Attempts > 1 }

// late returns the reason why no attempt may begin at the time d from now, or 0 if one may begin
// then.
func (c *attemptLoop) late(d time.Duration) Reason {
	switch {
	case !c.deadline.IsZero() && time.Until(c.deadline) <= d:
		return DeadlineNear
	case time.Until(c.latest) < d:
		return ElapsedNear
	}
	return 0
}

// timeout returns the timeout of the attempt that begins now, or 0 if it has none. With a deadline,
// each remaining attempt may use an equal part of the remaining time.
func (c *attemptLoop) timeout() time.Duration {
	if c.deadline.IsZero() {
		return c.AttemptTimeout
	}
	left := max(1, c.Attempts-(c.sends-c.waits))
	if left == 1 && c.AttemptTimeout == 0 {
		return 0 // the context itself is the bound, and its error the clearer one
	}
	share := max(1, time.Until(c.deadline)/time.Duration(left))
	if c.AttemptTimeout > 0 {
		return min(c.AttemptTimeout, share)
	}
	return share
}

// pause returns how long to wait after the failure f, or why there is no next attempt. It takes a
// token last, when nothing else prevents the next attempt.
func (c *attemptLoop) pause(f failure) (time.Duration, Reason) {
	if c.limit != 0 && (!f.wait || !c.repeatable) {
		return 0, c.limit
	}
	if !f.wait && c.sends-c.waits >= c.Attempts {
		return 0, AttemptsUsed
	}
	delay := c.Backoff.Delay(c.sends-1, c.prev)
	c.prev = delay
	if f.wait {
		f.after = max(f.after, c.Backoff.least())
	}
	delay = plus(f.after, delay)
	if why := c.late(delay); why != 0 {
		return 0, why
	}
	if f.wait {
		if !c.patient(delay) {
			return 0, WaitedTooLong
		}
		c.waits++
		return delay, 0
	}
	if c.paid = c.Budget.Take(); !c.paid {
		return 0, BudgetEmpty
	}
	return delay, 0
}

// sent counts a send.
func (c *attemptLoop) sent() {
	c.sends++
	c.began = time.Now()
	c.paid = false
}

// refund gives back the token of a send that did not happen.
func (c *attemptLoop) refund() {
	if c.paid {
		c.paid = false
		c.Budget.giveBack()
	}
}

// patient reports whether a wait of d for an answer in flight elsewhere ends in time, and also the
// send after that wait. That send is assumed to take as long as the one before: a layer below that
// has just waited will wait again.
func (c *attemptLoop) patient(d time.Duration) bool {
	if c.waitUntil.IsZero() {
		c.waitUntil = c.began.Add(c.longest) // so a wait in a layer below counts
	}
	return plus(d, time.Since(c.began)) <= time.Until(c.waitUntil)
}

// event returns the Event that OnRetry gets for the failure f.
func (c *attemptLoop) event(f failure, delay time.Duration, gaveUp Reason) Event {
	return Event{Attempt: c.sends, Err: f.err, Status: f.status, Delay: delay, Wait: f.wait,
		GaveUp: gaveUp}
}

func (c *attemptLoop) gaveUp(why Reason, err error) error {
	return &GaveUpError{Attempts: c.sends, Reason: why, Err: err}
}

// plus adds durations that are not negative. It returns the longest duration if the sum would
// overflow.
func plus(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
