package httpadapter_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
)

// byHeader takes the principal from a header, which only a test may do.
func byHeader(r *http.Request) (string, error) { return r.Header.Get("X-Account"), nil }

func newMiddleware(t *testing.T, run httpadapter.Runner, scope httpadapter.Scope,
	cfg httpadapter.Config) *httpadapter.Middleware {
	t.Helper()
	m, err := httpadapter.New(run, scope, cfg)
	require.NoError(t, err)
	return m
}

// service is a handler behind the middleware over a Deduper in memory.
type service struct {
	d    *dedup.Deduper
	m    *httpadapter.Middleware
	h    http.Handler
	runs atomic.Int64
}

func newService(t *testing.T, cfg httpadapter.Config, handle http.HandlerFunc) *service {
	t.Helper()
	return newServiceOver(t, newDeduper(t, nil), cfg, handle)
}

func newServiceOver(t *testing.T, d *dedup.Deduper, cfg httpadapter.Config,
	handle http.HandlerFunc) *service {
	t.Helper()
	s := &service{d: d, m: newMiddleware(t, newClaimed(t, d), byHeader, cfg)}
	s.h = s.m.Handler(s.count(handle))
	return s
}

func (s *service) count(handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.runs.Add(1)
		handle(w, r)
	}
}

func (s *service) wantRuns(t *testing.T, want int64) {
	t.Helper()
	assert.Equal(t, want, s.runs.Load(), "runs of the handler")
}

// created answers with the number of its run.
func created() http.HandlerFunc {
	var n atomic.Int64
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/payments/"+strconv.FormatInt(n.Add(1), 10))
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte("paid"))
	}
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// post is a request of account "acme" with the key, or none.
func post(key, body string, change ...func(*http.Request)) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "http://api.example/payments",
		strings.NewReader(body))
	r.Header.Set("X-Account", "acme")
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	for _, f := range change {
		f(r)
	}
	return r
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func with(ctx context.Context) func(*http.Request) {
	return func(r *http.Request) { *r = *r.WithContext(ctx) }
}

func send(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func (s *service) post(key, body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	return send(s.h, post(key, body, change...))
}

// wantProblem checks a problem that the middleware itself has answered with.
func wantProblem(t *testing.T, w *httptest.ResponseRecorder, status int, name string,
	headers map[string]string) {
	t.Helper()
	var got struct {
		Type, Title, Detail string
		Status              int
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got), "status %d, no problem", w.Code)
	assert.Equal(t, status, w.Code)
	assert.Equal(t, status, got.Status)
	assert.True(t, strings.HasSuffix(got.Type, "/docs/reference/http.md#"+name))
	assert.NotEmpty(t, got.Title)
	want := map[string]string{"Content-Type": "application/problem+json",
		"Cache-Control": "no-store", "Idempotent-Replayed": "", "Retry-After": "",
		"Do-Not-Retry": ""}
	for name, value := range headers {
		want[name] = value
	}
	wantHeaders(t, w, want)
}

func wantHeaders(t *testing.T, w *httptest.ResponseRecorder, want map[string]string) {
	t.Helper()
	for name, value := range want {
		assert.Equal(t, value, w.Result().Header.Get(name), name)
	}
}

func wantAnswer(t *testing.T, w *httptest.ResponseRecorder, status int, body string,
	headers map[string]string) {
	t.Helper()
	assert.Equal(t, status, w.Code)
	assert.Equal(t, body, w.Body.String())
	wantHeaders(t, w, headers)
}

var (
	retryInOne = map[string]string{"Retry-After": "1", "Idempotency-Window": "86400"}
	final      = map[string]string{"Do-Not-Retry": "1", "Idempotency-Window": "86400"}
	firstTime  = map[string]string{"Idempotent-Replayed": "", "Idempotency-Window": "86400"}
	replayed   = map[string]string{"Idempotent-Replayed": "true"}
	finalAgain = map[string]string{"Do-Not-Retry": "1"} // for a record, which has a window
)

// fake is a Runner that does what a test says.
type fake struct {
	do func(ctx context.Context, key string, effect httpadapter.Effect,
		req dedup.Request) (dedup.Result[[]byte], error)
	window time.Duration
	atomic bool
}

func (f *fake) Run(ctx context.Context, key string, effect httpadapter.Effect,
	opts ...dedup.Option) (dedup.Result[[]byte], error) {
	var req dedup.Request
	for _, opt := range opts {
		opt(&req)
	}
	return f.do(ctx, key, effect, req)
}

func (f *fake) Window() time.Duration { return f.window }
func (f *fake) ResultLimit() int      { return 1 << 20 }
func (f *fake) Atomic() bool          { return f.atomic }

// answering is a Runner that returns res and err without running the handler.
func answering(res dedup.Result[[]byte], err error) *fake {
	return &fake{do: func(context.Context, string, httpadapter.Effect,
		dedup.Request) (dedup.Result[[]byte], error) {
		return res, err
	}}
}
