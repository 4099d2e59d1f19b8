package retry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// run sends until an answer is final or no attempt is left.
func (c *call) run(ctx context.Context) (*http.Response, error) {
	var last failure
	var f *flight
	defer func() {
		if f != nil { // a callback panicked
			f.close()
		}
		c.refund()
	}()
	for {
		var err error
		if f, err = c.attempt(ctx); err != nil {
			return nil, c.unsent(err, last)
		}
		class, found := c.judge(f)
		if class == Final {
			return deliver(&f)
		}
		delay, why := c.pause(found)
		c.notify(c.event(found, delay, why))
		if why != 0 {
			if f.err != nil {
				f.err = c.gaveUp(why, f.err)
			}
			return deliver(&f)
		}
		f.drain()
		f, last = nil, found
		if err := c.sleep(ctx, delay, found); err != nil {
			return nil, err
		}
	}
}

// deliver hands the outcome to the caller, and clears f, so that run no longer closes it.
func deliver(f **flight) (*http.Response, error) {
	done := *f
	*f = nil
	return done.deliver()
}

func (c *call) notify(e Event) {
	if c.OnRetry != nil {
		e.Request = c.req
		c.OnRetry(e)
	}
}

// unsent is the error of a send that did not happen.
func (c *call) unsent(err error, last failure) error {
	if last.err != nil {
		err = fmt.Errorf("%w; last failure: %w", err, last.err)
	}
	if errors.Is(err, ErrOpen) {
		return c.gaveUp(BreakerOpen, err)
	}
	return c.gaveUp(NotRepeatable, err)
}

// attempt sends the request once, or once and a hedge, and returns the outcome.
func (c *call) attempt(ctx context.Context) (*flight, error) {
	limit := c.timeout()
	f, err := c.launch(ctx, limit)
	if err != nil {
		return nil, err
	}
	if c.sends == 0 {
		c.Budget.Deposit()
	}
	c.sent()
	if c.hedges {
		return c.race(ctx, f, limit), nil
	}
	f.fly(c.t.base)
	return f, nil
}

// launch prepares a send: body, permit, context.
func (c *call) launch(ctx context.Context, limit time.Duration) (*flight, error) {
	if c.retries() {
		ctx = NoRetry(ctx)
	}
	f := &flight{breaker: c.t.cfg.Breaker, caller: c.req.Context()}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	var err error
	if f.req, err = c.request(f.ctx); err != nil {
		f.cancel(nil)
		return nil, err
	}
	if f.breaker != nil && !f.breaker.TryAcquirePermit() {
		if f.req.Body != nil {
			_ = f.req.Body.Close()
		}
		f.cancel(nil)
		return nil, ErrOpen
	}
	if limit > 0 {
		f.within(limit)
	}
	return f, nil
}

// judge ends the timeout of an attempt, and returns what its outcome means.
func (c *call) judge(f *flight) (Class, failure) {
	class := Final
	if f.err == nil {
		if f.timer == nil && c.keyed && f.resp.StatusCode == http.StatusConflict {
			f.within(sniffTime)
		}
		class = c.t.class(f.resp, c.keyed)
	}
	f.land()
	if f.err != nil {
		worth, after := c.worth(f.err)
		if !worth || f.caller.Err() != nil {
			return Final, failure{err: f.err}
		}
		return Again, failure{err: f.err, after: after}
	}
	found := failure{
		err:    fmt.Errorf("retry: response %s", statusText(f.resp)),
		status: f.resp.StatusCode,
		wait:   class == Wait,
	}
	if class != Final {
		found.after, _ = RetryAfter(f.resp.Header, time.Now())
	}
	return class, found
}

func statusText(resp *http.Response) string {
	if resp.Status != "" {
		return resp.Status
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
}
