package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
)

// flaky is a server that honors Idempotency-Key, behind a network that loses answers.
type flaky struct {
	url   string
	close func()

	requests atomic.Int64
	mu       sync.Mutex
	payments map[string]int
}

func startFlaky(ctx context.Context) (*flaky, error) {
	// in memory, for one process; the other examples use real stores
	d, err := dedup.New(dedup.Memory(10_000), dedup.Config{
		Namespace: "payments", Window: time.Hour, LeaseTTL: 10 * time.Second,
	})
	if err != nil {
		return nil, err
	}
	claimed, err := httpadapter.Claimed(d)
	if err != nil {
		return nil, err
	}
	// the server has one client
	once, err := httpadapter.New(claimed, httpadapter.Unscoped, httpadapter.Config{})
	if err != nil {
		return nil, err
	}
	f := &flaky{payments: map[string]int{}}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{
		Handler:           f.losing(once.Handler(http.HandlerFunc(f.pay))),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		// WriteTimeout must be longer than a handler may take.
		WriteTimeout: 90 * time.Second, IdleTimeout: 2 * time.Minute,
	}
	go func() { _ = server.Serve(l) }()
	f.url = "http://" + l.Addr().String()
	f.close = func() { _ = server.Close(); _ = d.Close(context.WithoutCancel(ctx)) }
	return f, nil
}

// pay is the effect. It takes some time, so that a retry arrives while it runs.
func (f *flaky) pay(w http.ResponseWriter, r *http.Request) {
	invoice, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	select {
	case <-time.After(100 * time.Millisecond):
	case <-r.Context().Done():
		return
	}
	f.mu.Lock()
	f.payments[string(invoice)]++
	f.mu.Unlock()
	w.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprintf(w, "paid %s", invoice)
}

func (f *flaky) landed(invoice string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.payments[invoice]
}

// losing drops one answer in three, alternately after the payment and while the payment still runs.
// It also refuses one request in ten with 503, which is the honest way to fail.
func (f *flaky) losing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch n := f.requests.Add(1); {
		case n%10 == 0:
			http.Error(w, "overloaded", http.StatusServiceUnavailable)
		case n%6 == 1: // paid, but the client gets no answer
			next.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler) // closes the connection
		case n%6 == 4: // the connection breaks while the payment runs
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			again := r.Clone(context.WithoutCancel(r.Context()))
			again.Body = io.NopCloser(bytes.NewReader(body))
			go next.ServeHTTP(httptest.NewRecorder(), again)
			panic(http.ErrAbortHandler)
		default:
			next.ServeHTTP(w, r)
		}
	})
}
