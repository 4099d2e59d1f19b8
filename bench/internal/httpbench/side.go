package httpbench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/onceward/onceward/bench/internal/harness"
)

// party is one side: a site, and the connections to it.
type party struct {
	harness.Setup // what it has opened

	name  string
	addr  string       // of the site
	runs  atomic.Int64 // of the handler
	conns []*conn
	again bool // every key is sent before the timing begins, and is replayed in it
	// known is what the sites of limits need before a replay: they have no middleware.
	known func(context.Context, []string) error
}

// conn is one connection of a client that allocates nothing for a request, so that what is counted
// is the server's. It is for one goroutine.
type conn struct {
	client *fasthttp.HostClient
	req    *fasthttp.Request
	resp   *fasthttp.Response
}

// connect opens the callers' connections.
func (p *party) connect(callers int) {
	for range callers {
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
}

// post sends a charge under key.
func (c *conn) post(key string) error {
	c.req.Header.Set("Idempotency-Key", key)
	if err := c.client.Do(c.req, c.resp); err != nil {
		return err
	}
	if c.resp.StatusCode() != http.StatusCreated || string(c.resp.Body()) != receipt {
		return fmt.Errorf("httpbench: status %d: %.200s", c.resp.StatusCode(), c.resp.Body())
	}
	return nil
}

func (p *party) side() harness.Side {
	s := harness.Side{Name: p.name, Run: func(ctx context.Context, t *harness.Timing) error {
		want := int64(len(t.Keys))
		if p.again && p.known == nil {
			want = 0
		}
		return p.counted(want, func() error { return p.send(ctx, t.Keys, t.Latency) })
	}}
	if p.again {
		s.Prepare = func(ctx context.Context, t *harness.Timing) error {
			if p.known != nil {
				return p.known(ctx, t.Keys)
			}
			return p.counted(int64(len(t.Keys)), func() error { return p.send(ctx, t.Keys, nil) })
		}
	}
	return s
}

// counted fails if the handler has not run so often: what is timed must be what the row says.
func (p *party) counted(want int64, send func() error) error {
	before := p.runs.Load()
	if err := send(); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	if ran := p.runs.Load() - before; ran != want {
		return fmt.Errorf("httpbench: %s: the handler ran %d times, want %d", p.name, ran, want)
	}
	return nil
}

// send posts every key once, over all connections. Latency may be nil.
func (p *party) send(ctx context.Context, keys []string, latency []time.Duration) error {
	errs := make([]error, len(p.conns))
	var wg sync.WaitGroup
	for i, c := range p.conns {
		wg.Go(func() {
			for k := i; k < len(keys) && errs[i] == nil; k += len(p.conns) {
				if ctx.Err() != nil {
					errs[i] = context.Cause(ctx)
					return
				}
				begin := time.Now()
				errs[i] = c.post(keys[k])
				if latency != nil {
					latency[k] = time.Since(begin)
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
