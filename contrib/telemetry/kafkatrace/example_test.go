package kafkatrace_test

import (
	"context"

	"go.opentelemetry.io/otel"

	"github.com/onceward/onceward/contrib/telemetry/kafkatrace"
	"github.com/onceward/onceward/kafkaadapter"
)

// The configuration of a consumer with spans. Give it to kafkasarama.Consume, or to any other
// driver. Its Deduper, which is left out here, keeps the links between attempts if it has Labels.
func ExampleTracer_Trace() {
	tracer, err := kafkatrace.New(otel.GetTracerProvider(),
		kafkatrace.Config{Name: "payments", Group: "billing"})
	if err != nil {
		panic(err)
	}
	cfg := tracer.Trace(kafkaadapter.Config{
		Handler: func(ctx context.Context, m *kafkaadapter.Message) error {
			return charge(ctx, m.Value) // ctx has the span "process TOPIC"
		},
	})
	_ = cfg
}

func charge(context.Context, []byte) error { return nil }
