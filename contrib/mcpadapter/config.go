package mcpadapter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
)

// DefaultMetaKey is the field of a request's _meta that carries the key of a call. SEP-3182
// proposed this name for a field of the protocol.
const DefaultMetaKey = "idempotencyKey"

// Principal returns the account that a call belongs to, as the authentication has found it. Calls
// of two principals with the same key are two calls. The middleware refuses a call with an empty
// principal (NO_PRINCIPAL). If Principal returns an error, the middleware answers with
// STORE_UNAVAILABLE. Do not take the principal from what a client can choose: otherwise one client
// could read the results of another one.
type Principal func(ctx context.Context, req *mcp.CallToolRequest) (string, error)

// TokenUser is the [Principal] of a server behind auth.RequireBearerToken: the UserID of the token.
// It is empty if the request has no token, as over stdin and stdout.
func TokenUser(_ context.Context, req *mcp.CallToolRequest) (string, error) {
	if req.Extra == nil || req.Extra.TokenInfo == nil {
		return "", nil
	}
	return req.Extra.TokenInfo.UserID, nil
}

var errUnscoped = errors.New("mcpadapter: unscoped")

// Unscoped is the [Principal] of a server with one client, such as one over stdin and stdout: all
// calls of a tool with the same key are one call.
func Unscoped(context.Context, *mcp.CallToolRequest) (string, error) { return "", errUnscoped }

// Tool says how the calls of a tool are handled. The zero Tool takes the key from _meta and passes
// a call without a key through.
type Tool struct {
	// KeyFields names the top-level arguments that say which operation a call is, such as the
	// order_id of a refund. The key is made of their values, and _meta is not read. A call in which
	// one of them is missing, null or "" has no key. Each must be a text or a whole number, or the
	// answer is KEY_MALFORMED. Default: the key is in _meta.
	KeyFields []string
	// IgnoreFields names arguments that may differ between a call and its retry, such as a comment
	// that the model writes each time. All others must be equal, or the answer is KEY_REUSED.
	// Default: none.
	IgnoreFields []string
	// Required refuses a call without a key (KEY_MISSING). Default: it passes through.
	Required bool
	// Annotations replace those that the server lists for the tool. Default: those of the server. A
	// tool without annotations is destructive and not idempotent, as the specification says.
	Annotations *mcp.ToolAnnotations
	// FinalError reports whether a result with IsError is final: it is recorded and replayed. It is
	// called concurrently and must not change the result. Default: only an error that the tool has
	// marked with [dedup.Permanent] is final, because most errors of tools are temporary, and a
	// record would keep the retry from running. An error that a tool returns after its context has
	// ended is never final, and FinalError is not called for it.
	FinalError func(*mcp.CallToolResult) bool
}

// Config configures the middleware. Name has no default.
type Config struct {
	// Name of the server. Servers that share a namespace and a tool's name need different names, or
	// they would answer for each other. Required.
	Name string
	// MetaKey is the field of _meta that carries the key. Default [DefaultMetaKey].
	MetaKey string
	// Tools by their names. Default: none.
	Tools map[string]Tool
	// Default holds the settings of the tools that Tools does not name. Default: the zero Tool.
	Default Tool
	// CancelWithClient cancels a running tool when its client cancels the call or disconnects.
	// Default false: the tool runs to its end, and the retry gets its result.
	CancelWithClient bool
	// Timeout cancels the context of a running tool; it never answers for the tool. Default 10
	// minutes.
	Timeout time.Duration
	// Logger gets what a client is not told. Default: discarded.
	Logger *slog.Logger
}

func (c *Config) setDefaults() {
	c.MetaKey = cmp.Or(c.MetaKey, DefaultMetaKey)
	c.Timeout = cmp.Or(c.Timeout, 10*time.Minute)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
}

// check names the first bad argument of New.
func (c *Config) check(run httpadapter.Runner, principal Principal) error {
	var field, reason string
	switch {
	case run == nil:
		field, reason = "Runner", "is nil"
	case run.ResultLimit() <= 0:
		field, reason = "Runner", "keeps no results (SeenOnly), so a call cannot be answered again"
	case principal == nil:
		field, reason = "Principal", "is nil; Unscoped says that all clients share their keys"
	case c.Name == "":
		field, reason = "Config.Name", "is empty"
	case c.Timeout < 0:
		field, reason = "Config.Timeout", fmt.Sprintf("is %v; it must not be negative", c.Timeout)
	default:
		return nil
	}
	return &dedup.InputError{Field: "mcpadapter." + field, Reason: reason}
}
