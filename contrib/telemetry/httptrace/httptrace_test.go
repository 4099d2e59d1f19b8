package httptrace_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/onceward/onceward/contrib/telemetry"
	"github.com/onceward/onceward/contrib/telemetry/httptrace"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
)

// A client that sends its trace context sends a request twice. The handler runs in the client's
// trace, and the second answer is linked to the first.
func TestRequests(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))
	tracer, err := telemetry.NewTracer(provider, "payments")
	require.NoError(t, err)
	d, err := dedup.New(dedup.Memory(100),
		dedup.Config{Namespace: "payments", Window: time.Hour, LeaseTTL: time.Minute,
			Labels: true})
	require.NoError(t, err)
	run, err := httptrace.Claimed(tracer, d)
	require.NoError(t, err)
	require.Equal(t, time.Hour, run.Window())
	m, err := httpadapter.New(run, func(*http.Request) (string, error) {
		return "alice", nil
	}, httpadapter.Config{})
	require.NoError(t, err)
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
		require.NoError(t, err)
		r.Header.Set(httpadapter.KeyHeader, `"4711"`)
		answer, err := (&http.Client{Transport: httptrace.Transport(nil, nil)}).Do(r)
		require.NoError(t, err)
		assert.NoError(t, answer.Body.Close(), answer.Status)
		assert.Equal(t, http.StatusCreated, answer.StatusCode, answer.Status)
		assert.Len(t, r.Header, 1, "the caller's request was changed")
	}
	client.End()
	var whole []sdk.ReadOnlySpan
	for _, s := range spans.Ended() {
		if s.Name() == "onceward.do" {
			whole = append(whole, s)
		}
	}
	require.Len(t, whole, 2, "calls; the handler ran under %v", under)
	require.Equal(t, client.SpanContext().TraceID(), under.TraceID(),
		"calls; the handler ran under %v", under)
	assert.Equal(t, client.SpanContext().SpanID(), whole[0].Parent().SpanID(), "it is below %v",
		whole[0].Parent())
	links := whole[1].Links()
	if assert.Len(t, links, 1, "the repetition has the links") {
		assert.Equal(t, whole[0].SpanContext().SpanID(), links[0].SpanContext.SpanID(),
			"the repetition has the links")
	}
}

// Claimed refuses the arguments that httpadapter refuses; without a tracer it is httpadapter's
// Runner.
func TestClaimedRefuses(t *testing.T) {
	_, err := httptrace.Claimed(nil, nil)
	assert.Error(t, err, "no Deduper is no error")
	tracer, err := telemetry.NewTracer(sdk.NewTracerProvider(), "payments")
	require.NoError(t, err)
	d, err := dedup.New(dedup.Memory(100),
		dedup.Config{Namespace: "payments", Window: time.Hour, LeaseTTL: time.Minute})
	require.NoError(t, err)
	run, err := httptrace.Claimed(tracer, d)
	require.NoError(t, err)
	_, err = run.Run(context.Background(), "k", nil)
	assert.Error(t, err, "no effect is no error")
	plain, err := httptrace.Claimed(nil, d)
	if assert.NoError(t, err, "without a tracer there is no Runner") {
		assert.Equal(t, run.ResultLimit(), plain.ResultLimit(),
			"without a tracer there is no Runner")
	}
}
