package httpadapter

import (
	"context"
	"errors"
	"net/http"
	"runtime/debug"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/ctxdetach"
	"github.com/onceward/onceward/internal/encrypted"
)

// Handler returns next behind the middleware. It can be used wherever middleware of net/http can
// (chi: r.Use(m.Handler)). Put it around a whole gin or echo engine: m.Handler(engine). Put it
// around the router, too, if the router keeps its position in the request's context, as chi does,
// and the Runner may run a handler again, as a SQL Runner does.
//
// Put authentication outside of it, for the [Scope], and also http.TimeoutHandler: inside, that
// would answer 503 while the handler runs on, and the key would be free for a second run. Keep
// routes that stream, upgrade or send trailers out of it: an answer is kept back until it is
// complete and recorded. If a second middleware is inside, it lets requests with the key of the
// first one pass.
//
// A panic of the handler continues to the caller and frees the key. If the handler had begun an
// answer below 400 that is kept, the effect counts as done instead, and its retries get 410. A
// Runner that is Atomic undoes the effect in either case, and frees the key.
//
// Handler refuses the handlers that echo.WrapMiddleware and fiber's adaptor.HTTPMiddleware pass to
// it. Every request is then answered with 500, and the answer says what to write instead. The page
// docs/guides/frameworks.md has the line for each framework.
func (m *Middleware) Handler(next http.Handler) http.Handler {
	if wrong := mountOf(next); wrong != nil {
		return m.refusal(wrong)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(w, r, next) })
}

func (m *Middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	lines := r.Header[KeyHeader]
	if !m.methods[r.Method] || len(lines) == 0 && m.cfg.Optional {
		next.ServeHTTP(w, r)
		return
	}
	c := &call{m: m, w: w, r: r, next: next}
	if !c.readKey(lines) || !c.readScope() {
		return
	}
	if c.nested() {
		next.ServeHTTP(w, r)
		return
	}
	if !m.quota.Enter(c.principal) {
		c.later(tooManyInFlight)
		return
	}
	defer m.quota.Leave(c.principal) // also when the handler panics
	if !c.admit() || !c.readBody() {
		return
	}
	res, err := c.run()
	c.admission.Found(&res)
	if c.panicked != nil {
		c.goOn(err)
	}
	c.answer(res, err)
}

// call is one request with a key. Each step before the handler runs reports whether the request
// continues. If it does not continue, the step has answered it.
type call struct {
	m    *Middleware
	w    http.ResponseWriter
	r    *http.Request
	next http.Handler

	key       string
	principal string
	scope     string
	admission Admission
	body      []byte

	last    *recorder
	landed  bool // last ended with a result
	tooMuch bool // that is a tombstone: the answer is too large
	short   bool // that is a tombstone: the answer is incomplete
	undone  bool // last was silent, and nothing of it remains

	panicked any // by last, whose effect had happened
	stack    []byte
}

func (c *call) readKey(lines []string) bool {
	if len(lines) == 0 {
		c.write(keyMissing)
		return false
	}
	key, reason := parseKey(lines, c.m.cfg.Strict)
	if reason != "" {
		c.say(keyMalformed, "The "+KeyHeader+" header "+reason+".")
		return false
	}
	if c.m.cfg.CheckKey != nil {
		if err := c.m.cfg.CheckKey(key); err != nil {
			c.say(keyMalformed, err.Error())
			return false
		}
	}
	c.key = key
	c.setWindow()
	return true
}

func (c *call) readScope() bool {
	principal, err := c.m.principal(c.r)
	switch {
	case errors.Is(err, errUnscoped):
		principal = ""
	case err != nil:
		c.m.cfg.Logger.Warn("httpadapter: principal not found out", "error", err)
		c.later(scopeUnavailable)
		return false
	case principal == "":
		c.write(noPrincipal)
		return false
	}
	c.principal = principal
	c.scope = c.m.scope(principal, c.r.Method, c.m.cfg.Route(c.r))
	return true
}

// admit asks the retry budget before the body is read, so that a client that retries too often
// costs neither a body nor a claim.
func (c *call) admit() bool {
	marked := c.m.cfg.IsRetry != nil && c.m.cfg.IsRetry(c.r)
	admission, wait := c.m.cfg.RetryBudget.Admit(c.principal, c.scope, c.key, marked)
	if wait > 0 {
		p := tooManyRetries
		p.RetryAfter = max(wait, c.m.cfg.RetryAfter)
		c.write(p)
		return false
	}
	c.admission = admission
	return true
}

// nested reports whether a middleware around this one already runs the key. Otherwise the inner
// middleware would find the key in flight, and the outer one would take that 409 for the handler's
// answer.
func (c *call) nested() bool {
	outer, ok := c.r.Context().Value(callKey{}).(*call)
	return ok && outer.key == c.key && outer.scope == c.scope
}

func (c *call) readBody() bool {
	body, err := readBody(c.w, c.r, c.m.cfg.RequestLimit)
	switch {
	case err == nil:
		c.body = body
		return true
	case errors.Is(err, errRequestTooLarge):
		c.write(requestTooLarge)
	case errors.Is(err, errBodyTaken):
		c.m.cfg.Logger.Error(err.Error())
		c.write(bodyTaken)
	default:
		c.write(bodyIncomplete)
	}
	return false
}

