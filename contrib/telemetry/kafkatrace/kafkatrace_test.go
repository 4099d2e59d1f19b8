package kafkatrace

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/onceward/onceward/contrib/telemetry/internal/spantest"
	"github.com/onceward/onceward/kafkaadapter"
)

func delivered(attempt int, label, found string) *kafkaadapter.Message {
	m := &kafkaadapter.Message{Topic: "orders", Partition: 7, Offset: 42, Key: []byte("secret"),
		Value: []byte("secret"), ID: "evt-secret", Attempt: attempt, Label: label, Found: found}
	m.SetHeaders(kafkaadapter.Headers{{Key: "traceparent", Value: []byte(spantest.Producer)}})
	return m
}

func tracer(t testing.TB, provider trace.TracerProvider) *Tracer {
	t.Helper()
	tracer, err := New(provider, Config{Name: "payments", Group: "payers"})
	require.NoError(t, err)
	return tracer
}

func observer(c spantest.Config[*kafkaadapter.Message]) kafkaadapter.Observer {
	return kafkaadapter.Observer{Skipped: c.Skipped, Recorded: c.Recorded, Unrecorded: c.Unrecorded,
		Parked: c.Parked, Delayed: c.Delayed}
}

func traced(
	label func(*kafkaadapter.Message) string, handler kafkaadapter.Handler,
	batch kafkaadapter.BatchHandler, o kafkaadapter.Observer,
) spantest.Config[*kafkaadapter.Message] {
	return spantest.Config[*kafkaadapter.Message]{
		Label: label, Handler: handler, BatchHandler: batch, Skipped: o.Skipped,
		Recorded: o.Recorded, Unrecorded: o.Unrecorded, Parked: o.Parked,
		Delayed: o.Delayed,
	}
}

func client() *spantest.Client[*kafkaadapter.Message] {
	return &spantest.Client[*kafkaadapter.Message]{
		Deliver: delivered,
		Trace: func(t *testing.T, provider trace.TracerProvider,
			c spantest.Config[*kafkaadapter.Message]) spantest.Config[*kafkaadapter.Message] {
			cfg := tracer(t, provider).Trace(kafkaadapter.Config{Label: c.Label, Handler: c.Handler,
				BatchHandler: c.BatchHandler, Observer: observer(c)})
			return traced(cfg.Label, cfg.Handler, cfg.BatchHandler, cfg.Observer)
		},
		New: func(provider trace.TracerProvider, name string) error {
			_, err := New(provider, Config{Name: name})
			return err
		},
		Send: send,
	}
}

func send(ctx context.Context, t testing.TB) (*kafkaadapter.Message, int) {
	t.Helper()
	in := delivered(1, "", "")
	all := append(kafkaadapter.Headers{{Key: "other"}},
		tracer(t, noop.NewTracerProvider()).Headers(ctx)...)
	in.SetHeaders(all)
	return in, len(all)
}

func TestTrace(t *testing.T) { client().Run(t) }
