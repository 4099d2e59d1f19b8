package grpcadapter

import (
	"errors"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/keyname"
)

// Domain is the domain in the google.rpc.ErrorInfo of the interceptor's own errors.
const Domain = "onceward"

// pushback tells a client with a retryPolicy when to send the call again, or with -1 not to send it
// again (gRFC A6).
const pushback = "grpc-retry-pushback-ms"

// answer is an error that the interceptor returns in its own name.
type answer struct {
	reason  string
	code    codes.Code
	message string
	final   bool // a retry cannot help
}

// These are the answers of the interceptor, one for each row of the table in
// docs/reference/grpc.md. DataLoss always says that the call is done, and that there is no response
// to replay.
var (
	keyMissing = answer{"KEY_MISSING", codes.InvalidArgument,
		"this call needs the metadata " + KeyMetadata, true}
	keyMalformed = answer{"KEY_MALFORMED", codes.InvalidArgument,
		"the " + KeyMetadata + " is malformed", true}
	noPrincipal = answer{"NO_PRINCIPAL", codes.Unauthenticated,
		"the call names nobody that its key could belong to", false}
	scopeUnavailable = answer{"SCOPE_UNAVAILABLE", codes.Unavailable,
		"it cannot be found out now whose call this is", false}
	tooManyInFlight = answer{"TOO_MANY_IN_FLIGHT", codes.ResourceExhausted,
		"too many calls of this client are under way", false}
	tooManyRetries = answer{"TOO_MANY_RETRIES", codes.ResourceExhausted,
		"too many calls of this client are retries", false}
	notSupported = answer{"NOT_SUPPORTED", codes.Unimplemented,
		"a call with a key must be of protobuf messages", true}
	keyReused = answer{"KEY_REUSED", codes.FailedPrecondition,
		"this " + KeyMetadata + " was used with another request", true}
	inFlight = answer{"IN_FLIGHT", codes.Aborted,
		"a call with this " + KeyMetadata + " is still running", false}
	uncertain = answer{"UNCERTAIN", codes.Aborted,
		"it is being found out whether an earlier call with this " + KeyMetadata +
			" had its effect", false}
	replayRefused = answer{"REPLAY_REFUSED", codes.PermissionDenied,
		"the response to this call may not be seen again", true}
	replayUnavailable = answer{"REPLAY_UNAVAILABLE", codes.Unavailable,
		"it cannot be found out now whether the response to this call may be seen again", false}
	responseNotKept = answer{"RESPONSE_NOT_KEPT", codes.DataLoss,
		"this call is done; its response was not kept", true}
	responseTooLarge = answer{"RESPONSE_TOO_LARGE", codes.DataLoss,
		"this call is done; its response is too large to be kept", true}
	responseInvalid = answer{"RESPONSE_INVALID", codes.DataLoss,
		"this call is done; its response cannot be encoded", true}
	responseUnreadable = answer{"RESPONSE_UNREADABLE", codes.DataLoss,
		"this call is done; its response cannot be read", true}
	failed           = answer{"FAILED", codes.Internal, "this call has failed for good", true}
	storeUnavailable = answer{"STORE_UNAVAILABLE", codes.Unavailable,
		"it cannot be found out now whether this call is new", false}
	outcomeUnknown = answer{"OUTCOME_UNKNOWN", codes.Unavailable,
		"it is not known whether this call is done: ask again with its " + KeyMetadata, false}
	cancelled = answer{"CANCELLED", codes.Unavailable,
		"the call was canceled before it was answered", false}
)

// say returns the answer a as an error. If message is not empty, it replaces the message of a, and
// says what was wrong with this call.
func (c *call) say(a answer, message string) error {
	if message != "" {
		a.message = message
	}
	if a.final {
		c.pushBack("-1")
	}
	return a.err(c.recorded())
}

