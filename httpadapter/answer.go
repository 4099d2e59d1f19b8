package httpadapter

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/httpadapter/internal/problem"
	"github.com/onceward/onceward/internal/encrypted"
)

// These are the problems of the middleware. Their names are anchors of docs/reference/http.md.
var (
	keyMissing = problem.Problem{Name: "key-missing", Status: 400,
		Title: "This request needs an Idempotency-Key."}
	keyMalformed = problem.Problem{Name: "key-malformed", Status: 400,
		Title: "The Idempotency-Key is malformed."}
	bodyIncomplete = problem.Problem{Name: "body-incomplete", Status: 400,
		Title: "The request's body ended early."}
	noPrincipal = problem.Problem{Name: "no-principal", Status: 401,
		Title: "The request names nobody that its key could belong to."}
	replayRefused = problem.Problem{Name: "replay-refused", Status: 403,
		Title: "The answer to this request may not be seen again."}
	inFlight = problem.Problem{Name: "in-flight", Status: 409,
		Title: "A request with this Idempotency-Key is still running."}
	uncertain = problem.Problem{Name: "uncertain", Status: 409,
		Title: "It is being found out whether an earlier request with this Idempotency-Key had its effect."}
	responseNotKept = problem.Problem{Name: "response-not-kept", Status: 410,
		Title: "This request is done; its answer was not kept.", Final: true}
	requestTooLarge = problem.Problem{Name: "request-too-large", Status: 413,
		Title: "The request's body is too large."}
	keyReused = problem.Problem{Name: "key-reused", Status: 422,
		Title: "This Idempotency-Key was used with another request."}
	tooManyInFlight = problem.Problem{Name: "too-many-in-flight", Status: 429,
		Title: "Too many requests of this client are under way."}
	tooManyRetries = problem.Problem{Name: "too-many-retries", Status: 429,
		Title: "Too many requests of this client are retries."}
	bodyTaken = problem.Problem{Name: "body-taken", Status: 500,
		Title: "The request's body was read too early.", Final: true}
	responseUnreadable = problem.Problem{Name: "response-unreadable", Status: 500,
		Title: "This request is done; its answer cannot be read.", Final: true}
	failed = problem.Problem{Name: "failed", Status: 500,
		Title: "This request has failed for good.", Final: true}
	responseTooLarge = problem.Problem{Name: "response-too-large", Status: 500,
		Title: "This request is done; its answer is too large to be kept.", Final: true}
	responseIncomplete = problem.Problem{Name: "response-incomplete", Status: 500,
		Title: "This request is done; its answer broke off.", Final: true}
	notSupported = problem.Problem{Name: "not-supported", Status: 501,
		Title: "A request with an Idempotency-Key cannot switch protocols."}
	storeUnavailable = problem.Problem{Name: "store-unavailable", Status: 503,
		Title: "It cannot be found out now whether this request is new."}
	replayUnavailable = problem.Problem{Name: "replay-unavailable", Status: 503,
		Title: "It cannot be found out now whether the answer to this request may be seen again."}
	scopeUnavailable = problem.Problem{Name: "scope-unavailable", Status: 503,
		Title: "It cannot be found out now whose request this is."}
	outcomeUnknown = problem.Problem{Name: "outcome-unknown", Status: 503,
		Title: "It is not known whether this request is done: ask again with its Idempotency-Key."}
	cancelled = problem.Problem{Name: "cancelled", Status: 503,
		Title: "The request was canceled before it was answered."}
)

// say answers with the problem p; detail says what was wrong with this request.
func (c *call) say(p problem.Problem, detail string) {
	p.Detail = detail
	c.write(p)
}

// later answers with the problem p, and tells the client when to send the request again.
func (c *call) later(p problem.Problem) {
	p.RetryAfter = c.m.cfg.RetryAfter
	c.write(p)
}

// setWindow sets the header that says how long the key is remembered once it is done.
func (c *call) setWindow() {
	if c.m.window != "" {
		c.w.Header().Set(windowHeader, c.m.window)
	}
}

// setRemainingWindow sets the same header for a key that was found done, to the time that is left
// of its window. If the Runner does not know that time, there is no header.
func (c *call) setRemainingWindow(rec *dedup.Record) {
	if rec.State == driver.StateInProgress || rec.State == driver.StateUncertain {
		return
	}
	c.w.Header().Del(windowHeader)
	if left := rec.Remaining; left >= time.Second {
		c.w.Header().Set(windowHeader, strconv.FormatInt(int64(left/time.Second), 10))
	}
}

// answer answers the request with what Run returned. By now the record is either written, or there
// is none. Without a record, it sends no answer of the handler that says that the effect has
// happened.
func (c *call) answer(res dedup.Result[[]byte], err error) {
	switch {
	case err != nil:
		c.answerError(&res, err)
	case res.Outcome == dedup.Duplicate:
		c.answerAgain(&res.Record, res.Value)
	case res.Outcome == dedup.Acquired && c.landed:
		c.answerFirst()
	default: // no Runner should return this
		c.m.cfg.Logger.Error("httpadapter: the Runner answered nothing", "outcome", res.Outcome)
		c.later(storeUnavailable)
	}
}

func (c *call) answerFirst() {
	switch {
	case c.tooMuch:
		c.write(responseTooLarge)
	case c.short:
		c.write(responseIncomplete)
	default:
		c.last.send(c.setWindow)
	}
}

