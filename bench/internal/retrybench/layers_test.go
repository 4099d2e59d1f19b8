package retrybench

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/retry"
)

// layers is the number of calls that one request makes of a server that always answers 503, when
// it is behind that many layers, over real connections, and every caller makes three attempts.
// told: each server obeys Do-Not-Retry.
func layers(t *testing.T, layers int, told bool) int {
	var calls atomic.Int64
	next := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer next.Close()
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	instant := retry.Policy{Backoff: retry.Backoff{Base: time.Microsecond, Cap: time.Microsecond},
		Budget: retry.Unlimited()}
	transport, err := retry.NewTransport(base, retry.TransportConfig{Policy: instant})
	require.NoError(t, err)
	client := &http.Client{Transport: transport}
	for range layers - 1 {
		var h http.Handler = pass(client, next.URL)
		if told {
			h = retry.Handler(h, nil)
		}
		next = httptest.NewServer(h)
		defer next.Close() // a few, and all are wanted until the end
	}
	status, err := get(t.Context(), client, next.URL)
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, status)
	return int(calls.Load())
}

// pass asks the next layer under the request's context, and answers as it does.
func pass(client *http.Client, next string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		status, err := get(r.Context(), client, next)
		if err != nil {
			status = http.StatusBadGateway
		}
		w.WriteHeader(status)
	}
}

func get(ctx context.Context, client *http.Client, url string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode, err
}
