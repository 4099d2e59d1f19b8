package retry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/onceward/onceward/retry"
)

func ExampleDo() {
	policy := retry.Policy{
		Attempts: 4,
		Backoff:  retry.Backoff{Base: time.Millisecond, Cap: time.Second},
		OnRetry:  func(e retry.Event) { fmt.Println("attempt", e.Attempt, "failed:", e.Err) },
	}
	n, err := retry.Do(context.Background(),
		policy, func(_ context.Context, attempt int) (int, error) {
			if attempt < 3 {
				return 0, errors.New("connection refused")
			}
			return 42, nil
		})
	fmt.Println(n, err)
	// Output:
	// attempt 1 failed: connection refused
	// attempt 2 failed: connection refused
	// 42 <nil>
}

func ExamplePermanent() {
	_, err := retry.Do(context.Background(), retry.Policy{},
		func(context.Context, int) (int, error) {
			return 0, retry.Permanent(errors.New("no such account"))
		})
	fmt.Println(err)
	// Output: no such account
}

// A POST is repeated, because it has a key. The server has its effect once.
func ExampleTransport() {
	var mu sync.Mutex
	charges := make(map[string]bool)
	flaky := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if key := r.Header.Get(retry.KeyHeader); !charges[key] {
			charges[key] = true
			w.WriteHeader(http.StatusBadGateway) // charged, and the answer lost
			return
		}
		fmt.Fprint(w, "charged")
	}))
	defer flaky.Close()

	transport, err := retry.NewTransport(nil, retry.TransportConfig{
		GenerateKeys: func(*http.Request) bool { return true }, // this server honors keys
		Policy:       retry.Policy{Backoff: retry.Backoff{Base: time.Millisecond}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: transport}
	resp, err := client.Post(flaky.URL+"/charges", "application/json",
		strings.NewReader(`{"amount": 100}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	fmt.Println(string(body), err, len(charges))
	// Output: charged <nil> 1
}

// All callers of a service share one budget: of 100 requests in an outage, 10 + 3 are repeated.
func ExampleBudget() {
	budget, err := retry.NewBudget(retry.BudgetConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	calls := 0
	for range 100 {
		policy := retry.Policy{Budget: budget,
			Backoff: retry.Backoff{Base: time.Microsecond, Cap: time.Microsecond}}
		_, _ = retry.Do(context.Background(), policy, func(context.Context, int) (int, error) {
			calls++
			return 0, errors.New("down")
		})
	}
	fmt.Println(calls, "calls")
	// Output: 113 calls
}

// A service in the middle passes on whether a layer above it retries.
func ExampleHandler() {
	h := retry.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println("may retry:", retry.Allowed(r.Context()))
	}), nil)
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	h.ServeHTTP(httptest.NewRecorder(), r)
	r.Header.Set(retry.SignalHeader, "1")
	h.ServeHTTP(httptest.NewRecorder(), r)
	// Output:
	// may retry: true
	// may retry: false
}