// answerAgain replays the stored answer. The argument stored is nil if an operator marked the key
// as done.
func (c *call) answerAgain(rec *dedup.Record, stored []byte) {
	c.setRemainingWindow(rec)
	if c.m.cfg.BeforeReplay != nil {
		r := withBody(c.r.Context(), c.r, c.body)
		defer removeFiles(r)
		err := c.m.cfg.BeforeReplay(r)
		switch {
		case errors.Is(err, dedup.ErrUnknown):
			c.m.cfg.Logger.Warn("httpadapter: replay not decided", "error", err)
			c.later(replayUnavailable)
			return
		case err != nil:
			c.m.cfg.Logger.Warn("httpadapter: replay refused", "error", err)
			c.write(replayRefused)
			return
		}
	}
	if len(stored) == 0 {
		c.write(responseNotKept)
		return
	}
	r, err := c.m.box.Decode(c.scope, c.key, stored)
	if err == nil && !r.Tombstone && (r.Status < 200 || r.Status > 999) {
		err = &dedup.InputError{Field: "stored response", Reason: "has no status of HTTP"}
	}
	switch {
	case err != nil:
		c.m.cfg.Logger.Error("httpadapter: a stored response cannot be replayed", "error", err)
		c.write(responseUnreadable)
	case r.Tombstone:
		c.write(responseNotKept)
	default:
		c.replay(r)
	}
}

func (c *call) replay(r *encrypted.Response) {
	h := c.w.Header()
	for name, values := range r.Header {
		if c.m.mayReplay(name) {
			h[http.CanonicalHeaderKey(name)] = values
		}
	}
	h.Set(replayedHeader, "true")
	if bodyAllowed(r.Status) && c.r.Method != http.MethodHead {
		h.Set("Content-Length", strconv.Itoa(len(r.Body)))
	}
	c.w.WriteHeader(r.Status)
	if len(r.Body) > 0 {
		_, _ = c.w.Write(r.Body) // the client may have gone
	}
}

// answerError answers the request when Run has returned an error. It sends the handler's own answer
// only if that answer is not to be kept and the key is free again.
func (c *call) answerError(res *dedup.Result[[]byte], err error) {
	var failure *dedup.FailedError
	switch {
	case c.last != nil && errors.Is(err, dedup.ErrLeaseLost), c.landed && unrecorded(err):
		c.warn("effect without a record of ours: it is not known whether the request is done",
			"error", err)
		c.later(outcomeUnknown)
	case errors.Is(err, errSilent):
		c.answerSilence()
	case errors.Is(err, errNotKept):
		c.answerUnkept()
	case errors.Is(err, errNotSupported):
		c.write(notSupported)
	case errors.Is(err, errCancelled):
		c.later(cancelled)
	case errors.Is(err, dedup.ErrInFlight):
		p := inFlight
		p.RetryAfter = c.comeAgain(res.Record.Remaining)
		c.write(p)
	case errors.Is(err, dedup.ErrUncertain):
		c.warn("a request whose key is uncertain: somebody has to find out whether its effect has happened")
		p := uncertain
		p.RetryAfter = uncertainRetryAfter
		c.write(p)
	case errors.Is(err, dedup.ErrMismatch):
		c.warn("a key that comes with another request than the first")
		c.setRemainingWindow(&res.Record)
		c.write(keyReused)
	case errors.Is(err, dedup.ErrNoResult):
		c.answerAgain(&res.Record, nil)
	case errors.As(err, &failure):
		c.setRemainingWindow(&res.Record)
		c.write(failed)
	default:
		c.m.cfg.Logger.Warn("httpadapter: store unavailable", "error", err)
		c.later(storeUnavailable)
	}
}

// unrecorded reports whether err means that an effect has happened and may not be on record: the
// record could not be confirmed, or the store has refused it.
func unrecorded(err error) bool {
	var input *dedup.InputError
	return dedup.OutcomeUnknown(err) || errors.Is(err, driver.ErrUnreadable) ||
		errors.As(err, &input)
}

// answerUnkept sends an answer that leaves its key free.
func (c *call) answerUnkept() {
	p := responseTooLarge
	switch {
	case c.last.over:
		p.Title = "The answer is too large to be kept back."
	case c.last.incomplete():
		p = responseIncomplete
		p.Title = "The answer broke off."
	default:
		c.last.send(c.setWindow)
		return
	}
	p.Status, p.Final = c.last.status, false
	c.write(p)
}

// comeAgain returns how long a client should wait before it asks again for a key in flight.
func (c *call) comeAgain(lease time.Duration) time.Duration {
	if lease > 0 {
		return min(c.m.cfg.RetryAfter, lease) // sent in whole seconds, rounded up
	}
	return c.m.cfg.RetryAfter
}

// EncodeResponse encodes an answer for [dedup.Config].Resolve, which passes it to [dedup.Happened]
// when it finds that the effect of a request has happened. Retries then get that answer. ctx is the
// one that Resolve gets: with Config.Seal it says which record the answer is for. Headers that are
// not kept are left out. An answer that is larger than Config.ResponseLimit leaves a tombstone, as
// a handler's answer does. A status below 200 or above 999 is an [*dedup.InputError]; so is, with
// Config.Seal, a ctx that is not that of a request.
func (m *Middleware) EncodeResponse(ctx context.Context, status int, header http.Header,
	body []byte) ([]byte, error) {
	if status < 200 || status > 999 {
		return nil, &dedup.InputError{Field: "Status",
			Reason: "is " + strconv.Itoa(status) + "; it must be 200-999"}
	}
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok || c.m != m {
		if m.box != nil {
			return nil, &dedup.InputError{Field: "Context",
				Reason: "is not that of a request, and a sealed response is bound to its key"}
		}
		c = &call{m: m}
	}
	stored := c.encode(&encrypted.Response{Status: status,
		Header: storedHeaders(m.headers, nil, header), Body: body})
	if len(stored) > m.cfg.ResponseLimit {
		stored = c.encode(&encrypted.Response{Tombstone: true, Status: status})
	}
	return stored, nil
}
