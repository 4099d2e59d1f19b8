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

// layers returns how many calls of the last server one request causes. That server always answers
// 503. There are layers of servers before it, over real connections, and every caller makes three
// attempts. With told each server obeys Do-Not-Retry.
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

// pass calls the next layer with the request's context, and passes its answer on.
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
