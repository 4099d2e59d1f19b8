package proxy

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A key has one effect at the service for each client. Its retries get the first answer.
func TestOnce(t *testing.T) {
	var n atomic.Int64
	r := start(t, counted(&n, nil), "", scoped)
	for i := range 3 {
		a := r.pay("k1")
		a.wants(t, 201, "paid")
		assert.Equal(t, i > 0, a.header.Get("Idempotent-Replayed") == "true")
	}
	assert.EqualValues(t, 1, n.Load())
	r.send("POST", "/pay", "{}", "X-Account: bob", "Idempotency-Key: k1").wants(t, 201, "paid")
	assert.EqualValues(t, 2, n.Load(), "another client has keys of its own")
	r.send("POST", "/pay", "{}", "Idempotency-Key: k1").wants(t, 401, "no-principal")
	r.send("POST", "/pay", "{}", "X-Account: bob", "X-Account: alice", "Idempotency-Key: k1").
		wants(t, 401, "no-principal")
	r.send("POST", "/pay", "{}", "X-Account: bob").wants(t, 400, "key-missing")
	r.send("POST", "/pay", "{ }", "X-Account: bob", "Idempotency-Key: k1").
		wants(t, 422, "key-reused")
	assert.EqualValues(t, 2, n.Load())
	_, metrics := r.get("/metrics")
	assert.Contains(t, metrics, `onceward_proxy_requests_total{code="201",path="/"} 4`)
	assert.Contains(t, metrics, `onceward_dedup_claims_total{`)
	assert.NotContains(t, metrics, "alice")
}

// The service gets the client's headers, and those that only the proxy may set.
func TestHeaders(t *testing.T) {
	var n atomic.Int64
	seen := make(chan *http.Request, 10)
	r := start(t, counted(&n, func(w http.ResponseWriter, r *http.Request) {
		seen <- r
		if n.Load() == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, "done")
	}), "", scoped)
	post := func() answer {
		return r.send("POST", "/pay?a=1;b=2", "{}", "X-Account: alice", "Idempotency-Key: k1",
			"Onceward-Key: forged", "Onceward_Webhook: forged", "onceward-webhook: forged",
			"X-Forwarded-For: 1.2.3.4", "Connection: X-Hop", "X-Hop: 1")
	}
	post().wants(t, 503, "done")
	post().wants(t, 200, "done")
	first, second := next(t, seen), next(t, seen)
	host := strings.TrimPrefix(r.url, "http://")
	assert.Equal(t, host, first.Host)
	assert.Equal(t, "a=1;b=2", first.URL.RawQuery)
	assert.Equal(t, "127.0.0.1", first.Header.Get("X-Forwarded-For"))
	assert.Equal(t, "http", first.Header.Get("X-Forwarded-Proto"))
	assert.Equal(t, "k1", first.Header.Get("Idempotency-Key"))
	assert.Empty(t, first.Header.Get("X-Hop"))
	for name := range first.Header {
		assert.NotContains(t, strings.ToLower(name), "webhook")
	}
	assert.Len(t, first.Header.Get(keyHeader), 22)
	assert.Equal(t, first.Header.Get(keyHeader), second.Header.Get(keyHeader))
	assert.Equal(t, "1", first.Header.Get(attemptHeader))
	assert.Equal(t, "2", second.Header.Get(attemptHeader))
	r.send("GET", "/", "", "Onceward-Key: forged").wants(t, 200, "done")
	assert.Empty(t, next(t, seen).Header.Get(keyHeader))
}

// On a broken connection http.Transport would repeat a request with a key and without a body.
func TestNothingIsSentAgain(t *testing.T) {
	var n atomic.Int64
	r := start(t, counted(&n, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			panic(http.ErrAbortHandler)
		}
	}), "", scoped)
	for range 5 { // on an existing connection
		r.send("GET", "/", "").wants(t, 200, "")
		before := n.Load()
		r.send("POST", "/pay", "", "X-Account: alice", "Idempotency-Key: k1").
			wants(t, 502, "may have done its work")
		assert.EqualValues(t, 1, n.Load()-before)
	}
}

// A failure of the service leaves a key free, uncertain or done.
func TestServiceFails(t *testing.T) {
	breaks := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	status := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
	}
	const cannotTakeBack = "routes:\n- {path: /, irreversible: true}\n"
	for _, test := range []struct {
		name, file  string
		then        http.HandlerFunc
		status      int
		text        string
		again, runs int
	}{
		{"breaks off", "", breaks, 502, "may have done", 502, 2},
		{"breaks off, irreversible", cannotTakeBack, breaks, 502, "may have done", 409, 1},
		{"5xx", "", status(503), 503, "", 503, 2},
		{"5xx, irreversible", cannotTakeBack, status(503), 503, "", 409, 1},
		{"refuses, irreversible", cannotTakeBack, status(403), 403, "", 403, 2},
		{"too large", "routes:\n- {path: /, response-limit: 300}\n",
			func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, strings.Repeat("x", 10_000))
			}, 500, "response-too-large", 410, 1},
		{"says nothing in time", "timeout: 100ms\n",
			func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, 503,
			"cancelled", 503, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			var n atomic.Int64
			r := start(t, counted(&n, test.then), test.file, scoped)
			r.pay("k1").wants(t, test.status, test.text)
			r.pay("k1").wants(t, test.again, "")
			assert.EqualValues(t, test.runs, n.Load())
		})
	}
}

// A service that dies in the middle of an answer has had its effect, so no retry runs.
func TestServiceDiesMidAnswer(t *testing.T) {
	var n atomic.Int64
	r := start(t, counted(&n, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}), "", scoped)
	a := r.pay("k1")
	require.Error(t, a.err, "%d %s", a.status, a.body)
	r.pay("k1").wants(t, 410, "response-not-kept")
	assert.EqualValues(t, 1, n.Load())
}

