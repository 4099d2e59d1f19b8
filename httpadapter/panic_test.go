package httpadapter_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
)

// panics sends a request whose handler panics, and returns the value of the panic.
func panics(t *testing.T, h http.Handler, r *http.Request) (value any) {
	t.Helper()
	w := httptest.NewRecorder()
	defer func() {
		value = recover()
		assert.NotNil(t, value, "the panic is swallowed")
		assert.Zero(t, w.Body.Len(), "something got out")
		assert.Empty(t, w.Result().Header["Content-Type"])
	}()
	h.ServeHTTP(w, r)
	return nil
}

// A handler that panics after it has begun to report a success has had its effect. Its retry must
// not have it again.
func TestPanicAfterAnAnswerHasBegun(t *testing.T) {
	for _, row := range []struct {
		name  string
		begin func(http.ResponseWriter, *http.Request)
		keep  func(int) bool
		kept  bool
	}{
		{"201", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
		}, nil, true},
		{"body alone", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("paid"))
		}, nil, true},
		{"flushed", func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
		}, nil, true},
		{"303", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusSeeOther)
		}, nil, true},
		{"201, Forgo", func(w http.ResponseWriter, r *http.Request) {
			httpadapter.Forgo(r.Context())
			w.WriteHeader(http.StatusCreated)
		}, nil, true},
		{"nothing", func(http.ResponseWriter, *http.Request) {}, nil, false},
		{"a header", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/1")
		}, nil, false},
		{"102", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusProcessing)
		}, nil, false},
		{"101", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusSwitchingProtocols)
		}, nil, false},
		{"303, Forgo", func(w http.ResponseWriter, r *http.Request) {
			httpadapter.Forgo(r.Context())
			w.WriteHeader(http.StatusSeeOther)
		}, nil, false},
		{"303, not kept", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusSeeOther)
		}, func(s int) bool { return s < 300 }, false},
		{"422", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusUnprocessableEntity)
		}, nil, false},
		{"500, kept", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
		}, httpadapter.KeepStripeV1, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			angry := true
			var used http.ResponseWriter
			s := newService(t, httpadapter.Config{Keep: row.keep},
				func(w http.ResponseWriter, r *http.Request) {
					if used = w; angry {
						row.begin(w, r)
						panic(http.ErrAbortHandler)
					}
					w.WriteHeader(http.StatusOK)
				})
			assert.Same(t, http.ErrAbortHandler, panics(t, s.h, post("k", "")))
			_, err := used.Write([]byte("late"))
			assert.Error(t, err, "its writer takes more")
			angry = false
			if row.kept {
				wantProblem(t, s.post("k", ""), 410, "response-not-kept",
					map[string]string{"Do-Not-Retry": "1"})
				s.wantRuns(t, 1)
			} else {
				wantAnswer(t, s.post("k", ""), 200, "", firstTime)
				s.wantRuns(t, 2)
			}
		})
	}
}

// In a transaction a panic undoes the effect, so nothing may be recorded.
func TestPanicInATransaction(t *testing.T) {
	run := &fake{atomic: true, do: func(ctx context.Context, _ string, effect httpadapter.Effect,
		_ dedup.Request) (dedup.Result[[]byte], error) {
		value, _, err := effect(ctx)
		t.Errorf("it would be committed: %q, %v", value, err)
		return dedup.Result[[]byte]{Outcome: dedup.Acquired, Value: value}, err
	}}
	h := newMiddleware(t, run, byHeader,
		httpadapter.Config{}).Handler(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		panic("boom")
	}))
	assert.Equal(t, "boom", panics(t, h, post("k", "")))
}

// A panic after an effect continues even if the effect cannot be recorded. The log has both: the
// panic's stack and the error of the store.
func TestPanicThatIsNotRecorded(t *testing.T) {
	var log strings.Builder
	run := &fake{do: func(ctx context.Context, _ string, effect httpadapter.Effect,
		_ dedup.Request) (dedup.Result[[]byte], error) {
		_, _, _ = effect(ctx)
		return dedup.Result[[]byte]{}, errors.New("store is down")
	}}
	cfg := httpadapter.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	h := newMiddleware(t, run, byHeader,
		cfg).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		panic("boom")
	}))
	assert.Equal(t, "boom", panics(t, h, post("k", "")))
	for _, want := range []string{"store is down", "panic_test.go"} {
		assert.Contains(t, log.String(), want, "the log has no %q", want)
	}
}

// httputil.ReverseProxy panics when its upstream breaks off in the middle of an answer. The
// upstream has already had its effect.
func TestProxyWhoseUpstreamBreaksOff(t *testing.T) {
	var charges atomic.Int64
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		charges.Add(1)
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write([]byte("ha"))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer upstream.Close()
	to, err := url.Parse(upstream.URL)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	m := newMiddleware(t, newClaimed(t, newDeduper(t, nil)), byHeader, httpadapter.Config{})
	front := httptest.NewServer(m.Handler(proxy))
	defer front.Close()
	ask := func() (*http.Response, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, front.URL,
			strings.NewReader("{}"))
		require.NoError(t, err)
		r.Header.Set("X-Account", "acme")
		r.Header.Set("Idempotency-Key", "k")
		r.GetBody = nil // net/http must not send it again by itself
		return front.Client().Do(r)
	}
	resp, err := ask()
	if !assert.Error(t, err) {
		_ = resp.Body.Close()
	}
	resp, err = ask()
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, _ := io.ReadAll(resp.Body)
	assert.Equal(t, http.StatusGone, resp.StatusCode, string(body))
	assert.EqualValues(t, 1, charges.Load(), string(body))
}