// later returns the answer a as an error that tells the client when to send the call again.
func (c *call) later(a answer, wait time.Duration) error {
	c.pushBack(strconv.FormatInt(int64((wait+time.Millisecond-1)/time.Millisecond), 10))
	return a.err(c.recorded(), &errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
}

// recorded returns the name of the call's record, or "" if there can be none.
func (c *call) recorded() keyname.Name {
	if c.scope == "" {
		return ""
	}
	return c.name()
}

// err returns the answer as an error of gRPC. If name is not empty, the error carries it: it is the
// name of the call's record.
func (a answer) err(name keyname.Name, details ...protoadapt.MessageV1) error {
	st := status.New(a.code, a.message)
	info := &errdetails.ErrorInfo{Reason: a.reason, Domain: Domain}
	if name != "" {
		info.Metadata = map[string]string{"key_id": string(name)}
	}
	details = append(details, info)
	if with, err := st.WithDetails(details...); err == nil {
		st = with
	}
	return st.Err()
}

// pushBack sets the pushback trailer. It ignores the error, because setting fails only if nobody
// would read the trailer.
func (c *call) pushBack(ms string) { _ = grpc.SetTrailer(c.ctx, metadata.Pairs(pushback, ms)) }

// answer answers the call with what Run returned. By now the record is either written, or there is
// none. Without a record, it sends no answer of the handler that says that the effect has happened.
func (c *call) answer(res dedup.Result[[]byte], err error) (any, error) {
	switch {
	case err != nil:
		return c.answerError(&res, err)
	case res.Outcome == dedup.Duplicate:
		return c.answerAgain(res.Value)
	case res.Outcome == dedup.Acquired && c.landed && c.lost != nil:
		return nil, c.say(*c.lost, "")
	case res.Outcome == dedup.Acquired && c.landed:
		c.metadata.pass()
		return c.resp, c.err
	default: // no Runner should return this
		c.i.cfg.Logger.Error("grpcadapter: the Runner answered nothing", "outcome", res.Outcome)
		return nil, c.later(storeUnavailable, c.i.cfg.RetryAfter)
	}
}

// answerAgain replays the stored response or error. The argument stored is nil if an operator
// marked the key as done.
func (c *call) answerAgain(stored []byte) (any, error) {
	if c.i.cfg.BeforeReplay != nil {
		err := c.i.cfg.BeforeReplay(c.ctx, c.method)
		switch {
		case errors.Is(err, dedup.ErrUnknown):
			c.i.cfg.Logger.Warn("grpcadapter: replay not decided", "error", err)
			return nil, c.later(replayUnavailable, c.i.cfg.RetryAfter)
		case err != nil:
			c.i.cfg.Logger.Warn("grpcadapter: replay refused", "error", err)
			return nil, c.say(replayRefused, "")
		}
	}
	if len(stored) == 0 {
		return nil, c.say(responseNotKept, "")
	}
	r, err := c.i.box.Decode(c.scope, c.key, stored)
	if err != nil {
		return c.unreadable(err)
	}
	if r.Tombstone {
		return nil, c.say(responseNotKept, "")
	}
	resp, st, err := decode(r, c.i.cfg.Types)
	if err != nil {
		return c.unreadable(err)
	}
	_ = grpc.SetHeader(c.ctx, metadata.Pairs(ReplayedMetadata, "true")) // the client may have gone
	if st != nil {
		return nil, st.Err()
	}
	return resp, nil
}

func (c *call) unreadable(err error) (any, error) {
	c.i.cfg.Logger.Error("grpcadapter: a stored response cannot be replayed", "method", c.method,
		"error", err)
	return nil, c.say(responseUnreadable, "")
}

// answerError answers the call when Run has returned an error. It sends the handler's own error
// only if that error is not to be kept and the key is free again.
func (c *call) answerError(res *dedup.Result[[]byte], err error) (any, error) {
	wait := c.i.cfg.RetryAfter
	var failure *dedup.FailedError
	switch {
	case c.ran && errors.Is(err, dedup.ErrLeaseLost), c.landed && unrecorded(err):
		c.warn("effect without a record of ours: it is not known whether the call is done",
			"error", err)
		return nil, c.later(outcomeUnknown, wait)
	case errors.Is(err, errNotKept):
		c.metadata.pass()
		return nil, c.err
	case errors.Is(err, errCancelled):
		return nil, c.later(cancelled, wait)
	case errors.Is(err, dedup.ErrInFlight):
		if lease := res.Record.Remaining; lease > 0 {
			wait = min(wait, lease)
		}
		return nil, c.later(inFlight, wait)
	case errors.Is(err, dedup.ErrUncertain):
		c.warn("a call whose key is uncertain: somebody has to find out whether its effect has happened")
		return nil, c.later(uncertain, uncertainRetryAfter)
	case errors.Is(err, dedup.ErrMismatch):
		c.warn("a key that comes with another request than the first")
		return nil, c.say(keyReused, "")
	case errors.Is(err, dedup.ErrNoResult):
		return c.answerAgain(nil)
	case errors.As(err, &failure):
		return nil, c.say(failed, "")
	default:
		c.i.cfg.Logger.Warn("grpcadapter: store unavailable", "error", err)
		return nil, c.later(storeUnavailable, wait)
	}
}

// unrecorded reports whether err means that an effect has happened and may not be on record: the
// record could not be confirmed, or the store has refused it.
func unrecorded(err error) bool {
	var input *dedup.InputError
	return dedup.OutcomeUnknown(err) || errors.Is(err, driver.ErrUnreadable) ||
		errors.As(err, &input)
}
