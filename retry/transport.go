package retry

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Transport is an [http.RoundTripper] that repeats requests under one Idempotency-Key. It is safe
// for concurrent use if its base is, does not change the requests it is given, and closes their
// bodies in every case, as the interface asks.
//
// It returns the response of the last attempt, with its body, or an error. If that attempt's
// failure was worth another attempt and got none, a response is returned as it is, and an error is
// wrapped in a [*GaveUpError]. A response that is not returned is read to 64 KiB, for at most a
// second, and closed, so that its connection can be used again.
//
// The context of a request bounds all its attempts and waits. The context of an attempt ends when
// the body of the response is closed. An [http.Client] calls RoundTrip once for each hop of a
// redirect. Each hop has its own attempts, and the key of the first hop. When net/http itself
// repeats a request, because a connection died before anything was read from it, this counts as
// part of an attempt.
//
// A panic of the base passes to the caller of RoundTrip; a panic of a hedge that lost does not.
type Transport struct {
	base http.RoundTripper
	cfg  TransportConfig
}

// NewTransport returns a Transport that sends through base; nil is [http.DefaultTransport]. A bad
// field of cfg is an error that names it. It starts no goroutine.
func NewTransport(base http.RoundTripper, cfg TransportConfig) (*Transport, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	if base == nil {
		base = http.DefaultTransport
	}
	return &Transport{base: base, cfg: cfg}, nil
}

// CloseIdleConnections calls the base's method, if it has one; [http.Client.CloseIdleConnections]
// looks for it here.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	c := &call{t: t, req: req, body: &outgoing{first: req.Body}}
	defer func() { c.body.close() }() // a body that was not sent; also if a callback panics
	if err := c.prepare(); err != nil {
		return nil, err
	}
	return c.run(req.Context())
}

// call is one request on its way through its attempts.
type call struct {
	*attemptLoop
	t      *Transport
	req    *http.Request // the caller's; it is not changed
	body   *outgoing
	key    string // "" if the header is the caller's, or there is none
	keyed  bool
	hedges bool
	signal bool // Do-Not-Retry is sent: this call retries, or a layer above it
}

// prepare finds out how often the request may be sent.
func (c *call) prepare() (err error) {
	cfg, req, ctx := c.t.cfg, c.req, c.req.Context()
	if ctx.Err() != nil {
		return ended(ctx)
	}
	c.attemptLoop = newAttemptLoop(ctx, cfg.Policy)
	c.longest = cfg.MaxWait
	if signalled(req.Header) { // a proxy has handed it on
		c.once(NotAllowed)
	}
	repeatable, err := c.findKey()
	if err != nil {
		return err
	}
	if !repeatable {
		c.once(NotRepeatable)
	}
	if c.body, err = newOutgoing(req, repeatable && (c.limit == 0 || c.keyed),
		cfg.BodyLimit); err != nil {
		return err
	}
	if !c.body.repeatable() {
		c.once(NotRepeatable)
	}
	c.repeatable = repeatable && c.body.repeatable()
	c.hedges = cfg.HedgeAfter > 0 && c.limit == 0 &&
		(safe(req.Method) || c.keyed && c.t.honours(req)) && !live(req)
	c.signal = (c.retries() || !Allowed(ctx)) && (cfg.Foreign == nil || !cfg.Foreign(req))
	return nil
}

// honours reports whether the target runs each effect once for a key.
func (t *Transport) honours(req *http.Request) bool {
	return t.cfg.GenerateKeys != nil && t.cfg.GenerateKeys(req)
}

// live reports whether a request is more than one question and one answer. Two copies of such a
// request at once would share the map of trailers, or open two upgraded connections.
func live(req *http.Request) bool { return len(req.Trailer) > 0 || req.Header.Get("Upgrade") != "" }

// findKey reports whether the method and the key allow to repeat the request.
func (c *call) findKey() (repeatable bool, err error) {
	values, there := c.req.Header[KeyHeader]
	if c.req.Method == http.MethodConnect {
		return false, nil
	}
	if slices.ContainsFunc(lines(c.req.Header, KeyHeader), func(v string) bool { return v != "" }) {
		c.keyed = true
		return true, nil
	}
	if idempotent(c.req.Method) || there && len(values) == 0 {
		// The empty list is net/http's way to say that a request is idempotent without a header.
		return true, nil
	}
	if c.key, err = c.newKey(); err != nil {
		return false, err
	}
	c.keyed = c.key != ""
	return c.keyed, nil
}

// newKey returns the key for a request that has none. It returns "" if the request needs no key,
// and after a redirect the key of the hop before.
func (c *call) newKey() (string, error) {
	if c.t.cfg.Key != nil {
		key, err := c.t.cfg.Key(c.req)
		if err != nil {
			return "", fmt.Errorf("retry: Key: %w", err)
		}
		if key != "" {
			key, err = quoted(key)
			return cmp.Or(c.redirected(), key), err
		}
	}
	if c.t.honours(c.req) {
		return cmp.Or(c.redirected(), `"`+rand.Text()+`"`), nil
	}
	return "", nil
}

// redirected returns the key of the hop before a redirect. http.Client copies the caller's header,
// which lacks our key. But the request of the next hop holds the response that redirected it, and
// that leads to the key.
func (c *call) redirected() string {
	if c.req.Response == nil || c.req.Response.Request == nil {
		return ""
	}
	return c.req.Response.Request.Header.Get(KeyHeader)
}

// quoted returns key as a string of RFC 8941, 3.3.3.
func quoted(key string) (string, error) {
	bad := func(r rune) bool { return r < 0x20 || r > 0x7e || r == '"' || r == '\\' }
	if len(key) > 253 || strings.ContainsFunc(key, bad) {
		return "", errors.New(
			"retry: Key: not 1 to 253 visible ASCII characters without quotes and backslashes")
	}
	return `"` + key + `"`, nil
}

// request returns a copy of the caller's request for one send. The copy shares the map of trailers,
// because the caller fills it while the body is read.
func (c *call) request(ctx context.Context) (*http.Request, error) {
	body, err := c.body.open(c.req.Body)
	if err != nil {
		return nil, err
	}
	r := c.req.WithContext(ctx)
	r.Body = body
	if c.body.again != nil {
		r.GetBody = c.body.again
	}
	r.Header = c.req.Header.Clone()
	if r.Header == nil {
		r.Header = make(http.Header)
	}
	if c.key != "" {
		set(r.Header, KeyHeader, c.key)
	}
	if c.signal {
		set(r.Header, SignalHeader, "1")
	}
	return r, nil
}
