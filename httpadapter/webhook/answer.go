package webhook

import (
	"errors"
	"net/http"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/httpadapter/internal/problem"
)

// These are the problems of a Receiver. Their names are anchors of docs/reference/http.md.
var (
	deliveryMalformed = problem.Problem{Name: "delivery-malformed", Status: 400,
		Title: "This delivery cannot be told from others."}
	bodyIncomplete = problem.Problem{Name: "body-incomplete", Status: 400,
		Title: "The request's body ended early."}
	notVerified = problem.Problem{Name: "not-verified", Status: 401,
		Title: "This delivery has no valid signature of this time."}
	methodNotAllowed = problem.Problem{Name: "method-not-allowed", Status: 405,
		Title: "Webhooks are posted."}
	inFlight = problem.Problem{Name: "in-flight", Status: 409,
		Title: "This delivery is still being handled."}
	uncertain = problem.Problem{Name: "uncertain", Status: 409,
		Title: "It is being found out whether this delivery had its effect."}
	requestTooLarge = problem.Problem{Name: "request-too-large", Status: 413,
		Title: "The request's body is too large."}
	deliveryRelabelled = problem.Problem{Name: "delivery-relabelled", Status: 422,
		Title: "This body was received under another id."}
	bodyTaken = problem.Problem{Name: "body-taken", Status: 500,
		Title: "The request's body was read too early."}
	handlerFailed = problem.Problem{Name: "handler-failed", Status: 500,
		Title: "The delivery could not be handled."}
	tooManyUnverified = problem.Problem{Name: "too-many-unverified", Status: 503,
		Title: "Too many deliveries are being received at the moment."}
	storeUnavailable = problem.Problem{Name: "store-unavailable", Status: 503,
		Title: "It cannot be found out now whether this delivery is new."}
	outcomeUnknown = problem.Problem{Name: "outcome-unknown", Status: 503,
		Title: "It is not known whether this delivery is done."}
)

// refuse answers a message that cannot be believed, or that names no event.
func (rc *Receiver) refuse(w http.ResponseWriter, err error) {
	rc.cfg.Logger.Warn("webhook: delivery refused", "provider", rc.provider.Name, "endpoint",
		rc.cfg.Endpoint, "error", err)
	var input *dedup.InputError
	if errors.As(err, &input) {
		p := deliveryMalformed
		p.Detail = input.Field + " " + input.Reason + "."
		p.Write(w)
		return
	}
	notVerified.Write(w)
}

// answer acknowledges a delivery that is on record, and no other.
func (c *call) answer(w http.ResponseWriter, err error) {
	switch {
	case err == nil && c.result.Outcome != dedup.Acquired && c.result.Outcome != dedup.Duplicate:
		c.log("the Runner answered nothing", "outcome", c.result.Outcome)
		c.later(w, storeUnavailable, c.rc.cfg.RetryAfter)
	case c.done(err):
		var failure *dedup.FailedError // recorded by an operator or by Config.Resolve
		switch {
		case c.lastFail != nil:
			c.log("failed for good, and acknowledged", "error", c.lastFail)
		case errors.As(err, &failure):
			c.log("failed for good earlier, and acknowledged", "error", failure)
		}
		w.WriteHeader(http.StatusOK)
	default:
		c.answerError(w, err)
	}
}

// done reports whether the Runner says that the delivery is done. An error of the handler never
// does.
func (c *call) done(err error) bool {
	var own *handlerError
	return !errors.As(err, &own) && dedup.CanAck(err)
}

func (c *call) answerError(w http.ResponseWriter, err error) {
	var own *handlerError
	switch {
	case !c.left && c.r.Context().Err() != nil: // the client has gone before anything began
		c.later(w, storeUnavailable, c.rc.cfg.RetryAfter)
	case errors.Is(err, dedup.ErrLeaseLost), c.left && !errors.As(err, &own) && unrecorded(err):
		c.log("effect without a record of ours", "error", err)
		c.later(w, outcomeUnknown, c.rc.cfg.RetryAfter)
	case errors.As(err, &own):
		c.log("handler failed", "error", own.err)
		c.write(w, handlerFailed)
	case errors.Is(err, dedup.ErrInFlight):
		wait := c.rc.cfg.RetryAfter
		if lease := c.result.Record.Remaining; lease > 0 {
			wait = min(wait, lease)
		}
		c.later(w, inFlight, wait)
	case errors.Is(err, dedup.ErrUncertain):
		c.log("a delivery whose key is uncertain: somebody has to find out whether its effect has happened")
		c.later(w, uncertain, uncertainRetryAfter)
	case errors.Is(err, dedup.ErrMismatch):
		c.log("a body that was received comes under another id")
		c.write(w, deliveryRelabelled)
	default: // an InputError too: the key is known to be good, so the store is not fit for it
		c.log("store unavailable", "error", err)
		c.later(w, storeUnavailable, c.rc.cfg.RetryAfter)
	}
}

// unrecorded reports whether err means that an effect has happened and may not be on record: the
// record could not be confirmed, or the store has refused it.
func unrecorded(err error) bool {
	var input *dedup.InputError
	return dedup.OutcomeUnknown(err) || errors.Is(err, driver.ErrUnreadable) ||
		errors.As(err, &input)
}

func (c *call) later(w http.ResponseWriter, p problem.Problem, after time.Duration) {
	p.RetryAfter = after
	c.write(w, p)
}

// write answers with p. Its instance names the record.
func (c *call) write(w http.ResponseWriter, p problem.Problem) {
	p.Instance = c.name().URN()
	p.Write(w)
}

// log writes a warning about a delivery that is verified.
func (c *call) log(what string, args ...any) {
	c.rc.cfg.Logger.Warn("webhook: "+what, append([]any{
		"provider", c.rc.provider.Name, "endpoint", c.rc.cfg.Endpoint, "type", c.id.Type,
		"id", c.id.ID, c.name().Attr(),
	}, args...)...)
}
