package mcpadapter

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/httpadapter"
)

const methodCall = "tools/call"

// middleware holds what all calls share.
type middleware struct {
	run       httpadapter.Runner
	principal Principal
	cfg       Config
	atomic    bool // effect and record are one transaction, and nothing can be uncertain
}

// New returns a middleware for [mcp.Server.AddReceivingMiddleware], which runs tools through the
// Runner run. That is [httpadapter.Claimed] of a Deduper, or sqladapter's Runner for tools whose
// effect is in the transaction of their record. An argument that is missing or wrong is an
// [*dedup.InputError]. The middleware is safe for concurrent use, and the same middleware may serve
// many servers.
//
// The authentication and the recovery from panics must run before it: put them to its left in the
// same call of AddReceivingMiddleware, or in a later call. A panic of a tool releases the key, or
// leaves it uncertain, and is passed on.
//
// A client that cancels or disconnects does not cancel its tool, unless Config.CancelWithClient is
// set: most retries come after a timeout of the client, and then get the result. So call
// Deduper.Close at the end; it waits for running tools. Progress and log messages go to the client
// whose call runs the tool; a call that waits and a replay get none.
func New(run httpadapter.Runner, principal Principal, cfg Config) (mcp.Middleware, error) {
	cfg.setDefaults()
	if err := cfg.check(run, principal); err != nil {
		return nil, err
	}
	m := &middleware{run: run, principal: principal, cfg: cfg}
	if atomic, ok := run.(interface{ Atomic() bool }); ok {
		m.atomic = atomic.Atomic()
	}
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if call, ok := req.(*mcp.CallToolRequest); ok && method == methodCall {
				return m.handle(ctx, next, call)
			}
			return next(ctx, method, req)
		}
	}, nil
}

// handle finds out the tool and the key of the call, before anything is claimed.
func (m *middleware) handle(ctx context.Context, next mcp.MethodHandler,
	req *mcp.CallToolRequest) (mcp.Result, error) {
	set, ok := m.cfg.Tools[req.Params.Name]
	if !ok {
		set = m.cfg.Default
	}
	args, err := parse(req.Params.Arguments)
	key, reason := set.key(req.Params, args, m.cfg.MetaKey)
	if err != nil || key == "" && reason == "" && !set.Required {
		return next(ctx, methodCall, req) // the server refuses arguments that are not an object
	}
	tool := find(ctx, next, req)
	hints := cmp.Or(set.Annotations, tool.Annotations, &mcp.ToolAnnotations{})
	if hints.ReadOnlyHint {
		return next(ctx, methodCall, req)
	}
	c := &call{m: m, ctx: ctx, next: next, req: req, set: set,
		record: RecordKey{Name: m.cfg.Name, Tool: req.Params.Name, Key: key}}
	// without hints, a tool is destructive and not idempotent, as in the specification
	c.irreversible = !m.atomic && !hints.IdempotentHint &&
		(hints.DestructiveHint == nil || *hints.DestructiveHint)
	switch {
	case reason != "":
		return nil, c.say(keyMalformed, reason)
	case key == "":
		return nil, c.say(keyMissing, "")
	}
	// If a wrong argument is refused here, the key leaves no trace. If the tool refused it later,
	// the key would be bound to the wrong arguments. It would also be uncertain, because the
	// refusal would look like the error of a tool that failed half-way.
	if err := validate(tool, req.Params.Arguments); err != nil {
		res := new(mcp.CallToolResult)
		res.SetError(fmt.Errorf("validating \"arguments\": %w", err))
		return res, nil
	}
	if err := c.own(); err != nil {
		return nil, err
	}
	if outer, ok := ctx.Value(callKey{}).(*call); ok && outer.record == c.record {
		return next(ctx, methodCall, req) // installed twice: it would wait for itself
	}
	return c.answer(c.claim(set.fingerprint(args)))
}

// call is one call with a key that is being handled.
type call struct {
	m            *middleware
	ctx          context.Context // the client's; a call ends with its handler
	next         mcp.MethodHandler
	req          *mcp.CallToolRequest
	set          Tool
	record       RecordKey
	irreversible bool

	ran    bool // the tool has begun
	landed bool // and has ended with a result to keep
	res    mcp.Result
	err    error
}

// callKey is the key of the call in the contexts that a Runner, a Resolve and a tool get.
type callKey struct{}

