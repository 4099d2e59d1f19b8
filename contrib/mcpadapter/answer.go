package mcpadapter

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// ErrorData is the data of a JSON-RPC error that the middleware answers with.
type ErrorData struct {
	// Domain is "onceward".
	Domain string `json:"domain"`
	// Reason is one of the reasons in the table of docs/guides/agents.md, such as KEY_REUSED.
	Reason string `json:"reason"`
	// RetryAfterMillis is the number of milliseconds after which to send the call again, with the
	// same key. 0 means that a retry does not help.
	RetryAfterMillis int64 `json:"retryAfterMillis,omitempty"`
	// KeyID is the ID of the record, in hexadecimal, for an operator. It is empty if the Runner has
	// no method Namespace() string, and for a key that no record can have.
	KeyID string `json:"keyId,omitempty"`
}

// answer is an error that the middleware returns in its own name.
type answer struct {
	reason  string
	code    int64
	wait    time.Duration // until a retry helps; 0: it does not
	message string
}

// These are the answers of the middleware, one for each row of the table in docs/guides/agents.md.
var (
	keyMissing = answer{"KEY_MISSING", jsonrpc.CodeInvalidParams, 0,
		"this tool needs an idempotency key"}
	keyMalformed = answer{"KEY_MALFORMED", jsonrpc.CodeInvalidParams, 0, "the idempotency key "}
	noPrincipal  = answer{"NO_PRINCIPAL", jsonrpc.CodeInvalidRequest, 0,
		"the call names nobody that its key could belong to"}
	keyReused = answer{"KEY_REUSED", jsonrpc.CodeInvalidParams, 0,
		"this idempotency key was used with other arguments; another operation needs another key"}
	inFlight = answer{"IN_FLIGHT", jsonrpc.CodeInternalError, time.Second,
		"a call with this idempotency key is still running; call again later, with the same key"}
	uncertain = answer{"UNCERTAIN", jsonrpc.CodeInternalError, 30 * time.Second,
		"an earlier call with this idempotency key may have had its effect; do not use another key"}
	resultNotKept = answer{"RESULT_NOT_KEPT", jsonrpc.CodeInternalError, 0,
		"this call is done, and its result was not kept; look at the state, do not call again"}
	failed = answer{"FAILED", jsonrpc.CodeInternalError, 0, "this call has failed for good: "}

	storeUnavailable = answer{"STORE_UNAVAILABLE", jsonrpc.CodeInternalError, time.Second,
		"it is not known now whether this call is new; call again later, with the same key"}
	outcomeUnknown = answer{"OUTCOME_UNKNOWN", jsonrpc.CodeInternalError, time.Second,
		"it is not known whether this call is done; call again later, with the same key"}
)

// say returns the answer a as an error of JSON-RPC, with more at the end of its message.
func (c *call) say(a answer, more string) error {
	data, _ := json.Marshal(ErrorData{"onceward", a.reason, a.wait.Milliseconds(), c.id()})
	return &jsonrpc.Error{Code: a.code, Message: a.message + more, Data: data}
}

// id is the ID of the record, for operators.
func (c *call) id() string {
	if run, ok := c.m.run.(interface{ Namespace() string }); ok {
		if id, err := c.record.ID(run.Namespace()); err == nil {
			return hex.EncodeToString(id[:])
		}
	}
	return ""
}

// answer answers the call with what the Runner returned. A result is on record by now.
func (c *call) answer(res dedup.Result[[]byte], err error) (mcp.Result, error) {
	var replay *mcp.CallToolResult
	switch {
	case c.ran && !c.landed: // the tool's own answer, which is not recorded
		return c.res, c.err
	case err == nil && res.Outcome == dedup.Acquired:
		return c.res, nil
	case err == nil:
		replay, err = decode(res.Value)
	}
	if err == nil {
		return replay, nil
	}
	a, more := c.reasonOf(err)
	c.m.cfg.Logger.Warn("mcpadapter: a call was not answered with a result", "tool",
		c.record.Tool, "key_id", c.id(), "reason", a.reason, "error", err)
	return nil, c.say(a, more)
}

func (c *call) reasonOf(err error) (a answer, more string) {
	var failure *dedup.FailedError
	var input *dedup.InputError
	switch {
	case c.landed:
		return outcomeUnknown, ""
	case errors.Is(err, dedup.ErrInFlight):
		return inFlight, ""
	case errors.Is(err, dedup.ErrUncertain):
		return uncertain, ""
	case errors.Is(err, dedup.ErrMismatch):
		return keyReused, ""
	case errors.Is(err, dedup.ErrNoResult), errors.Is(err, driver.ErrUnreadable):
		return resultNotKept, ""
	case errors.As(err, &failure):
		return failed, failure.Message
	case errors.As(err, &input) && input.Field == "Key":
		return keyMalformed, input.Reason
	}
	return storeUnavailable, ""
}

// storedVersion is the first byte of what is stored. The result follows in JSON. If the result
// could not be kept, nothing follows.
const storedVersion = 1

// EncodeResult encodes a result for [dedup.Happened]: it becomes the answer to a call whose effect
// a resolver has found. The error is that of encoding it as JSON.
func EncodeResult(res *mcp.CallToolResult) ([]byte, error) {
	text, err := json.Marshal(res)
	return append([]byte{storedVersion}, text...), err
}

// encode returns the bytes that are stored for the result. If the result cannot be kept, they only
// mark the call as done.
func (c *call) encode(res *mcp.CallToolResult) []byte {
	stored, err := EncodeResult(res)
	if err != nil || len(stored) > c.m.run.ResultLimit() {
		c.m.cfg.Logger.Warn("mcpadapter: a result was not kept, and its replays have none", "tool",
			c.record.Tool, "key_id", c.id(), "bytes", len(stored), "error", err)
		return []byte{storedVersion}
	}
	return stored
}

// decode is the reverse of EncodeResult. Its error is driver.ErrUnreadable.
func decode(stored []byte) (*mcp.CallToolResult, error) {
	res := new(mcp.CallToolResult)
	var exact struct {
		StructuredContent json.RawMessage `json:"structuredContent"`
	}
	if len(stored) < 2 || stored[0] != storedVersion ||
		errors.Join(json.Unmarshal(stored[1:], res), json.Unmarshal(stored[1:], &exact)) != nil {
		return nil, driver.ErrUnreadable
	}
	if exact.StructuredContent != nil {
		res.StructuredContent = exact.StructuredContent // a float64 would lose digits
	}
	return res, nil
}
