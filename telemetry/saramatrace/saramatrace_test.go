package saramatrace

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/kafkaadapter"
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

func delivered(attempt int, label, found string) *kafkaadapter.Message {
	return &kafkaadapter.Message{ConsumerMessage: &sarama.ConsumerMessage{
		Topic: "orders", Partition: 7, Offset: 42, Key: []byte("secret"), Value: []byte("secret"),
		Headers: []*sarama.RecordHeader{nil, {Key: []byte("traceparent"), Value: []byte(spantest.Producer)}},
	}, ID: "evt-secret", Attempt: attempt, Label: label, Found: found}
}

func config(err error) kafkaadapter.Config {
	return kafkaadapter.Config{Handler: func(context.Context, *kafkaadapter.Message) error { return err }}
}

func TestSpans(t *testing.T) {
	spantest.Messages(t, func(t *testing.T) (*spantest.Client[*kafkaadapter.Message], *tracetest.SpanRecorder) {
		tracer, spans := traced(t)
		cfg := tracer.Trace(config(nil))
		o := cfg.Observer
		return &spantest.Client[*kafkaadapter.Message]{
			Deliver: delivered, Handle: func(m *kafkaadapter.Message) { _ = cfg.Handler(context.Background(), m) },
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
	cfg = tracer.Trace(kafkaadapter.Config{BatchHandler: func(context.Context, []*kafkaadapter.Message) []error { panic("at the disco") }})
	func() {
		defer func() { _ = recover() }()
		cfg.BatchHandler(context.Background(), []*kafkaadapter.Message{delivered(1, spantest.First, ""), delivered(2, spantest.Producer, spantest.First), delivered(1, "", "")})
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
	cfg := tracer.Trace(kafkaadapter.Config{Label: func(*kafkaadapter.Message) string { return "mine" }, Observer: kafkaadapter.Observer{
		Skipped:    func(*kafkaadapter.Message, dedup.Cause, time.Duration) { told++ },
		Recorded:   func(*kafkaadapter.Message, time.Duration) { told++ },
		Unrecorded: func(*kafkaadapter.Message, error) { told++ },
		Parked:     func(*kafkaadapter.Message, error) { told++ },
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
	out := &sarama.ProducerMessage{Headers: []sarama.RecordHeader{{Key: []byte("traceparent"), Value: []byte(spantest.Producer)}}}
	for range 2 {
		if err := tracer.Inject(ctx, out); err != nil {
			t.Fatal(err)
		}
	}
	if len(out.Headers) != 1 {
		t.Errorf("%d headers: %v", len(out.Headers), out.Headers)
	}
	in := delivered(1, "", "")
	in.Headers = []*sarama.RecordHeader{&out.Headers[0]}
	var got trace.SpanContext
	cfg := tracer.Trace(kafkaadapter.Config{Handler: func(ctx context.Context, _ *kafkaadapter.Message) error {
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
