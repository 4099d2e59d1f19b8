package grpcadapter

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/httpadapter"
	"github.com/onceward/onceward/internal/ctxdetach"
	"github.com/onceward/onceward/internal/encrypted"
	"github.com/onceward/onceward/internal/quota"
)

// interceptor holds what all calls share.
type interceptor struct {
	run       httpadapter.Runner
	principal Scope
	cfg       Config
	digester  *encrypted.Digester
	box       *encrypted.Box
	quota     *quota.Quota
	atomic    bool   // run may run a handler again
	window    string // in seconds; "" means forever, or less than one
}

// UnaryServerInterceptor returns an interceptor that runs handlers by run. A retry with the same
// key gets the response of the first call, from the record. The page docs/reference/grpc.md says
// what is answered when. A nil run or scope, and a field that is bad or contradicts another, are a
// [*dedup.InputError]. The interceptor is safe for concurrent use.
//
// Put the interceptors that authenticate, for the [Scope], and that recover from panics before it
// in the chain: a panic releases the key and continues. A second interceptor of this kind in the
// chain lets calls with the key of the first one pass. Messages must be those of
// google.golang.org/protobuf.
//
// A handler is detached from its client: neither a deadline of the client nor a closed connection
// cancels it, so wait for it with GracefulStop, or with grpc.WaitForHandlers. It gets a copy of the
// request each time it runs; a SQL Runner may run it again. Metadata that it sets with
// grpc.SetHeader and grpc.SetTrailer is sent with its own response and is not replayed. With
// grpc.SendHeader the header is sent before the record is written; a client does not take a header
// for a success. Over a Runner that is Atomic, only the metadata of the run that counts is sent,
// and grpc.SetSendCompressor and grpc.ClientSupportedCompressors find no stream in the handler's
// context.
//
// Streams are not intercepted, and a key on a stream is ignored. Install [RefuseKeyedStreams], too,
// to refuse such streams.
func UnaryServerInterceptor(run httpadapter.Runner, scope Scope,
	cfg Config) (grpc.UnaryServerInterceptor, error) {
	switch {
	case run == nil:
		return nil, &dedup.InputError{Field: "Runner", Reason: "is nil"}
	case scope == nil:
		return nil, &dedup.InputError{Field: "Scope",
			Reason: "is nil; Unscoped says that all clients share their keys"}
	case run.ResultLimit() <= 0:
		return nil, &dedup.InputError{Field: "Runner",
			Reason: "keeps no results (SeenOnly), and responses could not be replayed"}
	}
	cfg.setDefaults(run)
	if err := cfg.check(run); err != nil {
		return nil, err
	}
	i := &interceptor{run: run, principal: scope, cfg: cfg, quota: quota.New(cfg.MaxInFlight)}
	if atomic, ok := run.(interface{ Atomic() bool }); ok {
		i.atomic = atomic.Atomic()
	}
	if window := run.Window(); window >= time.Second {
		i.window = strconv.FormatInt(int64(window/time.Second), 10)
	}
	if err := i.build(); err != nil {
		return nil, err
	}
	return i.intercept, nil
}

func (i *interceptor) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (any, error) {
	values, requirement := keys(ctx), i.cfg.Methods(info.FullMethod)
	if requirement == Unkeyed || requirement == Optional && len(values) == 0 {
		return handler(ctx, req)
	}
	c := &call{i: i, ctx: ctx, method: info.FullMethod, handler: handler}
	if err := c.read(values, req); err != nil {
		return nil, err
	}
	if c.nested() {
		return handler(ctx, req)
	}
	if !i.quota.Enter(c.principal) {
		return nil, c.later(tooManyInFlight, i.cfg.RetryAfter)
	}
	defer i.quota.Leave(c.principal) // also when the handler panics
	admission, wait := i.cfg.RetryBudget.Admit(c.principal, c.scope, c.key, marked(ctx))
	if wait > 0 {
		return nil, c.later(tooManyRetries, max(wait, i.cfg.RetryAfter))
	}
	res, err := c.run()
	admission.Found(&res)
	return c.answer(res, err)
}

// call is one call with a key that is being handled.
type call struct {
	i       *interceptor
	ctx     context.Context // the client's; a call ends with its interceptor
	method  string
	req     proto.Message
	handler grpc.UnaryHandler

	key       string
	principal string
	scope     string

	ran      bool // the handler has begun
	landed   bool // and has ended with a result to keep
	resp     any
	err      error           // with the code that is sent
	lost     *answer         // instead of resp or err, which cannot be kept
	metadata *metadataBuffer // of the last run; nil if its metadata is sent at once
}

