package span

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

func messages(t *testing.T, opts ...sdk.TracerProviderOption) (*Messages, *tracetest.SpanRecorder) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	tracer, err := New("span", sdk.NewTracerProvider(append(opts, sdk.WithSpanProcessor(spans))...),
		"payments")
	require.NoError(t, err)
	return &Messages{Tracer: tracer, Group: "payers", Propagator: propagation.TraceContext{}}, spans
}

func order(headers propagation.MapCarrier) Message {
	return Message{Topic: "orders", Partition: 7, Offset: 42, Attempt: 1, Headers: headers}
}

// early is a sampler that notes what it is told.
type early struct {
	sdk.Sampler
	told map[string]string
}

func (e early) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	var keys []string
	for _, a := range p.Attributes {
		keys = append(keys, string(a.Key))
	}
	slices.Sort(keys)
	e.told[p.Name] = strings.Join(keys, " ")
	return e.Sampler.ShouldSample(p)
}

// The conventions have a list of attributes by which a sampler may decide; one that is set later
// comes too late for that.
func TestSamplersAreTold(t *testing.T) {
	told := map[string]string{}
	m, _ := messages(t, sdk.WithSampler(early{sdk.AlwaysSample(), told}))
	one := order(nil)
	m.Claim(one)
	_ = m.Handle(t.Context(), one, func(context.Context) error { return nil })
	m.Recorded(one, time.Second)
	m.Skipped(one, driver.Late, time.Hour)
	m.Parked(one, dedup.ErrMismatch)
	for name, also := range map[string]string{"claim": "", "process": " messaging.operation.type",
		"record": "", "skip": "", "park": ""} {
		const all = "messaging.consumer.group.name messaging.destination.name messaging.destination.partition.id messaging.kafka.offset messaging.operation.name"
		got, want := told[name+" orders"], all+also+" messaging.system onceward.attempt"
		assert.Equal(t, want, got, "of %s a sampler is told %q", name, got)
	}
}

// A handler may run inside a span of the consumer's own. Its span is still below its message, so it
// has a link to the consumer's span.
func TestSpanAroundTheConsumer(t *testing.T) {
	m, spans := messages(t)
	outer := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1},
		SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	ctx := trace.ContextWithSpanContext(t.Context(), outer)
	_ = m.Handle(ctx, order(propagation.MapCarrier{"traceparent": example}),
		func(context.Context) error { return nil })
	got := spans.Ended()[0]
	links := got.Links()
	assert.False(t,
		got.Parent().SpanID() != Parse(example).SpanID() || len(links) != 2 ||
			links[1].SpanContext.SpanID() != outer.SpanID(), "below %v, with links %v",
		got.Parent().SpanID(), links)
}

// If the producer of a message has sent no context, a batch can be linked only to its claim.
func TestBatchOfUntraced(t *testing.T) {
	m, spans := messages(t)
	one := order(nil)
	one.Label = example
	m.HandleBatch(t.Context(), []Message{one, one}, func(context.Context) []error { return nil })
	for _, link := range spans.Ended()[0].Links() {
		assert.Equal(t, Parse(example).SpanID(), link.SpanContext.SpanID(), "the batch has a link")
	}
	assert.Equal(t, 2, len(spans.Ended()[0].Links()), "links for two messages")
	_ = m.Handle(t.Context(), one, func(context.Context) error { return nil })
	assert.Empty(t, spans.Ended()[1].Links(), "the handler, which is below that claim, the links")
}

// The span of a tombstone says that the message is one. In a batch, the message's link says so.
func TestTombstones(t *testing.T) {
	m, spans := messages(t)
	gone := order(propagation.MapCarrier{"traceparent": example})
	gone.Tombstone = true
	_ = m.Handle(t.Context(), gone, func(context.Context) error { return nil })
	m.HandleBatch(t.Context(), []Message{order(gone.Headers.(propagation.MapCarrier)), gone},
		func(context.Context) []error { return nil })
	batch := spans.Ended()[1]
	const told = `{"messaging.kafka.message.tombstone":true}`
	for what, is := range map[string]bool{
		fmt.Sprint(spans.Ended()[0].Attributes()):     true,
		fmt.Sprint(batch.Links()[1].Attributes):       true,
		fmt.Sprint("1 ", batch.Links()[0].Attributes): false,
		fmt.Sprint("all ", batch.Attributes()):        false,
	} {
		assert.Equal(t, is, strings.Contains(what, told), what)
	}
}
