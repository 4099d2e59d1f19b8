package retry_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceward/onceward/retry"
)

func TestBasesThatBreakTheirContract(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		both := func(req *http.Request) (*http.Response, error) {
			resp, _ := answer(200, "both")(req)
			return resp, errNetwork
		}
		neither := func(*http.Request) (*http.Response, error) { return nil, nil }
		bare := func(*http.Request) (*http.Response, error) { return &http.Response{StatusCode: http.StatusOK}, nil }
		base := &script{steps: []step{both, neither, bare}}
		resp, err := transport(t, base, retry.TransportConfig{}).RoundTrip(request(t, "GET", "")) //nolint:bodyclose // there is none
		sent := base.requests()
		if sent[2].ctx.Err() == nil {
			t.Error("a request without a body to close goes on")
		}
		if err != nil || resp.StatusCode != http.StatusOK || resp.Body != nil || base.open.Load() != 0 {
			t.Errorf("%v, %v, %d bodies open", resp, err, base.open.Load())
		}
	})
}

func TestPanicOfTheBase(t *testing.T) {
	for _, hedge := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			var ctx context.Context
			body := &closing{Reader: strings.NewReader("x")}
			brk := &breaker{limit: 1}
			tr := transport(t, roundTrip(func(req *http.Request) (*http.Response, error) {
				ctx = req.Context()
				panic(http.ErrAbortHandler)
			}), retry.TransportConfig{HedgeAfter: hedge, Breaker: brk})
			req := request(t, "GET", "")
			req.Body, req.GetBody = body, func() (io.ReadCloser, error) { return body, nil }
			defer func() {
				if got := recover(); got != http.ErrAbortHandler { //nolint:errorlint // the very value
					t.Errorf("recovered %v", got)
				}
				if ctx.Err() == nil || !body.closed || brk.permits != 0 || brk.failures != 1 {
					t.Errorf("after a panic: context %v, body closed %v, %+v", ctx.Err(), body.closed, brk)
				}
			}()
			_ = refused(t, tr, req)
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func TestBadTransports(t *testing.T) {
	for field, cfg := range map[string]retry.TransportConfig{"HedgeAfter": {HedgeAfter: -1}, "MaxWait": {MaxWait: -1}} {
		if _, err := retry.NewTransport(nil, cfg); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%v, want an error that names %s", err, field)
		}
	}
	if tr, err := retry.NewTransport(nil, retry.TransportConfig{}); err != nil {
		t.Error(err)
	} else {
		tr.CloseIdleConnections()
	}
	idle := &idler{}
	(&http.Client{Transport: transport(t, idle, retry.TransportConfig{})}).CloseIdleConnections()
	if !idle.closed {
		t.Error("CloseIdleConnections does not reach the base")
	}
}

// A callback that panics leaves nothing open.
func TestPanicOfACallback(t *testing.T) {
	boom := func(*http.Request) bool { panic("boom") }
	for name, cfg := range map[string]retry.TransportConfig{
		"GenerateKeys": {GenerateKeys: boom},
		"Foreign":      {Foreign: boom, Policy: retry.Policy{Attempts: 2}, Key: func(*http.Request) (string, error) { return "k", nil }},
		"OnRetry":      {Policy: retry.Policy{OnRetry: func(retry.Event) { panic("boom") }}},
		"Statuses":     {Statuses: func(int) retry.Class { panic("boom") }},
	} {
		t.Run(name, func(t *testing.T) {
			base := &script{steps: []step{answer(503, "")}}
			body := &closing{Reader: strings.NewReader("x")}
			req := request(t, "POST", "")
			req.Body = body
			defer func() {
				if got := recover(); got != "boom" || !body.closed || base.open.Load() != 0 {
					t.Errorf("recovered %v; body closed: %v, %d responses open", got, body.closed, base.open.Load())
				}
				for _, s := range base.requests() {
					if s.ctx.Err() == nil {
						t.Error("the request goes on")
					}
				}
			}()
			_ = refused(t, transport(t, base, cfg), req)
		})
	}
}

type idler struct {
	http.RoundTripper
	closed bool
}

func (i *idler) CloseIdleConnections() { i.closed = true }

// A request without a header map is sent with one.
func TestRequestWithoutHeader(t *testing.T) {
	base := &script{steps: []step{answer(200, "")}}
	req := request(t, "POST", "")
	req.Header = nil
	resp, err := transport(t, base, retry.TransportConfig{GenerateKeys: everybody}).RoundTrip(req)
	text(t, resp, err)
	if req.Header != nil || base.requests()[0].key == "" {
		t.Error("the header was set in the caller's request, or nowhere")
	}
}
