package retry_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/retry"
)

// layer is a server that calls the next server with a transport of three attempts, and passes its
// answer on.
func layer(t *testing.T, next string, wrap func(http.Handler) http.Handler) *httptest.Server {
	t.Helper()
	client := quick(t)
	srv := httptest.NewServer(wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, next, nil)
		if !assert.NoError(t, err) {
			return
		}
		resp, err := client.Do(req)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer func() { _ = resp.Body.Close() }()
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	})))
	t.Cleanup(srv.Close)
	return srv
}

// quick returns a client whose waits are so short that real time does not matter.
func quick(t *testing.T) *http.Client {
	base := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(base.CloseIdleConnections)
	return &http.Client{Transport: transport(t, base, retry.TransportConfig{
		Policy: retry.Policy{Backoff: retry.Backoff{Base: time.Microsecond, Cap: time.Microsecond}},
	})}
}

// Four clients in a row have three attempts each. The last server gets 81 calls if the signal is
// ignored, and 3 if only the outermost client retries.
func TestFourLayersDoNotMultiply(t *testing.T) {
	for _, row := range []struct {
		name string
		wrap func(http.Handler) http.Handler
		want int64
	}{
		{"header ignored", func(h http.Handler) http.Handler { return h }, 81},
		{"header obeyed", func(h http.Handler) http.Handler { return retry.Handler(h, nil) }, 3},
	} {
		t.Run(row.name, func(t *testing.T) {
			var calls atomic.Int64
			last := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
				_ *http.Request) {
				calls.Add(1)
				w.WriteHeader(http.StatusServiceUnavailable)
			}))
			t.Cleanup(last.Close)
			url := last.URL
			for range 3 {
				url = layer(t, url, row.wrap).URL
			}
			resp, err := quick(t).Get(url)
			text(t, resp, err)
			t.Logf("%s: %d calls of the last server", row.name, calls.Load())
			assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
			assert.Equal(t, row.want, calls.Load())
		})
	}
}

func TestWhoCarriesTheSignal(t *testing.T) {
	for _, row := range []struct {
		name     string
		method   string
		attempts int
		noRetry  bool
		foreign  func(*http.Request) bool
		want     string
		allowed  bool // below
	}{
		{"retries itself", "GET", 3, false, nil, "1", false},
		{"told from above", "GET", 3, true, nil, "1", false},
		{"told from above, one attempt", "GET", 1, true, nil, "1", false},
		{"does not retry", "GET", 1, false, nil, "", true},
		{"cannot retry", "POST", 3, false, nil, "", true},
		{"a host that is not told", "GET", 3, false, everybody, "", false},
	} {
		base := &script{steps: []step{answer(200, "")}}
		req := request(t, row.method, "")
		if row.noRetry {
			req = req.WithContext(retry.NoRetry(req.Context()))
		}
		resp, err := transport(t, base,
			retry.TransportConfig{Policy: retry.Policy{Attempts: row.attempts},
				Foreign: row.foreign}).RoundTrip(req)
		text(t, resp, err)
		s := base.requests()[0]
		assert.Equal(t, row.want, s.signal, row.name)
		assert.Equal(t, row.allowed, retry.Allowed(s.ctx), row.name)
		assert.Empty(t, req.Header.Get(retry.SignalHeader), row.name)
	}
}

// A proxy forwards the signal header of its request, which means the same as the context.
func TestForwardedSignal(t *testing.T) {
	base := &script{steps: []step{answer(503, "")}}
	for value, want := range map[string]int{"1": 1, "0": 3} {
		base.seen = nil
		var why retry.Reason
		cfg := retry.TransportConfig{Policy: retry.Policy{
			Backoff: retry.Backoff{Base: time.Microsecond, Cap: time.Microsecond},
			OnRetry: func(e retry.Event) { why = e.GaveUp },
		}}
		resp, err := transport(t, base,
			cfg).RoundTrip(request(t, "GET", "", retry.SignalHeader, value))
		text(t, resp, err)
		sent := base.requests()
		require.Len(t, sent, want, "%q", value)
		assert.Equal(t, "1", sent[0].signal, "%q", value)
		assert.Equal(t, want == 1, why == retry.NotAllowed, "%q", value)
	}
}

func TestHandlerReadsTheSignal(t *testing.T) {
	nobody := func(*http.Request) bool { return false }
	for value, allowed := range map[string]bool{"": true, "0": true, "?0": true, " 0 ": true,
		"1": false, "?1": false, "true": false} {
		for _, trust := range []func(*http.Request) bool{nil, everybody, nobody} {
			var got bool
			h := retry.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				got = retry.Allowed(r.Context())
			}), trust)
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set(retry.SignalHeader, value)
			h.ServeHTTP(httptest.NewRecorder(), r)
			assert.Equal(t, allowed || trust != nil && !trust(r), got, "%q: allowed", value)
		}
	}
}
