package retry_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/retry"
)

func TestBasesThatBreakTheirContract(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		both := func(req *http.Request) (*http.Response, error) {
			resp, _ := answer(200, "both")(req)
			return resp, errNetwork
		}
		neither := func(*http.Request) (*http.Response, error) { return nil, nil }
		bare := func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK}, nil
		}
		base := &script{steps: []step{both, neither, bare}}
		resp, err := transport(t, base, retry.TransportConfig{}).RoundTrip(request(t, "GET", "")) //nolint:bodyclose // there is none
		sent := base.requests()
		assert.Error(t, sent[2].ctx.Err(), "a request without a body to close goes on")
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, resp.StatusCode)
		assert.Nil(t, resp.Body)
		assert.Zero(t, base.open.Load())
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
				assert.Same(t, http.ErrAbortHandler, recover())
				assert.Error(t, ctx.Err(), "after a panic")
				assert.True(t, body.closed, "after a panic")
				assert.Equal(t, 0, brk.permits)
				assert.Equal(t, 1, brk.failures)
			}()
			_ = refused(t, tr, req)
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func TestBadTransports(t *testing.T) {
	for field, cfg := range map[string]retry.TransportConfig{"HedgeAfter": {HedgeAfter: -1},
		"MaxWait": {MaxWait: -1}} {
		_, err := retry.NewTransport(nil, cfg)
		assert.ErrorContains(t, err, field)
	}
	tr, err := retry.NewTransport(nil, retry.TransportConfig{})
	require.NoError(t, err)
	tr.CloseIdleConnections()
	idle := &idler{}
	(&http.Client{Transport: transport(t, idle, retry.TransportConfig{})}).CloseIdleConnections()
	assert.True(t, idle.closed, "CloseIdleConnections does not reach the base")
}

// When a callback panics, no response stays open.
func TestPanicOfACallback(t *testing.T) {
	boom := func(*http.Request) bool { panic("boom") }
	for name, cfg := range map[string]retry.TransportConfig{
		"GenerateKeys": {GenerateKeys: boom},
		"Foreign": {Foreign: boom, Policy: retry.Policy{Attempts: 2},
			Key: func(*http.Request) (string, error) { return "k", nil }},
		"OnRetry":  {Policy: retry.Policy{OnRetry: func(retry.Event) { panic("boom") }}},
		"Statuses": {Statuses: func(int) retry.Class { panic("boom") }},
	} {
		t.Run(name, func(t *testing.T) {
			base := &script{steps: []step{answer(503, "")}}
			body := &closing{Reader: strings.NewReader("x")}
			req := request(t, "POST", "")
			req.Body = body
			defer func() {
				assert.Equal(t, "boom", recover())
				assert.True(t, body.closed)
				assert.Zero(t, base.open.Load())
				for _, s := range base.requests() {
					assert.Error(t, s.ctx.Err(), "the request goes on")
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
	assert.Nil(t, req.Header, "the header was set in the caller's request, or nowhere")
	assert.NotEmpty(t, base.requests()[0].key)
}
