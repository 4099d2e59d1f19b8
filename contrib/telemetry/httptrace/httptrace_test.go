package httptrace_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/onceward/onceward/contrib/telemetry"
	"github.com/onceward/onceward/contrib/telemetry/httptrace"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
)

// A request that is sent twice, by a client that has its context travel along: the handler runs in
// the client's trace, and what is answered the second time is linked to the first.
func TestRequests(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))
	tracer, err := telemetry.NewTracer(provider, "payments")
	if err != nil {
		t.Fatal(err)
	}
	d, err := dedup.New(dedup.Memory(100),
		dedup.Config{Namespace: "payments", Window: time.Hour, LeaseTTL: time.Minute,
			Labels: true})
	if err != nil {
		t.Fatal(err)
	}
	run, err := httptrace.Claimed(tracer, d)
	if err != nil || run.Window() != time.Hour {
		t.Fatal(err)
	}
	m, err := httpadapter.New(run, func(*http.Request) (string, error) {
		return "alice", nil
	}, httpadapter.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var under trace.SpanContext
	server := httptest.NewServer(httptrace.Handler(nil,
		m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			under = trace.SpanContextFromContext(r.Context())
			w.WriteHeader(http.StatusCreated)
		}))))
	defer server.Close()

	ctx, client := provider.Tracer("client").Start(t.Context(), "pay")
	for range 2 {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/pay",
			strings.NewReader("10"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(httpadapter.KeyHeader, `"4711"`)
		answer, err := (&http.Client{Transport: httptrace.Transport(nil, nil)}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := answer.Body.Close(); err != nil || answer.StatusCode != http.StatusCreated {
			t.Errorf("%s, %v", answer.Status, err)
		}
		if len(r.Header) != 1 {
			t.Errorf("the caller's request was changed: %v", r.Header)
		}
	}
	client.End()
	var whole []sdk.ReadOnlySpan
	for _, s := range spans.Ended() {
		if s.Name() == "onceward.do" {
			whole = append(whole, s)
		}
	}
	if len(whole) != 2 || under.TraceID() != client.SpanContext().TraceID() {
		t.Fatalf("%d calls; the handler ran under %v", len(whole), under)
	}
	if whole[0].Parent().SpanID() != client.SpanContext().SpanID() {
		t.Errorf("it is below %v", whole[0].Parent())
	}
	if links := whole[1].Links(); len(links) != 1 ||
		links[0].SpanContext.SpanID() != whole[0].SpanContext().SpanID() {
		t.Errorf("the repetition has the links %v", links)
	}
}

// Claimed refuses the arguments that httpadapter refuses; without a tracer it is httpadapter's
// Runner.
func TestClaimedRefuses(t *testing.T) {
	if _, err := httptrace.Claimed(nil, nil); err == nil {
		t.Error("no Deduper is no error")
	}
	tracer, err := telemetry.NewTracer(sdk.NewTracerProvider(), "payments")
	if err != nil {
		t.Fatal(err)
	}
	d, err := dedup.New(dedup.Memory(100),
		dedup.Config{Namespace: "payments", Window: time.Hour, LeaseTTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	run, err := httptrace.Claimed(tracer, d)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run.Run(context.Background(), "k", nil); err == nil {
		t.Error("no effect is no error")
	}
	if plain, err := httptrace.Claimed(nil, d); err != nil ||
		plain.ResultLimit() != run.ResultLimit() {
		t.Error("without a tracer there is no Runner", err)
	}
}
