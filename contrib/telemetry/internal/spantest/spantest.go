// Package spantest checks the spans that the tests of Kafka clients record.
package spantest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// These are the traceparents of a message's producer and of the claim of its first attempt.
const (
	Producer = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	First    = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
)

// describe returns a span as text, with the last digits of its parent and its links.
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
	return fmt.Sprintf("%s %s below %s links %v %s", s.SpanKind(), s.Name(), last(s.Parent()),
		links, s.Status().Code)
}

// Want checks that exactly these spans have ended, that no other span has started, and that no span
// contains "secret".
func Want(t testing.TB, spans *tracetest.SpanRecorder, want ...string) {
	t.Helper()
	var got []string
	for _, s := range spans.Ended() {
		got = append(got, describe(s))
		if text := fmt.Sprint(s.Attributes(), s.Links(), s.Events(),
			s.Status()); strings.Contains(text, "secret") {
			t.Errorf("%s says %s", s.Name(), text)
		}
	}
	if !slices.Equal(got, want) || len(spans.Started()) != len(want) {
		t.Errorf("%d have started; ended have\n%s\nwant\n%s", len(spans.Started()),
			strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Config has the traced fields of a client's configuration; a nil field is not set. M is the
// client's message.
type Config[M any] struct {
	Label        func(M) string
	Handler      func(context.Context, M) error
	BatchHandler func(context.Context, []M) []error
	Skipped      func(M, driver.Cause, time.Duration)
	Recorded     func(M, time.Duration)
	Unrecorded   func(M, error)
	Parked       func(M, error)
	Delayed      func(M, string, error)
}

// Client is a traced client of Kafka. All clients must have the same spans.
type Client[M any] struct {
	// Deliver makes a message from the producer [Producer], in the form in which the given attempt
	// gets it.
	Deliver func(attempt int, label, found string) M
	// Trace traces a configuration under the name payments and the group payers.
	Trace func(*testing.T, trace.TracerProvider, Config[M]) Config[M]
	// New makes a tracer under a name.
	New func(trace.TracerProvider, string) error
	// Send injects ctx twice into a message that already has the context of [Producer] and one more
	// header. It returns the message as it is received, and how many headers it has.
	Send func(context.Context, testing.TB) (M, int)
	// NoBatches reports that the configuration has no BatchHandler.
	NoBatches bool
}

var errSecret = errors.New("no account secret")

// traced traces a configuration with spans of its own.
func (c *Client[M]) traced(t *testing.T, cfg Config[M],
	opts ...sdk.TracerProviderOption) (Config[M], *tracetest.SpanRecorder) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	return c.Trace(t, sdk.NewTracerProvider(append(opts, sdk.WithSpanProcessor(spans))...), cfg),
		spans
}

func handler[M any](err error) Config[M] {
	return Config[M]{Handler: func(context.Context, M) error { return err }}
}

// Run runs all checks of a client.
func (c *Client[M]) Run(t *testing.T) {
	t.Run("messages", c.messages)
	t.Run("the label is the claim", c.label)
	t.Run("failures", c.failures)
	t.Run("attributes", c.attributes)
	t.Run("what there is stays", c.keeps)
	t.Run("sent along", c.sent)
	t.Run("refused", c.refused)
	if !c.NoBatches {
		t.Run("batches", c.batches)
	}
}

// messages checks the spans of a message, and the parent of each: 02b7 is its producer, 3331 the
// claim of the first attempt.
func (c *Client[M]) messages(t *testing.T) {
	attempt := func(n int, label, found string) func(Config[M]) {
		return func(cfg Config[M]) {
			m := c.Deliver(n, label, found)
			_ = cfg.Handler(context.Background(), m)
			cfg.Recorded(m, time.Second)
		}
	}
	for _, story := range []struct {
		name string
		do   func(Config[M])
		want []string
	}{
		{"the first attempt", attempt(1, First, ""),
			[]string{"consumer process orders below 3331 links [02b7] Unset",
				"internal record orders below 3331 links [] Unset"}},
		{
			"a retry in the same process", attempt(2, First, ""),
			[]string{"consumer process orders below 02b7 links [02b7 3331] Unset",
				"internal record orders below 3331 links [] Unset"},
		},
		{"a takeover", attempt(2, Producer, First),
			[]string{"consumer process orders below 02b7 links [02b7 3331] Unset",
				"internal record orders below 3331 links [] Unset"}},
		{
			"a duplicate", func(cfg Config[M]) {
				cfg.Skipped(c.Deliver(0, Producer, First), driver.ProducerRetry, time.Hour)
			},
			[]string{"internal skip orders below 02b7 links [3331] Unset"},
		},
		{
			"a label of somebody else's", func(cfg Config[M]) {
				cfg.Skipped(c.Deliver(0, "order 7", "order 7"), driver.Late, 0)
			},
			[]string{"internal skip orders below 02b7 links [] Unset"},
		},
		{
			"a mismatch", func(cfg Config[M]) {
				cfg.Parked(c.Deliver(0, Producer, First), dedup.ErrMismatch)
			},
			[]string{"internal park orders below 02b7 links [3331] Error"},
		},
		{
			"a failure that waits for its next attempt", func(cfg Config[M]) {
				cfg.Delayed(c.Deliver(1, Producer, First), "orders.retry", errSecret)
			},
			[]string{"internal delay orders below 02b7 links [3331] Error"},
		},
		{
			"an effect that is not on record", func(cfg Config[M]) {
				cfg.Unrecorded(c.Deliver(1, First, ""), dedup.ErrLeaseLost)
			},
			[]string{"internal record orders below 3331 links [] Error"},
		},
	} {
		t.Run(story.name, func(t *testing.T) {
			cfg, spans := c.traced(t, handler[M](nil))
			story.do(cfg)
			Want(t, spans, story.want...)
		})
	}
}

// label checks that the claim span of a message is below its producer's span, and that the record's
// label names it.
func (c *Client[M]) label(t *testing.T) {
	cfg, spans := c.traced(t, handler[M](nil))
	label := cfg.Label(c.Deliver(0, "", ""))
	Want(t, spans, "internal claim orders below 02b7 links [] Unset")
	s := spans.Ended()[0].SpanContext()
	if want := fmt.Sprintf("00-%s-%s-01", s.TraceID(), s.SpanID()); label != want ||
		len(label) > 64 {
		t.Errorf("the label is %q, want %q", label, want)
	}
	off, _ := c.traced(t, handler[M](nil), sdk.WithSampler(sdk.NeverSample()))
	if label := off.Label(c.Deliver(0, "", "")); label != "" {
		t.Errorf("what is not sampled has the label %q", label)
	}
}

func (c *Client[M]) failures(t *testing.T) {
	cfg, spans := c.traced(t, handler[M](errSecret))
	if err := cfg.Handler(context.Background(), c.Deliver(1, First, "")); !errors.Is(err,
		errSecret) {
		t.Error(err)
	}
	panics, of := c.traced(t, Config[M]{Handler: func(context.Context, M) error {
		panic("at the disco")
	}})
	caught(func() { _ = panics.Handler(context.Background(), c.Deliver(1, First, "")) })
	for _, spans := range []*tracetest.SpanRecorder{spans, of} {
		Want(t, spans, "consumer process orders below 3331 links [02b7] Error")
	}
	wantAttributes(t, spans, `{"error.type":"_OTHER"}`)
	wantAttributes(t, of, `{"error.type":"panic"}`)
}

func caught(do func()) {
	defer func() { _ = recover() }()
	do()
}

// wantAttributes looks for attributes of the last span.
func wantAttributes(t testing.TB, spans *tracetest.SpanRecorder, want ...string) {
	t.Helper()
	ended := spans.Ended()
	got := fmt.Sprint(ended[len(ended)-1].Attributes())
	for _, attribute := range want {
		if !strings.Contains(got, attribute) {
			t.Errorf("the span has %s, want %s", got, attribute)
		}
	}
}

// batches checks that a batch has a link to the producer of each message, and one more link for
// each retry.
func (c *Client[M]) batches(t *testing.T) {
	const want = "consumer process orders below none links [02b7 02b7 3331 02b7] "
	batch := []M{c.Deliver(1, First, ""), c.Deliver(2, Producer, First), c.Deliver(1, "", "")}
	errs := []error{nil, errSecret, nil}
	cfg, spans := c.traced(t, Config[M]{BatchHandler: func(context.Context, []M) []error {
		return errs
	}})
	if got := cfg.BatchHandler(context.Background(), batch); !slices.Equal(got, errs) {
		t.Errorf("it returns %v, want %v", got, errs)
	}
	// the last of these fails all messages
	for _, errs = range [][]error{make([]error, 3), nil, make([]error, 2)} {
		cfg.BatchHandler(context.Background(), batch)
	}
	Want(t, spans, want+"Error", want+"Unset", want+"Unset", want+"Error")
	wantAttributes(t, spans, `{"error.type":"_OTHER"}`)
	for i, attempt := range []string{"1", "2", "2", "1"} {
		got := fmt.Sprint(spans.Ended()[0].Links()[i].Attributes)
		if want := `[{"messaging.kafka.offset":42} {"onceward.attempt":` + attempt +
			`}]`; got != want {
			t.Errorf("link %d has %s, want %s", i, got, want)
		}
	}
	panics, of := c.traced(t, Config[M]{BatchHandler: func(context.Context, []M) []error {
		panic("at the disco")
	}})
	caught(func() { panics.BatchHandler(context.Background(), batch) })
	Want(t, of, want+"Error")
	wantAttributes(t, of, `{"messaging.batch.message_count":3}`, `{"error.type":"panic"}`)
}

// keeps checks that existing hooks and an existing label stay, and that missing hooks are not made.
func (c *Client[M]) keeps(t *testing.T) {
	told := 0
	cfg, _ := c.traced(t, Config[M]{
		Label:      func(M) string { return "mine" },
		Skipped:    func(M, driver.Cause, time.Duration) { told++ },
		Recorded:   func(M, time.Duration) { told++ },
		Unrecorded: func(M, error) { told++ },
		Parked:     func(M, error) { told++ },
		Delayed:    func(M, string, error) { told++ },
	})
	m := c.Deliver(1, "", "")
	cfg.Skipped(m, "", 0)
	cfg.Recorded(m, 0)
	cfg.Unrecorded(m, errSecret)
	cfg.Parked(m, errSecret)
	cfg.Delayed(m, "orders.retry", errSecret)
	if told != 5 || cfg.Label(m) != "mine" || cfg.Handler != nil || cfg.BatchHandler != nil {
		t.Errorf("told %d times, label %q", told, cfg.Label(m))
	}
}

// sent checks that the next process receives the context that one process sends, instead of the
// context that the message carried before.
func (c *Client[M]) sent(t *testing.T) {
	sender := trace.ContextWithSpanContext(context.Background(),
		trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled,
		}))
	m, headers := c.Send(sender, t)
	if headers != 2 {
		t.Errorf("%d headers, want that of the trace and the other one", headers)
	}
	var got trace.SpanContext
	cfg, _ := c.traced(t, Config[M]{Handler: func(ctx context.Context, _ M) error {
		got = trace.SpanContextFromContext(ctx)
		return nil
	}})
	_ = cfg.Handler(context.Background(), m) // which has no trace of its own
	if got.TraceID() != (trace.TraceID{1}) {
		t.Errorf("the handler runs in the trace %v", got.TraceID())
	}
}