// If the service cannot be reached, nothing has begun, and the key is free on every route.
func TestServiceIsDown(t *testing.T) {
	for _, file := range []string{"", "routes:\n- {path: /, irreversible: true}\n"} {
		r := start(t, nil, file, scoped)
		r.service.Close()
		for range 3 {
			r.pay("k1").wants(t, 502, "nothing was done")
		}
	}
}

// When a client leaves, the answer is still recorded.
func TestClientGoes(t *testing.T) {
	var n atomic.Int64
	began, release := make(chan struct{}), make(chan struct{})
	r := start(t, counted(&n, func(w http.ResponseWriter, _ *http.Request) {
		close(began)
		<-release
		_, _ = io.WriteString(w, "paid")
	}), "wait: 30s\n", scoped)
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/pay",
		strings.NewReader(`{"amount":1}`))
	require.NoError(t, err)
	req.Header.Set("X-Account", "alice")
	req.Header.Set("Idempotency-Key", "k1")
	gone := make(chan error, 1)
	go func() {
		resp, err := r.client.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		gone <- err
	}()
	await(t, began)
	cancel()
	assert.ErrorIs(t, <-gone, context.Canceled)
	close(release)
	r.pay("k1").wants(t, 200, "paid")
	assert.EqualValues(t, 1, n.Load())
}

// Without Redis no request with a key reaches the service. Other requests do.
func TestRedisIsDown(t *testing.T) {
	var n atomic.Int64
	r := start(t, counted(&n, nil), "lease: 300ms\n", scoped)
	status, _ := r.get("/readyz")
	assert.Equal(t, 200, status)
	r.redis.Close()
	r.pay("k1").wants(t, 503, "store-unavailable")
	assert.Zero(t, n.Load())
	r.send("GET", "/", "").wants(t, 201, "paid")
	status, body := r.get("/readyz")
	assert.Equal(t, 503, status)
	assert.Contains(t, body, "Redis")
	status, _ = r.get("/healthz")
	assert.Equal(t, 200, status)
}

// Requests without a key are streamed, and may switch protocols.
func TestStreams(t *testing.T) {
	release := make(chan struct{})
	r := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "echo" {
			c, rw, err := http.NewResponseController(w).Hijack()
			if !assert.NoError(t, err) {
				return
			}
			defer func() { _ = c.Close() }()
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			line, _ := rw.ReadString('\n')
			_, _ = io.WriteString(c, line)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: 1\n\n")
		_ = http.NewResponseController(w).Flush()
		<-release
	}, "routes:\n- {path: /upload/, plain: true}\n- {path: /}\n", scoped)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		req, err := http.NewRequestWithContext(t.Context(), method, r.url+"/upload/x", nil)
		require.NoError(t, err)
		resp, err := r.client.Do(req)
		require.NoError(t, err)
		line, err := bufio.NewReader(resp.Body).ReadString('\n')
		require.NoError(t, err)
		assert.Equal(t, "data: 1\n", line)
		if method == http.MethodGet {
			release <- struct{}{}
		} else {
			close(release)
		}
		_ = resp.Body.Close()
	}
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(r.url, "http://"))
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	require.NoError(t, err)
	read := bufio.NewReader(c)
	await := func(want string) {
		for line := ""; line != want; {
			line, err = read.ReadString('\n')
			require.NoError(t, err)
		}
	}
	await("\r\n")
	_, err = io.WriteString(c, "hello\n")
	require.NoError(t, err)
	await("hello\n")
}

// The route with the longest path serves a request. A path without a route is not served.
func TestRoutes(t *testing.T) {
	var n atomic.Int64
	r := start(t, counted(&n, nil), `
optional: true
routes:
- {path: /pay/, optional: false}
- {path: /pay/plain/, plain: true}
- {path: /put, methods: [PUT], keep: stripe-v1}
`, scoped)
	const alice, key = "X-Account: alice", "Idempotency-Key: k1"
	for _, test := range []struct {
		method, path string
		status, runs int
	}{
		{"POST", "/pay", 201, 1}, {"POST", "/pay/1", 201, 1}, {"POST", "/pay/plain", 201, 2},
		{"POST", "/pay/plain/x", 201, 2}, {"GET", "/pay/", 201, 2}, {"PUT", "/put", 201, 1},
		{"POST", "/put", 201, 2}, {"POST", "/put/", 201, 2}, {"POST", "/puts", 404, 0},
		{"POST", "/", 404, 0}, {"POST", "/pa", 404, 0},
	} {
		before := n.Load()
		for range 2 {
			r.send(test.method, test.path, "{}", alice, key).wants(t, test.status, "")
		}
		assert.EqualValues(t, test.runs, n.Load()-before, "%s %s", test.method, test.path)
	}
	r.send("POST", "/pay/1", "{}", alice).wants(t, 400, "key-missing")
	r.send("PUT", "/put", "{}", alice).wants(t, 201, "paid")
}

// A request with a key cannot switch protocols: its answer is stored, and a connection cannot be.
func TestNoUpgradeWithAKey(t *testing.T) {
	var n atomic.Int64
	r := start(t, counted(&n, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "upgrade: "+r.Header.Get("Upgrade"))
	}), "", scoped)
	r.pay("k1", "Connection: Upgrade", "Upgrade: h2c").wants(t, 200, "upgrade: ")
	a := r.pay("k1")
	a.wants(t, 200, "upgrade: ")
	assert.Equal(t, "upgrade: ", a.body)
}
