package kafkametric_test

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel"

	"github.com/onceward/onceward/contrib/telemetry/kafkametric"
	"github.com/onceward/onceward/kafkaadapter"
)

// A consumer with metrics. newConsumer stands for the New of kafkasarama, or of any other driver.
func Example() {
	metrics, err := kafkametric.New(otel.GetMeterProvider(), "payments")
	if err != nil {
		panic(err)
	}
	consumer := newConsumer(kafkaadapter.Config{
		Observer: metrics.Observer(), // and Deduper, Handler
	})
	if err := metrics.Observe(consumer.Progress); err != nil {
		panic(err)
	}
	if err := errors.Join(consumer.Run(context.Background()), metrics.Close()); err != nil {
		panic(err)
	}
}

func newConsumer(kafkaadapter.Config) consumer { return consumer{} }

type consumer struct{}

func (consumer) Run(context.Context) error         { return nil }
func (consumer) Progress() []kafkaadapter.Progress { return nil }
