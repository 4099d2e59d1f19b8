// Package httptrace traces the requests of packages httpadapter and grpcadapter with OpenTelemetry.
// It is separate from package telemetry so that a program without HTTP does not link an HTTP
// server.
//
//	tracer, err := telemetry.NewTracer(provider, "payments")
//	...
//	run, err := httptrace.Claimed(tracer, d) // instead of httpadapter.Claimed
//	...
//	once, err := httpadapter.New(run, account, httpadapter.Config{})
package httptrace

import (
	"context"
	"net/http"
	"slices"

	"go.opentelemetry.io/otel/propagation"

	"github.com/onceward/onceward/contrib/telemetry"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
)

// Claimed returns what [httpadapter.Claimed] returns, with the spans and links of [telemetry.Do].
// The span of the request, if there is one, is their parent. With a nil tracer, Claimed is the same
// as [httpadapter.Claimed]. Its errors are always those of [httpadapter.Claimed].
func Claimed(t *telemetry.Tracer, d *dedup.Deduper) (httpadapter.Runner, error) {
	plain, err := httpadapter.Claimed(d)
	if err != nil || t == nil {
		return plain, err
	}
	return &runner{Runner: plain, t: t, d: d}, nil
}

type runner struct {
	httpadapter.Runner
	t *telemetry.Tracer
	d *dedup.Deduper
}

// Run implements [httpadapter.Runner].
func (r *runner) Run(ctx context.Context, key string, effect httpadapter.Effect,
	opts ...dedup.Option) (dedup.Result[[]byte], error) {
	if effect == nil {
		return r.Runner.Run(ctx, key, nil, opts...)
	}
	// The adapter's label is for people. The label of the span replaces it, because otherwise a
	// retry would have no link to the first attempt.
	opts = append(slices.Clip(opts), func(r *dedup.Request) { r.Label = "" })
	return telemetry.DoResult(ctx, r.t, r.d, key, func(ctx context.Context) ([]byte, error) {
		result, _, err := effect(ctx)
		return result, err
	}, opts...)
}

// Handler reads the trace context from the headers of a request, and puts it into the request's
// context. You do not need it with otelhttp, which also does this and makes a span for the request.
// A nil propagator is that of W3C's Trace Context.
func Handler(p propagation.TextMapPropagator, next http.Handler) http.Handler {
	p = orDefault(p)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(p.Extract(r.Context(),
			propagation.HeaderCarrier(r.Header))))
	})
}

// Transport writes the trace context of a request's context into its headers, so that all retries
// of one call carry the same. A nil propagator is that of W3C's Trace Context, a nil next is
// http.DefaultTransport.
func Transport(p propagation.TextMapPropagator, next http.RoundTripper) http.RoundTripper {
	if next == nil {
		next = http.DefaultTransport
	}
	return &transport{p: orDefault(p), next: next}
}

type transport struct {
	p    propagation.TextMapPropagator
	next http.RoundTripper
}

// RoundTrip implements [http.RoundTripper]. It does not change the request: it sends a copy.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	t.p.Inject(r.Context(), propagation.HeaderCarrier(r.Header))
	return t.next.RoundTrip(r)
}

func orDefault(p propagation.TextMapPropagator) propagation.TextMapPropagator {
	if p == nil {
		return propagation.TraceContext{}
	}
	return p
}