// run claims the key and has the handler run under it. Until the handler begins, the Runner's
// context ends with the client, so a client that leaves no longer waits for a key in flight.
// From then on the context does not end with the client, because otherwise the answer would be lost
// when the client leaves.
func (c *call) run() (dedup.Result[[]byte], error) {
	fingerprint := c.m.fingerprint(c.r, c.body)
	ctx, leave, end := ctxdetach.From(c.r.Context())
	defer end()
	effect := func(ctx context.Context) ([]byte, bool, error) {
		if !leave() {
			return nil, false, errCancelled // nothing has begun
		}
		return c.effect(ctx)
	}
	return c.m.run.Run(context.WithValue(ctx, callKey{}, c), c.key,
		effect, dedup.WithScope(c.scope), func(r *dedup.Request) { r.Label = c.label() },
		func(r *dedup.Request) { r.Fingerprint = fingerprint })
}

// callKey is the key of the call in the context that a Runner gets.
type callKey struct{}

// Errors of a handler whose answer is not kept.
var (
	errCancelled    = errors.New("httpadapter: canceled before an answer was begun")
	errNotKept      = errors.New("httpadapter: the answer is not kept")
	errNotSupported = errors.New("httpadapter: switching protocols is not supported")
)

// effect is one run of the handler.
func (c *call) effect(ctx context.Context) ([]byte, bool, error) {
	c.landed, c.tooMuch, c.short, c.panicked = false, false, false, nil
	c.last = newRecorder(c.w, c.r.Method, c.m.cfg.ResponseLimit)
	defer c.last.close() // also when the handler panics

	run := &handlerRun{}
	handling, cancel := ctxdetach.Bound(context.WithValue(ctx, runKey{}, run), c.r.Context(),
		c.m.cfg.Timeout, c.m.cfg.CancelWithClient)
	defer cancel()
	r := withBody(handling, c.r, c.body)
	defer removeFiles(r) // also when the handler panics
	c.handle(r, run)
	if c.panicked != nil {
		c.landed = true
		return c.tombstone(), false, nil
	}

	ended, forgo := handling.Err() != nil, run.forgo.Load()
	if !ended && c.silent(r) {
		return nil, false, c.keepSilence(ctx, r, forgo)
	}
	if err := c.unkept(ended, forgo); err != nil {
		if errors.Is(err, errCancelled) && ctxdetach.TimedOut(handling) {
			c.m.cfg.Logger.Warn(
				"httpadapter: a handler has answered nothing within Timeout, and its key is free",
				"timeout", c.m.cfg.Timeout)
		}
		return nil, false, err
	}
	result := c.result()
	c.landed = true
	return result, c.last.status >= 400, nil
}

// handle has the handler run. It catches a panic only if the effect has happened; the panic
// continues when the effect is on record. Any other panic continues at once, and the Runner
// releases the key, as it does for runtime.Goexit, which cannot be caught.
func (c *call) handle(r *http.Request, run *handlerRun) {
	returned := false
	defer func() {
		if returned || !c.happened(run.forgo.Load()) {
			return
		}
		if c.panicked = recover(); c.panicked != nil {
			c.stack = debug.Stack()
		}
	}()
	c.next.ServeHTTP(c.last, r)
	returned = true
}

// happened reports whether the effect of a handler that panics has happened and stays. The effect
// has happened if the handler had begun an answer that says so, unless the Runner is Atomic and
// undoes the effect. httputil.ReverseProxy, for example, panics when its upstream breaks off in the
// midst of a 200.
func (c *call) happened(forgo bool) bool {
	if c.m.atomic || !c.last.wrote() {
		return false
	}
	c.last.close()
	return c.last.status < 400 && c.notKept(forgo) == nil
}

// goOn continues, after Run, the panic of a handler whose effect has happened.
func (c *call) goOn(err error) {
	log := c.m.cfg.Logger
	if c.panicked != http.ErrAbortHandler { //nolint:errorlint // net/http compares it so, too
		log = log.With("stack", string(c.stack)) // a recover outside sees another
	}
	if err != nil {
		log.Error("httpadapter: a handler panicked after it had begun its answer, and that is not on record", "error", err)
	} else {
		log.Error("httpadapter: a handler panicked after it had begun its answer, which is lost; its effect counts as done")
	}
	panic(c.panicked)
}

// unkept returns, for a handler that has returned, an error with the reason why its answer is not
// kept, or nil if it is kept.
func (c *call) unkept(ended, forgo bool) error {
	err := errCancelled
	if c.last.wrote() || !ended {
		c.last.close()
		c.last.finish()
		err = c.notKept(forgo)
	}
	if forgo {
		return dedup.NotStarted(err)
	}
	return err
}

func (c *call) notKept(forgo bool) error {
	status := c.last.status
	switch success := status >= 200 && status < 300; {
	case status == http.StatusSwitchingProtocols:
		return errNotSupported
	case forgo && success:
		c.m.cfg.Logger.Error("httpadapter: Forgo with a success is ignored", "status", status)
	case forgo, !c.m.cfg.Keep(status):
		return errNotKept
	}
	return nil
}

// result returns the bytes that are stored for an answer that is kept. An answer that cannot be
// replayed leaves a tombstone, because its effect has happened.
func (c *call) result() []byte {
	rec := c.last
	c.tooMuch, c.short = rec.over, rec.incomplete()
	if !c.tooMuch && !c.short {
		stored := c.encode(&encrypted.Response{
			Status: rec.status, Body: rec.body,
			Header: storedHeaders(c.m.headers, c.w.Header(), rec.sent),
		})
		if len(stored) <= c.m.cfg.ResponseLimit {
			return stored
		}
		c.tooMuch = true
	}
	return c.tombstone()
}

func (c *call) tombstone() []byte {
	return c.encode(&encrypted.Response{Tombstone: true, Status: c.last.status})
}

func (c *call) encode(r *encrypted.Response) []byte { return c.m.box.Encode(c.scope, c.key, r) }
