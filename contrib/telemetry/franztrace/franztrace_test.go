package franztrace

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/onceward/onceward/contrib/telemetry/internal/spantest"
	"github.com/onceward/onceward/kafkaadapter/franz"
)

func delivered(attempt int, label, found string) *franz.Message {
	return &franz.Message{Record: &kgo.Record{
		Topic: "orders", Partition: 7, Offset: 42, Key: []byte("secret"), Value: []byte("secret"),
		Headers: []kgo.RecordHeader{{Key: "traceparent", Value: []byte(spantest.Producer)}},
	}, ID: "evt-secret", Attempt: attempt, Label: label, Found: found}
}

func tracer(t testing.TB, provider trace.TracerProvider) *Tracer {
	t.Helper()
	tracer, err := New(provider, Config{Name: "payments", Group: "payers"})
	if err != nil {
		t.Fatal(err)
	}
	return tracer
}

func observer(c spantest.Config[*franz.Message]) franz.Observer {
	return franz.Observer{Skipped: c.Skipped, Recorded: c.Recorded, Unrecorded: c.Unrecorded,
		Parked: c.Parked}
}

func traced(
	label func(*franz.Message) string, handler franz.Handler, batch franz.BatchHandler,
	o franz.Observer,
) spantest.Config[*franz.Message] {
	return spantest.Config[*franz.Message]{
		Label: label, Handler: handler, BatchHandler: batch, Skipped: o.Skipped,
		Recorded: o.Recorded, Unrecorded: o.Unrecorded, Parked: o.Parked,
	}
}

func client() *spantest.Client[*franz.Message] {
	return &spantest.Client[*franz.Message]{
		Deliver: delivered,
		Trace: func(t *testing.T, provider trace.TracerProvider,
			c spantest.Config[*franz.Message]) spantest.Config[*franz.Message] {
			cfg := tracer(t, provider).Trace(franz.Config{Label: c.Label, Handler: c.Handler,
				BatchHandler: c.BatchHandler, Observer: observer(c)})
			return traced(cfg.Label, cfg.Handler, cfg.BatchHandler, cfg.Observer)
		},
		New: func(provider trace.TracerProvider, name string) error {
			_, err := New(provider, Config{Name: name})
			return err
		},
		Send: send,
		SendNothing: func(ctx context.Context, t testing.TB) error {
			return tracer(t, noop.NewTracerProvider()).Inject(ctx, nil)
		},
	}
}

func send(ctx context.Context, t testing.TB) (*franz.Message, int) {
	t.Helper()
	out := &kgo.Record{Headers: []kgo.RecordHeader{{Key: "other"},
		{Key: "traceparent", Value: []byte(spantest.Producer)}}}
	for range 2 {
		if err := tracer(t, noop.NewTracerProvider()).Inject(ctx, out); err != nil {
			t.Fatal(err)
		}
	}
	in := delivered(1, "", "")
	in.Headers = out.Headers
	return in, len(in.Headers)
}

func TestTrace(t *testing.T) { client().Run(t) }

func TestTraceShare(t *testing.T) {
	c := client()
	c.NoBatches = true
	c.Trace = func(t *testing.T, provider trace.TracerProvider,
		c spantest.Config[*franz.Message]) spantest.Config[*franz.Message] {
		cfg := tracer(t, provider).TraceShare(franz.ShareConfig{Label: c.Label, Handler: c.Handler,
			Observer: observer(c)})
		return traced(cfg.Label, cfg.Handler, nil, cfg.Observer)
	}
	c.Run(t)
}
