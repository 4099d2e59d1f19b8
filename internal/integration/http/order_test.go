package http_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5/middleware"
	"github.com/go-chi/cors"
	"github.com/klauspost/compress/gzhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"

	"github.com/onceward/onceward/httpadapter"
)

// receipt is large enough to be compressed.
var receipt = strings.Repeat("paid ", 1000)

type wrapper = func(http.Handler) http.Handler

var crossOrigin = cors.Handler(cors.Options{
	AllowedOrigins: []string{"https://shop.example"},
	AllowedHeaders: []string{"Content-Type", "Authorization", "Idempotency-Key"},
	ExposedHeaders: []string{"Idempotent-Replayed", "Idempotency-Window", "Retry-After"},
})

func compress(next http.Handler) http.Handler { return gzhttp.GzipHandler(next) }

func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// documented is the order of the page docs/guides/frameworks.md.
func documented(m *httpadapter.Middleware, router http.Handler) http.Handler {
	h := m.Handler(router)
	h = authenticate(h)
	h = compress(h)
	h = crossOrigin(h)
	h = otelhttp.NewHandler(h, "api")
	return middleware.Recoverer(h)
}

// ordered serves POST /pay and POST /panic.
func ordered(t *testing.T, p *fixture,
	chain func(*httpadapter.Middleware, http.Handler) http.Handler) http.Handler {
	m, err := httpadapter.New(p.run, func(r *http.Request) (string, error) {
		return r.Header.Get("Authorization"), nil
	}, httpadapter.Config{})
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /pay", func(w http.ResponseWriter, r *http.Request) {
		assert.NoError(t, p.ledger.book(r.Context(), "paid"))
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, receipt)
	})
	mux.HandleFunc("POST /panic", func(http.ResponseWriter, *http.Request) {
		panic(http.ErrNotSupported)
	})
	return chain(m, mux)
}

// browser sends a request of a page, and returns the answer with its body as it came.
func browser(h http.Handler, method, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader("{}"))
	r.Header.Set("Origin", "https://shop.example")
	r.Header.Set("Idempotency-Key", "k")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func unzipped(t *testing.T, w *httptest.ResponseRecorder) string {
	r, err := gzip.NewReader(w.Body)
	require.NoError(t, err)
	text, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(text)
}

// TestOrderOfMiddleware: in the order of the page, a browser may read a replay as it may read the
// first answer, and each client gets it in an encoding that it accepts.
func TestOrderOfMiddleware(t *testing.T) {
	p := memory.open(t, day, lease)
	h := ordered(t, p, documented)

	preflight := browser(h, "OPTIONS", "/pay", "Access-Control-Request-Method",
		"POST", "Access-Control-Request-Headers", "idempotency-key,authorization")
	assert.Contains(t, strings.ToLower(preflight.Header().Get("Access-Control-Allow-Headers")),
		"idempotency-key")

	stranger := browser(h, "POST", "/pay")
	assert.Equal(t, 401, stranger.Code)
	assert.Equal(t, "https://shop.example", stranger.Header().Get("Access-Control-Allow-Origin"))
	assert.Empty(t, p.counts(t))

	for i, replayed := range []string{"", "true", "true"} {
		zipped := browser(h, "POST", "/pay", "Authorization", "acme", "Accept-Encoding", "gzip")
		plain := browser(h, "POST", "/pay", "Authorization", "acme")
		assert.Equal(t, replayed, zipped.Header().Get("Idempotent-Replayed"), "request %d", i)
		assert.Equal(t, "gzip", zipped.Header().Get("Content-Encoding"))
		assert.Equal(t, receipt, unzipped(t, zipped))
		assert.Empty(t, plain.Header().Get("Content-Encoding"))
		assert.Equal(t, receipt, plain.Body.String())
		for _, w := range []*httptest.ResponseRecorder{zipped, plain} {
			assert.Equal(t, []string{"https://shop.example"},
				w.Header()["Access-Control-Allow-Origin"])
			assert.Contains(t, w.Header().Get("Access-Control-Expose-Headers"),
				"Idempotent-Replayed")
		}
	}
	assert.Equal(t, map[string]int{"paid": 1}, p.counts(t))

	for range 2 { // the panic has freed the key
		assert.Equal(t, 500, browser(h, "POST", "/panic", "Authorization", "acme").Code)
	}
}

// TestOtherOrders shows why the page has that order.
func TestOtherOrders(t *testing.T) {
	inside := func(wrong wrapper) func(m *httpadapter.Middleware,
		router http.Handler) http.Handler {
		return func(m *httpadapter.Middleware, router http.Handler) http.Handler {
			return authenticate(m.Handler(wrong(router)))
		}
	}
	t.Run("CORS inside: a browser may not read the replay", func(t *testing.T) {
		h := ordered(t, memory.open(t, day, lease), inside(crossOrigin))
		assert.NotEmpty(t, browser(h, "POST", "/pay", "Authorization",
			"acme").Header().Get("Access-Control-Allow-Origin"))
		again := browser(h, "POST", "/pay", "Authorization", "acme")
		assert.Equal(t, "true", again.Header().Get("Idempotent-Replayed"))
		assert.Empty(t, again.Header().Get("Access-Control-Allow-Origin"))
	})
	t.Run("compression inside: the replay is in the encoding of the first client",
		func(t *testing.T) {
			h := ordered(t, memory.open(t, day, lease), inside(compress))
			browser(h, "POST", "/pay", "Authorization", "acme", "Accept-Encoding", "gzip")
			again := browser(h, "POST", "/pay", "Authorization", "acme")
			assert.Equal(t, "gzip", again.Header().Get("Content-Encoding"))
			assert.Equal(t, receipt, unzipped(t, again))
		})
}
