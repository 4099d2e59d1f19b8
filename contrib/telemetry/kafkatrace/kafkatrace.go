// Package kafkatrace traces the messages of a Kafka consumer with OpenTelemetry, for every client:
// the claim, the handler, the completion, duplicates and parked messages. A retry and a duplicate
// have a link to the attempt that claimed first.
//
//	tracer, err := kafkatrace.New(provider, kafkatrace.Config{Name: "payments", Group: "billing"})
//	...
//	err = kafkasarama.Consume(ctx, brokers, "billing", topics, nil, tracer.Trace(cfg))
package kafkatrace

import (
	"context"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/onceward/onceward/contrib/telemetry/internal/span"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter"
)

// Config configures a [Tracer].
type Config struct {
	// Name means what telemetry.Config.Name means; use the same name for the same consumer. No
	// default.
	Name string
	// Group is the name of the consumer group, for the attribute messaging.consumer.group.name.
	// Default: none.
	Group string
	// Propagator reads and writes the headers that carry the context of a trace. Default:
	// propagation.TraceContext, for W3C's Trace Context.
	Propagator propagation.TextMapPropagator
}

// Tracer traces a consumer. Make it with [New]. It is safe for concurrent use.
type Tracer struct{ spans *span.Messages }

// New makes a tracer with the provider. A nil provider and a bad name are errors.
func New(provider trace.TracerProvider, cfg Config) (*Tracer, error) {
	spans, err := span.New("kafkatrace", provider, cfg.Name)
	if err != nil {
		return nil, err
	}
	if cfg.Propagator == nil {
		cfg.Propagator = propagation.TraceContext{}
	}
	return &Tracer{&span.Messages{Tracer: spans, Group: cfg.Group, Propagator: cfg.Propagator}}, nil
}

// Trace returns the configuration with spans around its hooks and handlers. A message that runs has
// these spans:
//
//   - claim TOPIC, when its claim is requested, below the context that the message's producer has
//     sent. It has no duration, because messages are claimed in batches;
//   - process TOPIC, around the handler, whose context has this span. It has a link to the
//     producer's context. In a first attempt it is below the claim. In a retry or a takeover it is
//     below the producer's context, and has one more link, to the claim of the first attempt. A
//     BatchHandler has one such span, which is below none of its messages and has these links for
//     each of them;
//   - record TOPIC, from the handler's return until the effect is on record, below the claim of
//     the first attempt.
//
// A duplicate has the span skip TOPIC, below its own claim and with a link to the first claim. In
// the same way a parked message has park TOPIC, and a message that waits for its next attempt in a
// topic of Attempts.Delayed has delay TOPIC. The context of the first claim is kept in the record's
// label, which takes 55 bytes. So the links between processes, and the links of duplicates, need
// dedup.Config.Labels. redisadapter's layout Compact keeps no label of a finished key, and a claim
// that is not sampled writes none. If cfg.Label is set, Trace keeps it, and there are no links.
//
// No attribute contains an id, a key or the text of an error.
func (t *Tracer) Trace(cfg kafkaadapter.Config) kafkaadapter.Config {
	if cfg.Label == nil {
		cfg.Label = func(m *kafkaadapter.Message) string { return t.spans.Claim(message(m)) }
	}
	if next := cfg.Handler; next != nil {
		cfg.Handler = func(ctx context.Context, m *kafkaadapter.Message) error {
			return t.spans.Handle(ctx, message(m), func(ctx context.Context) error {
				return next(ctx, m)
			})
		}
	}
	if next := cfg.BatchHandler; next != nil {
		cfg.BatchHandler = func(ctx context.Context, ms []*kafkaadapter.Message) []error {
			return t.spans.HandleBatch(ctx, span.Each(ms, message),
				func(ctx context.Context) []error { return next(ctx, ms) })
		}
	}
	cfg.Observer = t.observe(cfg.Observer)
	return cfg
}

// observe adds the hooks that make spans to the hooks of o.
func (t *Tracer) observe(o kafkaadapter.Observer) kafkaadapter.Observer {
	skipped, recorded, unrecorded := o.Skipped, o.Recorded, o.Unrecorded
	parked, delayed := o.Parked, o.Delayed
	o.Skipped = func(m *kafkaadapter.Message, cause driver.Cause, age time.Duration) {
		t.spans.Skipped(message(m), cause, age)
		if skipped != nil {
			skipped(m, cause, age)
		}
	}
	o.Recorded = func(m *kafkaadapter.Message, took time.Duration) {
		t.spans.Recorded(message(m), took)
		if recorded != nil {
			recorded(m, took)
		}
	}
	o.Unrecorded = func(m *kafkaadapter.Message, err error) {
		t.spans.Unrecorded(message(m), err)
		if unrecorded != nil {
			unrecorded(m, err)
		}
	}
	o.Parked = func(m *kafkaadapter.Message, reason error) {
		t.spans.Parked(message(m), reason)
		if parked != nil {
			parked(m, reason)
		}
	}
	o.Delayed = func(m *kafkaadapter.Message, topic string, err error) {
		t.spans.Delayed(message(m), err)
		if delayed != nil {
			delayed(m, topic, err)
		}
	}
	return o
}

// Headers returns the headers that carry the context of the trace under ctx. Append them to the
// headers of a message before you send it, with any client.
func (t *Tracer) Headers(ctx context.Context) kafkaadapter.Headers {
	carrier := propagation.MapCarrier{}
	t.spans.Propagator.Inject(ctx, carrier)
	var all kafkaadapter.Headers
	for _, key := range slices.Sorted(maps.Keys(carrier)) {
		all = append(all, kafkaadapter.Header{Key: key, Value: []byte(carrier[key])})
	}
	return all
}

func message(m *kafkaadapter.Message) span.Message {
	return span.Message{
		Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, Attempt: m.Attempt,
		Label: m.Label, Found: m.Found, Tombstone: m.Value == nil, Headers: incoming{m},
	}
}

// incoming gives access to the headers of a received message.
type incoming struct{ m *kafkaadapter.Message }

func (h incoming) Get(key string) string { return h.m.Header(key) }

func (h incoming) Set(string, string) {}

func (h incoming) Keys() []string {
	var keys []string
	for _, header := range h.m.Headers() {
		keys = append(keys, header.Key)
	}
	return keys
}
