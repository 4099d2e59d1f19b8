package franztrace

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter/franz"
	"github.com/onceward/onceward/telemetry/internal/spantest"
)

var errSecret = errors.New("no account secret")

func traced(t *testing.T, opts ...sdk.TracerProviderOption) (*Tracer, *tracetest.SpanRecorder) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	tracer, err := New(sdk.NewTracerProvider(append(opts, sdk.WithSpanProcessor(spans))...), Config{Name: "payments", Group: "payers"})
	if err != nil {
		t.Fatal(err)
	}
	return tracer, spans
}

func delivered(attempt int, label, found string) *franz.Message {
	return &franz.Message{Record: &kgo.Record{
		Topic: "orders", Partition: 7, Offset: 42, Key: []byte("secret"), Value: []byte("secret"),
		Headers: []kgo.RecordHeader{{Key: "traceparent", Value: []byte(spantest.Producer)}},
	}, ID: "evt-secret", Attempt: attempt, Label: label, Found: found}
}

func config(err error) franz.Config {
	return franz.Config{Handler: func(context.Context, *franz.Message) error { return err }}
}

func TestSpans(t *testing.T) {
	spantest.Messages(t, func(t *testing.T) (*spantest.Client[*franz.Message], *tracetest.SpanRecorder) {
		tracer, spans := traced(t)
		cfg := tracer.Trace(config(nil))
		o := cfg.Observer
		return &spantest.Client[*franz.Message]{
			Deliver: delivered, Handle: func(m *franz.Message) { _ = cfg.Handler(context.Background(), m) },
			Skipped: o.Skipped, Recorded: o.Recorded, Unrecorded: o.Unrecorded, Parked: o.Parked,
		}, spans
	})
}

// The claim of a message is below its producer's span, and is what the record keeps.
func TestLabelIsTheClaim(t *testing.T) {
	tracer, spans := traced(t)
	label := tracer.Trace(config(nil)).Label(delivered(0, "", ""))
	spantest.Want(t, spans, "internal claim orders below 02b7 links [] Unset")
	s := spans.Ended()[0].SpanContext()
	if want := fmt.Sprintf("00-%s-%s-01", s.TraceID(), s.SpanID()); label != want || len(label) > 64 {
		t.Errorf("the label is %q, want %q", label, want)
	}
	off, _ := traced(t, sdk.WithSampler(sdk.NeverSample()))
	if label := off.Trace(config(nil)).Label(delivered(0, "", "")); label != "" {
		t.Errorf("what is not sampled has the label %q", label)
	}
}

func TestFailuresAndPanics(t *testing.T) {
	tracer, spans := traced(t)
	cfg := tracer.Trace(config(errSecret))
	if err := cfg.Handler(context.Background(), delivered(1, spantest.First, "")); !errors.Is(err, errSecret) {
		t.Error(err)
	}
	cfg = tracer.Trace(franz.Config{BatchHandler: func(context.Context, []*franz.Message) []error { panic("at the disco") }})
	func() {
		defer func() { _ = recover() }()
		cfg.BatchHandler(context.Background(), []*franz.Message{delivered(1, spantest.First, ""), delivered(2, spantest.Producer, spantest.First), delivered(1, "", "")})
	}()
	spantest.Want(t, spans, "consumer process orders below 3331 links [] Error", "consumer process orders below none links [3331 3331] Error")
	batch := fmt.Sprint(spans.Ended()[1].Attributes())
	for _, want := range []string{`{"messaging.batch.message_count":3}`, `{"error.type":"panic"}`} {
		if !strings.Contains(batch, want) {
			t.Errorf("the batch has %s, want %s", batch, want)
		}
	}
}

func TestAttributes(t *testing.T) {
	tracer, spans := traced(t)
	cfg := tracer.Trace(config(nil))
	_ = cfg.Handler(context.Background(), delivered(3, spantest.First, ""))
	cfg.Observer.Skipped(delivered(0, "", ""), dedup.Cause("payments/42"), time.Hour)
	spantest.Attributes(t, spans)
}

// Hooks, and a label, that are there already stay.
func TestTraceKeepsWhatThereIs(t *testing.T) {
	tracer, _ := traced(t)
	told := 0
	cfg := tracer.Trace(franz.Config{Label: func(*franz.Message) string { return "mine" }, Observer: franz.Observer{
		Skipped:    func(*franz.Message, dedup.Cause, time.Duration) { told++ },
		Recorded:   func(*franz.Message, time.Duration) { told++ },
		Unrecorded: func(*franz.Message, error) { told++ },
		Parked:     func(*franz.Message, error) { told++ },
	}})
	m := delivered(1, "", "")
	cfg.Observer.Skipped(m, "", 0)
	cfg.Observer.Recorded(m, 0)
	cfg.Observer.Unrecorded(m, errSecret)
	cfg.Observer.Parked(m, errSecret)
	if told != 4 || cfg.Label(m) != "mine" || cfg.Handler != nil || cfg.BatchHandler != nil {
		t.Errorf("told %d times, label %q", told, cfg.Label(m))
	}
}

// What one process sends, the next one receives, in place of what it carried before.
func TestInject(t *testing.T) {
	tracer, _ := traced(t)
	ctx := trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled,
	}))
	out := &kgo.Record{Headers: []kgo.RecordHeader{{Key: "traceparent", Value: []byte(spantest.Producer)}}}
	for range 2 {
		if err := tracer.Inject(ctx, out); err != nil {
			t.Fatal(err)
		}
	}
	if len(out.Headers) != 1 {
		t.Errorf("%d headers: %v", len(out.Headers), out.Headers)
	}
	in := delivered(1, "", "")
	in.Headers = out.Headers
	var got trace.SpanContext
	cfg := tracer.Trace(franz.Config{Handler: func(ctx context.Context, _ *franz.Message) error {
		got = trace.SpanContextFromContext(ctx)
		return nil
	}})
	_ = cfg.Handler(ctx, in)
	if got.TraceID() != (trace.TraceID{1}) {
		t.Errorf("the handler runs in the trace %v", got.TraceID())
	}
	if err := tracer.Inject(ctx, nil); err == nil {
		t.Error("nothing to inject into is no error")
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := New(nil, Config{Name: "x"}); err == nil {
		t.Error("no provider is no error")
	}
	if _, err := New(noop.NewTracerProvider(), Config{}); err == nil {
		t.Error("no name is no error")
	}
}

func TestTraceShare(t *testing.T) {
	tracer, spans := traced(t)
	cfg := tracer.TraceShare(franz.ShareConfig{Handler: func(context.Context, *franz.Message) error { return nil }})
	if cfg.Label == nil {
		t.Error("no label")
	}
	_ = cfg.Handler(context.Background(), delivered(1, spantest.First, ""))
	cfg.Observer.Recorded(delivered(1, spantest.First, ""), time.Second)
	spantest.Want(t, spans, "consumer process orders below 3331 links [] Unset", "client settle orders below 3331 links [] Unset")
}
