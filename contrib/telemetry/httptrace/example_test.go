package httptrace_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/onceward/onceward/contrib/telemetry"
	"github.com/onceward/onceward/contrib/telemetry/httptrace"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
)

// A payment with its spans. A program would have an exporter instead of the recorder.
func ExampleClaimed() {
	spans := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))
	tracer, err := telemetry.NewTracer(provider, "payments")
	if err != nil {
		panic(err)
	}
	d, err := dedup.New(dedup.Memory(1000), dedup.Config{
		Namespace: "payments", Window: 24 * time.Hour, LeaseTTL: time.Minute, Labels: true,
	})
	if err != nil {
		panic(err)
	}
	run, err := httptrace.Claimed(tracer, d)
	if err != nil {
		panic(err)
	}
	account := func(*http.Request) (string, error) { return "alice", nil }
	once, err := httpadapter.New(run, account, httpadapter.Config{})
	if err != nil {
		panic(err)
	}
	pay := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
	})
	server := httptrace.Handler(nil, once.Handler(pay)) // nil: W3C's Trace Context
	for range 2 {
		r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/pay",
			strings.NewReader("10 EUR"))
		r.Header.Set(httpadapter.KeyHeader, `"order-4711"`)
		answer := httptest.NewRecorder()
		server.ServeHTTP(answer, r)
		fmt.Println(answer.Code)
	}
	for _, s := range spans.Ended() {
		fmt.Printf("%s, %d links\n", s.Name(), len(s.Links()))
	}
	// Output:
	// 201
	// 201
	// onceward.claim, 0 links
	// onceward.handle, 0 links
	// onceward.complete, 0 links
	// onceward.do, 0 links
	// onceward.claim, 0 links
	// onceward.do, 1 links
}