// RequestFrom returns the request of the call under ctx: for [dedup.Config].Resolve, which may ask
// by the name and the arguments of the tool. It reports false if ctx is not that of a call with a
// key. Do not change the request.
func RequestFrom(ctx context.Context) (*mcp.CallToolRequest, bool) {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c.req, true
	}
	return nil, false
}

// own finds out the principal that the call belongs to.
func (c *call) own() error {
	principal, err := c.m.principal(c.ctx, c.req)
	switch {
	case errors.Is(err, errUnscoped):
		return nil
	case err != nil:
		c.m.cfg.Logger.Warn("mcpadapter: principal not found out", "error", err)
		return c.say(storeUnavailable, "")
	case principal == "":
		return c.say(noPrincipal, "")
	}
	c.record.Principal = principal
	return nil
}

// Errors of a call whose answer is not kept.
var (
	errGone    = errors.New("mcpadapter: the client has gone before the tool began")
	errUnkept  = errors.New("mcpadapter: the answer of the tool is not kept")
	errTimeout = fmt.Errorf("mcpadapter: Timeout has passed: %w", context.DeadlineExceeded)
	errLate    = errors.New("mcpadapter: the tool was canceled")
)

// claim claims the key and runs the tool under it. While the call waits for the key, it ends when
// its client leaves. When the tool begins, the call is detached from its client: otherwise the
// result would be lost with it.
func (c *call) claim(fingerprint driver.Fingerprint) (dedup.Result[[]byte], error) {
	ctx, cancel := context.WithCancelCause(
		context.WithValue(context.WithoutCancel(c.ctx), callKey{}, c))
	defer cancel(nil)
	stop := context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })
	left := false // a SQL Runner may run the effect again
	effect := func(ctx context.Context) ([]byte, bool, error) {
		if left = left || stop(); !left {
			return nil, false, errGone
		}
		return c.effect(ctx)
	}
	return c.m.run.Run(ctx, c.record.Key, effect, func(r *dedup.Request) {
		r.Scope, r.Label, r.Fingerprint = c.record.Scope(), c.record.label(), fingerprint
	})
}

// effect is one run of the tool. Its error, if any, releases the key or leaves it uncertain.
func (c *call) effect(ctx context.Context) (result []byte, undo bool, err error) {
	c.ran, c.landed = false, false
	ctx, cancel := context.WithTimeoutCause(ctx, c.m.cfg.Timeout, errTimeout)
	defer cancel()
	if c.m.cfg.CancelWithClient {
		defer context.AfterFunc(c.ctx, cancel)()
	}
	if c.irreversible {
		if err := dedup.MarkIrreversible(ctx); err != nil {
			return nil, false, dedup.NotStarted(err)
		}
	}
	c.ran = true
	c.res, c.err = c.next(ctx, methodCall, c.req)
	ended := ctx.Err() != nil
	if c.err != nil {
		return nil, false, unkept(c.err, ended)
	}
	res, ok := c.res.(*mcp.CallToolResult)
	switch {
	case !ok || res == nil:
		c.err = fmt.Errorf("mcpadapter: the tool %q has returned no result", c.record.Tool)
		return nil, false, unkept(c.err, ended)
	case res.NeedsInput() || res.InputRequests != nil:
		// The tool asks for input before it does anything. The client calls again with the answers,
		// and with the same key.
		return nil, false, dedup.NotStarted(errUnkept)
	case res.IsError && (ended || !c.final(res)):
		return nil, false, unkept(res.GetError(), ended)
	}
	c.landed = true
	return c.encode(res), res.IsError, nil
}

// final reports whether an error of the tool is recorded and replayed.
func (c *call) final(res *mcp.CallToolResult) bool {
	return dedup.IsPermanent(res.GetError()) || c.set.FinalError != nil && c.set.FinalError(res)
}

// unkept returns the error that the Runner gets for a tool's answer that only this client gets and
// no record keeps. A cause that is [dedup.NotStarted] says that the tool has done nothing, and so
// does a protocol error that refuses the request as a whole. The Runner records an error that is
// [dedup.Permanent] as a failure, but not if the context of the tool has ended: the error may mean
// that, and a later run may have its effect.
func unkept(cause error, ended bool) error {
	if ended && dedup.IsPermanent(cause) {
		cause = fmt.Errorf("%w: %s", errLate, cause.Error())
	}
	var refused *jsonrpc.Error
	if errors.As(cause, &refused) && (refused.Code == jsonrpc.CodeInvalidParams ||
		refused.Code == jsonrpc.CodeMethodNotFound) {
		return dedup.NotStarted(cause)
	}
	return cmp.Or(cause, errUnkept)
}