func (c *Client[M]) refused(t *testing.T) {
	if c.New(nil, "x") == nil {
		t.Error("a nil provider is accepted")
	}
	if c.New(noop.NewTracerProvider(), "") == nil {
		t.Error("an empty name is accepted")
	}
}

// attributes checks the span attributes of a third attempt, and those of a duplicate with an
// unknown cause.
func (c *Client[M]) attributes(t *testing.T) {
	cfg, spans := c.traced(t, handler[M](nil))
	_ = cfg.Handler(context.Background(), c.Deliver(3, First, ""))
	cfg.Skipped(c.Deliver(0, "", ""), driver.Cause("payments/42"), time.Hour)
	var got []string
	for _, s := range spans.Ended() {
		for _, a := range s.Attributes() {
			got = append(got, string(a.Key)+"="+a.Value.String())
		}
	}
	want := []string{
		"messaging.system=kafka", "messaging.operation.name=process",
		"messaging.destination.name=orders",
		"messaging.destination.partition.id=7", "messaging.kafka.offset=42",
		"messaging.consumer.group.name=payers",
		"onceward.attempt=3", "messaging.operation.type=process", "onceward.name=payments",
		"messaging.system=kafka", "messaging.operation.name=skip",
		"messaging.destination.name=orders",
		"messaging.destination.partition.id=7", "messaging.kafka.offset=42",
		"messaging.consumer.group.name=payers",
		"onceward.name=payments", "onceward.outcome=duplicate", "onceward.cause=other",
		"onceward.duplicate.age=3600",
	}
	if !slices.Equal(got, want) {
		t.Errorf("attributes\n%q\nwant\n%q", got, want)
	}
}
