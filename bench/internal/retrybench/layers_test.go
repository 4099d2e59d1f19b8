package retrybench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/retry"
)

// Layers is the number of calls that one request makes of a server that always answers 503, when
// it is the last of so many layers, over real connections, and every caller makes three attempts.
// Told: each server obeys Do-Not-Retry.
func Layers(ctx context.Context, layers int, told bool) (int, error) {
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
	if err != nil {
		return 0, err
	}
	client := &http.Client{Transport: transport}
	for range layers - 1 {
		var h http.Handler = pass(client, next.URL)
		if told {
			h = retry.Handler(h, nil)
		}
		next = httptest.NewServer(h)
		defer next.Close() // a few, and all are wanted until the end
	}
	status, err := get(ctx, client, next.URL)
	if err == nil && status != http.StatusServiceUnavailable {
		err = fmt.Errorf("retrybench: status %d", status)
	}
	return int(calls.Load()), err
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
