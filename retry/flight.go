package retry

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// flight is one send. One goroutine at a time owns it: first the goroutine that calls fly, then the
// goroutine that receives the flight from it.
type flight struct {
	req     *http.Request
	ctx     context.Context
	cancel  context.CancelCauseFunc
	caller  context.Context // of the request that is sent
	breaker Breaker         // nil: none
	limit   time.Duration   // of timer
	timer   *time.Timer     // nil: none, or stopped

	resp     *http.Response // exactly one of resp and err is set after fly
	err      error
	panicked any
	// set once in a race: by the flight's goroutine, to report, or by race, to leave it behind
	claimed atomic.Bool
}

var (
	errLost    = errors.New("retry: another copy of the request was answered first")
	errDropped = errors.New("retry: the call ended without this copy of its request")
	errNothing = errors.New(
		"retry: the base RoundTripper returned neither a response nor an error")
	errVanished = errors.New("retry: the base RoundTripper ended its goroutine")
)

// within starts the timeout of the attempt.
func (f *flight) within(limit time.Duration) {
	f.limit = limit
	f.timer = time.AfterFunc(limit, func() { f.cancel(&timeoutError{limit}) })
}

// fly sends and waits for the answer's header. If the base panics, the flight is closed.
func (f *flight) fly(base http.RoundTripper) {
	back := false
	defer func() {
		if !back {
			f.err = errVanished
			if f.req.Body != nil {
				_ = f.req.Body.Close() // the base may not have come to it
			}
			f.record()
			f.close()
		}
	}()
	resp, err := base.RoundTrip(f.req)
	back = true
	switch {
	case err != nil && resp != nil: // against the contract
		if resp.Body != nil {
			_ = resp.Body.Close()
		}
		resp = nil
	case err == nil && resp == nil: // against the contract too
		err = errNothing
	}
	f.resp, f.err = resp, err
	f.record()
}

// record answers the breaker's permit.
func (f *flight) record() {
	if f.breaker == nil {
		return
	}
	cause := context.Cause(f.ctx)
	switch {
	case f.answered(), f.err != nil && errors.Is(cause, errLost):
		f.breaker.RecordSuccess()
	case f.err != nil && (errors.Is(f.caller.Err(), context.Canceled) ||
		errors.Is(cause, errDropped)):
		f.unproved()
	default:
		f.breaker.RecordFailure()
	}
}

// answered reports whether the service has shown that it works.
func (f *flight) answered() bool { return f.err == nil && f.resp.StatusCode < 500 }

// unproved gives back the permit of a send that has proved nothing about the service.
func (f *flight) unproved() {
	if release, ok := f.breaker.(interface{ ReleasePermit() }); ok {
		release.ReleasePermit()
		return
	}
	f.breaker.RecordFailure()
}

// ground ends a flight that was launched and will not be sent.
func (f *flight) ground() {
	if f.req.Body != nil {
		_ = f.req.Body.Close()
	}
	if f.breaker != nil {
		f.unproved()
	}
	f.close()
}

// land stops the timer of the attempt. If the timer has fired, the request is canceled, now or in a
// moment. A response that arrived at the same time could not be read to its end, so it is dropped.
func (f *flight) land() {
	late := f.timer != nil && !f.timer.Stop()
	f.timer = nil
	if late && f.caller.Err() == nil {
		f.close()
		f.resp, f.err = nil, &timeoutError{f.limit}
	}
}

// deliver hands the outcome to the caller, who then owns the body.
func (f *flight) deliver() (*http.Response, error) {
	if f.err != nil {
		f.close()
		return nil, f.err
	}
	if f.resp.Request == nil { // the next hop of a redirect looks for the key there
		f.resp.Request = f.req
	}
	hold(f.resp, func() { f.cancel(nil) })
	return f.resp, nil
}

// Bounds of reading a response that is not returned, so that its connection can be used again.
const (
	drainLimit = 64 << 10
	drainTime  = time.Second
)

// drain reads the rest of a short body and closes it.
func (f *flight) drain() {
	if f.resp != nil && f.resp.Body != nil && f.resp.ContentLength <= drainLimit {
		slow := time.AfterFunc(drainTime, func() { f.cancel(nil) })
		_, _ = io.CopyN(io.Discard, f.resp.Body, drainLimit)
		slow.Stop()
	}
	f.close()
}

// close ends the send and closes its response.
func (f *flight) close() {
	if f.timer != nil {
		f.timer.Stop()
	}
	if f.resp != nil && f.resp.Body != nil {
		_ = f.resp.Body.Close()
	}
	f.cancel(nil)
}
