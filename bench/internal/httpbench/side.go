package httpbench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/work"
)

// party is one side: a site, and the connections to it.
type party struct {
	*harness.Setup

	name  string
	addr  string       // of the site
	runs  atomic.Int64 // of the handler
	conns []*conn
	again bool // every key is sent before the timing begins, and is replayed in it
	// known is what the sites of limits need before a replay: they have no middleware.
	known func(context.Context, []string)
}

// newParty opens the site of a side, and so many connections to it, for the time of a setup.
func (e *env) newParty(ctx context.Context, s *harness.Setup, name string, again bool,
	callers int) *party {
	p := &party{Setup: s, name: name, again: again}
	openers[name](ctx, e, p, callers)
	for range callers {
		p.connect()
	}
	return p
}

// conn is one connection of a client that allocates nothing for a request, so that what is counted
// is the server's. It is for one goroutine.
type conn struct {
	client *fasthttp.HostClient
	req    *fasthttp.Request
	resp   *fasthttp.Response
}

func (p *party) connect() {
	c := &conn{&fasthttp.HostClient{Addr: p.addr, MaxConns: 1, MaxIdleConnDuration: time.Hour,
		ReadTimeout: timeout, WriteTimeout: timeout}, &fasthttp.Request{}, &fasthttp.Response{}}
	c.req.SetRequestURI("http://" + p.addr + "/charges")
	c.req.Header.SetMethod(http.MethodPost)
	c.req.Header.SetContentType("application/json")
	c.req.SetBodyString(
		`{"account":"acct-4711","amount":4200,"currency":"eur","reference":"order-815"}`)
	p.Defer(func() error { c.client.CloseIdleConnections(); return nil })
	p.conns = append(p.conns, c)
}

// post sends a charge under key.
func (c *conn) post(key string) {
	c.req.Header.Set("Idempotency-Key", key)
	must.Do(c.client.Do(c.req, c.resp))
	if c.resp.StatusCode() != http.StatusCreated || string(c.resp.Body()) != receipt {
		must.Do(fmt.Errorf("httpbench: status %d: %.200s", c.resp.StatusCode(), c.resp.Body()))
	}
}

func (p *party) side() harness.Side {
	replayed := p.again && p.known == nil
	s := harness.Side{Name: p.name, Run: func(ctx context.Context, t *harness.Timing) {
		p.send(ctx, t, !replayed)
	}}
	switch {
	case replayed:
		s.Prepare = func(ctx context.Context, t *harness.Timing) { p.send(ctx, t, true) }
	case p.again:
		s.Prepare = func(ctx context.Context, t *harness.Timing) { p.known(ctx, t.Keys) }
	}
	return s
}

// send posts every key once, over all connections. The handler runs for each of them, or for none,
// or it fails: what is timed must be what the row says.
func (p *party) send(ctx context.Context, t *harness.Timing, runs bool) {
	before, want := p.runs.Load(), int64(0)
	if runs {
		want = int64(len(t.Keys))
	}
	work.Each(len(p.conns), func(ctx context.Context, caller int, key string) {
		must.Do(ctx.Err())
		p.conns[caller].post(key)
	})(ctx, t)
	ran := p.runs.Load() - before
	must.True(ran == want, "httpbench: the handler ran %d times, want %d", ran, want)
}

// receipt is what a charge is answered with.
const receipt = `{"id":"ch_3PqXk2eZvKYlo2C1","object":"charge","account":"acct-4711",` +
	`"amount":4200,"currency":"eur","status":"succeeded"}`

// timeout of one request; nothing that is measured takes as long.
const timeout = 30 * time.Second

// listen opens a port of loopback for the party.
func (p *party) listen(ctx context.Context) net.Listener {
	l := must.Get((&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0"))
	p.addr = l.Addr().String()
	return l
}

// nethttp serves the handler with its effect, in wrap, with net/http.
func (p *party) nethttp(ctx context.Context, effect func(*http.Request) error,
	wrap func(http.Handler) http.Handler) {
	l := p.listen(ctx)
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.runs.Add(1)
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if effect != nil {
			if err := effect(r); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Location", "/charges/ch_3PqXk2eZvKYlo2C1")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, receipt)
	})
	if wrap != nil {
		h = wrap(h)
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: timeout}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	p.Defer(func() error {
		err := srv.Close()
		if served := <-done; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		return err
	})
}

// fiber serves the same with fiber, behind the middleware; nil: none.
func (p *party) fiber(ctx context.Context, middleware fiber.Handler) {
	l := p.listen(ctx)
	app := fiber.New()
	if middleware != nil {
		app.Use(middleware)
	}
	app.Post("/charges", func(c fiber.Ctx) error {
		p.runs.Add(1)
		c.Set("Content-Type", "application/json")
		c.Set("Location", "/charges/ch_3PqXk2eZvKYlo2C1")
		return c.Status(http.StatusCreated).SendString(receipt)
	})
	done := make(chan error, 1)
	go func() { done <- app.Listener(l, fiber.ListenConfig{DisableStartupMessage: true}) }()
	p.Defer(func() error { return errors.Join(app.ShutdownWithTimeout(5*time.Second), <-done) })
}