// read reads the key and finds out the principal, before anything is claimed.
func (c *call) read(values []string, req any) error {
	if len(values) == 0 {
		return c.say(keyMissing, "")
	}
	key, reason := parseKey(values)
	if reason != "" {
		return c.say(keyMalformed, "The metadata "+KeyMetadata+" "+reason+".")
	}
	if c.i.cfg.CheckKey != nil {
		if err := c.i.cfg.CheckKey(key); err != nil {
			return c.say(keyMalformed, err.Error())
		}
	}
	c.key = key
	if c.i.window != "" {
		// setting fails only if nobody would read the trailer
		_ = grpc.SetTrailer(c.ctx, metadata.Pairs(WindowMetadata, c.i.window))
	}
	principal, err := c.i.principal(c.ctx, c.method)
	switch {
	case errors.Is(err, errUnscoped):
		principal = ""
	case err != nil:
		c.i.cfg.Logger.Warn("grpcadapter: principal not found out", "error", err)
		return c.later(scopeUnavailable, c.i.cfg.RetryAfter)
	case principal == "":
		return c.say(noPrincipal, "")
	}
	c.principal = principal
	c.scope = c.i.scope(principal, c.method)
	var ok bool
	if c.req, ok = req.(proto.Message); !ok {
		c.i.cfg.Logger.Error("grpcadapter: a request that is not a protobuf message",
			"method", c.method)
		return c.say(notSupported, "")
	}
	return nil
}

// nested reports whether an interceptor before this one already runs the key. Otherwise the inner
// interceptor would find the key in flight, and the outer one would take that error for the
// handler's.
func (c *call) nested() bool {
	outer, ok := c.ctx.Value(callKey{}).(*call)
	return ok && outer.key == c.key && outer.scope == c.scope
}

// run claims the key and has the handler run under it. Until the handler begins, the Runner's
// context ends with the client, so a client that leaves no longer waits for a key in flight.
// From then on the context does not end with the client, because otherwise the response would be
// lost when the client leaves.
func (c *call) run() (dedup.Result[[]byte], error) {
	fingerprint := c.fingerprint()
	ctx, leave, end := ctxdetach.From(c.ctx)
	defer end()
	effect := func(ctx context.Context) ([]byte, bool, error) {
		if !leave() {
			return nil, false, errCancelled // nothing has begun
		}
		return c.effect(ctx)
	}
	return c.i.run.Run(context.WithValue(ctx, callKey{}, c), c.key,
		effect, dedup.WithScope(c.scope), func(r *dedup.Request) { r.Label = c.label() },
		func(r *dedup.Request) { r.Fingerprint = fingerprint })
}

func (c *call) fingerprint() driver.Fingerprint {
	payload := c.i.cfg.Fingerprint(c.method, c.req)
	if payload == nil {
		return driver.Fingerprint{}
	}
	return c.i.digester.Sum([]byte{fingerprintVersion}, []byte(c.method), payload)
}

// callKey is the key of the call in the context that a Runner gets.
type callKey struct{}

// Errors of a handler whose answer is not kept. They do not wrap the handler's own error, because
// that may be an error of package dedup, which would be taken for an error of the Runner.
var (
	errCancelled = errors.New("grpcadapter: canceled")
	errNotKept   = errors.New("grpcadapter: the error is not kept")
)

// effect is one run of the handler.
func (c *call) effect(ctx context.Context) ([]byte, bool, error) {
	c.ran, c.landed, c.resp, c.err, c.lost = true, false, nil, nil, nil
	run := &handlerRun{}
	ctx, cancel := ctxdetach.Bound(context.WithValue(ctx, runKey{}, run), c.ctx, c.i.cfg.Timeout,
		c.i.cfg.CancelWithClient)
	defer cancel()
	if c.i.atomic {
		ctx, c.metadata = bufferMetadata(ctx)
	}
	resp, err := c.handler(ctx, proto.Clone(c.req))
	c.resp, c.err = resp, statusOf(err)

	forgo := run.forgo.Load()
	if err := c.notKept(ctx.Err() != nil, forgo); err != nil {
		if errors.Is(err, errCancelled) && ctxdetach.TimedOut(ctx) {
			c.i.cfg.Logger.Warn(
				"grpcadapter: a handler has no response within Timeout, and its key is free",
				"method", c.method, "timeout", c.i.cfg.Timeout)
		}
		if forgo {
			err = dedup.NotStarted(err)
		}
		return nil, false, err
	}
	result := c.result()
	c.landed = true
	return result, c.err != nil, nil
}

// notKept returns an error with the reason why the handler's answer is not kept, or nil if it is
// kept.
func (c *call) notKept(ended, forgo bool) error {
	code := status.Code(c.err)
	switch {
	case code == codes.OK && forgo:
		c.i.cfg.Logger.Error("grpcadapter: Forgo with a response is ignored", "method", c.method)
	case code == codes.OK:
	case ended:
		return errCancelled
	case forgo, code > codes.Unauthenticated, !c.i.cfg.Keep(code):
		return errNotKept
	}
	return nil
}

// statusOf returns an error of a handler as the server would send it.
func statusOf(err error) error {
	if err == nil {
		return nil
	}
	st, ok := status.FromError(err)
	if !ok {
		st = status.FromContextError(err)
	}
	if st.Code() == codes.OK { // an error whose own status is OK
		st = status.New(codes.Unknown, err.Error())
	}
	if p := st.Proto(); !utf8.ValidString(p.GetMessage()) { // as the transport would change it
		p.Message = strings.ToValidUTF8(p.GetMessage(), "\uFFFD")
		st = status.FromProto(p)
	}
	return st.Err()
}
