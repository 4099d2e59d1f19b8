package saramatrace

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
)

const producer = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

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
		Headers: []*sarama.RecordHeader{nil, {Key: []byte("traceparent"), Value: []byte(producer)}},
	}, ID: "evt-secret", Attempt: attempt, Label: label, Found: found}
}

// describe is a span with its parent's and its links' last digits.
func describe(s sdk.ReadOnlySpan) string {
	last := func(c trace.SpanContext) string {
		if !c.IsValid() {
			return "none"
		}
		return c.SpanID().String()[12:]
	}
	var links []string
	for _, l := range s.Links() {
		links = append(links, last(l.SpanContext))
	}
	return fmt.Sprintf("%s %s below %s links %v %s", s.SpanKind(), s.Name(), last(s.Parent()), links, s.Status().Code)
}

func wantSpans(t *testing.T, spans *tracetest.SpanRecorder, want ...string) {
	t.Helper()
	var got []string
	for _, s := range spans.Ended() {
		got = append(got, describe(s))
		if text := fmt.Sprint(s.Attributes(), s.Links(), s.Events(), s.Status()); strings.Contains(text, "secret") {
			t.Errorf("%s says %s", s.Name(), text)
		}
	}
	if !slices.Equal(got, want) || len(spans.Started()) != len(want) {
		t.Errorf("%d have started; ended have\n%s\nwant\n%s", len(spans.Started()), strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

const first = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func config(err error) kafkaadapter.Config {
	return kafkaadapter.Config{Handler: func(context.Context, *kafkaadapter.Message) error { return err }}
}

// What a message goes through, and where each of its spans hangs: 02b7 is its producer, 3331 the
// claim of the first attempt.
func TestSpans(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		name string
		do   func(cfg *kafkaadapter.Config)
		want []string
	}{
		{"the first attempt", func(cfg *kafkaadapter.Config) {
			m := delivered(1, first, "")
			_ = cfg.Handler(ctx, m)
			cfg.Observer.Recorded(m, time.Second)
		}, []string{"consumer process orders below 3331 links [] Unset", "client settle orders below 3331 links [] Unset"}},
		{"a retry in the same process", func(cfg *kafkaadapter.Config) {
			m := delivered(2, first, "")
			_ = cfg.Handler(ctx, m)
			cfg.Observer.Recorded(m, time.Second)
		}, []string{"consumer process orders below 02b7 links [3331] Unset", "client settle orders below 3331 links [] Unset"}},
		{"a takeover", func(cfg *kafkaadapter.Config) {
			m := delivered(2, producer, first)
			_ = cfg.Handler(ctx, m)
			cfg.Observer.Recorded(m, time.Second)
		}, []string{"consumer process orders below 02b7 links [3331] Unset", "client settle orders below 3331 links [] Unset"}},
		{"a duplicate", func(cfg *kafkaadapter.Config) {
			cfg.Observer.Skipped(delivered(0, producer, first), dedup.ProducerRetry, time.Hour)
		},
			[]string{"internal skip orders below 02b7 links [3331] Unset"}},
		{"a label of somebody else's", func(cfg *kafkaadapter.Config) {
			cfg.Observer.Skipped(delivered(0, "order 7", "order 7"), dedup.Late, 0)
		},
			[]string{"internal skip orders below 02b7 links [] Unset"}},
		{"a mismatch", func(cfg *kafkaadapter.Config) { cfg.Observer.Parked(delivered(0, producer, first), dedup.ErrMismatch) },
			[]string{"client park orders below 02b7 links [3331] Error"}},
		{"an effect that is not on record", func(cfg *kafkaadapter.Config) { cfg.Observer.Unrecorded(delivered(1, first, ""), dedup.ErrLeaseLost) },
			[]string{"client settle orders below 3331 links [] Error"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tracer, spans := traced(t)
			cfg := tracer.Trace(config(nil))
			c.do(&cfg)
			wantSpans(t, spans, c.want...)
		})
	}
}

// The claim of a message is below its producer's span, and is what the record keeps.
func TestLabelIsTheClaim(t *testing.T) {
	tracer, spans := traced(t)
	label := tracer.Trace(config(nil)).Label(delivered(0, "", ""))
	wantSpans(t, spans, "internal claim orders below 02b7 links [] Unset")
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
	if err := cfg.Handler(context.Background(), delivered(1, first, "")); !errors.Is(err, errSecret) {
		t.Error(err)
	}
	cfg = tracer.Trace(kafkaadapter.Config{BatchHandler: func(context.Context, []*kafkaadapter.Message) []error { panic("at the disco") }})
	func() {
		defer func() { _ = recover() }()
		cfg.BatchHandler(context.Background(), []*kafkaadapter.Message{delivered(1, first, ""), delivered(2, producer, first), delivered(1, "", "")})
	}()
	wantSpans(t, spans, "consumer process orders below 3331 links [] Error", "consumer process orders below none links [3331 3331] Error")
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
	_ = cfg.Handler(context.Background(), delivered(3, first, ""))
	cfg.Observer.Skipped(delivered(0, "", ""), dedup.Cause("payments/42"), time.Hour)
	var got []string
	for _, s := range spans.Ended() {
		for _, a := range s.Attributes() {
			got = append(got, string(a.Key)+"="+a.Value.String())
		}
	}
	want := []string{
		"onceward.name=payments", "messaging.system=kafka", "messaging.operation.name=process", "messaging.destination.name=orders",
		"messaging.destination.partition.id=7", "messaging.kafka.offset=42", "messaging.operation.type=process",
		"messaging.consumer.group.name=payers", "onceward.attempt=3",
		"onceward.name=payments", "messaging.system=kafka", "messaging.operation.name=skip", "messaging.destination.name=orders",
		"messaging.destination.partition.id=7", "messaging.kafka.offset=42", "messaging.consumer.group.name=payers",
		"onceward.outcome=duplicate", "onceward.cause=other", "onceward.duplicate.age=3600",
	}
	if !slices.Equal(got, want) {
		t.Errorf("attributes\n%q\nwant\n%q", got, want)
	}
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
	out := &sarama.ProducerMessage{Headers: []sarama.RecordHeader{{Key: []byte("traceparent"), Value: []byte(producer)}}}
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
