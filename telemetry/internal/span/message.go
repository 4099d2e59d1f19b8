package span

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/onceward/onceward/dedup"
)

// Names of OpenTelemetry's semantic conventions 1.43 for messaging and Kafka.
const (
	systemKey        = attribute.Key("messaging.system")
	operationKey     = attribute.Key("messaging.operation.name")
	operationTypeKey = attribute.Key("messaging.operation.type")
	topicKey         = attribute.Key("messaging.destination.name")
	partitionKey     = attribute.Key("messaging.destination.partition.id")
	groupKey         = attribute.Key("messaging.consumer.group.name")
	offsetKey        = attribute.Key("messaging.kafka.offset")
	batchKey         = attribute.Key("messaging.batch.message_count")
)

// Message is a delivered message. Its key and its id are not wanted: no attribute has them.
type Message struct {
	Topic     string
	Partition int32
	Offset    int64
	Attempt   int
	// Label that Claim has answered for it, and Found, the one that its record had.
	Label, Found string
	// Headers of the message, for the context that its producer has put there.
	Headers propagation.TextMapCarrier
}

// Messages traces a consumer of Kafka.
type Messages struct {
	*Tracer
	Group      string // may be empty
	Propagator propagation.TextMapPropagator
}

// Claim is a message's label: that of a span which stands for the first attempt of its id, if it
// turns out to be that. It has no duration, for messages are claimed in batches; the other spans of
// the message hang on it, so its beginning is when the claim was asked for.
func (t *Messages) Claim(m Message) string {
	_, s := t.start(t.producer(context.Background(), &m), &m, "claim", "", trace.SpanKindInternal)
	s.End()
	return Label(s.SpanContext())
}

// Handle runs a handler under a span.
func (t *Messages) Handle(ctx context.Context, m Message, run func(context.Context) error) error {
	var s trace.Span
	if m.Attempt <= 1 && m.Found == "" {
		ctx, s = t.start(t.own(ctx, &m), &m, "process", "process", trace.SpanKindConsumer)
	} else {
		ctx, s = t.start(t.producer(ctx, &m), &m, "process", "process", trace.SpanKindConsumer, Links(first(&m))...)
	}
	returned := false
	defer func() { end(s, returned) }()
	err := run(ctx)
	returned = true
	Fail(s, err)
	return err
}

// HandleBatch runs a batch handler under a span with a link for each message.
func (t *Messages) HandleBatch(ctx context.Context, ms []Message, run func(context.Context) []error) []error {
	links := make([]trace.Link, 0, len(ms))
	for i := range ms {
		links = append(links, Links(first(&ms[i]))...)
	}
	whole := Message{Topic: ms[0].Topic, Partition: ms[0].Partition, Offset: -1}
	ctx, s := t.start(ctx, &whole, "process", "process", trace.SpanKindConsumer, links...)
	s.SetAttributes(batchKey.Int(len(ms)))
	returned := false
	defer func() { end(s, returned) }()
	errs := run(ctx)
	returned = true
	Fail(s, cmp.Or(errs...))
	return errs
}

// end ends the span of a handler, which has returned or has panicked.
func end(s trace.Span, returned bool) {
	if !returned {
		FailAs(s, "panic")
	}
	s.End()
}

// Each is of for each message of a batch.
func Each[T any](ms []T, of func(T) Message) []Message {
	all := make([]Message, len(ms))
	for i, m := range ms {
		all[i] = of(m)
	}
	return all
}

// Skipped is the span of a duplicate.
func (t *Messages) Skipped(m Message, cause dedup.Cause, age time.Duration) {
	_, s := t.start(t.own(context.Background(), &m), &m, "skip", "", trace.SpanKindInternal, Links(m.Found)...)
	s.SetAttributes(Found(dedup.Duplicate, cause, age)...)
	s.End()
}

// Parked is the span of a message that was put aside.
func (t *Messages) Parked(m Message, reason error) {
	_, s := t.start(t.own(context.Background(), &m), &m, "park", "settle", trace.SpanKindClient, Links(m.Found)...)
	Fail(s, reason)
	s.End()
}

// Recorded is the span of a completion that took so long. It belongs to the first attempt, by
// whichever attempt it was reached.
func (t *Messages) Recorded(m Message, took time.Duration) { t.settle(m, took, nil) }

// Unrecorded is that of one that did not get onto the record.
func (t *Messages) Unrecorded(m Message, err error) { t.settle(m, 0, err) }

func (t *Messages) settle(m Message, took time.Duration, err error) {
	ctx := t.producer(context.Background(), &m)
	if s := Parse(first(&m)); s.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, s)
	}
	_, s := t.startAt(ctx, time.Now().Add(-took), &m, "settle", "settle", trace.SpanKindClient)
	Fail(s, err)
	s.End()
}

// first is the label of the first attempt, as far as it is known.
func first(m *Message) string {
	if m.Found != "" {
		return m.Found
	}
	return m.Label
}

// producer is ctx under the context that the producer has sent along, if it has.
func (t *Messages) producer(ctx context.Context, m *Message) context.Context {
	return t.Propagator.Extract(ctx, m.Headers)
}

// own is ctx under the message's own claim, or else under its producer's context.
func (t *Messages) own(ctx context.Context, m *Message) context.Context {
	ctx = t.producer(ctx, m)
	if s := Parse(m.Label); s.IsValid() {
		return trace.ContextWithRemoteSpanContext(ctx, s)
	}
	return ctx
}

func (t *Messages) start(ctx context.Context, m *Message, name, kind string, as trace.SpanKind, links ...trace.Link) (context.Context, trace.Span) {
	return t.startAt(ctx, time.Time{}, m, name, kind, as, links...)
}

func (t *Messages) startAt(ctx context.Context, at time.Time, m *Message, name, kind string, as trace.SpanKind, links ...trace.Link) (context.Context, trace.Span) {
	opts := []trace.SpanStartOption{trace.WithSpanKind(as), trace.WithLinks(links...)}
	if !at.IsZero() {
		opts = append(opts, trace.WithTimestamp(at))
	}
	ctx, s := t.Start(ctx, name+" "+m.Topic, opts...)
	if !s.IsRecording() {
		return ctx, s
	}
	s.SetAttributes(systemKey.String("kafka"), operationKey.String(name), topicKey.String(m.Topic),
		partitionKey.String(strconv.Itoa(int(m.Partition))))
	if m.Offset >= 0 { // of a batch it says nothing
		s.SetAttributes(offsetKey.Int64(m.Offset))
	}
	if kind != "" {
		s.SetAttributes(operationTypeKey.String(kind))
	}
	if t.Group != "" {
		s.SetAttributes(groupKey.String(t.Group))
	}
	if m.Attempt > 0 {
		s.SetAttributes(AttemptKey.Int(m.Attempt))
	}
	return ctx, s
}
