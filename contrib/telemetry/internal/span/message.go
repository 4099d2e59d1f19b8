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
	"github.com/onceward/onceward/dedup/driver"
)

// Names of OpenTelemetry's semantic conventions 1.44 for messaging and Kafka.
const (
	systemKey        = attribute.Key("messaging.system")
	operationKey     = attribute.Key("messaging.operation.name")
	operationTypeKey = attribute.Key("messaging.operation.type")
	topicKey         = attribute.Key("messaging.destination.name")
	partitionKey     = attribute.Key("messaging.destination.partition.id")
	groupKey         = attribute.Key("messaging.consumer.group.name")
	offsetKey        = attribute.Key("messaging.kafka.offset")
	batchKey         = attribute.Key("messaging.batch.message_count")
	tombstoneKey     = attribute.Key("messaging.kafka.message.tombstone")
)

// Message is a delivered message. Its key and its id are not wanted: no attribute has them.
type Message struct {
	Topic     string
	Partition int32
	Offset    int64
	Attempt   int
	Tombstone bool // it has no value, not even an empty one
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
	_, s := t.start(t.producer(context.Background(), &m), &m, "claim")
	s.End()
	return Label(s.SpanContext())
}

// Handle runs a handler under a span. The conventions want a link to the context that the producer
// has sent, also where that is above it, and to whatever span the consumer itself runs in.
func (t *Messages) Handle(ctx context.Context, m Message, run func(context.Context) error) error {
	links := t.links(&m)
	if outer := trace.SpanContextFromContext(ctx); outer.IsValid() {
		links = append(links, trace.Link{SpanContext: outer})
	}
	if again(&m) {
		ctx = t.producer(ctx, &m)
	} else {
		ctx = t.own(ctx, &m)
	}
	ctx, s := t.start(ctx, &m, "process", process(links, perMessage(&m))...)
	returned := false
	defer func() { end(s, returned) }()
	err := run(ctx)
	returned = true
	Fail(s, err)
	return err
}

// HandleBatch runs a batch handler under a span with links for each message, which say what is not
// the same for all of them.
func (t *Messages) HandleBatch(ctx context.Context, ms []Message,
	run func(context.Context) []error) []error {
	links := make([]trace.Link, 0, len(ms))
	for i := range ms {
		of := t.links(&ms[i])
		if len(of) == 0 { // its producer has sent no context along
			of = Links(first(&ms[i]))
		}
		for _, link := range of {
			link.Attributes = append(perMessage(&ms[i]), offsetKey.Int64(ms[i].Offset),
				AttemptKey.Int(ms[i].Attempt))
			links = append(links, link)
		}
	}
	whole := Message{Topic: ms[0].Topic, Partition: ms[0].Partition, Offset: -1}
	ctx, s := t.start(ctx, &whole, "process",
		process(links, []attribute.KeyValue{batchKey.Int(len(ms))})...)
	returned := false
	defer func() { end(s, returned) }()
	errs := run(ctx)
	returned = true
	if errs != nil && len(errs) != len(ms) { // which fails all of them
		FailAs(s, other)
	}
	Fail(s, cmp.Or(errs...))
	return errs
}

// process returns the options of a handler's span that other spans do not have.
func process(links []trace.Link, attrs []attribute.KeyValue) []trace.SpanStartOption {
	return []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindConsumer), trace.WithLinks(links...),
		trace.WithAttributes(append(attrs, operationTypeKey.String("process"))...),
	}
}

// perMessage are attributes that the conventions have for one message alone.
func perMessage(m *Message) []attribute.KeyValue {
	if m.Tombstone {
		return []attribute.KeyValue{tombstoneKey.Bool(true)}
	}
	return nil
}

// links are what a handler's span has for a message: its producer's context, and the claim of the
// first attempt if this is another one.
func (t *Messages) links(m *Message) []trace.Link {
	var links []trace.Link
	if producer := trace.SpanContextFromContext(t.producer(context.Background(),
		m)); producer.IsValid() {
		links = append(links, trace.Link{SpanContext: producer})
	}
	if again(m) {
		links = append(links, Links(first(m))...)
	}
	return links
}

// again reports whether an attempt is not the first of its id, as far as that is known.
func again(m *Message) bool { return m.Attempt > 1 || m.Found != "" }

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
func (t *Messages) Skipped(m Message, cause driver.Cause, age time.Duration) {
	_, s := t.start(t.own(context.Background(), &m), &m, "skip", trace.WithLinks(Links(m.Found)...))
	s.SetAttributes(ClaimResult(dedup.Duplicate, cause, age)...)
	s.End()
}

// Parked is the span of a message that was put aside.
func (t *Messages) Parked(m Message, reason error) { t.aside("park", m, reason) }

// Delayed is the span of a message that has failed and waits in another topic.
func (t *Messages) Delayed(m Message, reason error) { t.aside("delay", m, reason) }

func (t *Messages) aside(name string, m Message, reason error) {
	_, s := t.start(t.own(context.Background(), &m), &m, name, trace.WithLinks(Links(m.Found)...))
	Fail(s, reason)
	s.End()
}

// Recorded is the span of a completion that took so long. It belongs to the first attempt, by
// whichever attempt it was reached.
func (t *Messages) Recorded(m Message, took time.Duration) { t.record(m, took, nil) }

// Unrecorded is that of one that did not get onto the record.
func (t *Messages) Unrecorded(m Message, err error) { t.record(m, 0, err) }

// record is no "settle" of the conventions: that is a commit of offsets, and comes later.
func (t *Messages) record(m Message, took time.Duration, err error) {
	ctx := t.producer(context.Background(), &m)
	if s := Parse(first(&m)); s.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, s)
	}
	_, s := t.start(ctx, &m, "record", trace.WithTimestamp(time.Now().Add(-took)))
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

// start starts a span of a message. The attributes are there from the start, so samplers see them.
func (t *Messages) start(ctx context.Context, m *Message, name string,
	opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	attrs := []attribute.KeyValue{
		systemKey.String("kafka"), operationKey.String(name), topicKey.String(m.Topic),
		partitionKey.String(strconv.Itoa(int(m.Partition))),
	}
	if m.Offset >= 0 { // of a batch it says nothing
		attrs = append(attrs, offsetKey.Int64(m.Offset))
	}
	if t.Group != "" {
		attrs = append(attrs, groupKey.String(t.Group))
	}
	if m.Attempt > 0 {
		attrs = append(attrs, AttemptKey.Int(m.Attempt))
	}
	all := append([]trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindInternal),
		trace.WithAttributes(attrs...)}, opts...)
	return t.Start(ctx, name+" "+m.Topic, all...)
}
