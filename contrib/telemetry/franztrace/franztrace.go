// Package franztrace traces the messages of package franz with OpenTelemetry: the claim, the
// handler, the completion, duplicates, and what is put aside, with links from a retry and a
// duplicate to the attempt that claimed first. It is apart from package telemetry so that a program
// without Kafka links no client of it.
package franztrace

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/onceward/onceward/contrib/telemetry/internal/span"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/kafkaadapter/franz"
)

// Config says what is traced.
type Config struct {
	// Name is what telemetry.Config.Name is, and the same for the same consumer. No default.
	Name string
	// Group is the name of the consumer group, for the attribute messaging.consumer.group.name.
	// Default: none.
	Group string
	// Propagator reads and writes the headers that carry the context of a trace. Default: that of
	// W3C's Trace Context, propagation.TraceContext.
	Propagator propagation.TextMapPropagator
}

// Tracer traces a consumer. Make it with [New]. It is safe for concurrent use.
type Tracer struct{ spans *span.Messages }

// New makes a tracer of the provider. A nil provider and a bad name are errors.
func New(provider trace.TracerProvider, cfg Config) (*Tracer, error) {
	spans, err := span.New("franztrace", provider, cfg.Name)
	if err != nil {
		return nil, err
	}
	if cfg.Propagator == nil {
		cfg.Propagator = propagation.TraceContext{}
	}
	return &Tracer{&span.Messages{Tracer: spans, Group: cfg.Group, Propagator: cfg.Propagator}}, nil
}

// Trace returns the configuration with spans around what it has. Of a message that runs:
//
//   - claim TOPIC, when its claim is asked for, below the context that its producer has sent
//     along. It has no duration: messages are claimed in batches;
//   - process TOPIC, around the handler, whose context has this span. It has a link to the
//     producer's context. That of a first attempt is below its claim; that of a retry, and of a
//     takeover, is below the producer's context, and has one more link, to the claim of the first.
//     A BatchHandler has one, below none of them, with these links for each message;
//   - record TOPIC, from the handler's return until the effect is on record, below the claim of
//     the first attempt.
//
// A duplicate has skip TOPIC, below a claim of its own and with a link to that of the first; a
// message that is put aside has park TOPIC, likewise. The first one's claim is found in its
// record's label, 55 bytes, so the links between processes, and those of duplicates, need
// dedup.Config.Labels. Of what is done, redisadapter's layout Compact keeps no label. A
// claim that is not sampled has none. Where cfg.Label is set it stays, and there are no links.
//
// Ids, keys and texts of errors are in no attribute.
func (t *Tracer) Trace(cfg franz.Config) franz.Config {
	cfg.Label, cfg.Handler, cfg.Observer = t.label(cfg.Label), t.handler(cfg.Handler),
		t.observe(cfg.Observer)
	if next := cfg.BatchHandler; next != nil {
		cfg.BatchHandler = func(ctx context.Context, ms []*franz.Message) []error {
			return t.spans.HandleBatch(ctx, span.Each(ms, message),
				func(ctx context.Context) []error { return next(ctx, ms) })
		}
	}
	return cfg
}

// TraceShare is [Tracer.Trace] for a share group.
func (t *Tracer) TraceShare(cfg franz.ShareConfig) franz.ShareConfig {
	cfg.Label, cfg.Handler, cfg.Observer = t.label(cfg.Label), t.handler(cfg.Handler),
		t.observe(cfg.Observer)
	return cfg
}

func (t *Tracer) label(own func(*franz.Message) string) func(*franz.Message) string {
	if own != nil {
		return own
	}
	return func(m *franz.Message) string { return t.spans.Claim(message(m)) }
}

func (t *Tracer) handler(next franz.Handler) franz.Handler {
	if next == nil {
		return nil
	}
	return func(ctx context.Context, m *franz.Message) error {
		return t.spans.Handle(ctx, message(m), func(ctx context.Context) error {
			return next(ctx, m)
		})
	}
}

// observe adds the hooks of spans to those that there are.
func (t *Tracer) observe(o franz.Observer) franz.Observer {
	skipped, recorded, unrecorded, parked := o.Skipped, o.Recorded, o.Unrecorded, o.Parked
	o.Skipped = func(m *franz.Message, cause driver.Cause, age time.Duration) {
		t.spans.Skipped(message(m), cause, age)
		if skipped != nil {
			skipped(m, cause, age)
		}
	}
	o.Recorded = func(m *franz.Message, took time.Duration) {
		t.spans.Recorded(message(m), took)
		if recorded != nil {
			recorded(m, took)
		}
	}
	o.Unrecorded = func(m *franz.Message, err error) {
		t.spans.Unrecorded(message(m), err)
		if unrecorded != nil {
			unrecorded(m, err)
		}
	}
	o.Parked = func(m *franz.Message, reason error) {
		t.spans.Parked(message(m), reason)
		if parked != nil {
			parked(m, reason)
		}
	}
	return o
}

// Inject has a record carry the context of the trace under ctx, in its headers, in place of one
// that it carries already. Do it before the record is produced. A nil record is an error.
func (t *Tracer) Inject(ctx context.Context, r *kgo.Record) error {
	if r == nil {
		return errors.New("franztrace: the record is nil")
	}
	t.spans.Propagator.Inject(ctx, (*headers)(r))
	return nil
}

func message(m *franz.Message) span.Message {
	return span.Message{
		Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, Attempt: m.Attempt,
		Label: m.Label, Found: m.Found, Tombstone: m.Value == nil, Headers: (*headers)(m.Record),
	}
}

// headers are those of a record, to be read and to be written.
type headers kgo.Record

func (h *headers) Get(key string) string {
	for i := range h.Headers {
		if h.Headers[i].Key == key {
			return string(h.Headers[i].Value)
		}
	}
	return ""
}

func (h *headers) Set(key, value string) {
	for i := range h.Headers {
		if h.Headers[i].Key == key {
			h.Headers[i].Value = []byte(value)
			return
		}
	}
	h.Headers = append(h.Headers, kgo.RecordHeader{Key: key, Value: []byte(value)})
}

func (h *headers) Keys() []string {
	keys := make([]string, len(h.Headers))
	for i := range h.Headers {
		keys[i] = h.Headers[i].Key
	}
	return keys
}
