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

// Message is a delivered message. It has no key and no id, because no attribute may contain them.
type Message struct {
	Topic     string
	Partition int32
	Offset    int64
	Attempt   int
	Tombstone bool // it has no value, not even an empty one
	// Label is the label that Claim returned for the message. Found is the label that the message's
	// record had.
	Label, Found string
	// Headers are the headers of the message, which may contain the trace context of its producer.
	Headers propagation.TextMapCarrier
}

// Messages traces a consumer of Kafka.
type Messages struct {
	*Tracer
	Group      string // may be empty
	Propagator propagation.TextMapPropagator
}

// Claim makes the claim span of a message, and returns its label. If this turns out to be the first
// attempt of its id, the span stands for that attempt. It has no duration, because messages are
// claimed in batches. The other spans of the message are below the claim span, so it begins when
// the claim is requested.
func (t *Messages) Claim(m Message) string {
	_, s := t.start(t.producer(context.Background(), &m), &m, "claim")
	s.End()
	return Label(s.SpanContext())
}

// Handle runs a handler under a span. The conventions require a link to the context that the
// producer has sent, even if that context is the parent, and a link to the span in which the
// consumer itself runs.
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

// HandleBatch runs a batch handler under a span with links for each message. The links have the
// attributes that differ between the messages.
func (t *Messages) HandleBatch(ctx context.Context, ms []Message,
	run func(context.Context) []error) []error {
	links := make([]trace.Link, 0, len(ms))
	for i := range ms {
		of := t.links(&ms[i])
		if len(of) == 0 { // its producer has sent no context
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

// process returns the span options that only a handler's span has.
func process(links []trace.Link, attrs []attribute.KeyValue) []trace.SpanStartOption {
	return []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindConsumer), trace.WithLinks(links...),
		trace.WithAttributes(append(attrs, operationTypeKey.String("process"))...),
	}
}

// perMessage returns the attributes that the conventions have for a single message.
func perMessage(m *Message) []attribute.KeyValue {
	if m.Tombstone {
		return []attribute.KeyValue{tombstoneKey.Bool(true)}
	}
	return nil
}

// links returns the links of a handler's span for a message: to its producer's context, and, if
// this is not the first attempt, to the claim of the first one.
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

// again reports whether an attempt is known not to be the first of its id.
func again(m *Message) bool { return m.Attempt > 1 || m.Found != "" }

// end ends the span of a handler, which has returned or has panicked.
func end(s trace.Span, returned bool) {
	if !returned {
		FailAs(s, "panic")
	}
	s.End()
}

// Each returns what the function of returns for each message of a batch.
func Each[T any](ms []T, of func(T) Message) []Message {
	all := make([]Message, len(ms))
	for i, m := range ms {
		all[i] = of(m)
	}
	return all
}

// Skipped makes the span of a duplicate.
func (t *Messages) Skipped(m Message, cause driver.Cause, age time.Duration) {
	_, s := t.start(t.own(context.Background(), &m), &m, "skip", trace.WithLinks(Links(m.Found)...))
	s.SetAttributes(ClaimResult(dedup.Duplicate, cause, age)...)
	s.End()
}

// Parked makes the span of a message that was parked.
func (t *Messages) Parked(m Message, reason error) { t.aside("park", m, reason) }

// Delayed makes the span of a message that has failed and waits in another topic.
func (t *Messages) Delayed(m Message, reason error) { t.aside("delay", m, reason) }

func (t *Messages) aside(name string, m Message, reason error) {
	_, s := t.start(t.own(context.Background(), &m), &m, name, trace.WithLinks(Links(m.Found)...))
	Fail(s, reason)
	s.End()
}

// Recorded makes the span of a completion that took the given time. The span belongs to the first
// attempt, whichever attempt completed.
func (t *Messages) Recorded(m Message, took time.Duration) { t.record(m, took, nil) }

// Unrecorded makes the span of a completion that could not be recorded.
func (t *Messages) Unrecorded(m Message, err error) { t.record(m, 0, err) }

// record does not use the conventions' name "settle", because that means a commit of offsets, which
// comes later.
func (t *Messages) record(m Message, took time.Duration, err error) {
	ctx := t.producer(context.Background(), &m)
	if s := Parse(first(&m)); s.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, s)
	}
	_, s := t.start(ctx, &m, "record", trace.WithTimestamp(time.Now().Add(-took)))
	Fail(s, err)
	s.End()
}

// first returns the label of the first attempt, as far as it is known.
func first(m *Message) string {
	if m.Found != "" {
		return m.Found
	}
	return m.Label
}

// producer returns ctx with the trace context that the producer has sent, if there is one.
func (t *Messages) producer(ctx context.Context, m *Message) context.Context {
	return t.Propagator.Extract(ctx, m.Headers)
}

// own returns ctx with the trace context of the message's own claim, or of its producer if there is
// no claim span.
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
	if m.Offset >= 0 { // a batch has none
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
